"""Made evidence of all suites, as a small engine with known faults would leave it behind."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from harness.model.change import Change
from harness.model.check import CheckContext
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    CoverageEvidence,
    CoverageFile,
    EvidenceRecord,
    EvidenceSet,
    LedgerEvidence,
    ShownAnswers,
    SubjectEvidence,
    SuiteEvidence,
    TimingBlock,
    TimingEvidence,
    evidence_set,
)
from harness.model.ledger import ImportedFile, LedgerRow, StepDecision, StepRequest, TracerProof
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Tier

R = TypeVar("R", bound=EvidenceRecord)
Array = npt.NDArray[np.float64]
VOCABULARY = 64
HEAD = "b" * 40
MAX_BATCH = 8
MAX_CONTEXT = 512
DECISION = "subject.plan:Planner.plan"
EXECUTOR = "subject.executor:Executor.run"
PLAIN = "subject.model:Model.plain_forward"
SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
FILES = {f"subject/{name}.py": f"{index:064x}" for index, name in enumerate(("model", "plan", "executor"), 1)}

MANIFEST = Manifest.model_validate(
    {
        "schema_version": 1,
        "change": {"id": "made", "title": "Made path", "model": "Made", "vllm": "0.32.0"},
        "paths": {"owned": ["subject/**"], "import_roots": ["subject"]},
        "switch": {"key": "backend", "on": "fast", "off": "auto"},
        "scope": {"platforms": ["cpu"], "max_batch": MAX_BATCH, "max_context": MAX_CONTEXT},
        "dispatch": {
            "decisions": [{"target": DECISION, "value": "path", "specialized": "fast", "reason": "reason"}],
            "specialized_code": [EXECUTOR],
            "baseline_code": [PLAIN],
            "never_imported_when_off": ["subject.executor", "subject.kernels"],
        },
        "models": {"nano": {"build": ["-m", "subject.build"], "max_model_len": MAX_CONTEXT}},
        "coverage": {"cpu": ["subject/plan.py", "subject/exec*.py"]},
        "performance": {"decode_batches": [1, MAX_BATCH]},
    }
)
POLICY = Policy(schema_version=1, version="made", required={Tier.CPU: ("COR005",)})
CHANGE = Change(base="a" * 40, merge_base="a" * 40, head=HEAD, head_subject="made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as the made suites send it."""

    item: str
    prompt: str
    num_prompt_tokens: int
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    forced: tuple[int, ...] = ()
    logprobs: bool = False
    schema: str = ""
    timed: bool = False
    given: bool = False
    """Whether its forced tokens are given as a timed cell's are, their logprobs told with the most likely ones'."""


def never(_suite: str, _batch: int) -> bool:
    """No step does it."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How the made candidate behaves. The defaults are a clean change; every field can make it a faulty one."""

    seed: int = 0
    """Of all noise; another seed is another clean run."""
    noise: float = 1e-4
    """Standard deviation, in nats, by which the candidate's logits differ from the baseline's."""
    noise_again: float = 0.0
    """The same for the A/A."""
    noise_baseline: float = 0.0
    """Rounding of the baseline itself, as the other two are told against the made model."""
    falls_back: Callable[[str, int], bool] = never
    """By suite and step batch: whether the candidate's decode step silently runs the plain code."""
    contradicts: Callable[[str, int], bool] = never
    """By suite and step batch: decides for the specialised path and runs the plain code."""
    loses_state: Callable[[str, int], bool] = never
    """By suite and step batch: the recurrent state is not updated."""
    temperature_of: Callable[[float], float] = field(default=lambda asked: asked)
    """The temperature that the candidate applies to what was asked."""
    ignores_seed: bool = False
    drops_grammar: Callable[[int], bool] = field(default=lambda _concurrency: False)
    """By client concurrency."""
    candidate_is_baseline: bool = False
    """The arm called candidate is a second baseline, down to its configuration."""
    speed: float = 0.8
    """The candidate's step time over the baseline's."""
    speed_again: float = 1.0
    """The second baseline's, which is a bias of the machine."""
    timing_noise: float = 0.01
    """Standard deviation of a block's log step time."""
    disturbed: Callable[[str, int], bool] = never
    """By cell and place in time: whether the block's steps take a tenth longer."""
    overlaps: Callable[[str, int], bool] = never
    """By cell and place in time: whether the block begins with the one before, and not after it."""
    busy: float | None = None
    """The candidate's busy time of the GPU over the baseline's, in cells that are profiled; None profiles none."""
    busy_noise: float = 0.002
    """Standard deviation of a profiled block's log busy time."""
    gives_tokens: bool = False
    """Whether the requests of timed cells are given their tokens."""
    num_pairs: int = 6
    num_greedy: int = 52
    num_forced: int = 8
    num_sampling: int = 24
    hardware: str = "made CPU, 2 cores"


