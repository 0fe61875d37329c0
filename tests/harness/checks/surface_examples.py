"""Settings that drift between code, tests and documents, switches that are not off, and their innocent twins."""

from __future__ import annotations

from dataclasses import dataclass, field

READ = 'def backend(c):\n    return c.additional_config.get("backend", "auto")\n'
DOC = 'Set `backend` in `--additional-config \'{"backend": "fast"}\'`.\n'


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change's files; the switch is `backend`, on `fast`, off `auto`."""

    code: str = READ
    test: str = ""
    document: str = DOC
    engine: dict[str, bytes] = field(default_factory=dict)


SWITCHES: dict[str, tuple[str, str]] = {
    "default of get is off": ("off", READ),
    "no default, compared with on": (
        "off",
        'def f(c):\n    return c.additional_config.get("backend") == "fast"\n',
    ),
    "no default, compared with off": (
        "on",
        'def f(c):\n    return c.additional_config.get("backend") != "auto"\n',
    ),
    "default of get is on": ("on", 'def f(c):\n    return c.additional_config.get("backend", "fast")\n'),
    "default by or": ("on", 'def f(c):\n    return c.additional_config.get("backend") or "fast"\n'),
    "constant default": (
        "off",
        'KEY = "backend"\nOFF = "auto"\ndef f(c):\n    return c.additional_config.get(KEY, OFF)\n',
    ),
    "constant default that is on": (
        "on",
        'DEFAULT = "fa" + "st"\ndef f(c):\n    return c.additional_config.get("backend", DEFAULT)\n',
    ),
    "enum by membership": (
        "off",
        'from enum import StrEnum\nclass B(StrEnum):\n    AUTO = "auto"\n    FAST = "fast"\n'
        "def f(c):\n"
        '    if not isinstance(c, dict) or "backend" not in c:\n        return B.AUTO\n'
        '    return B(c["backend"])\n',
    ),
    "enum by membership that is on": (
        "on",
        'from enum import StrEnum\nclass B(StrEnum):\n    AUTO = "auto"\n    FAST = "fast"\n'
        'def f(c):\n    if "backend" not in c:\n        return B.FAST\n    return B(c["backend"])\n',
    ),
    "index without a default": ("raises", 'def f(c):\n    return c.additional_config["backend"]\n'),
    "index in a try": (
        "off",
        'def f(c):\n    try:\n        v = c["backend"]\n    except KeyError:\n        v = "auto"\n    return v\n',
    ),
    "index in a try that ends on": (
        "on",
        'def f(c):\n    try:\n        return c["backend"]\n    except KeyError:\n        return "fast"\n',
    ),
    "conditional expression": (
        "off",
        'def f(c):\n    return c["backend"] == "fast" if "backend" in c else False\n',
    ),
    "branch that is not entered": (
        "off",
        'class A:\n    def __init__(self, c):\n        self.n = c.n\n        if "backend" in c.extra:\n'
        "            self.fast = True\n",
    ),
    "nested table": (
        "unknown",
        'def f(c):\n    return c.additional_config.get("backend", {}).get("level", 3)\n',
    ),
    "nested table that is on": (
        "on",
        'def f(c):\n    return c.additional_config.get("backend", {}).get("enabled", True)\n',
    ),
    "default from elsewhere": ("unknown", 'def f(c, d):\n    return c.additional_config.get("backend", d)\n'),
    "field of a class": (
        "off",
        'from pydantic import BaseModel\nclass C(BaseModel):\n    backend: str = "auto"\n',
    ),
    "field of a class that is on": (
        "on",
        'from pydantic import BaseModel, Field\nclass C(BaseModel):\n    backend: str = Field("fast")\n',
    ),
    "field that is none and compared with off": (
        "on",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    backend: str | None = None\n"
        'def f(c):\n    return c.backend != "auto"\n',
    ),
    "field that is none and compared with on": (
        "off",
        "from dataclasses import dataclass\n@dataclass\nclass C:\n    backend: str | None = None\n"
        'def f(c):\n    return c.backend == "fast"\n',
    ),
    "lower case of the value": (
        "off",
        'def f(c):\n    return str(c.get("backend", "AUTO")).lower() == "fast"\n',
    ),
    "key that is taken out of a copy": (
        "off",
        'def f(c):\n    rest = dict(c.additional_config)\n    rest.pop("backend", None)\n'
        '    return c.additional_config.get("backend", "auto")\n',
    ),
    "key that is taken out without a default": (
        "raises",
        'def f(c):\n    rest = dict(c.additional_config)\n    rest.pop("backend")\n'
        '    return c.additional_config.get("backend", "auto")\n',
    ),
    "key that is only taken out": ("unknown", 'def f(c):\n    c.additional_config.pop("backend", None)\n'),
    "member of a tuple": ("off", 'def f(c):\n    return c.get("backend") in ("fast", "faster")\n'),
    "not among off values": ("off", 'def f(c):\n    return c.get("backend") not in (None, "auto")\n'),
    "variable that is compared with on": (
        "off",
        'def f(c):\n    b = c.extra.get("backend")\n    if b == "fast":\n        return 1\n    return 0\n',
    ),
    "variable that is compared with off": (
        "on",
        'def f(c):\n    b = c.extra.get("backend")\n    if b != "auto":\n        return 1\n    return 0\n',
    ),
    "attribute that is compared in another method": (
        "on",
        'class A:\n    def __init__(self, c):\n        self.b = c.extra.get("backend")\n'
        '    def go(self):\n        return 0 if self.b == "auto" else 1\n',
    ),
    "variable that is tested": (
        "off",
        'def f(c):\n    b = c.extra.get("backend")\n    if not b:\n        return 0\n    return 1\n',
    ),
    "value that is handed on": ("unknown", 'def f(c):\n    return c.extra.get("backend")\n'),
    "negated value": ("off", 'def f(c):\n    plain = not c.extra.get("backend")\n    return plain\n'),
    "named expression": (
        "off",
        'def f(c):\n    if (b := c.extra.get("backend")) and b == "fast":\n        return 1\n    return 0\n',
    ),
    "match statement": (
        "unknown",
        'def f(c):\n    match c.extra.get("backend"):\n        case "auto":\n            return 0\n    return 1\n',
    ),
    "conditional on off": (
        "on",
        'def f(c):\n    return A if c.extra.get("backend") == "auto" else B\nclass A: ...\nclass B: ...\n',
    ),
    "table by value": (
        "off",
        'def f(c):\n    return {"fast": 1, "auto": 0}[c.extra.get("backend", "auto")]\n',
    ),
    "named expression that is none": (
        "off",
        'def f(c):\n    if (v := c.get("backend")) is None:\n        return False\n    return v == "fast"\n',
    ),
    "named expression that is none, and then on": (
        "on",
        'def enabled(c):\n    if (v := c.get("backend")) is None:\n        return True\n    return v == "fast"\n',
    ),
    "named expression that is used later": (
        "off",
        'def f(c):\n    if (v := c.get("backend")) is None and c.x:\n        return False\n    return v == "fast"\n',
    ),
    "read that is none": (
        "off",
        'def f(c):\n    if c.get("backend") is None:\n        return False\n    return c["backend"] == "fast"\n',
    ),
    "read that is none, and then on": (
        "on",
        'def enabled(c):\n    if c.get("backend") is None:\n        return True\n    return c["backend"] == "fast"\n',
    ),
    "read that is none, and then a setting that no answer shows": (
        "unknown",
        "class A:\n    def enabled(self, c):\n"
        '        if c.get("backend") is None:\n            self.fast = True\n            return False\n'
        "        return self.fast\n",
    ),
    "read that is none, asked whether the path is off": (
        "unknown",
        'def is_plain(c):\n    if c.get("backend") is None:\n        return True\n    return False\n',
    ),
    "variable that is none": (
        "off",
        'def f(c):\n    v = c.get("backend")\n    if v is None or v == "auto":\n        return False\n'
        '    if v != "fast":\n        raise ValueError(v)\n    return True\n',
    ),
    "variable that is none, and then on": (
        "on",
        'def enabled(c):\n    v = c.get("backend")\n    if v is None:\n        return True\n    return v == "fast"\n',
    ),
    "comparison of an index in a try": (
        "off",
        'def f(c):\n    try:\n        return c["backend"] == "fast"\n    except KeyError:\n        return False\n',
    ),
    "comparison of an index": ("raises", 'def f(c):\n    return c["backend"] == "fast"\n'),
    "attribute of an object": ("on", 'def f(c):\n    return getattr(c, "backend", True)\n'),
}
"""What must be said of each read."""

