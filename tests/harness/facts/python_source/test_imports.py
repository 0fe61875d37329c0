"""Laws of imports: every way into the subject is found, whatever its form, and what is none is let be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

import harness
from harness.facts.python_source.reaches import Reaches, collect_inward
from harness.facts.python_source.tree import SourceTree
from harness.model.reach import ImportForm, InwardImport

FAST = "engine/models/whale/fast"
FILES = {
    f"{FAST}/__init__.py": "",
    f"{FAST}/runtime.py": "def read(config):\n    return None\n",
    "engine/models/whale/__init__.py": "",
    "engine/models/whale/model.py": "import torch\n",
    "engine/runner.py": "import torch\n",
}
MODULE = "engine.models.whale.fast"


def inward(path: str, text: str, more: Mapping[str, str] | None = None) -> tuple[InwardImport, ...]:
    """What one file, with others, reaches of the subject."""
    files = {p: t.encode() for p, t in {**FILES, **(more or {}), path: text}.items()}
    head = SourceTree(files)
    owned = frozenset(p for p in files if p.startswith(f"{FAST}/"))
    base = SourceTree({p: t.encode() for p, t in FILES.items() if p not in owned})
    return collect_inward(
        Reaches(head, owned, lambda p: p.startswith("tests/")),
        Reaches(base, frozenset(), lambda _path: False),
        lambda _path, _line: (),
    )


@pytest.mark.parametrize(
    ("path", "text", "form"),
    [
        ("engine/runner.py", f"from {MODULE}.runtime import read\n", ImportForm.STATIC),
        ("engine/runner.py", f"import {MODULE}.runtime as r\n", ImportForm.STATIC),
        ("engine/runner.py", "from engine.models.whale import fast\n", ImportForm.STATIC),
        ("engine/models/whale/model.py", "from .fast.runtime import read\n", ImportForm.STATIC),
        ("engine/models/whale/__init__.py", "from . import fast\n", ImportForm.STATIC),
        ("engine/models/shark.py", "from .whale.fast import runtime\n", ImportForm.STATIC),
        ("engine/runner.py", f"def f():\n    from {MODULE} import runtime\n", ImportForm.LAZY),
        ("engine/runner.py", f"class A:\n    def f(self):\n        import {MODULE}\n", ImportForm.LAZY),
        ("engine/runner.py", f"if x:\n    import {MODULE}\n", ImportForm.CONDITIONAL),
        (
            "engine/runner.py",
            f"try:\n    import {MODULE}\nexcept ImportError:\n    pass\n",
            ImportForm.CONDITIONAL,
        ),
        (
            "engine/runner.py",
            f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {MODULE} import runtime\n",
            ImportForm.TYPES_ONLY,
        ),
        (
            "engine/runner.py",
            f"import importlib\nm = importlib.import_module('{MODULE}.runtime')\n",
            ImportForm.DYNAMIC,
        ),
        ("engine/runner.py", f"m = __import__('{MODULE}')\n", ImportForm.DYNAMIC),
        (
            "engine/models/whale/model.py",
            "from importlib import import_module\nm = import_module('.fast.runtime', __package__)\n",
            ImportForm.DYNAMIC,
        ),
        (
            "engine/runner.py",
            "import importlib as i\nROOT = 'engine.models'\nm = i.import_module(f'{ROOT}.whale.fast.runtime')\n",
            ImportForm.DYNAMIC,
        ),
        ("engine/runner.py", f"REGISTRY = {{'Whale': ('{MODULE}.runtime', 'Fast')}}\n", ImportForm.NAMED),
        ("engine/runner.py", f"REGISTRY = {{'Whale': '{MODULE}.runtime:Fast'}}\n", ImportForm.NAMED),
        ("engine/runner.py", f"import sys\nm = sys.modules.get('{MODULE}.runtime')\n", ImportForm.DYNAMIC),
        ("engine/runner.py", f"@register('{MODULE}.runtime')\ndef f():\n    pass\n", ImportForm.NAMED),
        ("engine/runner.py", f"match x:\n    case 1:\n        import {MODULE}\n", ImportForm.STATIC),
    ],
)
def test_an_import_of_the_subject_is_found_with_its_form(path: str, text: str, form: ImportForm) -> None:
    assert [found.form for found in inward(path, text)] == [form]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("engine/runner.py", '"""Speaks of engine.models.whale.fast.runtime."""\n'),
        ("engine/runner.py", "# engine.models.whale.fast\nimport torch\n"),
        ("engine/runner.py", "from engine.models.whale import model\n"),
        ("engine/runner.py", "from other.models.whale.fast import runtime\n"),
        ("engine/runner.py", "import fast\nfrom fast import runtime\n"),
        ("engine/runner.py", "from .fast import runtime\n"),
        ("engine/runner.py", "fast = 1\nruntime = fast\n"),
        ("engine/runner.py", "raise ValueError('the fast path')\n"),
        (
            "engine/runner.py",
            "from importlib import import_module\nm = import_module('engine.models.shark.fast')\n",
        ),
        ("tests/test_fast.py", "from engine.models.whale.fast import runtime\n"),
        ("engine/models/shark.py", "from ..models.shark import fast\n"),
        ("engine/runner.py", "x.fast.runtime()\n"),
    ],
)
def test_what_is_no_import_of_the_subject_is_let_be(path: str, text: str) -> None:
    assert inward(path, text) == ()


TYPES = f"    from {MODULE}.runtime import read\n"


@pytest.mark.parametrize(
    "text",
    [
        f"TYPE_CHECKING = True\nif TYPE_CHECKING:\n{TYPES}",
        f"from typing import TYPE_CHECKING\nTYPE_CHECKING = True\nif TYPE_CHECKING:\n{TYPES}",
        f"from engine.runner import TYPE_CHECKING\nif TYPE_CHECKING:\n{TYPES}",
        f"import engine.runner as c\nif c.TYPE_CHECKING:\n{TYPES}",
        f"import typing\ntyping.TYPE_CHECKING = True\nif typing.TYPE_CHECKING:\n{TYPES}",
        f"import typing\nif False == typing.TYPE_CHECKING:\n{TYPES}",
    ],
)
def test_a_condition_that_only_looks_like_type_checking_runs(text: str) -> None:
    assert ImportForm.TYPES_ONLY not in {found.form for found in inward("engine/layers.py", text)}


@pytest.mark.parametrize(
    "text",
    [
        "import engine.models.whale\ndef f():\n    return engine.models.whale.fast.runtime.read\n",
        "from engine.models import whale\ndef f():\n    return whale.fast.runtime.read\n",
        "import importlib\nm = importlib.import_module('.'.join(['engine', 'models', 'whale', 'fast', 'runtime']))\n",
        "import importlib\nm = importlib.import_module('engine.models.{}.fast.runtime'.format('whale'))\n",
        "import importlib\nm = importlib.import_module('engine.models.%s.fast.runtime' % 'whale')\n",
        "from importlib import import_module as load\nP = 'engine.models.whale'\nm = load(P + '.fast.runtime')\n",
        "import sys\nm = sys.modules[f'engine.models.whale.fast.runtime']\n",
        f"from {MODULE.replace('fast', chr(0xFF46) + 'ast')} import runtime\n",
    ],
    ids=["chain", "chain from", "join", "format", "percent", "alias", "modules", "full-width letter"],
)
def test_a_way_round_the_import_statement_is_found(text: str) -> None:
    assert MODULE in {found.target.removesuffix(".runtime") for found in inward("engine/layers.py", text)}


@pytest.mark.parametrize(
    "text",
    [
        f"exec('from {MODULE}.runtime import read')\n",
        "import runpy\nrunpy.run_path('/srv/engine/models/whale/fast/runtime.py')\n",
        "MODELS = {'A': ('whale.fast.runtime', 'read')}\n",
    ],
    ids=["exec", "path", "end of the name"],
)
def test_a_text_that_may_lead_into_the_subject_is_open(text: str) -> None:
    assert [f for f in inward("engine/layers.py", text) if f.target.startswith("(")]


def test_an_attribute_of_that_name_of_something_else_is_no_reach() -> None:
    assert not inward(
        "engine/layers.py", "import torch\ndef f(x):\n    return torch.fast.runtime(x.fast.runtime)\n"
    )


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("from engine import runner\nx = getattr(runner, '_secret')\n", "engine.runner._secret"),
        ("from engine import runner\nx = getattr(runner, '_sec' + 'ret')\n", "engine.runner._secret"),
        ("from engine import runner\nx = vars(runner)['_secret']\n", "engine.runner._secret"),
        ("from engine import runner\nx = runner.__dict__['_secret']\n", "engine.runner._secret"),
        ("def f():\n    import engine.runner as r\n    return r._secret\n", "engine.runner._secret"),
        (
            "def f():\n    from engine import runner as r\n    return getattr(r, '_secret')\n",
            "engine.runner._secret",
        ),
        ("def f():\n    import engine as e\n    return e.runner.step\n", "engine.runner.step"),
        (
            "def f():\n    import engine.layers as r\n    return r\ndef g():\n    import engine.runner as r\n"
            "    return r._secret\ndef h():\n    import engine.registry as r\n    return r\n",
            "engine.runner._secret",
        ),
        (
            "from . import runtime as r\ndef f():\n    import engine.runner as r\n    return r._secret\n",
            "(r._secret)",
        ),
        ("import pydoc\nx = pydoc.locate('engine.runner.step')\n", "engine.runner.step"),
        ("from pydoc import locate\nx = locate('engine.' + 'runner')\n", "engine.runner"),
        ("import sys\nx = sys.modules['engine.runner']\n", "engine.runner"),
        ("import engine\nx = engine.runner.step\n", "engine.runner.step"),
        (
            "import importlib\ndef f(n):\n    return importlib.import_module('engine.' + n)\n",
            "('engine.' + n)",
        ),
    ],
)
def test_what_the_subject_takes_on_a_way_round_is_listed(text: str, target: str) -> None:
    files = {**FILES, "engine/__init__.py": "", f"{FAST}/extra.py": text}
    tree = SourceTree({path: content.encode() for path, content in files.items()})
    reaches = Reaches(tree, frozenset(p for p in files if p.startswith(f"{FAST}/")), lambda _path: False)
    assert target in {found.target for found in reaches.outward(("engine",))}


@pytest.mark.parametrize(
    ("module", "text", "is_followed"),
    [
        ("engine/utils.py", "from engine.core.scheduler import Scheduler\n", True),
        ("engine/utils.py", "from engine.more import Scheduler\n", True),
        ("engine/utils.py", "class Scheduler:\n    pass\n", False),
        ("engine/utils/__init__.py", "from engine.utils.inner import Scheduler\n", False),
    ],
    ids=["handed on", "handed on twice", "its own", "of its own package"],
)
def test_a_name_of_the_engine_that_a_module_hands_on_counts_where_it_comes_from(
    module: str, text: str, is_followed: bool
) -> None:
    files = {
        **FILES,
        module: text,
        "engine/more.py": "from engine.core.scheduler import Scheduler\n",
        f"{FAST}/extra.py": "from engine.utils import Scheduler\n",
    }
    tree = SourceTree({path: content.encode() for path, content in files.items()})
    reaches = Reaches(tree, frozenset(p for p in files if p.startswith(f"{FAST}/")), lambda _path: False)
    found = {use.target for use in reaches.outward(("engine",))} - {"engine.utils.Scheduler"}
    assert found == ({"engine.core.scheduler.Scheduler"} if is_followed else set())


def test_a_name_that_another_module_has_from_the_subject_is_a_reach() -> None:
    hook = {"engine/models/whale/model.py": "from .fast.runtime import read as whale_read\n"}
    found = inward("engine/runner.py", "from engine.models.whale.model import whale_read\n", hook)
    assert [(f.path, f.via) for f in found if f.via] == [("engine/runner.py", "engine.models.whale.model")]


def test_an_import_by_a_name_that_is_put_together_is_shown_as_it_is_written() -> None:
    (found,) = inward(
        "engine/runner.py",
        "from importlib import import_module\ndef f(x):\n    import_module(f'engine.models.{x}.fast.runtime')\n",
    )
    assert found.target == "(f'engine.models.{x}.fast.runtime')"


def test_one_statement_is_one_reach_that_names_what_it_takes() -> None:
    (found,) = inward("engine/runner.py", f"from {MODULE}.runtime import (\n    read,\n    write,\n)\n")
    assert (found.line, found.target, found.names) == (1, f"{MODULE}.runtime", ("read", "write"))


def test_a_reach_that_the_base_has_is_not_new() -> None:
    text = f"from {MODULE} import runtime\n"
    files = {p: t.encode() for p, t in {**FILES, "engine/runner.py": text}.items()}
    owned = frozenset(p for p in files if p.startswith(f"{FAST}/"))
    both = Reaches(SourceTree(files), owned, lambda _path: False)
    assert [f.is_new for f in collect_inward(both, both, lambda _path, _line: ())] == [False]


def test_the_subjects_imports_and_private_uses_of_the_engine_are_listed() -> None:
    text = "import vllm.envs\nfrom vllm.layers import norm, _hidden\nimport torch\n\n"
    text += "x = norm._cache\ny = vllm.envs._raw\n"
    tree = SourceTree({f"{FAST}/runtime.py": text.encode()})
    reaches = Reaches(tree, frozenset(tree.files), lambda _path: False)
    assert [(o.line, o.target) for o in reaches.outward(["vllm"])] == [
        (1, "vllm.envs"),
        (2, "vllm.layers._hidden"),
        (2, "vllm.layers.norm"),
        (5, "vllm.layers.norm._cache"),
        (6, "vllm.envs._raw"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from . import runtime as r\ndef f():\n    return r._secret\n",
        "from . import runtime as r\nfrom engine import runner\ndef f(n):\n    return getattr(r, n)\n",
        "def f():\n    import engine.runner as r\n    return r.step\n",
        "def f():\n    import torch as r\n    return r._C\n",
    ],
)
def test_a_name_that_is_not_the_engines_or_not_private_is_no_private_use(text: str) -> None:
    tree = SourceTree({f"{FAST}/runtime.py": b"", f"{FAST}/extra.py": text.encode()})
    reaches = Reaches(tree, frozenset(tree.files), lambda _path: False)
    assert not {o.target for o in reaches.outward(["engine"])} - {"engine.runner"}


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("import importlib\ndef f(n):\n    return importlib.import_module(n)\n", True),
        ("import sys\ndef f(n):\n    return sys.modules[n]\n", True),
        ("import importlib\ndef f(n):\n    return importlib.import_module(f'..{n}', __package__)\n", True),
        ("from engine import envs\ndef f(n):\n    return getattr(envs, n)\n", True),
        ("import engine.envs as e\ndef f(n):\n    return getattr(e, '_' + n)()\n", True),
        ("from engine import envs\ndef f(n):\n    return vars(envs)[n]\n", True),
        ("from engine import envs\ndef f(n):\n    for n in (*n, 'A'):\n        getattr(envs, n)\n", True),
        ("import sys\nme = sys.modules[__name__]\n", False),
        (f"import importlib\ndef f(n):\n    return importlib.import_module(f'{MODULE}.{{n}}')\n", False),
        ("import importlib\ndef f(n):\n    return importlib.import_module(f'.{n}', __package__)\n", False),
        ("from engine import envs\ndef f():\n    for n in ('A', 'B'):\n        getattr(envs, n)\n", False),
        ("from engine import envs\nNAME = 'A'\nx = getattr(envs, NAME)\n", False),
        ("import torch\ndef f(n):\n    return getattr(torch, n)\n", False),
        ("class A:\n    def f(self, n):\n        return getattr(self, n)\n", False),
    ],
)
def test_a_name_of_the_engine_that_is_computed_is_listed_as_open(text: str, is_open: bool) -> None:
    files = {**FILES, "engine/__init__.py": "", "engine/envs.py": "A = B = 1\n", f"{FAST}/extra.py": text}
    tree = SourceTree({path: content.encode() for path, content in files.items()})
    reaches = Reaches(tree, frozenset(p for p in files if p.startswith(f"{FAST}/")), lambda _path: False)
    assert any(use.target.startswith("(") for use in reaches.outward(("engine",))) is is_open


def test_a_private_name_that_a_loop_spells_is_listed() -> None:
    text = "from engine import envs\nfor n in ('A', '_hidden'):\n    getattr(envs, n)\n"
    tree = SourceTree({f"{FAST}/runtime.py": text.encode()})
    reaches = Reaches(tree, frozenset(tree.files), lambda _path: False)
    assert "engine.envs._hidden" in {use.target for use in reaches.outward(["engine"])}


def test_a_source_folder_is_no_part_of_a_modules_name() -> None:
    tree = SourceTree({"src/pkg/__init__.py": b"", "src/pkg/a.py": b""})
    assert (tree.path_of("pkg.a"), tree.package_of("src/pkg/__init__.py")) == ("src/pkg/a.py", "pkg")


def test_what_grimp_finds_in_this_package_is_what_is_found_here() -> None:
    """An independent reader of imports (grimp, the one below import-linter) as the oracle."""
    graph = grimp.build_graph("harness", cache_dir=None)
    folder = Path(harness.__file__).parent
    tree = SourceTree({f"harness/{p.relative_to(folder)}": p.read_bytes() for p in folder.rglob("*.py")})
    reaches = Reaches(tree, frozenset(), lambda _path: False)
    for path in tree.files:
        if tree.module_of(path) not in graph.modules:
            continue
        found = set()
        for imported in reaches.imports(path):
            if imported.form not in (ImportForm.NAMED, ImportForm.DYNAMIC):
                found.add(imported.target if tree.path_of(imported.target) else imported.module)
        inside = {name for name in found if tree.path_of(name)}
        assert inside == graph.find_modules_directly_imported_by(tree.module_of(path)), path
