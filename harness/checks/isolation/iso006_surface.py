"""ISO006: what users can set is read, documented and tested alike, and the switch is off unless it is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.checks.isolation.reach_rules import is_variable_of_others
from harness.checks.isolation.record_judge import RecordJudge, judge_latest
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import SurfaceEvidence
from harness.model.finding import Finding, Location
from harness.model.surface import FLAG_OF_THE_ENGINE, SettingKind, SettingUse, SwitchRead
from harness.model.words import Outcome, Principle, Tier

_SEARCHED = (SettingKind.ENVIRONMENT, SettingKind.FLAG)
_READS = ("reads", "declares")


class Surface(BaseCheck):
    """Variables, flags and keys agree between code, tests and documents; the switch's default is off."""

    id = "ISO006"
    title = "New settings are documented and read, and the switch is off by default"
    principle = Principle.ISOLATION
    tier = Tier.STATIC
    how = (
        "Compares the variables, flags, additional-config keys and fields that the code reads with those that tests "
        "set and documents name, and evaluates every read of the switch for an absent key."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Judges the settings and the switch."""
        return judge_latest(
            self,
            context,
            SurfaceEvidence,
            _Judge,
            subject="settings",
            unread="The settings of the change were not read.",
        )


class _Judge(RecordJudge[SurfaceEvidence]):
    """The decision over one record."""

    def __init__(self, check: Surface, context: CheckContext, record: SurfaceEvidence) -> None:
        super().__init__(check, context, record)
        self._searches = {search.name: search for search in record.searches}
        self._read = {(u.kind, u.name) for u in record.code if u.role in _READS}
        self._set_in_code = {(u.kind, u.name) for u in record.code if u.role == "sets"}
        self._mentioned = {(u.kind, u.name) for u in record.documents}

    def findings(self) -> Iterator[Finding]:
        """The switch, each drift, and the surface as a whole."""
        drift = [
            *self._undocumented(),
            *self._documented_and_unread(),
            *self._set_and_unread(),
            *self._unread_fields(),
        ]
        yield from self._switch()
        yield from drift
        if all(finding.outcome.lets_through for finding in drift):
            yield self._summary()

    def _switch(self) -> Iterator[Finding]:
        switch = self._context.manifest.switch
        if not self._record.switch:
            yield self._finding(
                Outcome.INCONCLUSIVE,
                f"switch {switch.key}",
                f'No line of the subject reads "{switch.key}" by name, so what holds without it is not known.',
                advice='Read the key with a literal default: additional_config.get("KEY", "OFF").',
            )
        for read in self._record.switch:
            yield self._of_read(read)

    def _of_read(self, read: SwitchRead) -> Finding:
        key, off = self._context.manifest.switch.key, self._context.manifest.switch.off
        value = f" ({read.value})" if read.value else ""
        place = f"{read.path}:{read.line}"
        outcome, message, advice = {
            "off": (Outcome.PASS, f'{place}: without "{key}" the path stays off{value}.', ""),
            "on": (
                Outcome.FAIL,
                f'{place}: without "{key}" the path is switched on{value}; users who set nothing get it.',
                f'Make "{off}" the value that is used when the key is absent.',
            ),
            "raises": (
                Outcome.FAIL,
                f'{place}: without "{key}" this raises; users who set nothing cannot start.',
                f'Give the read a default: .get("{key}", "{off}").',
            ),
            "unknown": (
                Outcome.INCONCLUSIVE,
                f'{place}: what holds without "{key}" cannot be told from the text{value}: {read.text}',
                f'Read the key once, with the literal default "{off}", and compare with the value for on.',
            ),
        }[read.when_absent]
        location = Location(path=read.path, line=read.line)
        return self._finding(outcome, f"switch {key}", message, advice=advice, location=location)

    def _undocumented(self) -> Iterator[Finding]:
        num = self._record.num_documents
        for use in _first_of_each(u for u in self._record.code if u.role in _READS):
            setting = (use.kind, use.name)
            # What the code sets itself it reads to put it back: no user gives it.
            if (
                use.kind is SettingKind.FIELD
                or setting in self._mentioned | self._set_in_code
                or self._of_others(use)
            ):
                continue
            yield self._drift(
                use,
                Outcome.FAIL if num else Outcome.INCONCLUSIVE,
                f"{_verb(use)} the {use.kind} {use.name}, and "
                + (
                    f"none of {num} documents names it"
                    if num
                    else "the repository holds no document to name it"
                ),
                "Document what it does and its default, or take it out.",
            )

    def _documented_and_unread(self) -> Iterator[Finding]:
        for use in _first_of_each(u for u in self._record.documents if u.role == "documents"):
            search = self._searches.get(use.name)
            elsewhere = self._of_others(use) or (search is not None and bool(search.found))
            if (use.kind, use.name) in self._read | self._set_in_code or elsewhere:
                continue
            if (known := self._knows_others(use)) is None:
                continue
            yield self._drift(
                use,
                Outcome.FAIL if known else Outcome.INCONCLUSIVE,
                f"documents the {use.kind} {use.name}, and no code of the change reads it"
                + ("" if known else "; whether the engine does is not known here"),
                "Correct the name in the document, or take it out.",
            )

    def _knows_others(self, use: SettingUse) -> bool | None:
        """Whether the settings of others were looked through; None for a flag that is taken to be the engine's."""
        known = use.kind is SettingKind.CONFIG_KEY or bool(self._record.searched)
        if use.kind is not SettingKind.FLAG:
            return known
        has_flags = any(kind is SettingKind.FLAG for kind, _ in self._read)
        # Without an engine, a change that declares no flag is taken to give the engine's.
        if use.name == FLAG_OF_THE_ENGINE or not (known or has_flags):
            return None
        engine = self._searches.get(FLAG_OF_THE_ENGINE)
        return engine is not None and bool(engine.found)

    def _set_and_unread(self) -> Iterator[Finding]:
        for use in _first_of_each(self._record.tests):
            search = self._searches.get(use.name)
            elsewhere = self._of_others(use) or (search is not None and bool(search.found))
            if (use.kind, use.name) in self._read or elsewhere:
                continue
            if (known := self._knows_others(use)) is None:
                continue
            yield self._drift(
                use,
                Outcome.FAIL if known else Outcome.INCONCLUSIVE,
                f"sets the {use.kind} {use.name}, which no code of the change reads, so the test does not test it"
                + ("" if known else "; whether the engine reads it is not known here"),
                "Correct the name in the test, or take the line out.",
            )

    def _unread_fields(self) -> Iterator[Finding]:
        if self._record.fields_are_read_whole:
            return
        for use in _first_of_each(u for u in self._record.code if u.kind is SettingKind.FIELD):
            if use.name not in self._record.fields_read:
                yield self._drift(
                    use,
                    Outcome.FAIL,
                    f"declares the field {use.name}, and no code of the change reads it",
                    "Use the field, or take it out.",
                )

    def _of_others(self, use: SettingUse) -> bool:
        """Whether the engine, or code outside the change, knows a setting of that name."""
        if use.kind is SettingKind.ENVIRONMENT and is_variable_of_others(use.name):
            return True
        names = [use.name, use.name.replace("--no-", "--", 1)]
        searches = [self._searches[name] for name in names if name in self._searches]
        return use.kind in _SEARCHED and any(search.found for search in searches)

    def _summary(self) -> Finding:
        uses = [
            u
            for u in _first_of_each(u for u in self._record.code if u.role in _READS)
            if not self._of_others(u)
        ]
        message = (
            f"{len(uses)} settings of the change's own, each documented; {len(self._record.documents)} mentions in "
            f"{self._record.num_documents} documents and {len(self._record.tests)} in tests agree with the code."
        )
        if not uses:
            message = "The change adds no setting that its text shows."
        details = [
            f"{u.kind} {u.name}, default {u.default if u.default is not None else 'not said there'}: {u.path}:{u.line}"
            for u in uses
        ]
        return self._finding(Outcome.PASS, "settings", message, details=details)

    def _drift(self, use: SettingUse, outcome: Outcome, what: str, advice: str) -> Finding:
        return self._finding(
            outcome,
            f"{use.kind} {use.name}",
            f"{use.path}:{use.line} {what}.",
            advice=advice,
            location=Location(path=use.path, line=use.line),
            details=[use.text] if use.text else [],
        )


def _verb(use: SettingUse) -> str:
    return "declares" if use.role == "declares" else "reads"


def _first_of_each(uses: Iterable[SettingUse]) -> list[SettingUse]:
    """One use for each setting."""
    first: dict[tuple[SettingKind, str], SettingUse] = {}
    for use in uses:
        first.setdefault((use.kind, use.name), use)
    return list(first.values())
