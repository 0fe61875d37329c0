"""Laws of what a hooked file may gain: little, and everything else must be the base's, node for node and in order."""

from __future__ import annotations

import pytest

from harness.facts.python_source.deep_stack import on_deep_stack
from harness.facts.python_source.off_path.bases import TORCH_MODULE_NAMES
from harness.model.reach import GuardState
from tests.harness.facts.python_source.hook_cases import BASE, FAST, edit, read_hunks, worst_state

Change = tuple[str, str]
CALL = "        hidden = self.norm(x)\n"
TORCH_CALL = "        hidden = torch.relu(self.norm(x))\n"
LOGITS = "    def compute_logits(self, hidden):\n"
USES_TORCH = edit((CALL, TORCH_CALL))
IMPORTS = "from engine.layers import norm\n"
READ = (IMPORTS, f"{IMPORTS}from .fast import read\n")
KEEP = ("        self.norm = norm\n", "        self.norm = norm\n        self.fast = read(config)\n")
BEHIND = "        if self.fast is not None:\n            {}\n"
TRIES = edit(
    (CALL, f"        try:\n    {CALL}        except ValueError:\n            hidden = x\n"),
)
MATCHES = edit(
    (CALL, f"{CALL}        match x.ndim:\n            case 1:\n                hidden = hidden * 2\n"),
)
KINDS = edit(
    (
        "class Whale",
        "import enum\nfrom dataclasses import dataclass\n\n\n"
        "@dataclass\nclass Meta:\n    a: int = 0\n    b: int = 0\n\n\n"
        "class Kind(enum.IntEnum):\n    A = 1\n\n\nclass Whale",
    )
)
ORDERED = edit(
    (
        "import torch\n",
        "import os\nos.environ.setdefault('A', '1')\nimport json\nimport torch\n\n\ndef pick():\n    return 1\n\n\n"
        "VALUE = pick()\n\n\ndef pick():\n    return 2\n",
    )
)
INPLACE = edit((CALL, "        hidden = self.norm(x, inplace=False)\n"))
FREE = edit((LOGITS, f"    def free(self, *rest):\n        return rest\n\n{LOGITS}"))
GLOBAL = edit(
    ("class Whale", "loaded = None\n\n\nclass Whale"),
    (
        "        return self.head(hidden)\n",
        "        global loaded\n        loaded = hidden\n        return loaded\n",
    ),
)


def behind(line: str) -> Change:
    """A line that runs with the switch on only."""
    return TORCH_CALL, BEHIND.format(line) + TORCH_CALL


def mixin(body: str) -> str:
    """The subject with a base class that has a member of the change's own and those of `body`."""
    return f"{FAST}\n\nclass Mixin:\n    def whale_help(self):\n        return 1\n\n{body}"