def numbers(*parts: object) -> np.random.Generator:
    """A generator that depends on the parts alone."""
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


@cache
def logits_of(prompt: str, history: tuple[int, ...]) -> Array:
    """The model: next-token logits after a prompt and the tokens so far."""
    return 2.0 * numbers(prompt, history).standard_normal(VOCABULARY)


@cache
def gumbel_of(seed: int, position: int) -> Array:
    """The sampler's noise of a seeded request."""
    return numbers("gumbel", seed, position).gumbel(size=VOCABULARY)


class MadeEngine:
    """One arm: serves requests in waves and keeps its ledger."""

    def __init__(self, arm: Arm, world: World) -> None:
        self.arm = arm
        self.world = world
        self.is_candidate = arm is Arm.CANDIDATE and not world.candidate_is_baseline
        self.rows: list[LedgerRow] = []
        self.rng = numbers("engine", world.seed, arm)
        self._serial = 0
        self.now_ns = 1_000_000_000 * (1 + list(Arm).index(arm))
        self._block_factor = 1.0

    def serve(self, suite: str, requests: Sequence[Request], concurrency: int) -> tuple[SuiteItem, ...]:
        """Answers in waves of `concurrency` requests; a wave prefills together and then decodes."""
        items: list[SuiteItem] = []
        for start in range(0, len(requests), concurrency):
            wave = [
                _Running(request=r, concurrency=concurrency, id=self._next_id(suite))
                for r in requests[start : start + concurrency]
            ]
            self._step(suite, wave, is_prefill=True)
            while active := [r for r in wave if not r.is_done]:
                self._step(suite, active, is_prefill=False)
            items += [r.item() for r in wave]
        return tuple(items)

    def time_block(self, suite: str, requests: Sequence[Request], factor: float) -> tuple[SuiteItem, ...]:
        """One timed wave whose steps take `factor` times the usual."""
        self._block_factor = factor
        items = self.serve(suite, requests, len(requests))
        self._block_factor = 1.0
        return items

    def _next_id(self, suite: str) -> str:
        self._serial += 1
        return f"{self.arm}-{suite}-{self._serial}r"

    def _step(self, suite: str, wave: Sequence[_Running], *, is_prefill: bool) -> None:
        batch = len(wave)
        decides, runs_fast = self._path(suite, batch, is_prefill=is_prefill)
        duration_ns = self._duration_ns(batch, is_prefill=is_prefill, fast=runs_fast)
        sick = self.is_candidate and not is_prefill and self.world.loses_state(suite, batch)
        ended_ns = self.now_ns + duration_ns
        for running in wave:
            running.started_ns = running.started_ns or self.now_ns
            running.is_sick |= sick
            self._emit(running)
            if running.request.timed:
                running.times.append((ended_ns - running.started_ns) / 1e6 + abs(self.rng.normal(0, 0.05)))
        reason = "pure-decode" if decides else ("prefill" if is_prefill else "not covered")
        is_plain = self.arm is not Arm.CANDIDATE or self.world.candidate_is_baseline
        self.rows.append(
            LedgerRow(
                step=len(self.rows),
                started_ns=self.now_ns,
                duration_ns=duration_ns,
                num_reqs=batch,
                requests=tuple(r.part(is_prefill=is_prefill) for r in wave),
                decisions=()
                if is_plain
                else (StepDecision(target=DECISION, specialized=decides, reason=reason),),
                ran={EXECUTOR: 1} if runs_fast else {PLAIN: 1},
            )
        )
        self.now_ns = ended_ns + 200_000

    def _path(self, suite: str, batch: int, *, is_prefill: bool) -> tuple[bool, bool]:
        if not self.is_candidate or is_prefill or self.world.falls_back(suite, batch):
            return False, False
        return True, not self.world.contradicts(suite, batch)

    def _duration_ns(self, batch: int, *, is_prefill: bool, fast: bool) -> int:
        ms = (20.0 if is_prefill else 5.0 + 0.5 * batch) * (self.world.speed if fast else 1.0)
        ms *= self.world.speed_again if self.arm is Arm.BASELINE_AGAIN else 1.0
        return int(ms * self._block_factor * np.exp(self.rng.normal(0, 0.01)) * 1e6)

    def _emit(self, running: _Running) -> None:
        request, position = running.request, len(running.tokens)
        if request.schema:
            running.emit_constrained(
                dropped=self.is_candidate and self.world.drops_grammar(running.concurrency)
            )
            return
        logits = logits_of(request.prompt, tuple(running.tokens))
        if not request.timed:
            logits = logits + self._shift(running, position)
        token = self._choose(request, logits, position)
        running.tokens.append(request.forced[position] if request.forced else token)
        if request.logprobs:
            running.top.append(top_logprobs(logits, request.forced[position] if request.given else None))

    def _shift(self, running: _Running, position: int) -> Array | float:
        scale = {
            Arm.BASELINE: self.world.noise_baseline,
            Arm.CANDIDATE: self.world.noise,
            Arm.BASELINE_AGAIN: self.world.noise_again,
        }
        sd = 0.5 if running.is_sick else scale[self.arm]
        if sd == 0 or (self.world.candidate_is_baseline and self.arm is Arm.CANDIDATE):
            return 0.0
        return sd * numbers(self.world.seed, self.arm, running.id, position).standard_normal(VOCABULARY)

    def _choose(self, request: Request, logits: Array, position: int) -> int:
        temperature = request.temperature
        seed = request.seed or 0
        if self.is_candidate and temperature > 0:
            temperature = self.world.temperature_of(temperature)
            if self.world.ignores_seed:
                seed = int(self.rng.integers(1 << 30))
        if temperature == 0:
            return int(logits.argmax())
        return int((logits / temperature + gumbel_of(seed, position)).argmax())


