"""ISO004: only hooks import the subject, and the subject takes nothing private of the engine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import ImportsEvidence
from harness.model.finding import Finding, Location
from harness.model.import_presets import IMPORT_PRESETS
from harness.model.paths import PathClass, PathRules
from harness.model.reach import ImportForm, InwardImport, OwnImport
from harness.model.words import Outcome, Principle, Tier

_LINE = re.compile(r"line ([1-9]\d*)")
"""Where the parser gave up."""
_MAX_FINDINGS = 25
"""Imports of one kind with a finding of their own; further ones share one that lists them."""
_WHO = {
    PathClass.PROTECTED: "protected code",
    PathClass.OTHER_MODEL: "model code outside the subject",
    PathClass.SHARED: "shared code",
    PathClass.BUILD: "the build",
}
_HOW = {
    ImportForm.STATIC: "imports",
    ImportForm.CONDITIONAL: "imports, below a condition,",
    ImportForm.LAZY: "imports, in a function,",
    ImportForm.TYPES_ONLY: "imports for types only",
    ImportForm.DYNAMIC: "imports by name",
    ImportForm.NAMED: "names, in a string,",
}


class Imports(BaseCheck):
    """No code outside declared hooks imports the subject; the subject imports no forbidden internals."""

    id = "ISO004"
    title = "Only declared hooks import the subject, and it imports nothing forbidden"
    principle = Principle.ISOLATION
    tier = Tier.STATIC
    how = (
        "Reads every import of the head's Python files, at the top, in functions, below conditions, by name and in "
        "registries; classifies the importing file by the manifest, and the imported name by the policy."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for each import that may not be, or one for all that may."""
        records = [r for r in context.evidence.of(ImportsEvidence) if r.commit == context.change.head]
        if not records:
            message = "The imports of the head were not read."
            return [self.finding(Outcome.NOT_RUN, "imports", message, advice="Run `fasttrack validate`.")]
        record = records[-1]
        if not record.num_subject_files:
            message = "The change owns no Python file, so nothing can import it and it imports nothing."
            return [self.finding(Outcome.NOT_APPLICABLE, "imports", message, evidence=[record.id])]
        rules = PathRules(context.manifest.paths, context.policy)
        inward = [*self._inward(record, rules)]
        outward = [*self._outward(record, context)]
        unread = [*self._unreadable(record)]
        return [*unread, *self._inward_result(record, rules, inward), *self._outward_result(record, outward)]

    def _inward(self, record: ImportsEvidence, rules: PathRules) -> Iterator[Finding]:
        counts: Counter[PathClass] = Counter()
        rest: dict[PathClass, list[str]] = {}
        for found in record.inward:
            path_class = rules.classify(found.path).path_class
            if not is_breach(found, path_class):
                continue
            counts[path_class] += 1
            if counts[path_class] > _MAX_FINDINGS:
                rest.setdefault(path_class, []).append(_described(found))
            else:
                yield self._inward_finding(found, path_class, record)
        for path_class, lines in rest.items():
            yield self.finding(
                Outcome.FAIL,
                f"imports by {_WHO[path_class]}",
                f"{len(lines)} further imports of the subject by {_WHO[path_class]}.",
                advice=_inward_advice(path_class),
                evidence=[record.id],
                details=lines,
            )

    def _inward_finding(self, found: InwardImport, path_class: PathClass, record: ImportsEvidence) -> Finding:
        is_spelt = not found.target.startswith("(")
        where = f" ({found.condition})" if found.condition else ""
        via = f", which {found.via} has from the subject" if found.via else ""
        taken = f"{found.target} ({', '.join(found.names)})" if found.names else found.target
        message = f"{_capital(_WHO[path_class])} {_HOW[found.form]} {taken}{via}{where}."
        if not is_spelt:
            message = f"{_capital(_WHO[path_class])} imports {found.target}, which may be the subject."
        return self.finding(
            Outcome.FAIL if is_spelt else Outcome.INCONCLUSIVE,
            f"{found.path}:{found.line}",
            message,
            advice=_inward_advice(path_class),
            location=Location(path=found.path, line=found.line),
            evidence=[record.id],
        )

    def _inward_result(
        self, record: ImportsEvidence, rules: PathRules, findings: Sequence[Finding]
    ) -> Sequence[Finding]:
        lines = [
            f"{_described(found)}{_guarded_by(found)}"
            for found in record.inward
            if not is_breach(found, rules.classify(found.path).path_class)
        ]
        if findings:
            return findings
        hooks = sum(rules.classify(f.path).path_class is PathClass.HOOK for f in record.inward)
        message = (
            f"Of {record.num_files} Python files, only declared hooks import the subject:"
            f" {hooks} imports in hooks, {len(lines) - hooks} others that never run or were there before."
        )
        return [
            self.finding(Outcome.PASS, "imports of the subject", message, evidence=[record.id], details=lines)
        ]

    def _outward(self, record: ImportsEvidence, context: CheckContext) -> Iterator[Finding]:
        policy = context.policy.imports
        preset = IMPORT_PRESETS[policy.preset]
        own_models = PathRules(context.manifest.paths, context.policy).own_models
        seen: set[tuple[str, int, str]] = set()
        for found in record.outward:
            if found.target.startswith("("):
                yield self._open_finding(found, record)
                continue
            reason = preset.why_forbidden(
                found.target, further=policy.forbidden, allowed=policy.allowed, own=own_models
            )
            key = (found.path, found.line, found.target)
            if not reason or found.form is ImportForm.TYPES_ONLY or key in seen:
                continue
            seen.add(key)
            yield self.finding(
                Outcome.FAIL,
                f"{found.path}:{found.line}",
                f"The subject uses {found.target}: {reason}.",
                advice="Use a public name, copy what is needed into an owned file, or ask for an interface.",
                location=Location(path=found.path, line=found.line),
                evidence=[record.id],
            )

    def _open_finding(self, found: OwnImport, record: ImportsEvidence) -> Finding:
        verb = "imports" if found.form is ImportForm.DYNAMIC else "uses"
        return self.finding(
            Outcome.INCONCLUSIVE,
            f"{found.path}:{found.line}",
            f"The subject {verb} {found.target}: which name of the engine that is, if one, cannot be told.",
            advice="Write the name out.",
            location=Location(path=found.path, line=found.line),
            evidence=[record.id],
        )

    def _outward_result(self, record: ImportsEvidence, findings: Sequence[Finding]) -> Sequence[Finding]:
        if len(findings) > _MAX_FINDINGS:
            rest = findings[_MAX_FINDINGS:]
            shared = self.finding(
                Outcome.FAIL,
                "forbidden imports",
                f"{len(rest)} further uses of what is out of reach.",
                advice=rest[0].advice,
                evidence=[record.id],
                details=[f"{f.subject}: {f.message}" for f in rest],
            )
            return [*findings[:_MAX_FINDINGS], shared]
        if findings:
            return findings
        counts = Counter(_module(found) for found in record.outward)
        message = f"The subject imports {len(counts)} modules of the engine, none of them out of reach."
        details = [f"{name}: {count} imports" for name, count in sorted(counts.items())]
        return [
            self.finding(
                Outcome.PASS, "imports by the subject", message, evidence=[record.id], details=details
            )
        ]

    def _unreadable(self, record: ImportsEvidence) -> Iterator[Finding]:
        for text in record.unreadable:
            path, _, problem = text.partition(": ")
            yield self.finding(
                Outcome.INCONCLUSIVE,
                path,
                f"The imports of {path} cannot be read: {problem}.",
                advice="Commit a file that parses.",
                location=Location(path=path, line=int(line[1]) if (line := _LINE.search(problem)) else 1),
                evidence=[record.id],
            )


def is_breach(found: InwardImport, path_class: PathClass) -> bool:
    """Whether an import of the subject may not be: new, run at some time, and in no hook."""
    if path_class in (PathClass.HOOK, PathClass.OWNED, PathClass.TEST, PathClass.DOCS):
        return False
    return found.is_new and found.form is not ImportForm.TYPES_ONLY


def _inward_advice(path_class: PathClass) -> str:
    if path_class is PathClass.OTHER_MODEL:
        return "Move what both models need out of the subject, or copy it into the other model."
    return "Import the subject from a declared hook only, or declare a hook in [paths] with a budget and a reason."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _described(found: InwardImport) -> str:
    state = "" if found.is_new else ", there before"
    where = f" ({found.condition})" if found.condition else ""
    via = f" through {found.via}" if found.via else ""
    names = f" ({', '.join(found.names)})" if found.names else ""
    return (
        f"{found.path}:{found.line} {_HOW[found.form].rstrip(',')} {found.target}{names}{via}{where}{state}"
    )


def _guarded_by(found: InwardImport) -> str:
    return f", guarded by {'; '.join(found.guards)}" if found.guards else ""


def _module(found: OwnImport) -> str:
    return found.target.rpartition(".")[0] or found.target
