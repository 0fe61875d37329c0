"""What the scripted runs do: which engines, with which scenarios, in which process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from eval_suites.edges import PREFILL_BUDGET, plain_scenarios, verify_scenarios
from eval_suites.prompts import select_prompts
from harness.engine.bystander import BYSTANDER_ARGS
from harness.model.manifest import Manifest, ServedModel
from harness.model.probe import LORA, ProbeEngine, ProbeEvent, ProbePlan, ProbeRequest, Scenario

SEED = 20_261
"""Seed of the scenarios' prompts."""
_COMMON = ("--seed", "0", "--enforce-eager")


def plan_probes(
    manifest: Manifest, *, model_dir: Path, bystander_dir: Path, base_has_model: bool
) -> dict[str, ProbePlan]:
    """What each process does, by its name.

    The candidate and its twin run the same script. The base serves what the twin serves before that: another model and,
    where the base has it, the subject's.
    """
    switch = json.dumps({manifest.switch.key: manifest.switch.on})
    engines = edge_engines(manifest, ("--additional-config", switch), is_candidate=True)
    twins = edge_engines(manifest, (), is_candidate=False)
    off = [bystander_engine(_COMMON)]
    if base_has_model:
        off.append(off_engine(manifest.nano_model, _COMMON))

    def plan(found: Sequence[ProbeEngine]) -> ProbePlan:
        return ProbePlan(engines=tuple(found), model_dir=str(model_dir), bystander_dir=str(bystander_dir))

    beyond = _beyond_engine(manifest, ("--additional-config", switch))
    lora = _lora_engine(manifest, ("--additional-config", switch))
    return {"candidate": plan([*engines, lora, beyond]), "twin": plan([*off, *twins]), "base": plan(off)}


def has_model(manifest: Manifest, folder: Path) -> bool:
    """Whether the files in a folder hold every module of the manifest's baseline code; the engine's own it has."""
    return has_code(manifest, manifest.dispatch.baseline_code, folder)


def has_code(manifest: Manifest, targets: Sequence[str], folder: Path) -> bool:
    """Whether the files in a folder hold every module of the targets that lies below the import roots."""
    modules = [target.partition(":")[0].split(".") for target in targets]
    own = {"/".join(names) for names in modules if names[0] in manifest.paths.import_roots}
    return all((folder / f"{m}.py").is_file() or (folder / m / "__init__.py").is_file() for m in own)


def edge_engines(manifest: Manifest, switch: Sequence[str], *, is_candidate: bool) -> list[ProbeEngine]:
    """The engines of the declared scope with their scenarios: without drafts, and with as many as it declares."""
    scope, nano = manifest.scope, manifest.nano_model
    plain = ProbeEngine(
        name="plain",
        args=_engine_args(manifest, switch, num_drafts=0),
        scenarios=plain_scenarios(scope, max_model_len=nano.max_model_len, seed=SEED),
        watches_buffers=is_candidate,
        may_refuse=is_candidate,
    )
    scenarios = verify_scenarios(scope, seed=SEED + 10)
    if not scenarios:
        return [plain]
    args = _engine_args(manifest, switch, num_drafts=scope.max_draft_tokens)
    return [plain, plain.model_copy(update={"name": "verify", "args": args, "scenarios": scenarios})]


def _beyond_engine(manifest: Manifest, switch: Sequence[str]) -> ProbeEngine:
    """A deployment with one draft token more than declared: it is refused, or its steps fall back."""
    scope = manifest.scope.model_copy(update={"max_draft_tokens": manifest.scope.max_draft_tokens + 1})
    return ProbeEngine(
        name="beyond",
        args=_engine_args(manifest, switch, num_drafts=scope.max_draft_tokens),
        scenarios=verify_scenarios(scope, seed=SEED + 10)[:1],
        watches_state=False,
        may_refuse=True,
        within_scope=False,
    )


def _lora_engine(manifest: Manifest, switch: Sequence[str]) -> ProbeEngine:
    """A deployment for adapters, which no scope declares: it is refused, or its steps fall back."""
    return ProbeEngine(
        name=LORA,
        args=(*_engine_args(manifest, switch, num_drafts=0), "--enable-lora"),
        scenarios=(_off_scenario(SEED + 22),),
        watches_state=False,
        may_refuse=True,
        within_scope=False,
    )


def _engine_args(manifest: Manifest, switch: Sequence[str], *, num_drafts: int) -> tuple[str, ...]:
    """A batch of one more than the scope is served, from a cache small enough to be compared at every step."""
    max_num_seqs = manifest.scope.max_batch + 1
    nano = manifest.nano_model
    blocks = max_num_seqs * (6 + 5 * num_drafts) + 24
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": num_drafts,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }
    args = {
        "--model": "{model}",
        "--max-model-len": str(nano.max_model_len),
        "--max-num-seqs": str(max_num_seqs),
        "--max-num-batched-tokens": str(PREFILL_BUDGET),
        "--num-gpu-blocks-override": str(blocks),
    }
    drafting = ("--no-enable-prefix-caching", "--speculative-config", json.dumps(speculation))
    pairs = tuple(word for pair in args.items() for word in pair)
    return (*_COMMON, *pairs, *switch, *nano.engine_args, *(drafting if num_drafts else ()))


def _off_scenario(seed: int) -> Scenario:
    texts = select_prompts(4, seed=seed, min_bytes=8, max_bytes=60)
    requests = tuple(
        ProbeRequest(name=f"r{index}", text=text, max_tokens=8 + index) for index, text in enumerate(texts)
    )
    return Scenario(name="unset", events=(ProbeEvent(before_step=0, add=requests),))


def off_engine(model: ServedModel, common: Sequence[str]) -> ProbeEngine:
    """The subject's model with the switch unset and the cache that the engine chooses."""
    return ProbeEngine(
        name="off",
        args=(*common, "--model", "{model}", "--max-model-len", str(model.max_model_len), *model.engine_args),
        scenarios=(_off_scenario(SEED + 20),),
        watches_state=False,
        takes_snapshot=True,
    )


def bystander_engine(common: Sequence[str]) -> ProbeEngine:
    """A model that the change is not about, with the switch unset."""
    return ProbeEngine(
        name="bystander",
        args=(*common, "--model", "{bystander}", *BYSTANDER_ARGS),
        scenarios=(_off_scenario(SEED + 21),),
        watches_state=False,
        takes_snapshot=True,
    )


def repeated(engine: ProbeEngine, times: int) -> ProbeEngine:
    """The engine, which serves its scenarios as many times more."""
    again = (
        scenario.model_copy(update={"name": f"{scenario.name}_again_{number + 1}"})
        for number in range(times)
        for scenario in engine.scenarios
    )
    return engine.model_copy(update={"scenarios": (*engine.scenarios, *again)})