@dataclass(slots=True, kw_only=True)
class _Running:
    """A request that is being served."""

    request: Request
    concurrency: int
    id: str
    tokens: list[int] = field(default_factory=list)
    top: list[TokenLogprobs] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    started_ns: int = 0
    is_sick: bool = False
    text: str = ""
    has_stopped: bool = False

    @property
    def is_done(self) -> bool:
        return self.has_stopped or len(self.tokens) >= self.request.max_tokens

    def emit_constrained(self, *, dropped: bool) -> None:
        """The next byte of the answer; without the grammar, babble to the token limit."""
        answer = json.dumps({"n": zlib.crc32(self.request.prompt.encode()) % 100})
        position = len(self.tokens)
        if dropped:
            self.tokens.append(ord("a") + position % 26)
            self.text += chr(ord("a") + position % 26)
            self.has_stopped = position >= len(answer) + 2
        elif position < len(answer):
            self.tokens.append(ord(answer[position]))
            self.text += answer[position]
        else:
            self.tokens.append(0)
            self.has_stopped = True

    def part(self, *, is_prefill: bool) -> StepRequest:
        num_prompt = self.request.num_prompt_tokens if is_prefill else 0
        return StepRequest(
            request_id=f"cmpl-{self.id}-0-5f",
            num_scheduled_tokens=num_prompt or 1,
            num_prefill_tokens=num_prompt,
            num_emitted_tokens=1,
        )

    def item(self) -> SuiteItem:
        request = self.request
        return SuiteItem(
            item=request.item,
            request_id=self.id,
            concurrency=self.concurrency,
            num_prompt_tokens=request.num_prompt_tokens,
            token_ids=tuple(self.tokens),
            text=self.text or "made",
            finish_reason="stop" if self.has_stopped else "length",
            num_completion_tokens=len(self.tokens),
            temperature=request.temperature,
            seed=request.seed,
            top_logprobs=tuple(self.top),
            schema_text=request.schema,
            token_times_ms=tuple(self.times),
        )


