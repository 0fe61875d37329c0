"""ISO007: with the switch unset, base and head are the same engine, for the subject's model and for another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from harness.checks.joins.arm_proof import is_committed
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import DefaultOffEvidence
from harness.model.finding import Finding
from harness.model.manifest import DispatchSection
from harness.model.paths import PathClass, PathRules
from harness.model.probe import EngineSnapshot
from harness.model.words import Outcome, Principle, Tier

DEFAULT_OFF = "default off"
"""How gaps name these processes: "default off of base"."""
Side = Literal["base", "head"]
Model = Literal["subject", "bystander"]


class BaseAndHead(BaseCheck):
    """Answers, modules, cache, operators and settings of processes of both commits."""

    id = "ISO007"
    title = "Without the switch, base and head are the same engine"
    principle = Principle.ISOLATION
    tier = Tier.CPU
    how = (
        "Serves the subject's model and an unrelated one from both commits with the switch unset; answers, loaded "
        "modules, cache blocks, registered operators, the engine's functions and settings must be the same."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a model and aspect; the subject's model only where the base has it."""
        sides: dict[Side, DefaultOffEvidence] = {
            r.side: r for r in context.evidence.of(DefaultOffEvidence, tier=self.tier)
        }
        absent = [side for side in ("base", "head") if side not in sides]
        if absent:
            needs = [f"{DEFAULT_OFF} of {side}" for side in absent]
            what = f"engines of the {' and the '.join(absent)} with the switch unset"
            return [
                finding_of(self, "default off", missing_ruling(context.evidence, self.tier, what, *needs))
            ]
        base, head = sides["base"], sides["head"]
        evidence = (base.id, head.id)
        if (base.commit, head.commit) != (context.change.merge_base, context.change.head):
            ruling = Ruling(
                outcome=Outcome.ERROR,
                message="The engines with the switch unset were not those of the merge base and the head.",
            )
            return [finding_of(self, "default off", ruling, evidence)]
        strangers = tuple(
            f"{record.side}: {file.module} ({file.path})"
            for record in (base, head)
            for file in record.imported
            if not is_committed(file, record.files)
        )
        if strangers:
            text = f"{len(strangers)} files that the engines imported are not those of their commits."
            ruling = Ruling(outcome=Outcome.ERROR, message=text, details=strangers)
            return [finding_of(self, "default off", ruling, evidence)]
        findings = self._of_model(context, base, head, "bystander", "another model", evidence)
        if base.has_model:
            return findings + self._of_model(context, base, head, "subject", "the subject's model", evidence)
        text = "The base does not hold the modules of the subject's model, so there is nothing to compare it with."
        advice = "ISO002 compares the switch unset with the switch off."
        ruling = Ruling(outcome=Outcome.NOT_APPLICABLE, message=text, advice=advice)
        return [*findings, finding_of(self, "the subject's model", ruling, evidence)]

    def _of_model(
        self,
        context: CheckContext,
        base: DefaultOffEvidence,
        head: DefaultOffEvidence,
        model: Model,
        what: str,
        evidence: Sequence[str],
    ) -> list[Finding]:
        pair = [next((s for s in side.snapshots if s.model == model), None) for side in (base, head)]
        if pair[0] is None or pair[1] is None:
            text = f"No engine of {'the base' if pair[0] is None else 'the head'} served {what}."
            return [finding_of(self, what, Ruling(outcome=Outcome.ERROR, message=text), evidence)]
        own = own_modules((base, head), PathRules(context.manifest.paths, context.policy))
        rulings = self.decide(pair[0], pair[1], context.manifest.dispatch, own)
        return [finding_of(self, f"{aspect}, {what}", ruling, evidence) for aspect, ruling in rulings.items()]

    def decide(
        self, base: EngineSnapshot, head: EngineSnapshot, dispatch: DispatchSection, own: Collection[str]
    ) -> dict[str, Ruling]:
        """A ruling for each aspect; `own` are the modules of the change's own files."""
        return decide_snapshots(base, head, dispatch, own)


def own_modules(records: Iterable[DefaultOffEvidence], rules: PathRules) -> frozenset[str]:
    """Modules of the owned files of the commits, and the packages around them that no file stands for."""
    paths = {path for record in records for path in record.files if path.endswith(".py")}
    names = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths}
    own = {names[path] for path in paths if rules.is_a(path, PathClass.OWNED)}
    around = {name[:end] for name in own for end, letter in enumerate(name) if letter == "."}
    return frozenset(own | (around - set(names.values())))


def decide_snapshots(
    base: EngineSnapshot, head: EngineSnapshot, dispatch: DispatchSection, own: Collection[str]
) -> dict[str, Ruling]:
    """A ruling for each aspect of two processes that serve the same model."""
    return {
        "answers": _decide_answers(base, head),
        "loaded modules": _decide_modules(base, head, dispatch, own),
        "registered operators": _decide_tables(
            "operators", base.ops | base.custom_ops, head.ops | head.custom_ops, shown=base.ops
        ),
        "cache blocks": _decide_tables("properties of the cache", base.kv_cache, head.kv_cache),
        "process settings": _decide_tables(
            "settings",
            base.torch_settings | base.interpreter | base.environment,
            head.torch_settings | head.interpreter | head.environment,
            shown=base.interpreter and base.torch_settings,
        ),
        "engine functions": _decide_tables(
            "functions of others in the engine's modules", base.replaced, head.replaced
        ),
        "registries": _decide_registries(base.registries, head.registries, own),
        "captured graphs": _decide_graphs(base, head),
    }


