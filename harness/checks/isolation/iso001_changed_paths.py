"""ISO001: the change stays inside its own files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.checks.isolation.record_judge import RecordJudge
from harness.checks.isolation.touched import describe_owners, describe_size
from harness.model.change import EMPTY_TREE, ChangedFile
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import ChangedFilesEvidence, OwnersEvidence
from harness.model.finding import Finding, Location
from harness.model.globs import literal_parts
from harness.model.manifest import Hook
from harness.model.paths import MANIFEST, ClassifiedPath, PathClass, PathRules, link_destination
from harness.model.words import Outcome, Principle, Tier

LINK_MODE = "120000"
SUBMODULE_MODE = "160000"
_MAX_FINDINGS_A_RULE = 25
"""Files with a finding of their own; further ones of the same rule share one that lists them."""
_UNCOUNTED = (PathClass.TEST, PathClass.DOCS)
_STEERS_TESTS = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
)
"""What pytest reads beside tests: it chooses, changes or leaves out those of the folders below."""
_WHY = {
    PathClass.PROTECTED: "is protected by",
    PathClass.SHARED: "is shared:",
    PathClass.OTHER_MODEL: "belongs to another model:",
    PathClass.BUILD: "belongs to the build:",
}
_MANIFEST_ADVICE = (
    "Bring the edit of the manifest in a pull request of its own, for maintainers to read and waive; this change is "
    "then judged by what they merged."
)
_ADVICE = {
    PathClass.PROTECTED: "Take the edit out of this change; what the core needs goes through an ordinary review.",
    PathClass.SHARED: "Move the code into an owned path, or declare a hook with a budget in [paths] of the manifest.",
    PathClass.OTHER_MODEL: "Take the edit out of this change, or copy what is needed into an owned path.",
    PathClass.BUILD: "Take the edit out, or declare a hook with a budget in [paths] of the manifest.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """One path that the change edits: a rename edits two."""

    path: str
    file: ChangedFile
    classified: ClassifiedPath


class ChangedPaths(BaseCheck):
    """Every changed file is owned, a hook within its budget, a test or a document."""

    id = "ISO001"
    title = "The change stays inside its own files"
    principle = Principle.ISOLATION
    tier = Tier.STATIC
    how = (
        "Classifies every path of the diff, both of a rename, by the manifest's [paths] and the protected preset; "
        "hooks by their line budget; links by their target."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Classifies every path that the diff touches."""
        records = context.evidence.of(ChangedFilesEvidence)
        if not records or not records[-1].files:
            return [
                self.finding(
                    Outcome.NOT_RUN,
                    "changed files",
                    "No changed file is recorded, so nothing is known about where the change reaches.",
                    advice="Run `fasttrack validate` in a clone that holds the base and the head.",
                )
            ]
        return list(_Judge(self, context, records[-1]).findings())