SURE = [
    # The compiler reads code that never runs.
    (USES_TORCH, [READ, KEEP, behind("import torch.cuda.nvtx")], "makes torch a local"),
    (USES_TORCH, [READ, KEEP, behind("del torch")], "makes torch a local"),
    (USES_TORCH, [READ, KEEP, behind("[(torch := 1) for _ in x]")], "makes torch a local"),
    (USES_TORCH, [READ, KEEP, behind("late = lambda v=(torch := 1): v")], "makes torch a local"),
    (USES_TORCH, [READ, KEEP, behind("def late(*, v=(torch := 1)): ...")], "makes torch a local"),
    (USES_TORCH, [READ, KEEP, behind("def late(v: (torch := 1)): ...")], "makes torch a local"),
    (USES_TORCH, [READ, KEEP, behind("late = lambda v=(yield 1): v")], "is a generator"),
    (USES_TORCH, [READ, KEEP, behind("global hidden")], "no local of forward"),
    (USES_TORCH, [(TORCH_CALL, f"        global hidden\n{TORCH_CALL}")], "no local of forward"),
    (USES_TORCH, [READ, KEEP, behind("yield 1")], "is a generator"),
    # Signatures.
    (BASE, [("positions, residual=None", "positions, whale=None, residual=None")], "signature"),
    (BASE, [("positions, residual=None", "positions, *, residual=None")], "signature"),
    (BASE, [("hidden, positions, residual=None", "hidden, positions, /, residual=None")], "signature"),
    (FREE, [("self, *rest", "self, whale=None, *rest")], "signature"),
    # All of a compound statement.
    (TRIES, [("except ValueError", "except Exception")], "another one"),
    (
        TRIES,
        [("            hidden = x\n", "            hidden = x\n        except OSError:\n            pass\n")],
        "",
    ),
    (MATCHES, [("case 1", "case 2")], "another one"),
    (MATCHES, [("case 1:", "case 1 if x.shape[0]:")], "another one"),
    # Names that the file uses.
    (BASE, [("class Whale", "def norm(x):\n    return x\n\n\nclass Whale")], "gives norm"),
    (BASE, [("class Whale", "class super:\n    pass\n\n\nclass Whale")], "gives super"),
    (BASE, [("import torch\n", "import torch\nimport math as norm\n")], "gives norm"),
    (BASE, [(IMPORTS, f"{IMPORTS}from .fast import read as norm\n")], "gives norm"),
    (BASE, [(CALL, f"{CALL}\n        def hidden():\n            return x\n\n")], "gives hidden"),
    # Names that base classes use.
    (
        BASE,
        [(LOGITS, f"    def _call_impl(self):\n        return None\n\n{LOGITS}")],
        "overrides that of torch.nn",
    ),
    # Calls of what gained no parameter, and locals that others see.
    (
        BASE,
        [
            ("residual=None", "residual=None, inplace=False"),
            (CALL, "        hidden = self.norm(x, inplace=False)\n"),
        ],
        "",
    ),
    (GLOBAL, [("        loaded = hidden\n        return loaded\n", "        return hidden\n")], ""),
]
DOUBTFUL = [
    (BASE, [("import torch\n", "import torch\nfrom os import *\n")], "every name of os"),
    (BASE, [("import torch\n", "from __future__ import annotations\n\nimport torch\n")], "compiled"),
    (BASE, [(KEEP[0], f"{KEEP[0]}        self.training = False\n")], "training"),
    (BASE, [("    def __init__", "    _compiled_call_impl = 5\n\n    def __init__")], "_compiled_call_impl"),
    (BASE, [(CALL, f"{CALL}        unused = [][0]\n")], "may fail or cost"),
    (BASE, [(CALL, f"{CALL}        unused = (x @ x) @ (x @ x)\n")], "may fail or cost"),
    (BASE, [(CALL, f"{CALL}        unused = self.whale_missing\n")], "whale_missing"),
    (BASE, [(CALL, f"{CALL}        unused = whale_missing\n")], "may fail or cost"),
    (BASE, [(CALL, f"{CALL}        unused = x or hidden\n")], "may fail or cost"),
    (BASE, [(CALL, f"{CALL}        unused = bool(x)\n")], "may fail or cost"),
    (BASE, [(KEEP[0], f"{KEEP[0]}        self.whale_big = [0] * 10**10\n")], "may fail or cost"),
    (KINDS, [("    a: int = 0\n", "    a: int = 0\n    whale: int = 0\n")], "comes before"),
    (KINDS, [("    A = 1\n", "    WHALE = 1\n    A = 1\n")], "enum.IntEnum"),
    (ORDERED, [("import os\n", "import json\nimport os\n"), ("'1')\nimport json\n", "'1')\n")], "another place"),
    (
        ORDERED,
        [("    return 1\n\n\nVALUE = pick()\n\n\ndef pick():\n    return 2\n", "    return 1\n\n\ndef pick():\n"
          "    return 2\n\n\nVALUE = pick()\n")],
        "another place",
    ),
    (
        BASE,
        [("def forward(self, x, positions)", "def forward(self, x, positions, whale=None)"),
         (CALL, "        hidden = self.norm(x, whale=None)\n")],
        "whether self.norm takes whale=None",
    ),
]  # fmt: skip
INNOCENT = [
    (USES_TORCH, [READ, KEEP, behind("import torch.cuda.nvtx as nvtx")]),
    (USES_TORCH, [READ, KEEP, behind("fast = [torch for torch in x]")]),
    (USES_TORCH, [READ, KEEP, behind("names = (lambda: (yield 1))")]),
    (USES_TORCH, [READ, KEEP, behind("names = (lambda: (torch := 1))")]),
    (USES_TORCH, [READ, KEEP, behind("names = (lambda torch=1: torch)")]),
    (BASE, [("residual=None", "residual=None, whale=None")]),
    (BASE, [("residual=None", "residual=None, *, whale=None")]),
    (BASE, [("class Whale", "def whale_norm(x):\n    return x\n\n\nclass Whale")]),
    (BASE, [(LOGITS, f"    def _whale_state(self):\n        return None\n\n{LOGITS}")]),
    (BASE, [(KEEP[0], f"{KEEP[0]}        self.whale_count = 4 * 1024\n")]),
    (BASE, [("    def forward(self, x, positions)", "    def forward(self, x: torch.Tensor, positions)")]),
    (KINDS, [("    b: int = 0\n", "    b: int = 0\n    whale: int = 0\n")]),
    (INPLACE, [("residual=None", "residual=None, inplace=False")]),
]  # fmt: skip


@pytest.mark.parametrize(("base", "changes", "words"), SURE)
def test_an_edit_that_changes_what_runs_with_the_switch_off_is_unguarded(
    base: str, changes: list[Change], words: str
) -> None:
    hunks = read_hunks(edit(*changes, base=base), base=base)
    found = [h.reason for h in hunks if h.state is GuardState.UNGUARDED]
    assert any(words in reason for reason in found), hunks


