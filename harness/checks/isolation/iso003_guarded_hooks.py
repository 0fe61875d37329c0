"""ISO003: the hooks in shared files do nothing while the switch is off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import ChangedFilesEvidence, HooksEvidence
from harness.model.finding import Finding, Location
from harness.model.reach import GuardState, HookedFile, Hunk
from harness.model.words import Outcome, Principle, Tier

_MAX_FINDINGS_A_FILE = 25
"""Hunks with a finding of their own; further ones of the same file share one that lists them."""
_OUTCOMES = {GuardState.UNGUARDED: Outcome.FAIL, GuardState.UNDECIDED: Outcome.INCONCLUSIVE}
_MESSAGES = {
    GuardState.UNGUARDED: "is not guarded by the switch",
    GuardState.UNDECIDED: "cannot be shown to be guarded by the switch",
}
_ADVICE = {
    GuardState.UNGUARDED: (
        "Put the lines below a condition on the switch, so that with the switch off the file does what it did before;"
        " if shared code must import the subject to learn the switch, name that in [switch] reads."
    ),
    GuardState.UNDECIDED: (
        "Test the switch where it can be followed: a comparison, an early return, an attribute that is None while"
        " the switch is off."
    ),
}


class GuardedHooks(BaseCheck):
    """Every hunk of a hooked file is dead, or the same as before, while the switch is off."""

    id = "ISO003"
    title = "With the switch off, a hooked file does what it did before"
    principle = Principle.ISOLATION
    tier = Tier.STATIC
    how = (
        "Propagates the switch's off value through each hooked file and the subject, drops what cannot run then, and "
        "compares what is left with the base; each hunk is shown with the condition that guards it."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for each hunk that is not shown to be guarded, one for each file with those that are."""
        declared = tuple(hook.file for hook in context.manifest.paths.hooks)
        if not declared:
            message = "The manifest declares no hook: ISO001 lets no edit of a shared file through."
            return [self.finding(Outcome.NOT_APPLICABLE, "hooks", message)]
        records = [r for r in context.evidence.of(HooksEvidence) if r.commit == context.change.head]
        if not records or records[-1].base != context.change.merge_base:
            message = "The hooked files were not read at the commits that are judged."
            return [self.finding(Outcome.NOT_RUN, "hooks", message, advice="Run `fasttrack validate` again.")]
        record = records[-1]
        by_path = {file.path: file for file in record.files}
        edited = {f.path for r in context.evidence.of(ChangedFilesEvidence) for f in r.files}
        findings: list[Finding] = []
        for path in declared:
            file = by_path.get(path)
            if file is None or (file.status == "unchanged" and path in edited):
                findings.append(self._unread(path, record))
            else:
                findings += self._file(file, record)
        return findings

    def _unread(self, path: str, record: HooksEvidence) -> Finding:
        return self.finding(
            Outcome.NOT_RUN,
            path,
            f"The diff edits {path}, and its hunks are not recorded.",
            advice="Run `fasttrack validate` again.",
            evidence=[record.id],
        )

    def _file(self, file: HookedFile, record: HooksEvidence) -> Iterator[Finding]:
        if file.status == "missing":
            yield self.finding(
                Outcome.FAIL,
                file.path,
                f"The manifest declares a hook in {file.path}, which neither commit has.",
                advice="Correct or remove the hook in [paths].",
                evidence=[record.id],
            )
            return
        for state in (GuardState.UNGUARDED, GuardState.UNDECIDED):
            hunks = [hunk for hunk in file.hunks if hunk.state is state]
            yield from self._open_hunks(file.path, state, hunks, record)
        guarded = [hunk for hunk in file.hunks if hunk.state is GuardState.GUARDED]
        if guarded or not file.hunks:
            yield self._guarded(file.path, guarded, record)

    def _open_hunks(
        self, path: str, state: GuardState, hunks: Sequence[Hunk], record: HooksEvidence
    ) -> Iterator[Finding]:
        """Hunks that speak of the subject first, each by itself; many that do not share a finding."""
        named = [hunk for hunk in hunks if hunk.names_subject]
        others = [hunk for hunk in hunks if not hunk.names_subject]
        alone = (named + others)[:_MAX_FINDINGS_A_FILE] if len(others) <= 3 else named[:_MAX_FINDINGS_A_FILE]
        for hunk in alone:
            yield self.finding(
                _OUTCOMES[state],
                f"{path}:{_place(hunk)}",
                f"The hunk at {path}:{_place(hunk)} {_MESSAGES[state]}. {_sentence(hunk.reason)}",
                advice=_ADVICE[state],
                location=_location(path, hunk),
                evidence=[record.id],
                details=hunk.lines,
            )
        rest = [hunk for hunk in hunks if hunk not in alone]
        if rest:
            about = "that do not mention the subject " if not any(h.names_subject for h in rest) else ""
            yield self.finding(
                _OUTCOMES[state],
                path,
                f"{len(rest)} further hunks of {path} {about}{_MESSAGES[state].replace('is ', 'are ', 1)}.",
                advice=_ADVICE[state],
                location=_location(path, rest[0]),
                evidence=[record.id],
                details=[f"{_place(hunk)}: {hunk.reason}" for hunk in rest],
            )

    def _guarded(self, path: str, hunks: Sequence[Hunk], record: HooksEvidence) -> Finding:
        if not hunks:
            message = f"{path} is the same in both commits."
            return self.finding(Outcome.PASS, path, message, evidence=[record.id])
        details: list[str] = []
        for hunk in hunks:
            guards = f", guarded by {'; '.join(hunk.guards)}" if hunk.guards else ""
            details += [f"{_place(hunk)}: {hunk.reason}{guards}", *hunk.lines]
        hunks_are = "1 hunk does" if len(hunks) == 1 else f"{len(hunks)} hunks do"
        return self.finding(
            Outcome.PASS,
            path,
            f"With the switch off, {hunks_are} nothing in {path}.",
            location=_location(path, hunks[0]),
            evidence=[record.id],
            details=details,
        )


def _place(hunk: Hunk) -> str:
    """The lines of a hunk at the head; where it only takes lines away, those of the base."""
    if hunk.num_head_lines:
        return _lines(hunk.head_line, hunk.num_head_lines)
    return f"base {_lines(hunk.base_line, hunk.num_base_lines)}"


def _lines(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _location(path: str, hunk: Hunk) -> Location:
    last = hunk.head_line + hunk.num_head_lines - 1
    return Location(path=path, line=max(hunk.head_line, 1), end_line=last if hunk.num_head_lines else None)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
