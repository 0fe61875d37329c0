"""Laws of names: a definition is read, and what its name gives then runs; where the two may differ nothing passes."""

from __future__ import annotations

import pytest

from harness.facts.python_source.tree import SourceTree
from harness.model.reach import GuardState
from tests.harness.facts.python_source.hook_cases import BASE, FAST, edit, read_hunks, worst_state

FOLDER = "engine/models/whale/"
IMPORTS = "from engine.layers import norm\n"
CALL = "        hidden = self.norm(x)\n"
READER = "def is_on(config) -> bool:\n    return backend(config) == FAST\n"
HEAD = edit(
    (IMPORTS, f"{IMPORTS}from .fast import is_on\n"),
    (CALL, f"{CALL}        if is_on(self.config):\n            hidden = hidden * 2\n"),
)
METHOD = edit(
    (IMPORTS, f"{IMPORTS}from .fast import is_on\n"),
    ("        self.norm = norm\n", "        self.norm = norm\n        {}\n"),
    (CALL, f"{CALL}        if self.whale_on():\n            hidden = hidden * 2\n"),
    (
        "    def compute_logits",
        "    def whale_on(self):\n        return is_on(self.config)\n\n    def compute_logits",
    ),
)


def reader(text: str, *, after: str = "") -> str:
    """The subject with another function that reads the switch, and with code at its end."""
    assert FAST.count(READER) == 1
    return FAST.replace(READER, text) + after


def decorated(decorator: str, *, before: str = "") -> str:
    return reader(f"{before}{decorator}\n{READER}")