def _decide_answers(base: EngineSnapshot, head: EngineSnapshot) -> Ruling:
    ours, theirs = ({a.request: a for a in s.answers} for s in (head, base))
    if not theirs or any(not a.token_ids for a in theirs.values()):
        return Ruling(outcome=Outcome.INCONCLUSIVE, message="The base answered nothing.")
    wrong = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    tokens = sum(len(a.token_ids) for a in theirs.values())
    if wrong:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len(wrong)} of {len(theirs)} answers differ between base and head with the switch unset.",
            advice="What the change adds must not run, and must not change what runs, unless the switch is on.",
            details=tuple(wrong),
        )
    return Ruling(
        outcome=Outcome.PASS,
        message=f"{len(theirs)} answers, {tokens} tokens and their log probabilities, are the same bit for bit.",
    )


def _decide_modules(
    base: EngineSnapshot, head: EngineSnapshot, dispatch: DispatchSection, own: Collection[str]
) -> Ruling:
    """Modules that only one of the processes loaded.

    While another model is served the change's own modules may be imported to register it, except those that the
    manifest keeps out while the switch is off. Of a change inside the engine that is not all below the import roots.
    """
    if not base.modules:
        return Ruling(outcome=Outcome.INCONCLUSIVE, message="The base's process shows no modules.")
    allowed = dispatch.imported_when_off
    free = own if base.model == "bystander" else ()
    added, gone = set(head.modules) - set(base.modules), set(base.modules) - set(head.modules)
    kept_out = [m for m in added if _is_below(m, dispatch.never_imported_when_off)]
    # A package is imported with each of its modules.
    others = [
        m
        for m in added
        if m not in free and not _is_below(m, allowed) and not any(_is_below(a, (m,)) for a in allowed)
    ]
    lost = [m for m in gone if m not in own]
    wrong = sorted({*kept_out, *others})
    if wrong or lost:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"With the switch unset the head loads {len(wrong)} modules that the base does not, "
            f"and {len(lost)} fewer of the engine's.",
            advice="Import them where the switch is read as on; what registration needs is declared under [dispatch] "
            "imported_when_off.",
            details=(*wrong, *(f"not loaded: {m}" for m in sorted(lost))),
        )
    return Ruling(
        outcome=Outcome.PASS,
        message=f"Both load the same {len(set(base.modules) & set(head.modules))} modules"
        + (f", and the head {len(added)} more of its own." if added else "."),
        details=tuple(sorted(added)),
    )


def _is_below(module: str, prefixes: Sequence[str]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in prefixes)


def _decide_tables(
    what: str,
    base: Mapping[str, str],
    head: Mapping[str, str],
    *,
    shown: Mapping[str, str] | None = None,
) -> Ruling:
    """Whether two tables are the same; `shown` is the part without which the base's shows nothing."""
    if not (base if shown is None else shown):
        return Ruling(outcome=Outcome.INCONCLUSIVE, message=f"The base's process shows no {what}.")
    lines = tuple(_differences(base, head))
    if lines:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len(lines)} of {len(base)} {what} differ with the switch unset.",
            advice="Register, override and set nothing unless the switch is on.",
            details=lines,
        )
    return Ruling(outcome=Outcome.PASS, message=f"All {len(base)} {what} are the same.")


def _decide_registries(base: Mapping[str, str], head: Mapping[str, str], own: Collection[str]) -> Ruling:
    """The head may add entries for classes of its own modules; what the base has must stay as it is."""
    new = {key for key in head.keys() - base.keys() if head[key].partition(":")[0] in own}
    rest = {key: value for key, value in head.items() if key not in new}
    ruling = _decide_tables("entries of the engine's registries", base, rest)
    return replace(ruling, details=(*ruling.details, *(f"added: {key}: {head[key]}" for key in sorted(new))))


def _differences(base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(base.keys() | head.keys()):
        if name not in base:
            yield f"{name}: only in the head"
        elif name not in head:
            yield f"{name}: only in the base"
        elif base[name] != head[name]:
            yield f"{name}: {base[name]} in the base, {head[name]} in the head"


def _decide_graphs(base: EngineSnapshot, head: EngineSnapshot) -> Ruling:
    if not base.num_graphs and not head.num_graphs:
        return Ruling(
            outcome=Outcome.NOT_APPLICABLE,
            message="Neither process captures graphs; their kernels are not compared.",
        )
    kernels = [{k: str(n) for k, n in s.graph_kernels.items()} for s in (base, head)]
    if base.num_graphs == head.num_graphs:
        return _decide_tables("captured kernels", *kernels)
    return Ruling(
        outcome=Outcome.FAIL,
        message=f"The base captures {base.num_graphs} graphs, the head {head.num_graphs}, with the switch unset.",
        advice="Capture what the base captures unless the switch is on.",
        details=tuple(_differences(*kernels)),
    )
