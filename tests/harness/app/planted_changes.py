"""Changes of a small engine with a model that has a fast path: planted breaches of as many kinds, and innocent twins.

Each is the files of one commit upon `BASE`. The clean change is `changed()`: a fast path of its own, one guarded hook
and its document.
"""

from __future__ import annotations

from dataclasses import dataclass

Files = dict[str, str]
FOLDER = "vllm/models/whale/fast"
MODEL = """import torch
from vllm.layers import norm


class Whale(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = norm

    def forward(self, x, positions):
        hidden = self.norm(x)
        return hidden
"""
GUARD = "        if is_on(self.config):\n"
HOOK = MODEL.replace(
    "import norm\n", f"import norm\nfrom {FOLDER.replace('/', '.')}.switch import is_on\n"
).replace("        return hidden\n", f"{GUARD}            hidden = hidden * 2\n        return hidden\n")
SWITCH = 'def is_on(config):\n    return config.additional_config.get("whale", "off") == "on"\n'
DOCUMENT = 'Set `--additional-config \'{"whale": "on"}\'`.\n'
MANIFEST = """schema_version = 1
[change]
id = "whale-fast"
title = "Whale fast path"
model = "Whale"
vllm = "0.33.0"
[paths]
owned = ["vllm/models/whale/fast/**"]
tests = ["tests/whale/**"]
docs = ["docs/whale/**"]
import_roots = ["vllm"]
hooks = [{file = "vllm/models/whale/model.py", max_added_lines = 8, why = "calls the fast path"}]
[switch]
key = "whale"
on = "on"
off = "off"
reads = ["vllm.models.whale.fast.switch:is_on"]
[scope]
platforms = ["cpu"]
max_batch = 8
max_context = 64
[dispatch]
specialized_code = ["vllm.models.whale.fast.run:f"]
baseline_code = ["vllm.models.whale.model:Whale.forward"]
decisions = [{target = "vllm.models.whale.fast.switch:is_on", value = "path", specialized = "yes"}]
"""
CHECKS = ("ISO001", "ISO003", "ISO004", "ISO005", "ISO006")
BASE: Files = {
    "vllm/__init__.py": "",
    "vllm/layers.py": "def norm(x):\n    return x\n",
    "vllm/envs.py": "VLLM_X = 1\n",
    "vllm/models/__init__.py": "",
    "vllm/models/whale/__init__.py": "",
    "vllm/models/whale/model.py": MODEL,
    "vllm/runner.py": "def step(m, x, p):\n    return m.forward(x, p)\n",
    "docs/x.md": "x\n",
    ".github/fasttrack-policy.toml": (
        f'schema_version = 1\nversion = "1"\n[required]\nstatic = {list(CHECKS)}\n'
    ),
    "fasttrack.toml": MANIFEST,
}


def changed(code: str = "", *, hook: str = HOOK, others: Files | None = None) -> Files:
    """The files of a change whose own code is `code`, with `others` besides or instead."""
    return {
        "docs/whale/own.md": DOCUMENT,
        f"{FOLDER}/__init__.py": "",
        f"{FOLDER}/switch.py": SWITCH,
        f"{FOLDER}/run.py": code,
        "vllm/models/whale/model.py": hook,
    } | (others or {})


def guarded(guard: str) -> Files:
    """The clean change with another guard of its hook."""
    return changed(hook=HOOK.replace(GUARD, guard))


@dataclass(frozen=True, kw_only=True)
class Breach:
    """A change that must not pass."""

    check: str
    says: str
    """What the check's finding must say: no other thing that is wrong with the change answers for it."""
    files: Files


def breach(check: str, says: str, files: Files) -> Breach:
    return Breach(check=check, says=says, files=files)


