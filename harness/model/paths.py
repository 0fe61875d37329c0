"""Which files of a repository a change owns, may touch, and must not touch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.model.codeowners import CODEOWNERS_PATHS
from harness.model.globs import globs_overlap, literal_parts, matches_any, matching_glob
from harness.model.manifest import Hook, PathsSection
from harness.model.path_presets import PRESETS, PathPreset
from harness.model.policy import Policy

MANIFEST = "fasttrack.toml"
"""Name of the file that declares a change, in whatever folder it lies."""


class PathClass(StrEnum):
    """What a path is to a change."""

    OWNED = "owned"
    HOOK = "hook"
    PROTECTED = "protected"
    OTHER_MODEL = "other_model"
    SHARED = "shared"
    TEST = "test"
    DOCS = "docs"
    BUILD = "build"

    @property
    def is_free(self) -> bool:
        """Whether a change may edit such a path as it likes."""
        return self in (PathClass.OWNED, PathClass.TEST, PathClass.DOCS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedPath:
    """A path with its class and the rule that decided."""

    path_class: PathClass
    rule: str


class PathRules:
    """The `[paths]` of a manifest, ready to classify: what is protected wins over everything else."""

    def __init__(self, section: PathsSection, policy: Policy | None = None) -> None:
        """Rules of a manifest; a policy, where given, adds what the manifest cannot take away."""
        self.section = section
        name = policy.preset if policy is not None and policy.preset != "none" else section.preset
        self.preset: PathPreset = PRESETS[name]
        self.preset_name = name
        policy_protected = tuple((glob, "the policy") for glob in (policy.protected if policy else ()))
        self._hooks = {hook.file: hook for hook in section.hooks}
        manifest_protected = tuple((glob, "the manifest") for glob in section.protected)
        given = policy_protected + manifest_protected + self.preset.protected
        self.protects_nothing = not given
        """Whether neither preset, manifest nor policy protects a path."""
        self._known: dict[str, ClassifiedPath] = {}
        self._globs: dict[PathClass, tuple[str, ...]] = {
            PathClass.OWNED: section.owned,
            PathClass.HOOK: tuple(self._hooks),
            PathClass.TEST: section.tests,
            PathClass.DOCS: section.docs,
            PathClass.OTHER_MODEL: tuple(f"{folder}/**" for folder in self.preset.model_folders),
        }
        self._protected = given + tuple((path, "who reviews what") for path in CODEOWNERS_PATHS)

    def classify(self, path: str) -> ClassifiedPath:
        """The class of a repository path. A path that nothing names is shared."""
        if path not in self._known:
            self._known[path] = self._classify(path)
        return self._known[path]

    def is_a(self, path: str, wanted: PathClass) -> bool:
        """Whether a path has a class; soon answered for one that no glob of that class matches."""
        globs = self._globs.get(wanted)
        return (globs is None or matches_any(path, globs)) and self.classify(path).path_class is wanted

    def _classify(self, path: str) -> ClassifiedPath:
        if not is_plain(path):
            return ClassifiedPath(path_class=PathClass.PROTECTED, rule="not a plain repository path")
        if found := _described_match(path, self._protected):
            return ClassifiedPath(path_class=PathClass.PROTECTED, rule=found)
        # A manifest that could own itself, or call itself a document, would let a change write its own terms.
        if path.rpartition("/")[2] == MANIFEST:
            return ClassifiedPath(path_class=PathClass.SHARED, rule="it declares what a change is judged by")
        if path in self._hooks:
            return ClassifiedPath(path_class=PathClass.HOOK, rule=path)
        if found := _described_match(path, self.preset.build):
            return ClassifiedPath(path_class=PathClass.BUILD, rule=found)
        if found := _described_match(path, self.preset.shared):
            return ClassifiedPath(path_class=PathClass.SHARED, rule=found)
        if glob := matching_glob(path, self.section.owned):
            return ClassifiedPath(path_class=PathClass.OWNED, rule=glob)
        for folder in self.preset.model_folders:
            if path.startswith(folder + "/"):
                return ClassifiedPath(path_class=PathClass.OTHER_MODEL, rule=f"{folder}/**")
        if self.preset.package and path.startswith(self.preset.package + "/"):
            return ClassifiedPath(path_class=PathClass.SHARED, rule=f"{self.preset.package}/** (the engine)")
        if glob := matching_glob(path, self.section.tests):
            return ClassifiedPath(path_class=PathClass.TEST, rule=glob)
        if glob := matching_glob(path, self.section.docs):
            return ClassifiedPath(path_class=PathClass.DOCS, rule=glob)
        return ClassifiedPath(path_class=PathClass.SHARED, rule="named nowhere in the manifest")

    def hook(self, path: str) -> Hook | None:
        """The hook that the manifest declares for a path."""
        return self._hooks.get(path)

    @property
    def own_models(self) -> tuple[str, ...]:
        """Dotted names of the model packages in which the owned globs lie."""
        found = []
        for glob in self.section.owned:
            parts = literal_parts(glob)
            for folder in self.preset.model_folders:
                size = len(folder.split("/")) + 1
                if "/".join(parts[: size - 1]) == folder and len(parts) >= size:
                    found.append(".".join(parts[:size]).removesuffix(".py"))
        return tuple(dict.fromkeys(found))

    def why_not_owned(self, glob: str) -> str | None:
        """Why a manifest may not own `glob`; None when it may."""
        if not literal_parts(glob):
            return "a glob that begins with a folder's full name"
        for protected, what in self._protected:
            if globs_overlap(glob, protected):
                return f"a glob outside the protected {protected} ({what})"
        for common, what in self.preset.shared + self.preset.build:
            if globs_overlap(glob, common):
                return f"a glob outside {common} ({what}), which only a hook may reach"
        for folder in self.preset.model_folders:
            names = tuple(folder.split("/"))
            if globs_overlap(glob, f"{folder}/**") and len(literal_parts(glob)) <= len(names):
                return f"a glob that names the model's own folder below {folder}"
        return None

    def why_not_hook(self, path: str) -> str | None:
        """Why a manifest may not declare a hook in `path`; None when it may."""
        if not is_plain(path) or any(c in path for c in "*?"):
            return "the path of one file"
        if found := _described_match(path, self._protected):
            return f"a file outside the protected {found}"
        return None


def is_plain(path: str) -> bool:
    """Whether a path is relative, without empty parts, `.`, `..` and `.git`."""
    return all(part not in ("", ".", "..") and part.lower() != ".git" for part in path.split("/"))


def link_destination(path: str, target: str) -> str | None:
    """The repository path that a symbolic link points at, read without following other links.

    None where that cannot be told from the text: absolute targets, targets above the repository root, and
    `..` after a name, which another link may redirect.
    """
    folder = path.split("/")[:-1]
    parts = target.split("/")
    while parts and parts[0] in (".", ".."):
        if parts.pop(0) == ".." and (not folder or not folder.pop()):
            return None
    destination = "/".join(folder + parts)
    return destination if is_plain(destination) else None


def _described_match(path: str, globs: tuple[tuple[str, str], ...]) -> str | None:
    if not matches_any(path, tuple(glob for glob, _ in globs)):
        return None
    return next(f"{glob} ({what})" for glob, what in globs if matching_glob(path, (glob,)))
