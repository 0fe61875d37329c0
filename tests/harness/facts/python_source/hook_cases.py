"""A small engine with one hooked file, and what changes to that file do while the switch is off."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher

from harness.facts.python_source.apart import Apart
from harness.facts.python_source.hook_sides import Sides, Subject
from harness.facts.python_source.hooks import HookReader
from harness.facts.python_source.hunks import Span
from harness.facts.python_source.off_path.switch import Kind, ways_of_being_off
from harness.facts.python_source.tree import SourceTree
from harness.model.reach import GuardState, Hunk

HOOK = "engine/models/whale/model.py"
BASE = """\
import torch
from engine.layers import norm


class Whale(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = norm

    def forward(self, x, positions):
        hidden = self.norm(x)
        return self.blocks(hidden, positions)

    def blocks(self, hidden, positions, residual=None):
        for layer in self.layers:
            hidden = layer(hidden, positions)
        return hidden

    def compute_logits(self, hidden):
        return self.head(hidden)
"""
FAST = '''\
AUTO, FAST = "auto", "fast"


def backend(config):
    extra = config.additional_config
    return extra.get("backend", AUTO) if isinstance(extra, dict) else AUTO


def read(config):
    """The fast path's settings, None without it."""
    wanted = backend(config)
    if wanted == AUTO:
        return None
    if wanted != FAST:
        raise ValueError(wanted)
    return Fast(config)


def is_on(config) -> bool:
    return backend(config) == FAST


def start(config):
    print("starting")
    return None


class Fast:
    def __init__(self, config):
        self.buffer = allocate(config)

    def run(self, x):
        return kernel(x)


class Mixin:
    def set_fast(self, settings):
        self.fast = settings

    def run_fast(self, x):
        return None if self.fast is None else self.fast.run(x)


class Loud:
    def forward(self, x, positions):
        return kernel(x)
'''
SHARED = {
    "engine/layers.py": "def norm(x):\n    return x\n",
    "engine/runner.py": (
        "def step(model, x, p):\n"
        '    if hasattr(model, "get_state_cls"):\n'
        "        model.get_state_cls()\n"
        "    return model.compute_logits(model.forward(x, p))\n"
    ),
    "engine/envs.py": (
        "import os\n\nvariables = {\n"
        '    "ENGINE_FAST": lambda: bool(int(os.getenv("ENGINE_FAST", "0"))),\n'
        '    "ENGINE_TRUTHY": lambda: os.environ.get("ENGINE_FAST"),\n'
        "}\n\n\ndef __getattr__(name):\n    return variables[name]()\n"
    ),
}
READS = ("engine.models.whale.fast:read", "engine.models.whale.fast:is_on", "engine.models.whale.fast:Mixin")
OWNED = "engine/models/whale/fast.py"


def edit(*changes: tuple[str, str], base: str = BASE) -> str:
    """The base with pieces replaced; each piece stands in it once."""
    for old, new in changes:
        assert base.count(old) == 1, old
        base = base.replace(old, new)
    return base


def spans_of(old: str, new: str) -> tuple[Span, ...]:
    """The hunks between two texts."""
    matcher = SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return tuple(
        Span(
            base_line=i1 + 1 if i2 > i1 else i1,
            num_base=i2 - i1,
            head_line=j1 + 1 if j2 > j1 else j1,
            num_head=j2 - j1,
        )
        for kind, i1, i2, j1, j2 in matcher.get_opcodes()
        if kind != "equal"
    )


def read_hunks(
    head: str,
    *,
    base: str = BASE,
    fast: str = FAST,
    kind: Kind = "additional_config",
    key: str = "backend",
    off: str = "auto",
    reads: tuple[str, ...] = READS,
    more: Mapping[str, str] | None = None,
    own: Mapping[str, str] | None = None,
) -> tuple[Hunk, ...]:
    """The hunks of the hooked file.

    `more` are further files of both trees, `own` further ones of the subject.
    """
    shared = {path: text.encode() for path, text in {**SHARED, **(more or {})}.items()}
    owned = {path: text.encode() for path, text in {OWNED: fast, **(own or {})}.items()}
    trees = (
        SourceTree({**shared, HOOK: base.encode()}),
        SourceTree({**shared, HOOK: head.encode(), **owned}),
    )
    apart = Apart(
        trees, {HOOK, *owned}, lambda path: "/models/" in path, lambda path: path.startswith("tests/")
    )
    subject = Subject(hooks=(HOOK,), owned=frozenset(owned), reads=reads, is_apart=apart)
    sides = Sides(base=trees[0], head=trees[1], subject=subject, spans={HOOK: spans_of(base, head)})
    (file,) = HookReader(sides=sides, ways=ways_of_being_off(kind, key, off)).files()
    return file.hunks


def worst_state(hunks: tuple[Hunk, ...]) -> GuardState:
    """Unguarded before undecided before guarded."""
    states = {hunk.state for hunk in hunks}
    order = (GuardState.UNGUARDED, GuardState.UNDECIDED, GuardState.GUARDED)
    return next(state for state in order if state in states)