L = "import vllm.layers as L\n"
BREACHES = {
    "name that a loop over nothing binds": breach(
        "ISO005", "run.py:4 replaces", changed(f"{L}for L in ():\n    pass\nL.norm = None\n")
    ),
    "name that an expression binds on one way": breach(
        "ISO005", "run.py:4 replaces", changed(f"{L}import sys\nsys.argv[9:] and (L := dict())\nL.norm = 1\n")
    ),
    "context manager that yields a module": breach(
        "ISO005",
        "run.py:8 replaces",
        changed(
            f"import contextlib\n{L}@contextlib.contextmanager\ndef cm():\n    yield L\n"
            "def f():\n    with cm() as x:\n        x.norm = 1\n"
        ),
    ),
    "variable of the engine": breach(
        "ISO005", "VLLM_X", changed("import os\ndef f():\n    os.environ['VLLM_X'] = '0'\n")
    ),
    "operator of others": breach(
        "ISO005",
        "aten::add.Tensor",
        changed("import torch\nlib = torch.library.Library('aten', 'IMPL')\nlib.impl('add.Tensor', None)\n"),
    ),
    "setting of the process": breach(
        "ISO005", "set_default_dtype", changed("import torch\ntorch.set_default_dtype(torch.bfloat16)\n")
    ),
    "program": breach(
        "ISO005", "subprocess.run", changed("import subprocess\ndef f():\n    subprocess.run(['ls'])\n")
    ),
    "network": breach(
        "ISO005",
        "create_connection",
        changed("import socket\ndef f():\n    socket.create_connection(('a', 1))\n"),
    ),
    "end of the process": breach(
        "ISO005", "atexit.register", changed("import atexit\natexit.register(print)\n")
    ),
    "signal": breach("ISO005", "signal.signal", changed("import signal\nsignal.signal(15, None)\n")),
    "module replaced": breach(
        "ISO005", "sys.modules", changed("import sys\nsys.modules['vllm.layers'] = sys\n")
    ),
    "guard or-ed with another condition": breach(
        "ISO003",
        "cannot be shown to be guarded",
        guarded("        if is_on(self.config) or self.config.turbo:\n"),
    ),
    "guard or-ed with another setting": breach(
        "ISO003",
        "cannot be shown to be guarded",
        guarded("        if is_on(self.config) or getattr(self.config, 'whale_turbo', False):\n"),
    ),
    "switch that is on by default": breach(
        "ISO003",
        "is not guarded by the switch",
        changed(others={f"{FOLDER}/switch.py": SWITCH.replace('"off") ==', '"on") ==')}),
    ),
    "hook that binds in a condition over nothing": breach(
        "ISO003",
        "is not guarded by the switch",
        changed(
            hook=HOOK.replace(
                f"{GUARD}            hidden = hidden * 2\n",
                "        if is_on(self.config) or (hidden := hidden * 2) is None:\n            pass\n",
            )
        ),
    ),
    "heap of others": breach(
        "ISO005", "vllm.layers.TABLE", changed(f"{L}import heapq\nheapq.heappush(L.TABLE, 1)\n")
    ),
    "hook without a guard": breach(
        "ISO003",
        "is not guarded by the switch",
        changed(
            hook=MODEL.replace(
                "        return hidden\n", "        hidden = hidden * 2\n        return hidden\n"
            )
        ),
    ),
    "hook over its budget": breach(
        "ISO001",
        "more than its 8",
        changed(hook=HOOK + "\n" * 3 + "".join(f"X{i} = {i}\n" for i in range(30))),
    ),
    "module with two files": breach(
        "ISO001", f"{FOLDER}/run", changed(others={f"{FOLDER}/run/__init__.py": "x = 1\n"})
    ),
    "shared file": breach(
        "ISO001",
        "vllm/runner.py",
        changed(others={"vllm/runner.py": "def step(m, x, p):\n    return None\n"}),
    ),
    "another model": breach(
        "ISO001",
        "vllm/models/shark.py",
        changed(others={"vllm/models/shark.py": "from vllm.models.whale.fast import run\n"}),
    ),
    "binary": breach("ISO001", "x.so is binary", changed(others={f"{FOLDER}/x.so": "\x7fELF\x00\x01\x02"})),
    "tests of all": breach(
        "ISO001", "tests/conftest.py", changed(others={"tests/conftest.py": f"{L}L.norm = 1\n"})
    ),
    "workflow": breach(
        "ISO001", ".github/workflows/x.yml", changed(others={".github/workflows/x.yml": "on: push\n"})
    ),
    "manifest": breach(
        "ISO001",
        "fasttrack.toml",
        changed(others={"fasttrack.toml": MANIFEST.replace("max_added_lines = 8", "max_added_lines = 800")}),
    ),
    "module of a computed name": breach(
        "ISO004",
        "imports (n)",
        changed("import importlib\ndef f(n):\n    importlib.import_module(n).norm = 1\n"),
    ),
    "attribute of a computed name": breach(
        "ISO004",
        "getattr(envs, n)",
        changed("from vllm import envs\ndef f(n):\n    return getattr(envs, n)\n"),
    ),
    "private name": breach("ISO004", "vllm.layers._norm", changed("from vllm.layers import _norm\n")),
    "scheduler": breach(
        "ISO004",
        "vllm.v1.core.sched",
        changed("from vllm.v1.core.sched.scheduler import Scheduler\n"),
    ),
    "documented key that nothing reads": breach(
        "ISO006",
        "whale_depth",
        changed(
            others={"docs/whale/own.md": f"{DOCUMENT}Set `--additional-config '{{\"whale_depth\": 3}}'`.\n"}
        ),
    ),
    "variable that no document names": breach(
        "ISO006", "WHALE_X", changed("import os\nX = os.environ.get('WHALE_X', '1')\n")
    ),
}
TWINS = {
    "nothing of others": changed("def f(x):\n    return x * 2\n"),
    "variable that a document names": changed(
        "import os\nX = os.environ.get('WHALE_X', '1')\n",
        others={"docs/whale/own.md": f"{DOCUMENT}`WHALE_X` is the width, 1 by default.\n"},
    ),
    "guard with another condition": guarded("        if is_on(self.config) and x is not None:\n"),
    "any guard": guarded("        if any([is_on(self.config)]):\n"),
    "bool guard": guarded("        if bool(is_on(self.config)):\n"),
    "table of guards": guarded("        if {True: True, False: False}[is_on(self.config)]:\n"),
    "early return": changed(
        hook=HOOK.replace(
            f"{GUARD}            hidden = hidden * 2\n        return hidden\n",
            "        if not is_on(self.config):\n            return hidden\n        return hidden * 2\n",
        )
    ),
    "own name that is computed": changed("def a(): ...\ndef f(n):\n    return globals()[n]()\n"),
    "own attribute that is computed": changed(
        "class A:\n    def f(self, n):\n        return getattr(self, n)\n"
    ),
    "own operator": changed(
        "import torch\n@torch.library.custom_op('whale::f', mutates_args=())\ndef f(x: int) -> int: ...\n"
    ),
    "setting that is restored": changed(
        "import torch\ndef f():\n    old = torch.get_default_dtype()\n    torch.set_default_dtype(torch.float16)\n"
        "    try:\n        pass\n    finally:\n        torch.set_default_dtype(old)\n"
    ),
    "product of a tensor of others": changed(f"{L}def f(x):\n    y = L.W * x\n    y.add_(1)\n    return y\n"),
    "own heap": changed("import heapq\nHEAP = []\nheapq.heappush(HEAP, 1)\n"),
    "lock": changed("import threading\nLOCK = threading.Lock()\n"),
    "weak table": changed("import weakref\nC = weakref.WeakKeyDictionary()\n"),
    "logger": changed("import logging\nlogger = logging.getLogger(__name__)\nlogger.info('x')\n"),
    "own module looked up": changed("import sys\nme = sys.modules[__name__]\n"),
    "switch by an enumeration": changed(
        others={
            f"{FOLDER}/switch.py": (
                'from enum import StrEnum\n\n\nclass B(StrEnum):\n    OFF = "off"\n    ON = "on"\n\n\n'
                "def is_on(config):\n"
                '    return B(config.additional_config.get("whale", "off")) == B.ON\n'
            )
        }
    ),
    "public name": changed("from vllm.layers import norm\ndef f(x):\n    return norm(x)\n"),
    "relative import": changed("from . import switch\nfrom .switch import is_on\n"),
    "import for types": changed(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.layers import norm\n"
    ),
    "own record": changed(
        "from dataclasses import dataclass, field\n@dataclass\nclass A:\n"
        "    xs: list = field(default_factory=list)\n    def add(self, x):\n        self.xs.append(x)\n"
    ),
    "flag of another program": changed(
        others={"docs/whale/own.md": f"{DOCUMENT}It is as with `other --depth 3`.\n"}
    ),
    "own test": changed(others={"tests/whale/test_fast.py": "def test_a():\n    assert 1\n"}),
    "own package": changed(others={f"{FOLDER}/ops/__init__.py": "", f"{FOLDER}/ops/a.py": "x = 1\n"}),
    "name that both ways bind": changed(
        f"{L}import sys\ndef f():\n    if sys.argv:\n        L = {{}}\n    else:\n        L = {{}}\n    L['norm'] = 1\n"
    ),
}
