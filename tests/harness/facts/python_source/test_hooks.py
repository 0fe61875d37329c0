"""Laws of hooks: what runs with the switch off is found, and what does not is let through with its guard."""

from __future__ import annotations

import pytest

from harness.model.reach import GuardState
from tests.harness.facts.python_source.hook_cases import BASE, FAST, edit, read_hunks, worst_state

IMPORT = ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import read\n")
IMPORT_ON = ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import is_on\n")
KEEP = ("        self.norm = norm\n", "        self.norm = norm\n        self.fast = read(config)\n")
CALL = "        hidden = self.norm(x)\n"
RETURN = "        return self.blocks(hidden, positions)\n"
HEAD = "        return self.head(hidden)\n"
CONFIG = 'self.config.additional_config.get("backend", "auto")'

GUARDED = {
    "a table that the switch is looked up in": [
        (CALL, f"{CALL}        if MODES[{CONFIG}]:\n            hidden = hidden * 2\n"),
        ("class Whale", 'MODES = {"auto": None, "fast": 1}\n\n\nclass Whale'),
    ],
    "handler that gives the default": [
        (
            CALL,
            f"{CALL}        try:\n"
            '            wanted = self.config.additional_config["backend"]\n'
            "        except KeyError:\n"
            '            wanted = "auto"\n'
            '        if wanted == "fast":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "handler of guarded code": [
        (
            CALL,
            f"{CALL}        try:\n"
            f'            if {CONFIG} == "fast":\n'
            "                hidden = hidden * 2\n"
            "        except RuntimeError:\n"
            "            hidden = hidden * 3\n",
        ),
    ],
    "attribute that is None when off": [
        IMPORT,
        KEEP,
        (CALL, f"{CALL}        if self.fast is not None:\n            return self.fast.run(hidden)\n"),
    ],
    "old code below else": [
        IMPORT,
        KEEP,
        (
            RETURN,
            "        if self.fast:\n"
            "            return self.fast.run(hidden)\n"
            "        else:\n"
            "            return self.blocks(hidden, positions)\n",
        ),
    ],
    "early return of the old code": [
        IMPORT,
        KEEP,
        (RETURN, f"        if not self.fast:\n    {RETURN}        return self.fast.run(hidden)\n"),
    ],
    "comparison with the value in place": [
        (CALL, f'{CALL}        if {CONFIG} == "fast":\n            hidden = hidden * 2\n'),
    ],
    "alias through locals": [
        (
            CALL,
            f"{CALL}        extra = self.config.additional_config or {{}}\n"
            '        backend = extra.get("backend")\n'
            "        wanted = backend\n"
            '        if wanted == "fast":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "key in mapping and value": [
        (
            CALL,
            f"{CALL}        extra = self.config.additional_config\n"
            '        if "backend" in extra and extra["backend"] == "fast":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "conditional expression": [
        IMPORT,
        KEEP,
        (HEAD, "        return self.fast.run(hidden) if self.fast is not None else self.head(hidden)\n"),
    ],
    "and with another condition": [
        IMPORT_ON,
        (
            CALL,
            f"{CALL}        if torch.cuda.is_available() and is_on(self.config):\n"
            "            hidden = hidden * 2\n",
        ),
    ],
    "or beside an old condition": [
        IMPORT_ON,
        ("        for layer in self.layers:\n", "        for layer in self.layers or is_on(self.config):\n"),
    ],
    "match on the backend": [
        (
            "        return self.head(hidden)\n",
            f"        match {CONFIG}:\n"
            '            case "fast" | "faster":\n'
            "                return hidden\n"
            "            case _:\n"
            "                return self.head(hidden)\n",
        ),
    ],
    "lazy import below the guard": [
        (
            CALL,
            f'{CALL}        if {CONFIG} == "fast":\n'
            "            from .fast import Fast\n"
            "\n"
            "            return Fast(self.config).run(hidden)\n",
        ),
    ],
    "import for types only": [
        ("import torch\n", "from typing import TYPE_CHECKING\n\nimport torch\n"),
        (
            "from engine.layers import norm\n",
            "from engine.layers import norm\n\nif TYPE_CHECKING:\n    from .fast import Fast\n",
        ),
    ],
    "a method that only guarded code calls": [
        IMPORT,
        KEEP,
        (CALL, f"{CALL}        if self.fast is not None:\n            return self.whale_fast_step(hidden)\n"),
        (
            "    def compute_logits",
            "    def whale_fast_step(self, hidden):\n"
            "        return self.fast.run(hidden)\n"
            "\n"
            "    def compute_logits",
        ),
    ],
    "a flag that only guarded code sets": [
        IMPORT,
        (
            "        self.norm = norm\n",
            "        self.norm = norm\n"
            "        self.whale_in_forward = False\n"
            "        if read(config) is not None:\n"
            "            self.whale_in_forward = True\n",
        ),
        (
            HEAD,
            "        if not self.whale_in_forward:\n"
            "            hidden = self.head(hidden)\n"
            "        return hidden\n",
        ),
    ],
    "a local that only guarded code sets": [
        IMPORT,
        KEEP,
        (
            CALL,
            f"{CALL}        step = None\n"
            "        if self.fast is not None:\n"
            "            step = self.fast.run(hidden)\n"
            "        if step is not None:\n"
            "            return step\n",
        ),
    ],
    "a new parameter that is None when off": [
        IMPORT,
        KEEP,
        (
            RETURN,
            "        step = None if self.fast is None else self.fast.run(hidden)\n"
            "        return self.blocks(hidden, positions, whale_step=step)\n",
        ),
        (
            "residual=None):\n",
            "residual=None, whale_step=None):\n"
            "        if whale_step is not None:\n"
            "            return whale_step\n",
        ),
    ],
    "a base class whose methods only the change calls": [
        (
            "from engine.layers import norm\n",
            "from engine.layers import norm\nfrom .fast import Mixin, read\n",
        ),
        ("class Whale(torch.nn.Module):", "class Whale(torch.nn.Module, Mixin):"),
        ("        self.norm = norm\n", "        self.norm = norm\n        self.set_fast(read(config))\n"),
        (
            CALL,
            f"{CALL}        done = self.run_fast(hidden)\n"
            "        if done is not None:\n"
            "            return done\n",
        ),
    ],
    "getattr with a default": [
        (
            CALL,
            f'{CALL}        if getattr(self, "whale_fast", None) is not None:\n'
            "            return self.whale_fast.run(hidden)\n",
        ),
    ],
    "the old result in a local": [
        (RETURN, "        result = self.blocks(hidden, positions)\n        return result\n")
    ],
    "a comment and a blank line": [(CALL, f"        # the norm first\n\n{CALL}")],
    "a property that reads the switch": [
        IMPORT_ON,
        (
            "    def compute_logits",
            "    @property\n"
            "    def whale_is_fast(self):\n"
            "        return is_on(self.config)\n"
            "\n"
            "    def compute_logits",
        ),
        (CALL, f"{CALL}        if self.whale_is_fast:\n            hidden = hidden * 2\n"),
    ],
    "an absent mapping that counts as empty": [
        (
            CALL,
            f'{CALL}        if ((self.config.additional_config or {{}}).get("backend") or "auto") == "fast":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "a function inside that only the path calls": [
        IMPORT_ON,
        (
            CALL,
            f"{CALL}        def doubled():\n            return hidden * 2\n\n"
            "        if is_on(self.config):\n            hidden = doubled()\n",
        ),
    ],
    "while with the switch": [
        IMPORT_ON,
        (CALL, f"{CALL}        while is_on(self.config):\n            hidden = hidden * 2\n"),
    ],
    "a missing key that is caught": [
        (
            CALL,
            f"{CALL}        try:\n"
            '            wanted = self.config.additional_config["backend"] == "fast"\n'
            "        except KeyError:\n"
            "            wanted = False\n"
            "        if wanted:\n"
            "            hidden = hidden * 2\n",
        ),
    ],
    "code that no value can reach": [(CALL, f"{CALL}        if False:\n            hidden = hidden * 2\n")],
    "a new function of the module": [
        ("class Whale", "def prepare(x):\n    return x.contiguous()\n\n\nclass Whale"),
    ],
    "a helper class": [
        (
            "class Whale",
            "class Plan:\n    width = 4\n\n    def run(self, x):\n        return x\n\n\nclass Whale",
        )
    ],
    "a walrus": [
        IMPORT,
        (
            CALL,
            f"{CALL}        if (fast := read(self.config)) is not None:\n"
            "            return fast.run(hidden)\n",
        ),
    ],
}
UNGUARDED = {
    "an annotation that calls": [
        (
            "    def compute_logits(self, hidden):\n",
            "    def compute_logits(self, hidden) -> torch.set_num_threads(1):\n",
        ),
    ],
    "handler of a missing key": [
        (
            CALL,
            f"{CALL}        try:\n"
            '            self.config.additional_config["backend"]\n'
            "        except KeyError:\n"
            "            hidden = hidden * 2\n",
        ),
    ],
    "handler of an unknown value": [
        (
            CALL,
            f"{CALL}        try:\n"
            f'            number = {{"fast": 1}}[{CONFIG}]\n'
            "        except KeyError:\n"
            "            hidden = hidden * 2\n",
        ),
    ],
    "an attribute set by setattr": [
        IMPORT,
        (
            "        self.norm = norm\n",
            "        self.norm = norm\n"
            "        self.whale = read(config)\n"
            '        setattr(self, "whale", config)\n',
        ),
        (CALL, f"{CALL}        if self.whale is not None:\n            return self.whale.run(hidden)\n"),
    ],
    "the switch turned on": [
        (CALL, f'{CALL}        self.config.additional_config["backend"] = "fast"\n'),
    ],
    "a line without any guard": [(CALL, f"{CALL}        hidden = hidden * 2\n")],
    "guarded by the platform only": [
        (CALL, f"{CALL}        if torch.cuda.is_available():\n            hidden = hidden * 2\n"),
    ],
    "the switch named in a comment and a string": [
        (CALL, f'{CALL}        # if backend == "fast"\n        hidden = hidden * len("backend fast")\n'),
    ],
    "the guard turned round": [
        IMPORT,
        KEEP,
        (CALL, f"{CALL}        if self.fast is None:\n            hidden = hidden * 2\n"),
    ],
    "or instead of and": [
        IMPORT_ON,
        (
            CALL,
            f"{CALL}        if is_on(self.config) or torch.cuda.is_available():\n"
            "            hidden = hidden * 2\n",
        ),
    ],
    "the off value compared": [
        (CALL, f'{CALL}        if {CONFIG} == "auto":\n            hidden = hidden * 2\n'),
    ],
    "truth of a value whose off is a text": [
        (
            CALL,
            f'{CALL}        if self.config.additional_config.get("backend"):\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "a default that is not off": [
        (
            CALL,
            f'{CALL}        if self.config.additional_config.get("backend", "fast") == "fast":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "another key": [
        (
            CALL,
            f'{CALL}        if self.config.additional_config.get("backends") != "auto":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "old code made conditional on something else": [
        (
            RETURN,
            "        if positions is not None:\n"
            "            hidden = self.blocks(hidden, positions)\n"
            "        return hidden\n",
        ),
    ],
    "work before the guard": [
        IMPORT,
        KEEP,
        (
            CALL,
            f"{CALL}        copy = hidden.clone()\n"
            "        if self.fast is not None:\n"
            "            return self.fast.run(copy)\n",
        ),
    ],
    "old code taken away": [(CALL, "        hidden = x\n")],
    "a method that shared code looks for": [
        (
            "    def compute_logits",
            "    def get_state_cls(self):\n        return dict\n\n    def compute_logits",
        ),
    ],
    "a method that Python calls": [
        (
            "    def compute_logits",
            "    def __getattr__(self, name):\n        return None\n\n    def compute_logits",
        ),
    ],
    "a base class that overrides what shared code calls": [
        ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import Loud\n"),
        ("class Whale(torch.nn.Module):", "class Whale(Loud, torch.nn.Module):"),
    ],
    "an import of the subject that is no read": [
        ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import Fast\n"),
    ],
    "an import that the file did not need": [("import torch\n", "import torch\nimport fast_kernels\n")],
    "a decorator": [("    def compute_logits", "    @torch.compile\n    def compute_logits")],
    "a default argument": [("residual=None):", "residual=0):")],
    "a function that does more than read": [
        ("from engine.layers import norm\n", "from engine.layers import norm\nfrom .fast import start\n"),
        ("        self.norm = norm\n", "        self.norm = norm\n        self.fast = start(config)\n"),
    ],
    "a read whose constant is used elsewhere": [
        ("        self.norm = norm\n", "        self.norm = norm\n        scale = 2\n"),
        (CALL, "        hidden = self.norm(x, 2)\n"),
    ],
    "return in a finally": [
        (
            RETURN,
            "        try:\n"
            "            return self.blocks(hidden, positions)\n"
            "        finally:\n"
            "            torch.cuda.synchronize()\n",
        ),
    ],
    "a parameter that gets another value": [(CALL, f"        x = x + 1\n{CALL}")],
    "a parameter that gets another value where the path is absent": [
        IMPORT,
        KEEP,
        (
            CALL,
            "        if self.fast is not None:\n"
            "            return self.fast.run(x)\n"
            "        else:\n"
            "            x = x + 1\n"
            f"{CALL}",
        ),
    ],
    "an imported name that is given to something else": [("class Whale", "norm = None\n\n\nclass Whale")],
    "a function inside that is called at once": [
        (
            CALL,
            f"        def spoil():\n            x.add_(1)\n\n        spoil()\n{CALL}",
        ),
    ],
    "a function that changes its argument in place": [
        ("class Whale", "def spoil(x):\n    x += 1\n\n\nclass Whale"),
        (CALL, f"        spoil(x)\n{CALL}"),
    ],
    "a setting of a package": [("class Whale", "torch.whale_limit = 99\n\n\nclass Whale")],
    "a flag set on both sides": [
        IMPORT,
        (
            "        self.norm = norm\n",
            "        self.norm = norm\n        self.whale_flag = read(config) is None\n",
        ),
        (CALL, f"{CALL}        if self.whale_flag:\n            hidden = hidden * 2\n"),
    ],
}
UNDECIDED = {
    "a missing key that is not caught": [
        (
            CALL,
            f'{CALL}        if self.config.additional_config["backend"] == "fast":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "a key that is computed": [
        (
            CALL,
            f'{CALL}        if self.config.additional_config.get("back" + self.suffix) == "fast":\n'
            "            hidden = hidden * 2\n",
        ),
    ],
    "the mapping handed to other code": [
        (
            CALL,
            f"{CALL}        if torch.parse(self.config.additional_config):\n"
            "            hidden = hidden * 2\n",
        ),
    ],
    "a read that the function binds again": [
        IMPORT_ON,
        (
            CALL,
            f"        is_on = lambda config: True\n{CALL}"
            "        if is_on(self.config):\n            hidden = hidden * 2\n",
        ),
    ],
    "a read that the file binds again": [
        IMPORT_ON,
        ("class Whale", "def is_on(config):\n    return True\n\n\nclass Whale"),
        (CALL, f"{CALL}        if is_on(self.config):\n            hidden = hidden * 2\n"),
    ],
    "the switch set by the hook": [
        (
            "        self.config = config\n",
            '        self.config = config\n        config.additional_config.setdefault("backend", "fast")\n',
        ),
    ],
    "an attribute set where the condition cannot be followed": [
        (
            "        self.norm = norm\n",
            "        self.norm = norm\n"
            "        self.whale_fast = None\n"
            f"        if torch.choose({CONFIG}):\n"
            "            self.whale_fast = torch.ones(1)\n",
        ),
        (CALL, f"{CALL}        if self.whale_fast is not None:\n            hidden = hidden * 2\n"),
    ],
    "an attribute that nobody sets": [
        (CALL, f"{CALL}        if self.whale_mystery:\n            hidden = hidden * 2\n"),
    ],
}


@pytest.mark.parametrize("case", GUARDED)
def test_a_hook_that_does_nothing_with_the_switch_off_is_guarded(case: str) -> None:
    hunks = read_hunks(edit(*GUARDED[case]))
    assert worst_state(hunks) is GuardState.GUARDED, [(h.state, h.reason) for h in hunks]


@pytest.mark.parametrize("case", UNGUARDED)
def test_a_hook_that_runs_with_the_switch_off_is_unguarded(case: str) -> None:
    hunks = read_hunks(edit(*UNGUARDED[case]))
    assert worst_state(hunks) is GuardState.UNGUARDED, [(h.state, h.reason) for h in hunks]


@pytest.mark.parametrize("case", UNDECIDED)
def test_a_guard_that_cannot_be_followed_is_undecided(case: str) -> None:
    hunks = read_hunks(edit(*UNDECIDED[case]))
    assert worst_state(hunks) is GuardState.UNDECIDED, [(h.state, h.reason) for h in hunks]


def test_the_guard_is_named_with_its_line() -> None:
    head = edit(IMPORT, KEEP, (CALL, f"{CALL}        if self.fast is not None:\n            return 1\n"))
    guards = [hunk.guards for hunk in read_hunks(head) if hunk.guards]
    assert guards == [("line 15: self.fast is not None",)]


def test_without_declared_reads_an_import_of_the_subject_is_unguarded() -> None:
    hunks = read_hunks(edit(IMPORT, KEEP), reads=())
    assert [hunk.state for hunk in hunks] == [GuardState.UNGUARDED, GuardState.GUARDED]


def test_both_ways_of_being_off_count() -> None:
    condition = 'self.config.additional_config.get("backend", "auto") != "auto"'
    head = edit((CALL, f"{CALL}        if {condition}:\n            hidden = hidden * 2\n"))
    assert worst_state(read_hunks(head)) is GuardState.GUARDED
    assert worst_state(read_hunks(head, off="none")) is GuardState.UNGUARDED


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ('os.environ.get("ENGINE_FAST", "0") == "1"', GuardState.GUARDED),
        ('bool(int(os.getenv("ENGINE_FAST", "0")))', GuardState.GUARDED),
        ("envs.ENGINE_FAST", GuardState.GUARDED),
        ('os.environ.get("ENGINE_FAST", "0")', GuardState.UNGUARDED),
        ('"ENGINE_FAST" in os.environ', GuardState.UNGUARDED),
        ('os.environ.get("ENGINE_SLOW") is None', GuardState.UNGUARDED),
    ],
)
def test_an_environment_variable_is_followed(condition: str, state: GuardState) -> None:
    head = edit(
        ("import torch\n", "import os\n\nimport torch\n\nfrom engine import envs\n"),
        (CALL, f"{CALL}        if {condition}:\n            hidden = hidden * 2\n"),
    )
    assert worst_state(read_hunks(head, kind="env", key="ENGINE_FAST", off="0")) is state


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("self.config.kernel_config.whale_kernel", GuardState.GUARDED),
        ('getattr(self.config, "whale_kernel", False)', GuardState.GUARDED),
        ("not self.config.whale_kernel", GuardState.UNGUARDED),
    ],
)
def test_a_flag_of_the_command_line_is_followed(condition: str, state: GuardState) -> None:
    head = edit((CALL, f"{CALL}        if {condition}:\n            hidden = hidden * 2\n"))
    assert worst_state(read_hunks(head, kind="flag", key="--whale-kernel", off="false")) is state


def test_an_old_guard_guards_new_lines() -> None:
    before = edit(
        IMPORT,
        KEEP,
        (CALL, f"{CALL}        if self.fast is not None:\n            return self.fast.run(x)\n"),
    )
    after = before.replace("return self.fast.run(x)", "x = x * 2\n            return self.fast.run(x)")
    assert worst_state(read_hunks(after, base=before)) is GuardState.GUARDED


def test_the_same_name_in_another_model_changes_nothing() -> None:
    other = {"engine/models/shark/model.py": "class Shark:\n    def f(self):\n        self.fast = 1\n"}
    head = edit(*GUARDED["attribute that is None when off"])
    assert worst_state(read_hunks(head, more=other)) is GuardState.GUARDED


def test_an_attribute_that_shared_code_sets_is_no_guard() -> None:
    other = {"engine/setup.py": "def f(model):\n    model.fast = 1\n"}
    head = edit(*GUARDED["attribute that is None when off"])
    assert worst_state(read_hunks(head, more=other)) is GuardState.UNDECIDED


def test_a_read_that_is_on_by_default_guards_nothing() -> None:
    fast = FAST.replace('AUTO, FAST = "auto", "fast"', 'AUTO, FAST = "fast", "auto"')
    head = edit(*GUARDED["attribute that is None when off"])
    assert worst_state(read_hunks(head, fast=fast)) is not GuardState.GUARDED


def test_a_file_that_does_not_parse_is_undecided() -> None:
    assert worst_state(read_hunks(BASE + "\ndef (:\n")) is GuardState.UNDECIDED


def test_an_override_of_a_base_class_is_unguarded() -> None:
    base = {"engine/base.py": "class Model:\n    def warm_up(self):\n        pass\n"}
    before = edit(
        (
            "from engine.layers import norm\n",
            "from engine.base import Model\nfrom engine.layers import norm\n",
        ),
        ("class Whale(torch.nn.Module):", "class Whale(Model):"),
    )
    after = before.replace("    def compute", "    def warm_up(self):\n        return 1\n\n    def compute")
    assert worst_state(read_hunks(after, base=before, more=base)) is GuardState.UNGUARDED


def test_an_attribute_that_may_be_set_by_its_name_is_no_guard() -> None:
    loads = (
        "    def load(self, names):\n"
        "        for name in names:\n"
        "            setattr(self, name, names[name])\n"
        "\n"
    )
    before = edit(("    def compute_logits", f"{loads}    def compute_logits"))
    after = edit(*GUARDED["attribute that is None when off"], base=before)
    shared = {"engine/setup.py": "def f(model):\n    model.load({})\n"}
    assert worst_state(read_hunks(after, base=before, more=shared)) is GuardState.UNDECIDED


@pytest.mark.parametrize(
    "body",
    [
        "    if isinstance(config, dict):\n        return backend(config) == FAST\n    return True\n",
        "    if isinstance(config, dict):\n        return False\n    return True\n",
        "    if not config.debug:\n        return backend(config) == FAST\n    return True\n",
    ],
)
def test_a_read_that_may_also_be_on_for_another_reason_guards_nothing(body: str) -> None:
    fast = FAST.replace("    return backend(config) == FAST\n", body)
    head = edit(*GUARDED["and with another condition"])
    assert worst_state(read_hunks(head, fast=fast)) is GuardState.UNGUARDED


KINDS = """\
import enum


class Backend(str, enum.Enum):
    AUTO = "auto"
    FAST = "fast"


class Plain(enum.Enum):
    AUTO = "auto"
    FAST = "fast"


class Other(enum.Enum):
    AUTO = "auto"
    FAST = "fast"

    def __eq__(self, other):
        return True


class Twin(str, enum.Enum):
    AUTO = "auto"


"""


@pytest.mark.parametrize(
    ("test", "state"),
    [
        ("Backend(backend(config)) is Backend.FAST", GuardState.GUARDED),
        ("Backend(backend(config)) == 'fast'", GuardState.GUARDED),
        ("Plain(backend(config)) is Plain.FAST", GuardState.GUARDED),
        ("Plain(backend(config)).value == FAST", GuardState.GUARDED),
        ("Plain(backend(config)) is not Plain.FAST", GuardState.UNGUARDED),
        ("Plain(backend(config)) != AUTO", GuardState.UNGUARDED),
        ("Backend(backend(config)) is not Plain.AUTO", GuardState.UNGUARDED),
        ("Backend(backend(config)) is Backend.AUTO", GuardState.UNGUARDED),
        ("Backend(backend(config)) is not Twin.AUTO", GuardState.UNGUARDED),
        ("Other(backend(config)) == Other.FAST", GuardState.UNDECIDED),
    ],
)
def test_a_switch_that_becomes_a_member_of_an_enumeration_is_followed(test: str, state: GuardState) -> None:
    fast = KINDS + FAST.replace("return backend(config) == FAST", f"return {test}")
    assert fast != KINDS + FAST
    head = edit(IMPORT_ON, (CALL, f"{CALL}        if is_on(self.config):\n            hidden = hidden * 2\n"))
    assert worst_state(read_hunks(head, fast=fast)) is state


@pytest.mark.parametrize(
    ("names", "state"),
    [
        ("('x', 'y')", GuardState.GUARDED),
        ("NAMES", GuardState.UNDECIDED),
    ],
)
def test_an_own_class_that_gets_attributes_in_a_loop_leaves_others_as_they_are(
    names: str, state: GuardState
) -> None:
    fast = f"{FAST}\n\nfor name in {names}:\n    setattr(Loud, name, kernel)\n"
    head = edit(
        IMPORT, KEEP, (CALL, f"{CALL}        if self.fast is not None:\n            hidden = hidden * 2\n")
    )
    assert worst_state(read_hunks(head, fast=fast)) is state


def test_a_function_that_sets_a_variable_of_the_hooked_file_does_something() -> None:
    base = edit(
        (HEAD, "        return self.head(hidden) * SCALE\n"), ("class Whale", "SCALE = 2\n\n\nclass Whale")
    )
    spoil = "def spoil():\n    global SCALE\n    SCALE = 3\n\n\nspoil()\n\n\nclass Whale"
    hunks = read_hunks(edit(("class Whale", spoil), base=base), base=base)
    assert worst_state(hunks) is GuardState.UNGUARDED


def test_a_read_that_the_subject_defines_twice_is_undecided() -> None:
    one, other = (f"    def is_on(config):\n        return {value}\n" for value in (True, False))
    twice = f"if Fast:\n{one}else:\n{other}"
    head = edit(IMPORT_ON, (CALL, f"{CALL}        if is_on(self.config):\n            hidden = hidden * 2\n"))
    body = "def is_on(config) -> bool:\n    return backend(config) == FAST\n"
    assert worst_state(read_hunks(head, fast=FAST.replace(body, twice))) is GuardState.UNDECIDED


def test_an_import_that_is_gone_is_unguarded() -> None:
    before = edit(("import torch\n", "import torch\nimport math\n"))
    assert worst_state(read_hunks(BASE, base=before)) is GuardState.UNGUARDED


def test_a_constant_that_changes_what_another_line_does_is_unguarded_at_that_line() -> None:
    before = edit((CALL, f"        scale = 1\n{CALL}        hidden = hidden * scale\n"))
    hunks = read_hunks(before.replace("scale = 1", "scale = 2"), base=before)
    assert [(h.head_line, h.state) for h in hunks if h.state is not GuardState.GUARDED] == [
        (14, GuardState.UNGUARDED)
    ]


STOOD = edit(
    (IMPORT[0], f"{IMPORT[0]}from .fast import is_on, read\n\ndef asks(config):\n    return is_on(config)\n"),
    (
        "        self.norm = norm\n",
        "        self.norm = norm\n        self.plan = read(config) if asks(config) else None\n",
    ),
    (RETURN, f"        if self.plan is None:\n    {RETURN}        return self.plan.run(hidden)\n"),
)
BEHIND = ("        return self.plan.run", "        hidden = hidden * 2\n        return self.plan.run")
BEFORE = (CALL, f"{CALL}        hidden = hidden * 2\n")


@pytest.mark.parametrize(
    ("change", "elsewhere", "state"),
    [
        (BEHIND, "", GuardState.GUARDED),
        (BEFORE, "", GuardState.UNGUARDED),
        (BEHIND, "def start(model):\n    model.plan = 1\n", GuardState.UNGUARDED),
    ],
    ids=["behind it", "before it", "behind it, set elsewhere"],
)
def test_a_guard_that_stood_there_before_the_change_guards_what_the_change_puts_behind_it(
    change: tuple[str, str], elsewhere: str, state: GuardState
) -> None:
    more = {"engine/models/whale/fast.py": FAST, "engine/start.py": elsewhere}
    assert worst_state(read_hunks(edit(change, base=STOOD), base=STOOD, more=more)) is state