def top_logprobs(logits: Array, given: int | None = None) -> TokenLogprobs:
    """The 20 most likely tokens, and the given one, in single precision, as an engine reports them."""
    shifted = logits - logits.max()
    values = (shifted - np.log(np.exp(shifted).sum())).astype(np.float32)
    order = np.argsort(-values, kind="stable")
    order = np.array([token for place, token in enumerate(order) if place < 20 or token == given])
    return TokenLogprobs(
        token_ids=tuple(order.tolist()), logprobs=tuple(values[order].astype(float).tolist())
    )


def build_evidence(world: World | None = None) -> EvidenceSet:
    """Everything that the cpu tier collects, on all three arms."""
    world = world or World()
    engines = {arm: MadeEngine(arm, world) for arm in Arm}
    records: list[AnyEvidence] = [
        SubjectEvidence(tier=Tier.CPU, recorded_at="2026-01-01T00:00:00Z", commit=HEAD, files=FILES)
    ]
    continuations: dict[str, dict[str, tuple[int, ...]]] = {}
    for arm in (Arm.BASELINE, Arm.CANDIDATE, Arm.BASELINE_AGAIN):
        for suite, parts in _suites(world, continuations).items():
            items = [i for level, requests in parts for i in engines[arm].serve(suite, requests, level)]
            records.append(_record(SuiteEvidence, world, suite=suite, arm=arm, items=tuple(items)))
            if arm is Arm.BASELINE:
                continuations.setdefault(suite, {i.item: i.token_ids for i in items})
    for is_profiled in (False, True)[: 1 if world.busy is None else 2]:
        for batch in (1, MAX_BATCH):
            for other in (Arm.BASELINE_AGAIN, Arm.CANDIDATE):
                records.append(_time_cell(engines, world, batch, other, is_profiled=is_profiled))
    for arm, engine in engines.items():
        records.append(_record(LedgerEvidence, world, arm=arm, rows=tuple(engine.rows)))
        records.append(_arm_record(arm, world))
    records.append(_coverage_record(world))
    return evidence_set(records)


def _suites(
    world: World, continuations: dict[str, dict[str, tuple[int, ...]]]
) -> dict[str, list[tuple[int, list[Request]]]]:
    """Requests by suite and concurrency. The forced suites walk what the baseline has said before."""
    greedy = [(level, [_greedy(i, level) for i in range(world.num_greedy)]) for level in (1, MAX_BATCH)]
    walked = continuations.get("greedy", {})
    walked_to_the_end = continuations.get("full_context", {})
    forced = [
        (
            level,
            [
                replace(_greedy(i, level), forced=tokens, max_tokens=len(tokens))
                for i in range(world.num_forced)
                if (tokens := walked.get(f"p{i}@c1", _free_run(_greedy(i, 1))))
            ],
        )
        for level in (1, 2, MAX_BATCH)
    ]
    full = [
        Request(
            item=f"p{i}@c1",
            prompt=f"long{i}",
            num_prompt_tokens=MAX_CONTEXT - 26,
            max_tokens=26,
            logprobs=True,
            forced=walked_to_the_end.get(f"p{i}@c1", ()),
        )
        for i in range(3)
    ]
    sampling = [
        Request(
            item=f"p{i}/t{temperature}/s{seed}/r{repeat}",
            prompt=f"sampled{i}",
            num_prompt_tokens=5 + i,
            max_tokens=4,
            temperature=temperature,
            seed=seed,
        )
        for repeat in (0, 1)
        for temperature in (0.3, 1.0)
        for i in range(world.num_sampling)
        for seed in (1, 2, 3, 4)
    ]
    structured = [
        (
            level,
            [
                Request(
                    item=f"p{i}@c{level}",
                    prompt=f"schema{i}",
                    num_prompt_tokens=9 + i,
                    max_tokens=40,
                    schema=SCHEMA,
                )
                for i in range(10)
            ],
        )
        for level in (1, 4)
    ]
    return {
        "greedy": greedy,
        "full_context": [(1, full)],
        "teacher_forced": forced,
        "sampling": [(MAX_BATCH, sampling)],
        "structured": structured,
    }