WRAPPER = "def allowing(f):\n    def inner(c):\n        return f(c) or c.small\n\n    return inner\n\n\n"
LIST_OF_ON = "ON = [FAST]\n{}\n\ndef is_on(config) -> bool:\n    return backend(config) in ON\n"
TUPLE_OF_ON = LIST_OF_ON.replace("[FAST]", "(FAST,)")
OF_BOOL = "def is_on(config) -> bool:\n    return bool(backend(config) == FAST)\n"
BREACHES = {
    "a decorator of the change": (decorated("@allowing", before=WRAPPER), "decorated by `@allowing`"),
    "a decorator of a known name": (
        decorated("@staticmethod", before=WRAPPER.replace("allowing", "staticmethod")),
        "decorated by `@staticmethod`",
    ),
    "a coroutine": (reader(f"async {READER}"), "async"),
    "a generator": (reader(f"{READER}    yield\n"), "generator"),
    "a parameter called str": (
        reader("def is_on(config, str=repr) -> bool:\n    return str(backend(config)) != AUTO\n"),
        "switch",
    ),
    "a built-in that is assigned": (reader(f"bool = print\n\n\n{OF_BOOL}"), "switch"),
    "a built-in that may be imported": (reader(f"from .more import *\n\n\n{OF_BOOL}"), "switch"),
    "a function that a function binds": (
        reader(READER, after="\n\ndef setup():\n    global is_on\n    is_on = bool\n"),
        "`global`",
    ),
    "a star import below": (reader(READER, after="\n\nfrom .more import *\n"), "star import"),
    "its namespace": (reader(READER, after="\n\nglobals()['is_on'] = bool\n"), "may be set in"),
    "its namespace under a name": (reader(READER, after="\n\nnames = globals()\n"), "may be set in"),
    "its code": (reader(READER, after="\n\nimport engine.models.whale.fast as me\n\n"
                        "me.is_on.__code__ = start.__code__\n"), "may be set in"),
    "a list that is added to": (reader(LIST_OF_ON.format("ON.append(AUTO)\n")), "list or set"),
    "a set": (reader(LIST_OF_ON.format("").replace("[FAST]", "{FAST}")), "list or set"),
    "a class that is decorated": (
        reader(
            "@allowing\nclass Reader:\n    @staticmethod\n    def whale_reads(config):\n"
            "        return backend(config) == FAST\n\n\n"
            "def is_on(config) -> bool:\n    return Reader.whale_reads(config)\n"
        ),
        "class Reader is decorated",
    ),
}  # fmt: skip
TWINS = {
    "a decorator that keeps results": decorated("@functools.lru_cache(maxsize=None)", before="import functools\n\n\n"),
    "a generator inside": reader(
        "def is_on(config) -> bool:\n    def steps():\n        yield 1\n\n    return backend(config) == FAST\n"
    ),
    "a built-in": reader(OF_BOOL),
    "a parameter of another name": reader(
        "def is_on(config, text=repr) -> bool:\n    return str(backend(config)) != AUTO\n"
    ),
    "another name bound by a function": reader(
        READER, after="\n\nseen = None\n\n\ndef setup():\n    global seen\n    seen = bool\n"
    ),
    "a star import above": f"from .more import *\n{FAST}",
    "its namespace read": reader(READER, after="\n\nON = globals()['is_on']\n"),
    "a tuple": reader(TUPLE_OF_ON.format("")),
    "a set that is frozen": reader(LIST_OF_ON.format("").replace("[FAST]", "frozenset({FAST})")),
    "a list in place": reader("def is_on(config) -> bool:\n    return backend(config) in [FAST]\n"),
    "a check of the type": reader(
        "def is_on(config) -> bool:\n    value = backend(config)\n    if not isinstance(value, str):\n"
        "        raise TypeError(value)\n    return value == FAST\n"
    ),
    "an early return without the key": reader(
        "def is_on(config) -> bool:\n    if (value := config.additional_config.get('backend')) is None:\n"
        "        return False\n    return value == FAST\n"
    ),
    "a class of the change that is plain": reader(
        "class Reader:\n    @staticmethod\n    def whale_reads(config):\n"
        "        return backend(config) == FAST\n\n\n"
        "def is_on(config) -> bool:\n    return Reader.whale_reads(config)\n"
    ),
}  # fmt: skip
FROM_AFAR = [
    ("from . import fast\n\nfast.is_on = bool\n", "from . import fast\n\nfast.was_on = bool\n"),
    ("from . import fast\n\nfast.FAST = 'auto'\n", "from . import fast\n\nfast.SLOW = 'auto'\n"),
    ("from . import fast\n\nm = fast\nm.FAST = 'auto'\n", "m = object()\nm.FAST = 'auto'\n"),
    ("from . import fast\n\nsetattr(fast, 'is_on', bool)\n", "from . import fast\n\nsetattr(fast, 'was_on', bool)\n"),
    ("from . import fast\n\nvars(fast)['FAST'] = 1\n", "from . import fast\n\nprint(vars(fast)['FAST'])\n"),
    ("import sys\n\nsys.modules['x'] = sys\n", "import sys\n\nprint(sys.modules['x'])\n"),
    ("import sys\n\nsys.modules['x'].is_on = bool\n", "import sys\n\nprint(sys.modules['x'].is_on)\n"),
]  # fmt: skip


@pytest.mark.parametrize("name", BREACHES)
def test_a_reader_that_may_give_something_else_than_it_returns_is_undecided(name: str) -> None:
    fast, words = BREACHES[name]
    hunks = read_hunks(HEAD, fast=fast)
    assert worst_state(hunks) is GuardState.UNDECIDED, hunks
    assert any(words in hunk.reason for hunk in hunks), hunks


@pytest.mark.parametrize("name", TWINS)
def test_the_innocent_twin_of_such_a_reader_is_guarded(name: str) -> None:
    hunks = read_hunks(HEAD, fast=TWINS[name])
    assert worst_state(hunks) is GuardState.GUARDED, hunks


@pytest.mark.parametrize(("breach", "twin"), FROM_AFAR)
def test_a_reader_or_constant_that_another_file_sets_is_undecided_and_other_names_do_not_matter(
    breach: str, twin: str
) -> None:
    states = [worst_state(read_hunks(HEAD, own={f"{FOLDER}more.py": text})) for text in (breach, twin)]
    assert states == [GuardState.UNDECIDED, GuardState.GUARDED]


