"""ISO005: the subject changes nothing outside its own files when it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.checks.isolation.reach_rules import ReachRules, Ruling
from harness.checks.isolation.reach_words import WORDS
from harness.checks.isolation.record_judge import RecordJudge, judge_latest
from harness.model.check import BaseCheck, CheckContext
from harness.model.effects import Effect, EffectKind
from harness.model.evidence import PythonEffectsEvidence
from harness.model.finding import Finding, Location
from harness.model.words import Outcome, Principle, Tier


class ReachingOut(BaseCheck):
    """No line of the subject patches, overrides, sets or starts what others use."""

    id = "ISO005"
    title = "The subject's code changes nothing outside its own files"
    principle = Principle.ISOLATION
    tier = Tier.STATIC
    how = (
        "Reads every owned Python file, and the edited lines of others, with names, aliases and calls between them "
        "resolved; each write to something imported, registration, setting, process and binary is judged by itself."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Judges every reach outside."""
        return judge_latest(
            self,
            context,
            PythonEffectsEvidence,
            _Judge,
            subject="subject's files",
            unread="The subject's files were not read, so nothing is known about what they reach.",
        )


class _Judge(RecordJudge[PythonEffectsEvidence]):
    """The decision over one record."""

    def __init__(self, check: ReachingOut, context: CheckContext, record: PythonEffectsEvidence) -> None:
        super().__init__(check, context, record)
        self._judged = [e for e in record.effects if not e.in_base and e.when != "script"]
        self._rules = ReachRules(
            self._judged,
            searches=record.searches,
            searched=record.searched,
            declared=context.manifest.reaches,
            declarable=context.policy.declarable,
        )

    def findings(self) -> Iterator[Finding]:
        """One finding for each thing reached from one function, those of unused declarations, and a summary."""
        if not any(file.is_owned for file in self._record.files):
            yield self._finding(
                Outcome.INCONCLUSIVE,
                "owned files",
                "No file at the head is owned by the subject, so none was read.",
                advice="Correct paths.owned in the manifest.",
            )
            return
        ruled = [(effect, self._rules.decide(effect)) for effect in self._judged]
        for group in _grouped(ruled):
            yield self._of_group(group)
        yield from self._unused()
        yield self._summary([ruling for _, ruling in ruled])

    def _of_group(self, group: Sequence[tuple[Effect, Ruling]]) -> Finding:
        effect, ruling = group[0]
        words = WORDS[effect.kind]
        where = f"{effect.path}:{effect.line}"
        during = " while it is imported" if effect.when == "import" and effect.kind not in _SAYS_WHEN else ""
        claim = f"{where} {words.does.format(target=effect.target)}{during}."
        reason = f"{ruling.reason} The manifest says: {ruling.declared}" if ruling.declared else ruling.reason
        others = [e for e, _ in group[1:]]
        more = f" {len(others)} further lines of the same function do so too." if others else ""
        return self._finding(
            ruling.outcome,
            f"{effect.kind}: {effect.target}",
            f"{claim} {reason}{more}",
            advice="" if ruling.outcome is Outcome.PASS else words.remedy,
            location=Location(path=effect.path, line=effect.line, end_line=effect.end_line),
            details=[f"{e.path}:{e.line}: {e.text}" for e, _ in group if e.text],
        )

    def _unused(self) -> Iterator[Finding]:
        """Declarations that nothing in the code needs: they would cover what nobody has looked at."""
        happening = {(effect.kind, effect.target) for effect in self._judged}
        for (kind, target), reach in self._rules.declared.items():
            if (kind, target) not in happening:
                yield self._finding(
                    Outcome.FAIL,
                    f"{kind}: {target}",
                    f"The manifest declares the reach {kind} {target} ({reach.why}), and no line does it.",
                    advice="Take the declaration out of [[reaches]].",
                )

    def _summary(self, rulings: Sequence[Ruling]) -> Finding:
        python = [f for f in self._record.files if f.path.endswith(".py")]
        lines = sum(f.num_lines for f in python)
        let_through = sum(r.outcome is Outcome.PASS for r in rulings)
        scripts = sum(e.when == "script" for e in self._record.effects)
        message = (
            f"{len(self._record.files)} files read, {len(python)} of them Python with {lines} lines: {len(rulings)} "
            f"reaches outside, {let_through} of them let through."
        )
        if scripts:
            message += f' {scripts} more stand under `if __name__ == "__main__"` and run in no engine.'
        return self._finding(
            Outcome.PASS if python else Outcome.INCONCLUSIVE,
            "subject's files",
            message
            if python
            else f"{message} None is Python, and other languages are only looked at by their kind.",
            details=[f"names were looked up in: {', '.join(self._record.searched) or 'nothing'}"],
        )


_SAYS_WHEN = frozenset(
    {
        *(EffectKind.FILES, EffectKind.DEVICE, EffectKind.AT_IMPORT),
        *(EffectKind.BINARY, EffectKind.ENTRY_POINT, EffectKind.MODULES),
    }
)


def _grouped(ruled: Iterable[tuple[Effect, Ruling]]) -> list[list[tuple[Effect, Ruling]]]:
    """Effects of one kind and ruling in one function together, when they are open; each of the others by itself."""
    groups: dict[tuple[object, ...], list[tuple[Effect, Ruling]]] = {}
    for effect, ruling in ruled:
        together = effect.kind is EffectKind.SHARED_OBJECT
        target = "" if together else effect.target
        line = 0 if together or ruling.outcome is Outcome.PASS else effect.line
        key = (effect.path, effect.function, effect.kind, target, ruling, line)
        groups.setdefault(key, []).append((effect, ruling))
    return list(groups.values())