@pytest.mark.parametrize(("base", "changes", "words"), DOUBTFUL)
def test_an_addition_that_is_not_known_to_be_harmless_is_undecided(
    base: str, changes: list[Change], words: str
) -> None:
    hunks = read_hunks(edit(*changes, base=base), base=base)
    assert worst_state(hunks) is GuardState.UNDECIDED, hunks
    assert any(words in h.reason for h in hunks), hunks


# An object whose class another library may have written, and names that shared code asks signatures for.
OF_OTHERS = "        self.norm.whale_weight = None\n"
ASKS = {
    "engine/asks.py": "import inspect\n\n\ndef f(m):\n    return 'whale' in inspect.signature(m.blocks).parameters\n"
}
ASKS_MORE = {"engine/asks.py": "# No whale here.\n" + ASKS["engine/asks.py"].replace("'whale'", "'other'")}


@pytest.mark.parametrize(
    ("changes", "more", "words"),
    [
        ([(KEEP[0], f"{KEEP[0]}{OF_OTHERS}")], {}, "self.norm.whale_weight"),
        ([(CALL, f"{CALL}        x.whale_grad = True\n")], {}, "x.whale_grad"),
        ([("residual=None", "residual=None, whale=None")], ASKS, "ask signatures for"),
        ([("residual=None", "residual=None, *, whale=None")], ASKS, "ask signatures for"),
    ],
)
def test_what_code_that_is_not_read_may_ask_for_is_undecided(
    changes: list[Change], more: dict[str, str], words: str
) -> None:
    hunks = read_hunks(edit(*changes), more=more)
    assert (worst_state(hunks), any(words in h.reason for h in hunks)) == (GuardState.UNDECIDED, True), hunks


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ([(KEEP[0], f"{KEEP[0]}        self.whale_weight = None\n")], {}),
        ([("residual=None", "residual=None, whale=None")], ASKS_MORE),
    ],
)
def test_what_no_other_code_asks_for_is_guarded(changes: list[Change], more: dict[str, str]) -> None:
    hunks = read_hunks(edit(*changes), more=more)
    assert worst_state(hunks) is GuardState.GUARDED, hunks


@pytest.mark.parametrize(("base", "changes"), INNOCENT)
def test_the_innocent_twin_of_such_an_edit_is_guarded(base: str, changes: list[Change]) -> None:
    hunks = read_hunks(edit(*changes, base=base), base=base)
    assert worst_state(hunks) is GuardState.GUARDED, hunks


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("", GuardState.GUARDED),
        ("    def __call__(self, *x):\n        return None\n", GuardState.UNGUARDED),
        ("    def __init__(self, *x):\n        self.broken = 1\n", GuardState.UNGUARDED),
        ("    forward = None\n", GuardState.UNGUARDED),
    ],
)
def test_a_new_base_class_counts_with_all_that_it_has(body: str, state: GuardState) -> None:
    head = edit(
        (IMPORTS, f"{IMPORTS}from .fast import Mixin\n"),
        ("class Whale(torch.nn.Module)", "class Whale(Mixin, torch.nn.Module)"),
    )
    fast = mixin(body).replace("class Mixin:\n    def set_fast", "class Other:\n    def set_fast")
    assert worst_state(read_hunks(head, fast=fast)) is state


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("if not torch.cuda.is_available():\n        return False", GuardState.UNDECIDED),
        ("logger.debug('backend')", GuardState.UNDECIDED),
        ("config.model = None", GuardState.UNGUARDED),
        ("if config.long:\n        raise ValueError", GuardState.UNGUARDED),
    ],
)
def test_a_read_that_calls_what_cannot_be_read_is_undecided_and_one_that_acts_is_unguarded(
    line: str, state: GuardState
) -> None:
    fast = FAST.replace("def is_on(config) -> bool:\n", f"def is_on(config) -> bool:\n    {line}\n")
    head = edit(
        (IMPORTS, f"{IMPORTS}from .fast import is_on\n"),
        (CALL, f"{CALL}        if is_on(self.config):\n            hidden = hidden * 2\n"),
    )
    hunks = read_hunks(head, fast=fast)
    assert worst_state(hunks) is state, hunks


def test_the_names_of_torch_modules_are_all_known() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    names = {name for name in {*dir(module), *vars(module)} if not name.startswith("__")}
    assert names <= TORCH_MODULE_NAMES


@pytest.mark.parametrize(
    "code",
    [
        " + ".join(["x"] * 900),
        "x" + ".view(1)" * 400,
        "1 if x else " * 400 + "1",
    ],
)
def test_code_that_is_nested_as_deeply_as_python_parses_is_read(code: str) -> None:
    base = edit((CALL, f"        x = {code}\n{CALL}"))
    hunks = on_deep_stack(read_hunks)(edit((LOGITS, f"    # whale\n{LOGITS}"), base=base), base=base)
    assert worst_state(hunks) is GuardState.GUARDED