DRIFTS: dict[str, tuple[str, Case]] = {
    "variable of the own project beside another": (
        "OWN_DEPTH",
        Case(document=DOC + "OWN_DEPTH=3 rival start\n"),
    ),
    "key that nothing documents": ("backend", Case(document="Nothing is said here.\n")),
    "documented key that no code reads": (
        "decode_mode",
        Case(document=DOC + "```\nvllm serve m --additional-config '{\"decode_mode\": 1}'\n```\n"),
    ),
    "documented key over several lines": (
        "mode2",
        Case(document=DOC + '--additional-config \'{\n  "backend": "fast",\n  "mode2": {"x": 1}\n}\'\n'),
    ),
    "variable that nothing documents": (
        "OWN_FAST_PATH",
        Case(code=READ + 'import os\nFAST = os.environ.get("OWN_FAST_PATH", "0") == "1"\n'),
    ),
    "variable read through getenv by another name": (
        "OWN_LEVEL",
        Case(code=READ + 'from os import getenv as g\nN = "OWN_LEVEL"\nX = g(N)\n'),
    ),
    "documented variable that no code reads": (
        "OWN_SPEED",
        Case(document=DOC + "Run `export OWN_SPEED=2` first.\n"),
    ),
    "test that sets a variable nothing reads": (
        "OWN_FASTPATH",
        Case(test='def test_x(monkeypatch):\n    monkeypatch.setenv("OWN_FASTPATH", "1")\n'),
    ),
    "test that starts a process with a variable nothing reads": (
        "OWN_TYPO",
        Case(test='import os, subprocess\nsubprocess.run(["x"], env={**os.environ, "OWN_TYPO": "1"})\n'),
    ),
    "flag that nothing documents": (
        "--own-level",
        Case(code=READ + 'def add(p):\n    p.add_argument("--own-level", type=int, default=3)\n'),
    ),
    "field that nothing reads": (
        "FastConfig.level",
        Case(
            code=READ + "from dataclasses import dataclass\n@dataclass\nclass FastConfig:\n"
            "    level: int = 3\n    size: int = 1\n"
            "def f(c):\n    return c.size\n"
        ),
    ),
    "key read through an alias": (
        "level",
        Case(code=READ + 'def f(c):\n    extra = c.additional_config or {}\n    return extra["level"]\n'),
    ),
}
"""Each must fail, naming the setting."""