def _greedy(index: int, level: int) -> Request:
    return Request(
        item=f"p{index}@c{level}",
        prompt=f"greedy{index}",
        num_prompt_tokens=4 + index,
        max_tokens=9 + index % 8,
        logprobs=True,
    )


@cache
def _free_run(request: Request) -> tuple[int, ...]:
    """What the noiseless model says."""
    tokens: tuple[int, ...] = ()
    while len(tokens) < request.max_tokens:
        tokens = (*tokens, int(logits_of(request.prompt, tokens).argmax()))
    return tokens


def _profile(world: World, arm: Arm, batch: int, *parts: object) -> StepKernels:
    """A GPU that is busy for a seventh of the step."""
    is_fast = arm is Arm.CANDIDATE
    busy_us = 700.0 + 70 * batch
    busy_us *= (world.busy or 1.0) if is_fast else 1.0
    busy_us *= float(np.exp(numbers(world.seed, *parts, "busy").normal(0, world.busy_noise)))
    return StepKernels(num_steps=12, busy_us=busy_us, num_kernels=90 if is_fast else 150)


def _time_cell(
    engines: dict[Arm, MadeEngine], world: World, batch: int, other: Arm, *, is_profiled: bool
) -> TimingEvidence:
    compares = (Arm.BASELINE, other)
    cell = f"{'profile' if is_profiled else 'decode'}/b{batch}/{compares[0]}-{compares[1]}"
    blocks = []
    began_ns = 0
    shown = []
    for arm in compares if world.gives_tokens else ():
        engines[arm].now_ns = max(engine.now_ns for engine in engines.values()) + 1_000_000
        asked = [replace(_timed(world, -1, batch, i), timed=False, logprobs=True) for i in range(batch)]
        shown.append(ShownAnswers(arm=arm, items=engines[arm].serve(f"{cell}/shown", asked, batch)))
    for pair in range(world.num_pairs):
        for arm in compares if pair % 2 == 0 else compares[::-1]:
            position = len(blocks)
            requests = [_timed(world, pair, batch, i, f"b{position}/r{i}") for i in range(batch)]
            factor = float(np.exp(numbers(world.seed, cell, position).normal(0, world.timing_noise)))
            factor *= 1.1 if world.disturbed(cell, position) else 1.0
            if not world.overlaps(cell, position):
                # All engines have one clock, and none computes while another is timed.
                began_ns = max(engine.now_ns for engine in engines.values()) + 1_000_000
            engines[arm].now_ns = began_ns
            items = engines[arm].time_block(cell, requests, factor)
            profile = _profile(world, arm, batch, cell, position) if is_profiled else None
            blocks.append(
                TimingBlock(
                    pair=pair, position=position, arm=arm, items=items, load_1min=0.5, profile=profile
                )
            )
    return _record(
        TimingEvidence,
        world,
        cell=cell,
        batch=batch,
        num_output_tokens=16,
        compares=compares,
        blocks=tuple(blocks),
        tokens_given=world.gives_tokens,
        shown=tuple(shown),
    )


def _timed(world: World, pair: int, batch: int, index: int, item: str = "") -> Request:
    number = pair * batch + index
    tokens = tuple(int(t) for t in numbers("given", number).integers(VOCABULARY, size=16))
    return Request(
        item=item or f"b-2/r{index}",
        prompt=f"timed{number}",
        num_prompt_tokens=8,
        max_tokens=16,
        timed=True,
        given=world.gives_tokens,
        forced=tokens if world.gives_tokens else (),
    )


