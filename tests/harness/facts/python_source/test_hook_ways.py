"""Laws of guards by what Python makes of them: names bound on one way, others' objects, tables, records, wrappers."""

from __future__ import annotations

import pytest

from harness.model.reach import GuardState
from tests.harness.facts.python_source.hook_cases import FAST, READS, edit, read_hunks, worst_state

Edits = list[tuple[str, str]]
IMPORT = ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import read\n")
IMPORT_ON = ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import is_on\n")
NORM = "        self.norm = norm\n"
KEEP = (NORM, f"{NORM}        self.fast = read(config)\n")
KEEP_ON = (NORM, f"{NORM}        self.fast = is_on(config)\n")
CALL = "        hidden = self.norm(x)\n"
HEAD = "        return self.head(hidden)\n"
LOGITS = "    def compute_logits"
TORCH = "import torch\n"
CONFIG = 'self.config.additional_config.get("backend", "auto")'
ON = f'{CONFIG} == "fast"'
TABLE = 'MODES = {"auto": False, "fast": True}\n'
FIELDS = "@dataclass\nclass FastOptions:\n    use_fast: bool = False\n\n\n"
BY_RECORD: Edits = [
    (TORCH, f"import dataclasses\nfrom dataclasses import dataclass\n\n{TORCH}"),
    IMPORT_ON,
    ("class Whale", f"{FIELDS}class Whale"),
    (NORM, f"{NORM}        self.fast_options = FastOptions(use_fast=is_on(config))\n"),
]
USED = "self.fast_options.use_fast"
WRAPPER = "def when_fast(run):\n    @functools.wraps(run)\n    def inner(self):\n{}\n    return inner\n\n\nclass Whale"
WHEN_ON = "        if not is_on(self.config):\n            return None\n        return run(self)\n"


def after(code: str) -> Edits:
    return [(CALL, CALL + code)]


def guard(condition: str, before: str = "") -> Edits:
    return after(f"{before}        if {condition}:\n            hidden = hidden * 2\n")


def above(code: str) -> tuple[str, str]:
    """An edit that puts code above the class."""
    return "class Whale", f"{code}\n\nclass Whale"


def wrapped(body: str, decorator: str = "@when_fast", wrapper: str = WRAPPER) -> Edits:
    """A method behind a decorator whose inner function has the body."""
    method = f"    {decorator}\n    def grow_fast(self):\n        self.scale = 2\n\n{LOGITS}"
    return [
        (TORCH, f"import functools\n{TORCH}"),
        IMPORT_ON,
        ("class Whale", wrapper.format(body)),
        (LOGITS, method),
        *after("        self.grow_fast()\n"),
    ]


