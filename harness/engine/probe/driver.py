"""The program of a probe process: `python -m harness.engine.probe.driver PLAN`.

Runs in the environment of an arm, with its tracer. Writes `probe.records` (lines of JSON) and one file of cache changes
an engine into the ledger's folder.
"""

from __future__ import annotations

import json
import math
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from harness.engine.probe.drawn_weights import describe_weights, offer_weights
from harness.engine.probe.engine_start import (
    REFUSALS,
    inspect_models_here,
    is_lack_of_memory,
    keep_kernel_overrides,
    start_engine,
    start_replaying,
)
from harness.engine.probe.graph_watch import GraphWatch
from harness.engine.probe.handover_watch import HandoverWatch
from harness.engine.probe.page_watch import PageWatch
from harness.engine.probe.scripted_drafts import ScriptedDrafts, undrafted_scenario
from harness.engine.probe.snapshot import describe_process
from harness.engine.probe.step_observer import StepObserver
from harness.engine.tracer import Tracer, active
from harness.model.probe import ProbeEngine, ProbeEvent, ProbePlan, ProbeRequest, Scenario

RECORDS = "probe.records"
SEED = 20_261
MAX_BLOCKS = 2
"""Cache blocks of a prompt whose length is told from its last block's end."""
MAX_STEPS = 5_000
"""Of one scenario: more means that a request never ends."""


