"""Collects what reaches into the subject: hooks with their guards, imports both ways, owners of what was touched."""

from __future__ import annotations

from harness.app.reaching import StaticQuestion
from harness.app.recorder import utc_now
from harness.facts.python_source.apart import Apart
from harness.facts.python_source.deep_stack import on_deep_stack
from harness.facts.python_source.hook_sides import Sides, Subject
from harness.facts.python_source.hooks import HookReader
from harness.facts.python_source.hunks import Span, parse_spans
from harness.facts.python_source.off_path.switch import ways_of_being_off
from harness.facts.python_source.reaches import Reaches, collect_inward
from harness.facts.python_source.tree import SourceTree
from harness.model.change import EMPTY_TREE
from harness.model.codeowners import CODEOWNERS_PATHS
from harness.model.evidence import HooksEvidence, ImportsEvidence, OwnersEvidence
from harness.model.import_presets import IMPORT_PRESETS
from harness.model.paths import PathClass
from harness.model.words import Tier

InwardEvidence = HooksEvidence | ImportsEvidence | OwnersEvidence


@on_deep_stack
def collect_inward_evidence(question: StaticQuestion) -> tuple[InwardEvidence, ...]:
    """Hooks, imports and owners of a change; reads git's objects only."""
    reading = _Reading(question)
    return reading.hooks(), reading.imports(), reading.owners()


class _Reading:
    """The Python files of base and head, sorted by what they are to the change."""

    def __init__(self, question: StaticQuestion) -> None:
        self.question = question
        self._rules = question.rules
        hooks = tuple(hook.file for hook in question.manifest.paths.hooks)
        wanted = set(hooks)
        repository, change = question.repository, question.change

        def is_source(path: str) -> bool:
            return path.endswith(".py") or path in wanted

        self._base = SourceTree(repository.contents(change.merge_base, is_source))
        self._head = SourceTree(repository.contents(change.head, is_source))
        paths = {*self._base.files, *self._head.files}
        owned = frozenset(
            p for p in paths if p.endswith(".py") and self._rules.is_a(p, PathClass.OWNED) and p not in wanted
        )
        self._subject = Subject(
            hooks=hooks,
            owned=owned,
            reads=question.manifest.switch.reads,
            is_apart=Apart(
                (self._base, self._head), {*owned, *hooks}, self._is_other_model, self._is_unserved
            ),
        )
        switch = question.manifest.switch
        self._reader = HookReader(
            sides=Sides(base=self._base, head=self._head, subject=self._subject, spans=self._spans()),
            ways=ways_of_being_off(switch.kind, switch.key, switch.off),
        )

    def hooks(self) -> HooksEvidence:
        """Every declared hook, hunk by hunk."""
        change = self.question.change
        return HooksEvidence(
            tier=Tier.STATIC,
            recorded_at=utc_now(),
            command=("git", "diff-tree", "-p", "--unified=0", change.merge_base, change.head),
            base=change.merge_base,
            commit=change.head,
            files=self._reader.files(),
        )

    def imports(self) -> ImportsEvidence:
        """Imports into the subject and out of it, at the head."""
        head, base = self._reaches(self._head), self._reaches(self._base)
        names = self.question.policy.imports.preset
        packages = IMPORT_PRESETS[names].packages
        files = [p for p in self._head.files if p.endswith(".py") and not self._is_unserved(p)]
        return ImportsEvidence(
            tier=Tier.STATIC,
            recorded_at=utc_now(),
            commit=self.question.change.head,
            num_files=len(files),
            num_subject_files=len(head.owned_paths),
            inward=collect_inward(head, base, self._reader.guards_at),
            outward=tuple(head.outward(packages)),
            unreadable=head.unreadable(),
        )

    def owners(self) -> OwnersEvidence:
        """CODEOWNERS as the merge base has it: a change does not choose who owns what it touches."""
        repository, change = self.question.repository, self.question.change
        commit = change.head if change.merge_base == EMPTY_TREE else change.merge_base
        found = repository.contents(commit, CODEOWNERS_PATHS.__contains__)
        path = next((p for p in CODEOWNERS_PATHS if p in found), "")
        text = found[path].decode("utf-8", errors="backslashreplace") if path else ""
        return OwnersEvidence(tier=Tier.STATIC, recorded_at=utc_now(), path=path, text=text)

    def _reaches(self, tree: SourceTree) -> Reaches:
        owned = frozenset(path for path in self._subject.owned if path in tree.files)
        return Reaches(tree, owned, self._is_unserved)

    def _spans(self) -> dict[str, tuple[Span, ...]]:
        repository, change = self.question.repository, self.question.change
        return {
            path: parse_spans(repository.patch(change.merge_base, change.head, path))
            for path in self._subject.hooks
            if self._base.files.get(path) != self._head.files.get(path)
        }

    def _is_other_model(self, path: str) -> bool:
        return self._rules.is_a(path, PathClass.OTHER_MODEL)

    def _is_unserved(self, path: str) -> bool:
        rules = self._rules
        return (
            path.startswith("tests/") or rules.is_a(path, PathClass.TEST) or rules.is_a(path, PathClass.DOCS)
        )