OPEN: dict[str, Edits] = {
    "call in a condition of nothing": after(f"        if {ON} or self.layers.pop():\n            pass\n"),
    "call of others in a condition of nothing": after("        if torch.manual_seed(1):\n            pass\n"),
    "call before the switch": guard(f"self.layers.pop() and {ON}"),
    "call before the switch, negated": guard(f"not (self.layers.pop() or not {ON})"),
    "call before the switch, elif": after(
        "        if x is None:\n            pass\n"
        f"        elif self.layers.pop() and {ON}:\n            hidden = hidden * 2\n"
    ),
    "call before the switch, kept": after(f"        w = self.layers.pop() and {ON}\n"),
    "call before the switch, conditional expression": after(
        f"        hidden = hidden * 2 if self.layers.pop() and {ON} else hidden\n"
    ),
    "call in the subject of a match": after(
        "        match self.layers.pop():\n            case _:\n                pass\n"
    ),
    "walrus in a condition of nothing": after(
        f"        if {ON} or (hidden := hidden * 2) is None:\n            pass\n"
    ),
    "walrus in a settled condition": guard(f"(hidden := hidden * 2) is not None and {ON}"),
    "walrus around a guard": after(
        f"        if (hidden := hidden * 2) is not None:\n            if {ON}:\n                hidden = hidden * 3\n"
    ),
    "walrus in a settled value": after(f"        w = (hidden := hidden * 2) is not None and {ON}\n"),
    "or config": guard(f"{ON} or self.config.fast"),
    "or config kept": [IMPORT, KEEP, *guard("self.fast or self.config.fast")],
    "or config kept is_on": [IMPORT_ON, KEEP_ON, *guard("is_on(self.config) or self.config.fast")],
    "or config kept switch": [IMPORT_ON, KEEP_ON, *guard("self.fast or self.config.fast")],
    "config only": [IMPORT_ON, KEEP_ON, *guard("self.config.fast")],
    "config kept local": [IMPORT_ON, KEEP_ON, *guard("c.fast", "        c = self.config\n")],
    "config getattr": [IMPORT_ON, KEEP_ON, *guard("getattr(self.config, 'fast', False)")],
    "config getattr alone": [IMPORT_ON, *guard("is_on(self.config) or getattr(self.config, 'fast', False)")],
    "config getattr unknown name": [
        IMPORT_ON,
        *guard("is_on(self.config) or getattr(self.config, 'zzfast', False)"),
    ],
    "config hasattr unknown name": [
        IMPORT_ON,
        *guard("is_on(self.config) or hasattr(self.config, 'zzfast')"),
    ],
    "config zz": [IMPORT_ON, *guard("is_on(self.config) or self.config.zzfast")],
    "param zz": [IMPORT_ON, *guard("is_on(self.config) or x.fast")],
    "or config rev": guard(f"self.config.fast or {ON}"),
    "or attr kept": [
        IMPORT_ON,
        (NORM, f"{NORM}        self.use_fast = is_on(config) or config.fast\n"),
        *guard("self.use_fast"),
    ],
    "or local": guard("wanted", f"        wanted = {ON} or self.config.fast\n"),
    "or any": guard(f"any([{ON}, self.config.fast])"),
    "or any gen": guard(f"any(v for v in ({ON}, self.config.fast))"),
    "max": guard(f"max({ON}, self.config.fast)"),
    "bitor": guard(f"({ON}) | self.config.fast"),
    "sum": guard(f"({ON}) + self.config.fast"),
    "not and": guard(f"not (not {ON} and not self.config.fast)"),
    "ifexp": guard(f"True if {ON} else self.config.fast"),
    "in tuple": guard(f"True in ({ON}, self.config.fast)"),
    "nested or": guard(f"({ON} or self.config.fast) and x is not None"),
    "or env": [("import torch\n", "import os\nimport torch\n"), *guard(f'{ON} or os.environ.get("FOO")')],
    "or isinstance": guard(f"{ON} or isinstance(x, torch.Tensor)"),
    "or own func": [
        ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import is_on\n"),
        *guard("is_on(self.config) or torch.cuda.is_available()"),
    ],
    "or in helper": [
        (
            LOGITS,
            f"    def want_fast(self):\n        return is_on(self.config) or self.config.fast\n\n{LOGITS}",
        ),
        IMPORT_ON,
        *guard("self.want_fast()"),
    ],
    "or in property": [
        (
            LOGITS,
            f"    @property\n    def want_fast(self):\n"
            f"        return is_on(self.config) or self.config.fast\n\n{LOGITS}",
        ),
        IMPORT_ON,
        *guard("self.want_fast"),
    ],
    "default value": guard('self.config.additional_config.get("backend", self.config.fast)'),
    "while or": after(
        f"        while {ON} or self.config.fast:\n            hidden = hidden * 2\n            break\n"
    ),
    "assert or": after(f"        assert {ON} or self.config.fast\n"),
    "match or": after(
        f"        match ({ON} or self.config.fast):\n            case True:\n                hidden = hidden * 2\n"
    ),
    "shortcircuit stmt": after(f"        {ON} or self.config.fast or print(hidden)\n"),
    "or walrus": guard(f"(w := {ON}) or self.config.fast"),
    "fast or in subject": [IMPORT_ON, *guard("is_on(self.config) or x.is_cuda")],
    "elif": after(
        f"        if {ON}:\n            pass\n        elif self.config.fast:\n            hidden = hidden * 2\n"
    ),
    "else of off": after(
        f"        if {ON} and x is None:\n            pass\n        else:\n            hidden = hidden * 2\n"
    ),
    # item 1
    "maybe unbound read": after(
        "        if positions is None:\n            scale = 1\n        other = scale\n"
    ),
    "maybe unbound read2": [
        (
            "        hidden = self.norm(x)\n",
            "        hidden = self.norm(x)\n        for layer in self.layers:\n"
            "            last = layer\n        seen = last\n",
        )
    ],
    "maybe unbound try": after(
        "        try:\n            scale = 1\n        finally:\n            pass\n"
        "        with x:\n            t = 1\n        del scale\n        other = scale\n"
    ),
    "class body rebinding": [
        IMPORT_ON,
        (
            "class Whale(torch.nn.Module):\n",
            "class Whale(torch.nn.Module):\n    is_on = lambda c: True\n    wanted_fast = is_on(None)\n\n",
        ),
        *guard("self.wanted_fast"),
    ],
    "class body rebinding cond": [
        IMPORT_ON,
        (
            "class Whale(torch.nn.Module):\n",
            "class Whale(torch.nn.Module):\n    if torch:\n        is_on = lambda c: True\n"
            "    wanted_fast = is_on(None)\n\n",
        ),
        *guard("self.wanted_fast"),
    ],
    "local cond rebinding": [
        IMPORT_ON,
        *guard("is_on(self.config)", "        if x is None:\n            is_on = lambda c: True\n"),
    ],
    "walrus cond": guard("w", f"        w = {ON}\n        x is None or (w := True)\n"),
    "walrus cond and": guard("w", f"        w = {ON}\n        x is not None and (w := True)\n"),
    "walrus ifexp": guard("w", f"        w = {ON}\n        y = (w := True) if x is None else 0\n"),
    "walrus both orders": guard("w", "        w = True\n        x is None and (w := False)\n"),
    "walrus ifexp off": guard("w", "        w = True\n        y = (w := False) if x is None else 0\n"),
    "walrus comp": guard("w", "        w = True\n        y = [w := False for _ in self.layers]\n"),
    "loop bind": guard("w", "        w = True\n        for _ in self.layers:\n            w = False\n"),
    "for target": guard("w", "        w = True\n        for w in (False,)[:0]:\n            pass\n"),
    "for target2": guard(
        "w",
        "        w = True\n        for w in (False, False):\n            break\n"
        "        else:\n            pass\n        w = w or x is None\n",
    ),
    "except as": guard(
        "w",
        f"        w = True\n        try:\n            w = {ON}\n"
        f"        except ValueError as w:\n            w = False\n        w = w or x is None\n",
    ),
    "match bind": guard(
        "w", "        w = True\n        match x:\n            case None:\n                w = False\n"
    ),
    "while bind": guard(
        "w", "        w = True\n        while x is None:\n            w = False\n            break\n"
    ),
    "with suppress": guard("w", "        w = True\n        with x:\n            w = False\n"),
    "with suppress raise": guard(
        "w", "        w = True\n        with x:\n            y = x.foo()\n            w = False\n"
    ),
    "del then builtin": guard("w", "        w = False\n        del w\n"),
    "global cond": [
        above("WANT_FAST = False\n\n\ndef turn():\n    global WANT_FAST\n    WANT_FAST = True\n"),
        *guard("WANT_FAST"),
    ],
    "module partial": [
        above("if torch.cuda.is_available():\n    WANT_FAST = False\nelse:\n    WANT_FAST = True\n"),
        *guard("WANT_FAST"),
    ],
    "module try": [
        above("try:\n    import zzz\n    WANT_FAST = False\nexcept ImportError:\n    WANT_FAST = True\n"),
        *guard("WANT_FAST"),
    ],
    "setattr concat": [
        IMPORT,
        KEEP,
        (
            "        return self.blocks(hidden, positions)\n",
            "        setattr(self, 'fa' + 'st', hidden)\n        return self.blocks(hidden, positions)\n",
        ),
        (HEAD, "        return self.fast.run(hidden) if self.fast is not None else self.head(hidden)\n"),
    ],
    "globals write": [above("WANT_FAST = False\nglobals()['WANT_' + 'FAST'] = True\n"), *guard("WANT_FAST")],
    "dataclass replaced": [
        *BY_RECORD,
        *guard(USED, "        self.fast_options = dataclasses.replace(self.fast_options, use_fast=True)\n"),
    ],
    "dataclass replaced dict": [
        *BY_RECORD,
        *guard(
            USED, "        self.fast_options = dataclasses.replace(self.fast_options, **self.config.more)\n"
        ),
    ],
    "dataclass second": [*BY_RECORD, *guard(USED, "        self.fast_options = FastOptions(True)\n")],
    "dataclass spread": [
        *BY_RECORD[:3],
        (NORM, f"{NORM}        self.fast_options = FastOptions(**config.more)\n"),
        *guard(USED),
    ],
    "dataclass alias": [
        *BY_RECORD,
        *guard(USED, "        make = FastOptions\n        self.fast_options = make(True)\n"),
    ],
    "dataclass partial": [
        ("import torch\n", "import functools\nfrom dataclasses import dataclass\n\nimport torch\n"),
        *BY_RECORD[1:],
        *guard(USED, "        self.fast_options = functools.partial(FastOptions, True)()\n"),
    ],
    "dataclass default on": [
        BY_RECORD[0],
        BY_RECORD[1],
        above("@dataclass\nclass FastOptions:\n    use_fast: bool = True\n"),
        (NORM, f"{NORM}        self.fast_options = FastOptions()\n"),
        *guard(USED),
    ],
    "dataclass set": [*BY_RECORD, *guard(USED, "        self.fast_options.use_fast = x is not None\n")],
    "dataclass setattr": [
        *BY_RECORD,
        *guard(USED, "        setattr(self.fast_options, 'use_fast', x is not None)\n"),
    ],
    "dataclass objsetattr": [
        *BY_RECORD,
        *guard(USED, "        object.__setattr__(self.fast_options, 'use_fast', x is not None)\n"),
    ],
    "dataclass post_init": [
        BY_RECORD[0],
        BY_RECORD[1],
        above(
            "@dataclass\nclass FastOptions:\n    use_fast: bool = False\n\n"
            "    def __post_init__(self):\n        self.use_fast = True\n"
        ),
        BY_RECORD[3],
        *guard(USED),
    ],
    "dataclass dict": [*BY_RECORD, *guard(USED, "        self.fast_options.__dict__['use_fast'] = True\n")],
    "dataclass getattr": [
        BY_RECORD[0],
        BY_RECORD[1],
        above("class FastOptions:\n    def __getattr__(self, name):\n        return True\n"),
        (NORM, f"{NORM}        self.use_fast = False\n        self.fast_options = FastOptions()\n"),
        *guard(USED),
    ],
    "dataclass of config base": [
        ("import torch\n", "import torch\nfrom transformers import PretrainedConfig\n"),
        IMPORT_ON,
        above("class FastOptions(PretrainedConfig):\n    pass\n"),
        (
            NORM,
            f"{NORM}        self.use_fast = False\n        self.fast_options = FastOptions(**config.more)\n",
        ),
        *guard(USED),
    ],
    "any with call": guard(f"all([{ON}, launch(x)])"),
    "all raising": guard(f"all([x, {ON}])"),
    "any gen cond": guard(f"any(v for v in ({ON}, True) if v)"),
    "any nested": guard(f"any([{ON}, any([x is None])])"),
    "any star": guard(f"any([{ON}, *self.layers])"),
    "any rebound": [above("def any(values):\n    return True\n"), *guard(f"any([{ON}])")],
    "dict on for off": guard(f'{{"auto": True, "fast": True}}[{CONFIG}]'),
    "dict default on": guard(f'{{"fast": True}}.get({CONFIG}, True)'),
    "dict with call": guard(f'{{"auto": False, "fast": launch(x)}}[{CONFIG}]'),
    "dict mutated": [above(f'{TABLE}MODES["auto"] = True\n'), *guard(f"MODES[{CONFIG}]")],
    "dict updated": [above(f"{TABLE}MODES.update(auto=True)\n"), *guard(f"MODES[{CONFIG}]")],
    "dict handed on": [above(f"{TABLE}print(MODES)\n"), *guard(f"MODES[{CONFIG}]")],
    "dict aliased": [above(f'{TABLE}OTHER = MODES\nOTHER["auto"] = True\n'), *guard(f"MODES[{CONFIG}]")],
    "dict twice": [above(f"{TABLE}if torch:\n    MODES = {{'auto': True}}\n"), *guard(f"MODES[{CONFIG}]")],
    "dict local": guard(
        f"modes[{CONFIG}]", '        modes = {"auto": False, "fast": True}\n        modes["auto"] = True\n'
    ),
    "dict missing": guard(f'{{"fast": True}}[{CONFIG}]'),
    "dict dup": guard(f'{{"auto": False, "auto": True}}[{CONFIG}]'),
    "wraps calls": wrapped("        return run(self)\n"),
    "wraps calls when off": wrapped(
        "        if is_on(self.config):\n            return None\n        return run(self)\n"
    ),
    "wraps or": wrapped(
        "        if is_on(self.config) or self.config.turbo:\n            return run(self)\n        return None\n"
    ),
    "wraps other": wrapped(
        "        if not is_on(self.config):\n            return self.config.count()\n        return run(self)\n"
    ),
    "wraps two decorators": wrapped(WHEN_ON, decorator="@torch.compile\n    @when_fast"),
    "wraps effect in maker": [
        (TORCH, f"import functools\n{TORCH}"),
        IMPORT_ON,
        (
            "class Whale",
            WRAPPER.format(WHEN_ON).replace("def when_fast(run):\n", "def when_fast(run):\n    print(run)\n"),
        ),
        (LOGITS, f"    @when_fast\n    def grow_fast(self):\n        self.scale = 2\n\n{LOGITS}"),
        (CALL, CALL + "        self.grow_fast()\n"),
    ],
    "wraps returns other": [
        (TORCH, f"import functools\n{TORCH}"),
        IMPORT_ON,
        ("class Whale", WRAPPER.format(WHEN_ON).replace("    return inner\n", "    return run\n")),
        (LOGITS, f"    @when_fast\n    def grow_fast(self):\n        self.scale = 2\n\n{LOGITS}"),
        (CALL, CALL + "        self.grow_fast()\n"),
    ],
    "method replaced": [
        (LOGITS, f"    def run_fast(self, hidden):\n        return hidden * 2\n\n{LOGITS}"),
        (
            CALL,
            CALL
            + f'        self.run_fast = None\n        step = {{"fast": self.run_fast}}.get({CONFIG}, self.norm)\n'
            + "        if step is not None:\n            hidden = step(hidden)\n",
        ),
    ],
    "like own": [IMPORT_ON, KEEP_ON, *guard("self.config.fast and self.config.hidden_size")],
}
"""With the switch off the hook may run, or what was there before comes out otherwise."""
GUARDED: dict[str, Edits] = {
    "and or": guard(f"{ON} and (self.config.fast or x is None)"),
    "or off": guard(f"{ON} or {CONFIG} == 'faster'"),
    "or false": guard(f"{ON} or False"),
    "any": guard(f"any([{ON}])"),
    "any2": guard(f"any([{ON}, {CONFIG} == 'faster'])"),
    "any and": guard(f"any([{ON}]) and x is not None"),
    "all": guard(f"all([{ON}, x is not None])"),
    "any gen": guard(f'any({CONFIG} == name for name in ("fast", "faster"))'),
    "all gen": guard(f"all(v for v in ({ON}, x is not None))"),
    "bool": guard(f"bool({ON})"),
    "bool attr": [
        IMPORT_ON,
        (NORM, f"{NORM}        self.use_fast = bool(is_on(config))\n"),
        *guard("bool(self.use_fast)"),
    ],
    "bool read": [IMPORT, KEEP, *guard("bool(self.fast)")],
    "dict lookup": guard(f'{{"auto": False, "fast": True}}[{CONFIG}]'),
    "dict lookup get": guard(f'{{"fast": True}}.get({CONFIG})'),
    "dict lookup get default": guard(f'{{"fast": True}}.get({CONFIG}, False)'),
    "dict module": [above('USES_FAST = {"auto": False, "fast": True}\n'), *guard(f"USES_FAST[{CONFIG}]")],
    "dict module get": [above('USES_FAST = {"fast": True}\n'), *guard(f"USES_FAST.get({CONFIG}, False)")],
    "dict funcs": [
        (LOGITS, f"    def run_fast(self, hidden):\n        return hidden * 2\n\n{LOGITS}"),
        (
            CALL,
            CALL
            + f'        step = {{"fast": self.run_fast}}.get({CONFIG})\n'
            + "        if step is not None:\n            hidden = step(hidden)\n",
        ),
    ],
    "in set": guard(f'{CONFIG} in {{"fast", "faster"}}'),
    "frozenset module": [
        above('FAST_KINDS = frozenset({"fast", "faster"})\n'),
        *guard(f"{CONFIG} in FAST_KINDS"),
    ],
    "tuple module": [above('FAST_KINDS = ("fast", "faster")\n'), *guard(f"{CONFIG} in FAST_KINDS")],
    "dataclass field": [
        ("import torch\n", "from dataclasses import dataclass\n\nimport torch\n"),
        IMPORT_ON,
        above("@dataclass\nclass FastOptions:\n    use_fast: bool = False\n"),
        (NORM, f"{NORM}        self.fast_options = FastOptions(use_fast=is_on(config))\n"),
        *guard(USED),
    ],
    "dataclass frozen pos": [
        ("import torch\n", "from dataclasses import dataclass\n\nimport torch\n"),
        IMPORT_ON,
        above("@dataclass(frozen=True)\nclass FastOptions:\n    use_fast: bool\n"),
        (NORM, f"{NORM}        self.fast_options = FastOptions(is_on(config))\n"),
        *guard(USED),
    ],
    "if else both": guard(
        "w", f"        if x is None:\n            w = {ON}\n        else:\n            w = False\n"
    ),
    "not not": guard(f"not not {ON}"),
    "question before the switch": guard(f"x.numel() > 2 and torch.cuda.is_available() and {ON}"),
    "call behind the switch": guard(f"{ON} and self.layers.pop()"),
    "walrus": guard(f"(w := {ON})"),
    "walrus behind the switch": guard(f"{ON} and (hidden := hidden * 2) is not None"),
    "walrus that both ways read": guard(f"(w := {ON}) and x is not None"),
    "len": guard(f'{CONFIG} == "fast" and len(self.layers) > 2'),
    "wraps": wrapped(WHEN_ON),
    "wraps not when": wrapped("        if is_on(self.config):\n            run(self)\n"),
    "dataclass methods": [
        BY_RECORD[0],
        BY_RECORD[1],
        above(
            "@dataclass(frozen=True)\nclass FastOptions:\n    use_fast: bool\n"
            "    depth: int = 2\n\n    def twice(self):\n        return self.depth * 2\n"
        ),
        BY_RECORD[3],
        *guard(USED),
    ],
    "dataclass annotation": [
        *BY_RECORD[:3],
        (NORM, f"{NORM}        self.fast_options: FastOptions = FastOptions(use_fast=is_on(config))\n"),
        *guard(USED),
    ],
    "namedtuple": [
        ("import torch\n", "from typing import NamedTuple\n\nimport torch\n"),
        IMPORT_ON,
        above("class FastOptions(NamedTuple):\n    use_fast: bool\n    depth: int = 2\n"),
        BY_RECORD[3],
        *guard(USED),
    ],
    "object like own": [
        IMPORT_ON,
        KEEP_ON,
        (LOGITS, f"    def grow_fast(self):\n        return 2\n\n{LOGITS}"),
        (
            "            hidden = layer(hidden, positions)\n",
            "            hidden = layer(hidden, positions)\n            if layer.fast:\n"
            "                layer.grow_fast()\n",
        ),
    ],
}
RECORD = (
    "\n\nfrom dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Options:\n    use_fast: bool\n"
    "    depth: int = 2\n\n\ndef options(config):\n    return Options(use_fast={})\n"
)
READ_RECORD: Edits = [
    ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import options\n"),
    (NORM, f"{NORM}        self.fast_options = options(config)\n"),
    *guard(USED),
]


@pytest.mark.parametrize("case", OPEN)
def test_a_guard_that_need_not_hold_with_the_switch_off_is_none(case: str) -> None:
    assert worst_state(read_hunks(edit(*OPEN[case]))) is not GuardState.GUARDED


@pytest.mark.parametrize("case", GUARDED)
def test_its_innocent_twin_is_guarded(case: str) -> None:
    hunks = read_hunks(edit(*GUARDED[case]))
    assert worst_state(hunks) is GuardState.GUARDED, [(h.state, h.reason) for h in hunks]


@pytest.mark.parametrize(
    ("value", "state"),
    [("is_on(config)", GuardState.GUARDED), ("is_on(config) or config.turbo", GuardState.UNDECIDED)],
)
def test_a_record_of_the_subject_is_worth_what_it_is_made_with(value: str, state: GuardState) -> None:
    reads = (*READS, "engine.models.whale.fast:options")
    assert worst_state(read_hunks(edit(*READ_RECORD), fast=FAST + RECORD.format(value), reads=reads)) is state
