"""Which files never meet the objects of a change's hooked files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from harness.facts.python_source.may_import import MayImport
from harness.facts.python_source.off_path.scopes import imported_names
from harness.facts.python_source.tree import SourceTree


@dataclass(slots=True)
class Apart:
    """Other models' files that import neither hooked files nor the subject, and files that are not served."""

    trees: tuple[SourceTree, ...]
    analysed: Collection[str]
    """Paths of the hooked files and of the subject."""
    is_other_model: Callable[[str], bool]
    is_unserved: Callable[[str], bool]
    """Tests and documents."""
    _modules: frozenset[str] = field(init=False)
    _may_import: MayImport = field(init=False)
    _plain: re.Pattern[bytes] = field(init=False)
    """`import a.b`, which binds only `a`."""
    _known: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._modules = frozenset(
            tree.module_of(path) for tree in self.trees for path in self.analysed if path in tree.files
        )
        self._may_import = MayImport(self._modules, self.analysed)
        names = b"|".join(re.escape(module.encode()) for module in sorted(self._modules)) or rb"(?!)"
        self._plain = re.compile(
            rb"^[ \t]*import[ \t](?:[^\n]*[ \t,])?(?:" + names + rb")(?![\w.])", re.MULTILINE
        )

    def __call__(self, path: str) -> bool:
        """Whether a file is apart."""
        if path not in self._known:
            is_apart = self.is_unserved(path) or (self.is_other_model(path) and not self._meets(path))
            self._known[path] = is_apart
        return self._known[path]

    def _meets(self, path: str) -> bool:
        for tree in self.trees:
            content = tree.files.get(path)
            if content is None or not self._may_import(path, content):
                continue
            parsed = tree.parse(path)
            if parsed is None:
                return True
            imported = {target for _, target in imported_names(parsed, tree.package_of(path))}
            packages = {target.rpartition(".")[0] for target in imported}
            if (imported | packages) & self._modules or self._plain.search(content):
                return True
        return False