def _arm_record(arm: Arm, world: World) -> ArmEvidence:
    is_on = arm is Arm.CANDIDATE and not world.candidate_is_baseline
    modules = ("subject", "subject.model") + (("subject.plan", "subject.executor") if is_on else ())
    config = {Arm.BASELINE: {}, Arm.CANDIDATE: {"backend": "fast"}, Arm.BASELINE_AGAIN: {"backend": "auto"}}
    return _record(
        ArmEvidence,
        world,
        arm=arm,
        additional_config={} if world.candidate_is_baseline and arm is Arm.CANDIDATE else config[arm],
        started=True,
        ready_s=30.0,
        proof=TracerProof(
            nonce=f"nonce of {arm}",
            marker_seen=True,
            wrapped=(PLAIN, DECISION, EXECUTOR) if is_on else (PLAIN,),
            missing={},
            step_hooks=("GPUModelRunner.execute_model",),
        ),
        imported=tuple(
            ImportedFile(module=m, path=path, sha256=FILES[path])
            for m in modules
            if (path := f"{m.replace('.', '/')}.py") in FILES
        ),
        modules=modules,
    )


def _coverage_record(world: World) -> CoverageEvidence:
    return _record(
        CoverageEvidence,
        world,
        arm=Arm.CANDIDATE,
        files=(
            CoverageFile(
                path="subject/plan.py",
                executable_lines=(1, 2, 3, 5, 6, 7, 9, 10),
                executed_lines={"start": (1, 2, 5), "greedy": (3, 6, 7), "sampling": (3, 6, 7)},
            ),
            CoverageFile(
                path="subject/executor.py",
                executable_lines=(1, 2, 3, 4),
                executed_lines={"start": (1,), "greedy": (2, 3), "sampling": (2, 3, 4)},
            ),
        ),
    )


def _record(kind: type[R], world: World, **fields: object) -> R:
    return kind.model_validate(
        {"tier": Tier.CPU, "recorded_at": "2026-01-01T00:00:00Z", "hardware": world.hardware, **fields}
    )


@cache
def clean_evidence() -> EvidenceSet:
    """The evidence of the default world; records are immutable, so tests may share it."""
    return build_evidence(World())


@cache
def small_evidence() -> EvidenceSet:
    """Clean evidence with fewer requests: enough where only the records' soundness matters."""
    return build_evidence(World(num_greedy=8, num_forced=4, num_sampling=1))


def context_of(
    evidence: EvidenceSet | Iterable[AnyEvidence], manifest: Manifest = MANIFEST, policy: Policy = POLICY
) -> CheckContext:
    """What a check is given."""
    return CheckContext(
        change=CHANGE, manifest=manifest, policy=policy, evidence=evidence_set(tuple(evidence))
    )


def without(
    evidence: EvidenceSet, kind: type[EvidenceRecord], *, arm: Arm | None = None, suite: str | None = None
) -> EvidenceSet:
    """The evidence less the records of one kind, of one arm or suite when given."""

    def is_meant(record: AnyEvidence) -> bool:
        return (
            isinstance(record, kind)
            and (arm is None or getattr(record, "arm", None) is arm)
            and (suite is None or getattr(record, "suite", None) == suite)
        )

    return evidence_set(r for r in evidence if not is_meant(r))


def change_records(
    evidence: EvidenceSet, kind: type[R], change: Callable[[R], R], *, arm: Arm | None = None
) -> EvidenceSet:
    """The evidence with every record of one kind, of one arm when given, replaced."""
    return evidence_set(
        change(r)  # type: ignore[misc]
        if isinstance(r, kind) and (arm is None or getattr(r, "arm", None) is arm)
        else r
        for r in evidence
    )


def change_items(
    evidence: EvidenceSet, suite: str, arm: Arm, change: Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]]
) -> EvidenceSet:
    """The evidence with the answers of one suite on one arm replaced."""

    def replaced(record: SuiteEvidence) -> SuiteEvidence:
        if record.suite != suite:
            return record
        return record.model_copy(update={"items": tuple(change(record.items))})

    return change_records(evidence, SuiteEvidence, replaced, arm=arm)