class _Judge(RecordJudge[ChangedFilesEvidence]):
    """The decision for one diff."""

    def __init__(self, check: ChangedPaths, context: CheckContext, record: ChangedFilesEvidence) -> None:
        super().__init__(check, context, record)
        self.rules = PathRules(context.manifest.paths, context.policy)
        self.edits = [
            _Edit(path=path, file=file, classified=self.rules.classify(path))
            for file in record.files
            for path in edited_paths(file)
            if not self._declares_itself(path, file)
        ]

    def _declares_itself(self, path: str, file: ChangedFile) -> bool:
        """Whether the change brings its first manifest: the declaration that it is judged by."""
        return (
            path == MANIFEST
            and file.status == "added"
            and self.rules.classify(path).path_class is PathClass.SHARED
        )

    def findings(self) -> Iterator[Finding]:
        found = [
            *self._manifest_findings(),
            *self._path_findings(),
            *self._hook_findings(),
            *self._special_file_findings(),
            *self._rival_findings(),
            *self._common_findings(),
        ]
        yield from found
        if all(finding.outcome is Outcome.PASS for finding in found):
            yield self._summary()
        yield self._touched()

    def _touched(self) -> Finding:
        """Information for the reader: size and owners."""
        code = {edit.path for edit in self.edits if edit.classified.path_class not in _UNCOUNTED}
        files = [file for file in self._record.files if file.path in code]
        records = self._context.evidence.of(OwnersEvidence)
        owners, details = describe_owners(
            sorted({edit.path for edit in self.edits}), records[-1] if records else None
        )
        message = f"{describe_size(files)}, tests and documents not counted. {owners}"
        return self._finding(Outcome.NOT_APPLICABLE, "size and owners", message, details=details)

    def _manifest_findings(self) -> Iterator[Finding]:
        for glob in self.rules.section.owned:
            if expected := self.rules.why_not_owned(glob):
                yield self._finding(
                    Outcome.FAIL,
                    glob,
                    f"The manifest owns {glob}, which no change may own: expected {expected}.",
                    advice="Narrow paths.owned in the manifest.",
                )
        for hook in self.rules.section.hooks:
            if expected := self.rules.why_not_hook(hook.file):
                yield self._finding(
                    Outcome.FAIL,
                    hook.file,
                    f"The manifest declares a hook in {hook.file}, where none may be: expected {expected}.",
                    advice="Take the hook out of the manifest.",
                )

    def _path_findings(self) -> Iterator[Finding]:
        groups: dict[tuple[PathClass, str], list[_Edit]] = {}
        for edit in self.edits:
            if not edit.classified.path_class.is_free and edit.classified.path_class is not PathClass.HOOK:
                groups.setdefault((edit.classified.path_class, edit.classified.rule), []).append(edit)
        for (path_class, rule), edits in groups.items():
            for edit in edits[:_MAX_FINDINGS_A_RULE]:
                yield self._finding(
                    Outcome.FAIL,
                    edit.path,
                    f"{edit.path} is {_verb(edit)} and {self._why(edit)}.",
                    advice=_MANIFEST_ADVICE if _is_manifest(edit.path) else _ADVICE[path_class],
                    location=whole(edit.path),
                )
            if rest := edits[_MAX_FINDINGS_A_RULE:]:
                yield self._finding(
                    Outcome.FAIL,
                    rule,
                    f"{len(rest)} further edited files: each {_WHY[path_class]} {rule}.",
                    advice=_ADVICE[path_class],
                    location=whole(rest[0].path),
                    details=[f"{edit.path} is {_verb(edit)}" for edit in rest],
                )

    def _why(self, edit: _Edit) -> str:
        """What stands against an edit."""
        folders = tuple(f"{name.replace('.', '/')}/" for name in self.rules.own_models)
        if edit.classified.path_class is PathClass.OTHER_MODEL and edit.path.startswith(folders):
            return "belongs to what the model runs without the change: the manifest does not own it"
        return f"{_WHY[edit.classified.path_class]} {edit.classified.rule}"

    def _hook_findings(self) -> Iterator[Finding]:
        for edit in self.edits:
            hook = self.rules.hook(edit.path)
            if edit.classified.path_class is not PathClass.HOOK or hook is None:
                continue
            location = whole(edit.path)
            if problem := hook_problem(edit.file, hook):
                yield self._finding(
                    Outcome.FAIL,
                    edit.path,
                    f"The hook in {edit.path} {problem}.",
                    advice="Move the code into an owned path and leave a call to it.",
                    location=location,
                )
            else:
                yield self._finding(
                    Outcome.PASS,
                    edit.path,
                    f"The hook in {edit.path} adds {edit.file.added_lines} of at most {hook.max_added_lines}"
                    f" lines. Declared reason: {hook.why}. ISO003 says whether the switch guards"
                    " them.",
                    location=location,
                )

    def _common_findings(self) -> Iterator[Finding]:
        """Tests and documents under a glob that takes in those of everybody: what others lose by the edit."""
        for edit in self.edits:
            path_class, rule = edit.classified.path_class, edit.classified.rule
            is_common = len(literal_parts(rule)) == 1 and "*" in rule
            if path_class not in _UNCOUNTED or not is_common or (harm := _harm(edit)) is None:
                continue
            key, kind = ("tests", "tests") if path_class is PathClass.TEST else ("docs", "documents")
            yield self._finding(
                Outcome.INCONCLUSIVE,
                edit.path,
                f"{edit.path} is {_verb(edit)}, and {rule} takes in everybody's {kind}: whether {harm} cannot be told.",
                advice=f"Narrow paths.{key} in the manifest to the change's own folder.",
                location=whole(edit.path),
            )

    def _special_file_findings(self) -> Iterator[Finding]:
        for edit in self.edits:
            file = edit.file
            if edit.path != file.path or file.status == "deleted" or not edit.classified.path_class.is_free:
                continue
            location = whole(file.path)
            if file.new_mode == SUBMODULE_MODE:
                yield self._finding(
                    Outcome.FAIL,
                    file.path,
                    f"{file.path} is a submodule: its code is in another repository, not in this change.",
                    advice="Commit the files themselves.",
                    location=location,
                )
            elif file.new_mode == LINK_MODE:
                yield self._link_finding(file, location)
            elif file.is_lfs_pointer:
                yield self._finding(
                    Outcome.INCONCLUSIVE,
                    file.path,
                    f"{file.path} is a Git LFS pointer: what it stands for is not in the repository.",
                    advice="Commit the content itself, or leave the file out of the change.",
                    location=location,
                )
            elif file.is_binary and edit.classified.path_class is PathClass.OWNED:
                yield self._finding(
                    Outcome.INCONCLUSIVE,
                    file.path,
                    f"{file.path} is binary: what it holds and what it reaches cannot be read from the change.",
                    advice="Commit the source that it is built from, or keep it with the tests or documents.",
                    location=location,
                )

    def _rival_findings(self) -> Iterator[Finding]:
        """Files of a module that has another one: which of them Python imports is not in their text."""
        for edit in self.edits:
            file = edit.file
            if edit.path != file.path or not file.rivals or not edit.classified.path_class.is_free:
                continue
            others = [path for path in file.rivals if not self.rules.classify(path).path_class.is_free]
            takes = bool(others) and file.status in ("added", "renamed", "copied")
            harm = (
                f"it may be imported in the place of {others[0]}, which is not the change's own"
                if takes
                else ("which of them is imported cannot be told")
            )
            yield self._finding(
                Outcome.FAIL if takes else Outcome.INCONCLUSIVE,
                file.path,
                f"{file.path} and {', '.join(file.rivals)} are files of one module: {harm}.",
                advice="Give each module one file, and a name of its own.",
                location=whole(file.path),
            )

    def _link_finding(self, file: ChangedFile, location: Location) -> Finding:
        target = file.link_target
        destination = None if target is None else link_destination(file.path, target)
        if destination is not None and self.rules.classify(destination).path_class.is_free:
            return self._finding(
                Outcome.PASS,
                file.path,
                f"{file.path} is a symbolic link to {destination}, inside the change's own paths.",
                location=location,
            )
        return self._finding(
            Outcome.FAIL,
            file.path,
            f"{file.path} is a symbolic link to {target}, which is not inside the change's own paths.",
            advice="Commit the file itself, or link to an owned file by a relative path.",
            location=location,
        )

    def _summary(self) -> Finding:
        counts = Counter(edit.classified.path_class for edit in self.edits)
        by_class = ", ".join(f"{counts[c]} {c}" for c in PathClass if counts[c])
        message = f"All {len(self._record.files)} judged files are the change's own: {by_class}."
        not_judged = self._record.num_not_judged
        limits = " ".join(self._context.change.limited_to)
        if not_judged:
            message += f" {not_judged} changed files outside --paths {limits} were not judged."
        if self.rules.protects_nothing:
            return self._finding(
                Outcome.INCONCLUSIVE,
                "changed files",
                f"{message} The manifest protects nothing (preset none, no protected globs), so this shows no"
                " isolation.",
                advice='Set paths.preset = "vllm-core", or name the protected globs of the repository.',
            )
        if not_judged and self._context.change.merge_base != EMPTY_TREE:
            return self._finding(
                Outcome.INCONCLUSIVE,
                "changed files",
                f"{message} They belong to the same change, so its isolation is not shown.",
                advice="Run again without --paths.",
            )
        return self._finding(Outcome.PASS, "changed files", message, details=self._details())

    def _details(self) -> list[str]:
        lines = [f"owned: {glob}" for glob in self.rules.section.owned]
        lines.append(f"protected by preset: {self.rules.preset_name}")
        lines += [
            f"{file.path} becomes executable"
            for file in self._record.files
            if file.new_mode == "100755" and file.old_mode == "100644"
        ]
        return lines