class Records:
    """Appends lines of JSON; each is whole once written."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, kind: str, **fields: Any) -> None:
        """One record."""
        self._file.write(json.dumps({"kind": kind, **fields}, separators=(",", ":")) + "\n")
        self._file.flush()


class EngineProbe:
    """One running engine and its scenarios."""

    def __init__(
        self,
        engine: Any,
        plan: ProbeEngine,
        records: Records,
        tracer: Tracer,
        graphs: GraphWatch | None = None,
    ) -> None:
        self._engine = engine
        self._graphs = graphs
        self._plan = plan
        self._records = records
        self._tracer = tracer
        self._core = engine.engine_core.engine_core
        self.runner = self._core.model_executor.driver_worker.worker.model_runner
        self._held: list[Any] = []
        self._names: dict[str, str] = {}
        self._prompts: dict[str, list[int]] = {}
        self._tokens: dict[str, list[int]] = {}
        self._logprobs: dict[str, list[float]] = {}
        self._answers: list[list[dict[str, Any]]] = []
        """Of each scenario."""
        self._drafts: ScriptedDrafts | None = None
        self._observer: StepObserver | None = None
        self._pages: PageWatch | None = None
        self._handover: HandoverWatch | None = None
        drafter = getattr(self.runner, "drafter", None)
        if drafter is not None:
            self._drafts = ScriptedDrafts(drafter.propose)
            drafter.propose = self._drafts.propose

    def run(self) -> None:
        """All scenarios, then the snapshot."""
        if self._plan.watches_state:
            path = self._tracer.settings.ledger_dir / f"changes-{self._plan.name}.bin"
            is_candidate = self._plan.watches_buffers
            self._observer = StepObserver(
                self.runner,
                path,
                live_blocks=self._live_blocks,
                seed=SEED,
                watches_buffers=is_candidate,
            )
            self._records.write("layout", engine=self._plan.name, seed=SEED, **self._observer.layout())
        try:
            if self._plan.watches_pages:
                self._pages = self._watch_pages()
            if self._plan.watches_handover:
                self._handover = self._watch_handover()
        except ValueError as error:
            print(f"the cache's pages are not watched: {error}", file=sys.stderr)
        if self._drafts is not None and (undrafted := undrafted_scenario(self._plan.scenarios)):
            self._run_scenario(undrafted, scripted=False)
        for scenario in self._plan.scenarios:
            self._run_scenario(scenario, scripted=True)
        for watch in (self._observer, self._handover):
            if watch is not None:
                watch.close()
        if self._graphs is not None:
            self._write_graphs(self._graphs)
        if self._plan.takes_snapshot:
            self._write_snapshot()

    def _watch_pages(self) -> PageWatch:
        scheduler = self._core.scheduler
        layers = self.runner.vllm_config.compilation_config.static_forward_context
        groups = [group.layer_names for group in self.runner.kv_cache_config.kv_cache_groups]
        watch = PageWatch(layers, groups, SEED)
        watch.follow(scheduler, scheduler.kv_cache_manager.get_block_ids)
        return watch

    def _watch_handover(self) -> HandoverWatch:
        scheduler, name = self._core.scheduler, self._plan.name
        watch = HandoverWatch(
            self.runner, self._tracer.settings.ledger_dir / f"changes-{name}.bin", seed=SEED
        )
        watch.follow(scheduler, scheduler.kv_cache_manager.get_block_ids)
        self._records.write("layout", engine=name, seed=SEED, **watch.layout)
        return watch

    def _live_blocks(self) -> dict[str, tuple[list[int], ...]]:
        scheduler = self._core.scheduler
        blocks_of = scheduler.kv_cache_manager.get_block_ids
        return {request.request_id: blocks_of(request.request_id) for request in scheduler.running}

    def _run_scenario(self, scenario: Scenario, *, scripted: bool) -> None:
        name = scenario.name
        self._engine.reset_prefix_cache()
        self._names, self._prompts, self._tokens, self._logprobs = {}, {}, {}, {}
        last = max(event.before_step for event in scenario.events)
        position = 0
        while self._engine.has_unfinished_requests() or position <= last:
            for event in scenario.events:
                if event.before_step == position:
                    self._apply(event, name, scripted)
            self._step(name, position)
            position += 1
            if position > MAX_STEPS:
                raise RuntimeError(f"scenario {name}: not done after {MAX_STEPS} steps")
        if self._drafts is not None:
            for request, tokens in self._tokens.items():
                if not scripted:
                    self._drafts.know(self._prompts[request], tokens)
            self._drafts.clear()
        self._answers.append(
            [{"request": n, "token_ids": t, "logprobs": self._logprobs[n]} for n, t in self._tokens.items()]
        )
        given_up = {name for event in scenario.events for name in event.abort}
        requests = [r for event in scenario.events for r in event.add if r.name in given_up]
        # A request that is not aborted ends at its last token and at nothing else.
        aborted = [r.name for r in requests if len(self._tokens.get(r.name, ())) < r.max_tokens]
        self._records.write(
            "result", engine=self._plan.name, scenario=name, token_ids=self._tokens, aborted=aborted
        )

    def _apply(self, event: ProbeEvent, scenario: str, scripted: bool) -> None:
        pool = self._core.scheduler.kv_cache_manager.block_pool
        if event.release_blocks:
            pool.free_blocks(self._held)
            self._held = []
        if event.hold_free_blocks:
            self._held += pool.get_new_blocks(pool.get_num_free_blocks())
        self._engine.abort_request(list(event.abort))
        for request in event.add:
            self._add(request, scenario, scripted)

    def _add(self, request: ProbeRequest, scenario: str, scripted: bool) -> None:
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind

        prompt = self._tokenize(request)
        params = SamplingParams(
            temperature=0.0,
            max_tokens=request.max_tokens,
            ignore_eos=True,
            logprobs=2,
            output_kind=RequestOutputKind.DELTA,
            detokenize=False,
        )
        if self._plan.gives_tokens and getattr(self._engine.model_config, "enable_trace_replay", False):
            vocabulary = self._engine.model_config.get_vocab_size()
            params.trace_decode_token_ids = given_tokens(request.name, request.max_tokens, vocabulary)
        if self._drafts is not None and request.drafts:
            self._drafts.script(prompt, request.drafts if scripted else ())
        try:
            self._engine.add_request(request.name, {"prompt_token_ids": prompt}, params)
        except (VLLMClientError, ValueError) as error:
            self._records.write(
                "refusal",
                engine=self._plan.name,
                scenario=scenario,
                request=request.name,
                num_prompt_tokens=len(prompt),
                message=f"{type(error).__name__}: {error}"[:2000],
            )
            return
        self._prompts[request.name] = prompt
        self._tokens[request.name], self._logprobs[request.name] = [], []

    def _tokenize(self, request: ProbeRequest) -> list[int]:
        tokenizer = getattr(self._engine, "tokenizer", None)
        text = request.text
        tokens = (
            list(text.encode()) if tokenizer is None else tokenizer.encode(text, add_special_tokens=False)
        )
        block = min(g.kv_cache_spec.block_size for g in self.runner.kv_cache_config.kv_cache_groups)
        length = request.num_tokens or len(tokens)
        if request.short_of_block is not None:
            length = min(len(tokens) // block, MAX_BLOCKS) * block - request.short_of_block
        if not 0 < length <= len(tokens):
            raise RuntimeError(f"{request.name}: {len(tokens)} tokens of text, {length} asked for")
        return list(tokens[:length])

    def _step(self, scenario: str, position: int) -> None:
        number = self._tracer.steps.num_steps
        if self._pages is not None:
            self._pages.begin()
        outputs = self._engine.step()
        writes = self._pages.end() if self._pages is not None else []
        if self._graphs is not None and self._tracer.steps.num_steps > number:
            self._graphs.step_ended()
        # vLLM's second model runner keeps no such table.
        runner, scheduler = self.runner, self._core.scheduler
        for engine_id in runner.requests if hasattr(runner, "requests") else scheduler.requests:
            self._names.setdefault(engine_id, next((n for n in self._tokens if _stems(engine_id, n)), ""))
        tokens, likeliest, gaps = {}, {}, {}
        for output in outputs:
            name = output.request_id
            new = list(output.outputs[0].token_ids)
            tops = output.outputs[0].logprobs or []
            tokens[name] = new
            # A tie is the sampled token's, which comes first.
            likeliest[name] = [max(top, key=lambda token: top[token].logprob) for top in tops]
            gaps[name] = [_gap(top) for top in tops]
            self._tokens[name] += new
            self._logprobs[name] += [top[t].logprob for t, top in zip(new, tops, strict=True)]
        took_place = self._tracer.steps.num_steps > number
        observed = self._observer.last if self._observer is not None else None
        if self._observer is not None:
            self._observer.last = None
        if self._handover is not None:
            observed = self._handover.end()
        self._records.write(
            "step",
            engine=self._plan.name,
            scenario=scenario,
            position=position,
            ledger_step=number if took_place else None,
            names=dict(self._names),
            tokens=tokens,
            likeliest=likeliest,
            gaps=gaps,
            observed=observed,
            writes=writes,
        )

    def _write_graphs(self, graphs: GraphWatch) -> None:
        pointers = graphs.pointers
        self._records.write(
            "graphs",
            engine=self._plan.name,
            graphs=[graph.model_dump() for graph in pointers.graphs],
            losses=[loss.model_dump() for loss in pointers.losses],
            planted_loss_seen=graphs.planted_loss_seen,
        )

    def _write_snapshot(self) -> None:
        names = {
            str(self._tracer.settings.import_path): "{subject}",
            str(self._tracer.settings.ledger_dir): "{ledger}",
            str(Path(__file__).resolve().parents[3]): "{harness}",
            sys.prefix: "{python}",
        }
        answers, *repeats = self._answers
        self._records.write(
            "snapshot",
            engine=self._plan.name,
            model="bystander" if "{bystander}" in self._plan.args else "subject",
            answers=answers,
            repeats=repeats,
            **describe_process(self.runner.vllm_config, self.runner, names, self._graphs),
        )


def _stems(engine_id: str, name: str) -> bool:
    """vLLM adds a suffix to the id that it is given."""
    return engine_id == name or engine_id.startswith(f"{name}-")


def given_tokens(request: str, number: int, vocabulary: int) -> list[int]:
    """Tokens for a request, the same in every process, spread over the vocabulary."""
    return [zlib.crc32(f"{request}/{index}".encode()) % vocabulary for index in range(number)]


def _gap(top: dict[int, Any]) -> float:
    """Nats between the two most likely tokens."""
    values = sorted((entry.logprob for entry in top.values()), reverse=True)
    return values[0] - values[1] if len(values) > 1 and math.isfinite(values[1]) else 0.0


def run_plan(plan: ProbePlan, records: Records, tracer: Tracer) -> None:
    """Every engine of the plan, one after the other."""
    inspect_models_here()
    drawer = offer_weights(plan.weights.model_dump() if plan.weights is not None else None)
    for engine_plan in plan.engines:
        started = time.monotonic()
        args = list(_fill_in(engine_plan.args, plan))
        with _graphs_watched(tracer) if engine_plan.watches_graphs else nullcontext() as graphs:
            try:
                engine = (start_replaying if engine_plan.gives_tokens else start_engine)(args)
            except REFUSALS as error:
                is_drawing = drawer is not None and drawer.is_drawing
                if not engine_plan.may_refuse or is_drawing or is_lack_of_memory(error):
                    raise
                message = f"{type(error).__name__}: {error}".replace(plan.model_dir, "{model}")[:2000]
                records.write(
                    "refusal", engine=engine_plan.name, within_scope=engine_plan.within_scope, message=message
                )
                continue
            weights = drawer.describe(engine) if drawer is not None else describe_weights(engine)
            records.write(
                "started",
                name=engine_plan.name,
                ready_s=round(time.monotonic() - started, 1),
                caches_prefixes=bool(engine.vllm_config.cache_config.enable_prefix_caching),
                weights=weights.model_dump() if weights is not None else None,
            )
            if tracer.coverage is not None:
                tracer.coverage.switch(engine_plan.name)
            EngineProbe(engine, engine_plan, records, tracer, graphs).run()
            engine.engine_core.shutdown()
            del engine
            keep_kernel_overrides()
    if tracer.coverage is not None:
        tracer.coverage.save()


def _graphs_watched(tracer: Tracer) -> AbstractContextManager[GraphWatch]:
    from harness.engine.probe.cuda_graphs import watch_cuda_graphs

    return watch_cuda_graphs(tracer.steps)


def _fill_in(args: Sequence[str], plan: ProbePlan) -> Iterator[str]:
    for argument in args:
        yield argument.replace("{model}", plan.model_dir).replace("{bystander}", plan.bystander_dir)


def main() -> None:
    """Reads the plan and runs it."""
    plan = ProbePlan.model_validate_json(Path(sys.argv[1]).read_bytes())
    tracer = active()
    if tracer is None:
        raise RuntimeError("a probe needs a tracer")
    with (tracer.settings.ledger_dir / RECORDS).open("w", encoding="utf-8") as file:
        records = Records(file)
        run_plan(plan, records, tracer)
        records.write("end")


if __name__ == "__main__":
    main()
