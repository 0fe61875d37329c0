"""Collects what the subject's files reach outside, and which settings they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from harness.app.recorder import Recorder, utc_now
from harness.facts.engine_source import EngineSource, collect_engine_source
from harness.facts.git import Repository
from harness.facts.python_effects.names import search_both, search_engine
from harness.facts.python_effects.program import Program, read_program
from harness.facts.python_effects.read import CommittedFiles, program_of, read_effects
from harness.facts.python_source.deep_stack import on_deep_stack
from harness.facts.python_source.tree import SourceTree
from harness.facts.surface.documents import DOCUMENT_NAMES
from harness.facts.surface.read import SurfaceFiles, looked_up, read_surface
from harness.model.change import EMPTY_TREE, Change
from harness.model.effects import Effect, EffectKind
from harness.model.evidence import ChangedFilesEvidence, PythonEffectsEvidence, SurfaceEvidence
from harness.model.manifest import Manifest
from harness.model.paths import PathClass, PathRules
from harness.model.policy import Policy
from harness.model.words import Tier

_NAMED = (EffectKind.REGISTRY, EffectKind.CONTAINER, EffectKind.ENVIRONMENT)
_LOOKED_AT = (PathClass.HOOK, PathClass.BUILD)
"""Besides owned files; an edit of any other is a breach already, whatever it does (ISO001)."""


@dataclass(frozen=True, kw_only=True)
class StaticQuestion:
    """The change whose text is read."""

    repository: Repository
    change: Change
    changed: ChangedFilesEvidence
    manifest: Manifest
    policy: Policy

    @cached_property
    def rules(self) -> PathRules:
        """What each path is to the change."""
        return PathRules(self.manifest.paths, self.policy)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While it lasts, what is read of both commits is read once; their Python files at its start."""
        commits = (self.change.merge_base, self.change.head)
        with self.repository.kept(commits, lambda path: path.endswith(".py")):
            yield


def collect_outside(question: StaticQuestion, recorder: Recorder) -> None:
    """Records what the change reaches outside its own files, and the settings through which users reach it."""
    recorder.progress.say("reading what the subject's files reach, and its settings")
    for record in read_outside(question, engine_source(question)):
        recorder.record(record)


@on_deep_stack
def read_outside(
    question: StaticQuestion, source: EngineSource
) -> tuple[PythonEffectsEvidence, SurfaceEvidence]:
    """Effects and settings of the change; but for names that are looked up in `source`, from git's objects only."""
    files = read_committed_files(question)
    program = program_of(files)
    return collect_effects(question, files, program, source), collect_surface(
        question, files, program, source
    )


def collect_effects(
    question: StaticQuestion, files: CommittedFiles, program: Program, source: EngineSource
) -> PythonEffectsEvidence:
    """What the subject's files at the head, and the edited files of others, reach."""
    looked_at, effects = read_effects(files, program)
    return PythonEffectsEvidence(
        tier=Tier.STATIC,
        recorded_at=utc_now(),
        commit=question.change.head,
        files=looked_at,
        effects=effects,
        searched=source.names,
        searches=search_engine(frozenset(names_of(effects)), source) if source.names else (),
    )


def collect_surface(
    question: StaticQuestion, files: CommittedFiles, program: Program, source: EngineSource
) -> SurfaceEvidence:
    """The settings of the change's code, tests and documents."""
    repository, head, rules = question.repository, question.change.head, question.rules
    documents = repository.contents(head, lambda p: _is_document(p, rules))
    own = {
        p: c
        for p, c in documents.items()
        if rules.classify(p).path_class in (PathClass.DOCS, PathClass.OWNED)
    }
    surface = read_surface(
        SurfaceFiles(
            code=program,
            before=read_program(SourceTree(files.before), files.before, owned=files.before),
            tests=repository.contents(head, lambda p: rules.is_a(p, PathClass.TEST)),
            documents=own,
            other_documents={path: content for path, content in documents.items() if path not in own},
        ),
        question.manifest.switch,
        commands=("vllm", *_own_packages(question.manifest.paths.import_roots, files)),
    )
    names = frozenset(looked_up(surface))
    others = repository.contents(head, lambda p: _is_other_code(p, rules)) if names else {}
    return SurfaceEvidence(
        tier=Tier.STATIC,
        recorded_at=utc_now(),
        commit=head,
        code=surface.code,
        tests=surface.tests,
        documents=surface.documents,
        num_documents=len(documents),
        switch=surface.switch,
        fields_read=surface.fields_read,
        fields_are_read_whole=surface.fields_are_read_whole,
        searched=source.names,
        searches=search_both(names, source, others),
    )


def _own_packages(roots: Sequence[str], files: CommittedFiles) -> Iterator[str]:
    """The packages that hold files of the change: another's command may have flags that the change does not read."""
    for root in roots:
        folder = f"/{root.replace('.', '/')}"
        if any(
            f"/{path}".removesuffix(".py").endswith(folder) or f"{folder}/" in f"/{path}"
            for path in files.owned
        ):
            yield root


def _is_document(path: str, rules: PathRules) -> bool:
    return path.endswith(DOCUMENT_NAMES) and rules.classify(path).path_class not in (
        PathClass.TEST,
        PathClass.OTHER_MODEL,
    )


def _is_other_code(path: str, rules: PathRules) -> bool:
    """Python outside the change: what it reads is documented for other reasons."""
    own = (PathClass.OWNED, PathClass.TEST, PathClass.HOOK)
    return path.endswith(".py") and not any(rules.is_a(path, known) for known in own)


def read_committed_files(question: StaticQuestion) -> CommittedFiles:
    """The owned files of the head, and the edited hooks and build files."""
    repository, change, rules = question.repository, question.change, question.rules
    owned = repository.contents(change.head, lambda p: rules.is_a(p, PathClass.OWNED))
    edited_paths = {
        f.path: f.old_path if f.status == "renamed" and f.old_path else f.path
        for f in question.changed.files
        if rules.classify(f.path).path_class in _LOOKED_AT
    }
    edited = repository.contents(change.head, edited_paths.__contains__)
    former = set(edited_paths.values())
    before = repository.contents(change.merge_base, former.__contains__)
    by_new_path = {new: before[old] for new, old in edited_paths.items() if old in before}
    return CommittedFiles(owned=owned, edited=edited, before=by_new_path)


def names_of(effects: tuple[Effect, ...]) -> set[str]:
    """The names whose being new, or being known to others, decides something."""
    operators = {e.target.rpartition("::")[2] for e in effects if e.kind is EffectKind.OPERATOR and e.is_sure}
    keys = {e.key for e in effects if e.kind in _NAMED and e.key and not (e.key_is_own or e.key_is_foreign)}
    return keys | operators


def engine_source(question: StaticQuestion) -> EngineSource:
    """The engine's own files: of the merge base where the repository holds the engine, of the machine otherwise."""
    rules, merge_base = question.rules, question.change.merge_base
    package = f"{rules.preset.package}/"
    if rules.preset.package and merge_base != EMPTY_TREE:

        def is_engine(path: str) -> bool:
            is_python = path.startswith(package) and path.endswith(".py")
            return is_python and not rules.is_a(path, PathClass.OWNED)

        files = question.repository.contents(merge_base, is_engine)
        if files:
            return EngineSource(names=("the merge base",), files=files)
    return collect_engine_source()