AGREEING: dict[str, Case] = {
    "flags and variables of other projects in a document": Case(
        document=DOC + "`own run | other --fast`; `vllm serve m && rival start --rival-depth 3`\n"
        "RIVAL_DEPTH=3 rival start --rival-fast\nRival reads the environment variable `RIVAL_MODE`.\n"
    ),
    "read and documented": Case(),
    "variable read, tested and documented": Case(
        code=READ + 'import os\nFAST = os.getenv("OWN_FAST")\n',
        test='def test_x(monkeypatch):\n    monkeypatch.setenv("OWN_FAST", "1")\n',
        document=DOC + "`OWN_FAST=1` chooses the fast one.\n",
    ),
    "variable of CUDA": Case(code=READ + 'import os\nD = os.environ["CUDA_VISIBLE_DEVICES"]\n'),
    "variable of the engine": Case(
        code=READ + "from vllm import envs\nX = envs.VLLM_CACHE_ROOT\n",
        test='def test_x(monkeypatch):\n    monkeypatch.setenv("VLLM_CACHE_ROOT", "/tmp")\n',
        document=DOC + "Set `VLLM_CACHE_ROOT=/tmp`.\n",
        engine={"vllm/envs.py": b'x = {"VLLM_CACHE_ROOT": lambda: 1}\n'},
    ),
    "flag declared and documented": Case(
        code=READ + 'def add(p):\n    p.add_argument("--own-level", default=3)\n',
        document=DOC + "`python -m own --own-level 4`\n",
    ),
    "flags of other programs in a document": Case(document=DOC + "`git commit --amend`, `pip --no-deps`\n"),
    "words in capitals in a document": Case(document=DOC + "The KV_CACHE holds FP8 and MAX_LEN rows.\n"),
    "dictionary that is not the config": Case(code=READ + 'def f(d):\n    return d.get("level", 3)\n'),
    "class whose fields are read as a whole": Case(
        code=READ
        + "from dataclasses import asdict, dataclass\n@dataclass\nclass FastConfig:\n    level: int = 3\n"
        "def f(c):\n    return asdict(c)\n"
    ),
    "test that deletes a variable": Case(test='def test_x(monkeypatch):\n    monkeypatch.delenv("OWN_X")\n'),
}
"""Each must pass."""
AGREEING["variable that is read to be put back"] = Case(
    code=READ + "import os\ndef f():\n    old = os.environ.get('OTHER_X')\n    os.environ['OTHER_X'] = '1'\n"
)
AGREEING["variable whose name other code computes"] = Case(
    document=DOC + "Set `OTHER_LEVEL=1`.\n", engine={"vllm/cli.py": b'name = f"OTHER_{x}"\n'}
)
AGREEING["constant in code marks in a document"] = Case(
    document=DOC + "Imports under `TYPE_CHECKING` count.\n"
)
AGREEING["key that a test gives and the code reads"] = Case(
    test='def test_x():\n    LLM(additional_config={"backend": "fast"})\n'
)
DRIFTS["key that a test gives and no code reads"] = (
    "bakcend",
    Case(test='def test_x():\n    LLM(additional_config={"bakcend": "fast"})\n'),
)
DRIFTS["variable that a test hands to a child by dict"] = (
    "OWN_TYPO_X",
    Case(test="import os\ndef test_x(run):\n    run(env=dict(os.environ, OWN_TYPO_X='1'))\n"),
)
DRIFTS["variable that a test hands to a child by a union"] = (
    "OWN_TYPO_X",
    Case(test="import os\ndef test_x(run):\n    run(env=os.environ | {'OWN_TYPO_X': '1'})\n"),
)
DRIFTS["variable that a table of variables names"] = (
    "OWN_MODE",
    Case(document=DOC + "| environment variable `OWN_MODE` | what it does |\n"),
)
FLAGS = {"vllm/cli.py": b'add("--own-cache")\nadd("--additional-config")\n'}
DRIFTS["flag on a command line that nothing reads"] = (
    "--own-depth",
    Case(document=DOC + "Run `vllm serve m --own-depth 2`.\n", engine=FLAGS),
)
DRIFTS["flag on the second line of a command"] = (
    "--own-depth",
    Case(document=DOC + "```\npython -m vllm.entrypoints.api m \\\n  --own-depth 2\n```\n", engine=FLAGS),
)
DRIFTS["variable in a table about variables"] = (
    "OWN_DEPTH",
    Case(document=DOC + "| variable | default |\n|---|---|\n| `OWN_DEPTH` | 1 |\n"),
)
DRIFTS["variable that a test puts into a copied environment"] = (
    "OWN_TYPO_X",
    Case(
        test="import os, subprocess\ndef test_x():\n    env = os.environ.copy()\n    env['OWN_TYPO_X'] = '2'\n"
        "    subprocess.run(['x'], env=env)\n"
    ),
)
DRIFTS["variable that a test merges into an environment"] = (
    "OWN_TYPO_X",
    Case(test="def test_x(run, env):\n    env.update({'OWN_TYPO_X': '2'})\n    run(env=env)\n"),
)
DRIFTS["variable that a test's parameter names"] = (
    "OWN_TYPO_X",
    Case(
        test="import pytest\n@pytest.mark.parametrize('name, v', [('OWN_TYPO_X', '1')])\n"
        "def test_x(monkeypatch, name, v):\n    monkeypatch.setenv(name, v)\n"
    ),
)
AGREEING["flag of the engine, switched off"] = Case(
    document=DOC + "Run `vllm serve m --no-own-cache --additional-config '{}'`.\n", engine=FLAGS
)
AGREEING["flag of another program beside the package's name"] = Case(
    document=DOC + "Run `pip install vllm --no-deps` and `git diff --stat vllm/own`.\n"
)
AGREEING["constant in a table about something else"] = Case(
    document=DOC + "| constant | value |\n|---|---|\n| `OWN_DEPTH` | 1 |\n\nEnvironment variables follow.\n"
)
AGREEING["dictionary that no child gets"] = Case(
    test="def test_x():\n    env = {}\n    env['OWN_TYPO_X'] = '2'\n    assert env\n"
)
for _name, _test in {
    "by keyword": "def test_x(monkeypatch):\n    monkeypatch.setenv(name='OWN_TYPO_X', value='2')\n",
    "by update": "import os\ndef test_x():\n    os.environ.update(OWN_TYPO_X='2')\n",
    "by a union in place": "import os\ndef test_x():\n    os.environ |= {'OWN_TYPO_X': '2'}\n",
    "by a patch": "import os\nfrom unittest import mock\n@mock.patch.dict(os.environ, OWN_TYPO_X='2')\n"
    "def test_x(): ...\n",
    "by a patch of a name": "from unittest.mock import patch\n@patch.dict('os.environ', OWN_TYPO_X='2')\n"
    "def test_x(): ...\n",
}.items():
    DRIFTS[f"variable that a test sets {_name}"] = ("OWN_TYPO_X", Case(test=_test))