def edited_paths(file: ChangedFile) -> tuple[str, ...]:
    """The paths that an entry of the diff edits: a rename takes one away and adds one, a copy only adds."""
    if file.status == "renamed" and file.old_path is not None:
        return (file.old_path, file.path)
    return (file.path,)


def whole(path: str) -> Location:
    """A file as a whole, which readers of lines show at its first."""
    return Location(path=path, line=1)


def hook_problem(file: ChangedFile, hook: Hook) -> str | None:
    """Why the edit of a hooked file is no hook; None when it adds lines within the budget."""
    if file.status not in ("added", "modified"):
        return f"is {file.status.replace('_', ' ')}, where a hook only adds lines"
    if file.added_lines is None or file.deleted_lines is None:
        return "is not text, so its lines cannot be counted"
    if file.status == "modified" and file.old_mode != file.new_mode:
        return f"changes the file's mode from {file.old_mode} to {file.new_mode}"
    if file.added_lines > hook.max_added_lines:
        return f"adds {file.added_lines} lines, more than its {hook.max_added_lines}"
    if file.deleted_lines > file.added_lines:
        return f"takes {file.deleted_lines} lines away and adds {file.added_lines}"
    return None


def _verb(edit: _Edit) -> str:
    if edit.file.status == "renamed":
        if edit.path == edit.file.path:
            return f"renamed from {edit.file.old_path}"
        return f"renamed to {edit.file.path}"
    return edit.file.status.replace("_", " ")


def _harm(edit: _Edit) -> str | None:
    """What may be lost by an edit of a test or document that need not be the change's own; None for nothing."""
    file = edit.file
    if edit.classified.path_class is PathClass.DOCS:
        is_taken = file.status in ("deleted", "renamed") or (file.deleted_lines or 0) > (
            file.added_lines or 0
        )
        return "others miss what it said" if is_taken else None
    if file.status not in ("added", "copied"):
        return "this one is the change's own"
    return "it steers tests of others" if edit.path.rpartition("/")[2] in _STEERS_TESTS else None


def _is_manifest(path: str) -> bool:
    return path.rpartition("/")[2] == MANIFEST