@pytest.mark.parametrize(
    "binding",
    [
        "for {} in (bool,):\n    pass\n",
        "with open('x') as {}:\n    pass\n",
        "print({} := bool)\n",
        "first = ({} := bool)\n",
        "seen = [{} := bool for _ in (1,)]\n",
        "def late(x=({} := bool)):\n    pass\n",
        "def late(*, x=({} := bool)):\n    pass\n",
        "def late(x: ({} := bool)):\n    pass\n",
        "late = lambda x=({} := bool): x\n",
        "@({} := print)\ndef late():\n    pass\n",
        "class Late(({} := object)):\n    pass\n",
        "class Late:\n    global {0}\n    {0} = bool\n",
        "{}: object = bool\n",
        "del {}\n",
        "try:\n    pass\nexcept OSError as {}:\n    pass\n",
        "match start:\n    case {}:\n        pass\n",
        "class {}:\n    pass\n",
    ],
)
def test_a_reader_that_its_file_binds_again_in_any_way_is_undecided_and_another_name_does_not_matter(
    binding: str,
) -> None:
    texts = [reader(READER, after=f"\n\n{binding.format(name)}") for name in ("is_on", "was_on")]
    states = [worst_state(read_hunks(HEAD, fast=text)) for text in texts]
    assert states == [GuardState.UNDECIDED, GuardState.GUARDED]


@pytest.mark.parametrize(
    "inside",
    [
        "def late(x=lambda: ({} := bool)):\n    pass\n",
        "def late({}=1):\n    pass\n",
        "def late():\n    return ({} := bool)\n",
        "class Late:\n    {} = bool\n",
        "late = [{} for {} in (1,)]\n".replace("{}", "{0}"),
        "late = lambda {}=1: 2\n",
    ],
)
def test_a_name_that_a_scope_inside_keeps_to_itself_is_not_bound_again(inside: str) -> None:
    fast = reader(READER, after=f"\n\n{inside.format('is_on')}")
    assert worst_state(read_hunks(HEAD, fast=fast)) is GuardState.GUARDED


def test_a_dict_that_is_empty_where_it_is_made_may_be_filled_where_it_is_read() -> None:
    filled = (
        "D = {}\nD['backend'] = FAST\n\n\ndef is_on(config) -> bool:\n    return D.get('backend') == FAST\n"
    )
    assert worst_state(read_hunks(HEAD, fast=reader(filled))) is GuardState.UNGUARDED


@pytest.mark.parametrize(
    ("built_in", "state"),
    [("def str(x):\n        return 'fast'\n", 1), ("def text(x):\n        return 'fast'\n", 0)],
)
def test_a_function_inside_that_has_the_name_of_a_built_in_is_called_for_it(
    built_in: str, state: int
) -> None:
    fast = reader(f"def is_on(config) -> bool:\n    {built_in}\n    return str(backend(config)) == FAST\n")
    assert (worst_state(read_hunks(HEAD, fast=fast)) is GuardState.UNGUARDED) == bool(state)


@pytest.mark.parametrize(
    ("definition", "state"),
    [
        ("def bool(x):\n    return True\n\n\n", GuardState.UNGUARDED),
        ("def whale_bool(x):\n    return True\n\n\n", GuardState.GUARDED),
    ],
)
def test_a_built_in_that_the_hooked_file_binds_is_not_taken_for_it(
    definition: str, state: GuardState
) -> None:
    head = HEAD.replace("if is_on(self.config)", "if bool(is_on(self.config))")
    head = head.replace("class Whale", f"{definition}class Whale")
    assert worst_state(read_hunks(head)) is state


@pytest.mark.parametrize(
    ("line", "state"),
    [("self.whale_on = print", GuardState.UNDECIDED), ("self.whale_off = print", GuardState.GUARDED)],
)
def test_a_method_that_an_attribute_of_its_name_hides_is_undecided(line: str, state: GuardState) -> None:
    hunks = read_hunks(METHOD.format(line))
    assert {h.state for h in hunks if "if self.whale_on" in "".join(h.lines)} == {state}, hunks


@pytest.mark.parametrize("rival", [f"{FOLDER}fast/__init__.py", f"{FOLDER}model/__init__.py"])
def test_a_package_beside_a_module_that_is_read_is_undecided(rival: str) -> None:
    hunks = read_hunks(HEAD, own={rival: FAST})
    assert worst_state(hunks) is GuardState.UNDECIDED
    assert any("two files of one module" in hunk.reason for hunk in hunks), hunks