DRIFTS["key of the config by getattr"] = (
    "level",
    Case(
        code=READ
        + 'def f(c):\n    extra = getattr(c, "additional_config") or {}\n    return extra["level"]\n'
    ),
)
for _name, _line in {
    "container's specification": "- name: OWN_DEPTH\n  value: '2'",
    "recipe": "ENV OWN_DEPTH 2",
}.items():
    DRIFTS[f"variable in a {_name}"] = ("OWN_DEPTH", Case(document=DOC + f"```\n{_line}\n```\n"))
AGREEING["constant that a patch of another dictionary names"] = Case(
    test="from unittest import mock\nT = {}\n@mock.patch.dict(T, OWN_TYPO_X='2')\ndef test_x(): ...\n"
)
AGREEING["names that are no variables in a list"] = Case(
    document=DOC + "- name: own-depth\n- OWN_DEPTH stands\n"
)
_SERVE = "import json, subprocess\ndef test_x():\n    subprocess.run(['vllm', 'serve', 'm', {}])\n"
DRIFTS["flag that a test gives a server"] = (
    "--own-depth",
    Case(test=_SERVE.format("'--own-depth', '2'"), engine=FLAGS),
)
DRIFTS["key that a test gives a server as JSON"] = (
    "bakcend",
    Case(test=_SERVE.format("'--additional-config', json.dumps({'bakcend': 'fast'})"), engine=FLAGS),
)
DRIFTS["key that a test gives a server as text"] = (
    "bakcend",
    Case(test=_SERVE.format("""'--additional-config={"bakcend": 1}'"""), engine=FLAGS),
)
AGREEING["flag of the engine and key of the code that a test gives a server"] = Case(
    test=_SERVE.format("""'--own-cache', '--additional-config', '{"backend": "fast"}'"""), engine=FLAGS
)
AGREEING["flag that a test gives another program"] = Case(
    test="import subprocess\ndef test_x():\n    subprocess.run(['git', 'log', '--own-depth'])\n", engine=FLAGS
)
_SERVER = "def test_x():\n    args = ['--max-num-seqs', '4', {}]\n    with Server('m', args):\n        pass\n"
DRIFTS["key in a list of words that a server gets later"] = (
    "bakcend",
    Case(test=_SERVER.format("""'--additional-config', '{"bakcend": "fast"}'"""), engine=FLAGS),
)
AGREEING["key of the code in a list of words that a server gets later"] = Case(
    test=_SERVER.format("""'--additional-config', '{"backend": "fast"}'"""), engine=FLAGS
)
AGREEING["lists without words"] = Case(
    test="def test_x():\n    run([], (), [1], ['--additional-config'])\n", engine=FLAGS
)
AGREEING["list of words of other flags"] = Case(
    test=_SERVER.format("""'--compilation-config', '{"bakcend": "fast"}'"""), engine=FLAGS
)