def test_a_package_beside_a_hooked_module_that_the_change_does_not_edit_is_undecided() -> None:
    hunks = read_hunks(BASE, own={f"{FOLDER}model/__init__.py": FAST})
    assert [hunk.state for hunk in hunks] == [GuardState.UNDECIDED]


def test_python_takes_the_package_of_two_files_of_one_module() -> None:
    tree = SourceTree({"a/b.py": b"", "a/b/__init__.py": b"", "a/b/c.py": b""})
    assert tree.path_of("a.b") == "a/b/__init__.py"


def test_an_object_with_a_truth_of_its_own_is_undecided() -> None:
    own = "class Opt:\n    def __init__(self, c):\n        pass\n\n    def __bool__(self):\n        return False\n"
    hunks = read_hunks(HEAD, fast=reader(f"{own}\n\ndef is_on(config) -> bool:\n    return Opt(config)\n"))
    assert worst_state(hunks) is GuardState.UNDECIDED, hunks


@pytest.mark.parametrize(
    ("name", "state"),
    [("x", GuardState.GUARDED), ("hidden", GuardState.GUARDED), ("whale", GuardState.UNDECIDED)],
)
def test_a_local_that_is_given_what_it_is_changes_nothing_if_it_has_a_value(
    name: str, state: GuardState
) -> None:
    head = edit(
        (IMPORTS, f"{IMPORTS}from .fast import read\n"),
        ("        self.norm = norm\n", "        self.norm = norm\n        self.fast = read(config)\n"),
        (CALL, f"{CALL}        {name} = {name} if self.fast is None else self.fast.run(x)\n"),
    )
    assert worst_state(read_hunks(head)) is state


@pytest.mark.parametrize(("name", "state"), [("of", GuardState.GUARDED), ("make", GuardState.UNGUARDED)])
def test_a_read_that_is_a_method_lets_its_class_be_imported(name: str, state: GuardState) -> None:
    own = (
        "\n\nclass Whaling:\n    @classmethod\n    def of(cls, config):\n"
        "        return None if backend(config) == AUTO else cls()\n"
    )
    head = edit(
        (IMPORTS, f"{IMPORTS}from .fast import Whaling\n"),
        (CALL, f"{CALL}        if Whaling.of(self.config) is not None:\n            hidden = hidden * 2\n"),
    )
    module = "engine.models.whale.fast"
    reads = (f"{module}:Whaling.of" if name == "of" else f"{module}:make",)
    assert worst_state(read_hunks(head, fast=FAST + own, reads=reads)) is state


DATA = edit(
    (
        "class Whale",
        "from dataclasses import dataclass, field\n\n\n@dataclass\nclass Meta:\n    a: int = 0\n\n\nclass Whale",
    )
)
SUBCLASS = (
    "from engine.models.whale.model import Meta as Base\n\n\n@dataclass\nclass Sub(Base):\n    b: int = 0\n"
)


@pytest.mark.parametrize(
    ("line", "subclass", "state"),
    [
        ("hint: int", "", GuardState.UNDECIDED),
        ("hint: list = []", "", GuardState.UNDECIDED),
        ("hint: int = 0", SUBCLASS, GuardState.UNDECIDED),
        ("hint: int = field(default=0)", SUBCLASS, GuardState.UNDECIDED),
        ("hint: int = field(default_factory=print)", "", GuardState.UNGUARDED),
        ("hint: int = 0", "", GuardState.GUARDED),
        ("hint: int = 0", SUBCLASS.replace("Sub(Base)", "Sub"), GuardState.GUARDED),
        ("hint: int = field(default=0, kw_only=True)", SUBCLASS, GuardState.GUARDED),
        ("hint: list = field(default_factory=list)", "", GuardState.GUARDED),
    ],
)
def test_a_field_is_let_through_that_no_use_of_the_class_has_to_know(
    line: str, subclass: str, state: GuardState
) -> None:
    head = DATA.replace("    a: int = 0\n", f"    a: int = 0\n    {line}\n")
    assert worst_state(read_hunks(head, base=DATA, more={"engine/meta.py": subclass})) is state
