"""Ways around the reader, and code that only looks like one: one module of the subject each."""

from __future__ import annotations

HOSTILE: dict[str, str] = {
    "attribute of a namespace": (
        "import types\nimport vllm.x as L\nn = types.SimpleNamespace(t=L.F)\nn.t.forward = 1\n"
    ),
    "namespace of a dictionary": (
        "import types\nimport vllm.x as L\nn = types.SimpleNamespace(**{'t': L.F})\nn.t.forward = 1\n"
    ),
    "attribute that a namespace gets later": (
        "import types\nimport vllm.x as L\nn = types.SimpleNamespace()\nn.t = L.F\nn.t.forward = 1\n"
    ),
    "attribute that an own object gets later": (
        "import vllm.x as L\nclass A: ...\na = A()\na.t = L.F\na.t.forward = 1\n"
    ),
    "class of an object that has got an attribute": ("def f(a):\n    a.n = 1\n    a.__class__ = int\n"),
    "field of a named tuple": (
        "from collections import namedtuple\nimport vllm.x as L\n"
        "P = namedtuple('P', 'a t')\np = P(1, L.F)\np.t.forward = 1\n"
    ),
    "index of a named tuple": (
        "from collections import namedtuple\nimport vllm.x as L\n"
        "P = namedtuple('P', ['a', 't'])\nP(1, t=L.F)[1].forward = 1\n"
    ),
    "named tuple of a starred list": (
        "from collections import namedtuple\nimport vllm.x as L\n"
        "P = namedtuple('P', 'a t')\nxs = [1, L.F]\nP(*xs).t.forward = 1\n"
    ),
    "index of a named tuple by keywords": (
        "from collections import namedtuple\nimport vllm.x as L\n"
        "P = namedtuple('P', 'a t u', defaults=[0, 0])\nP(u=1, t=L.F)[1].forward = 1\n"
    ),
    "named tuple of one description or another": (
        "import sys\nfrom collections import namedtuple\nimport vllm.x as L\n"
        "P = namedtuple('P', 'a t' if sys.argv else 't a')\nP(1, L.F).t.forward = 1\n"
    ),
    "named tuple of a list and more": (
        "from collections import namedtuple\nimport vllm.x as L\n"
        "P = namedtuple('P', 'a t u')\ndef f(*xs):\n    P(*xs, L.F, 1).t.forward = 1\n"
    ),
    "typed named tuple": (
        "import typing\nimport vllm.x as L\n"
        "P = typing.NamedTuple('P', [('t', object)])\nP(L.F).t.forward = 1\n"
    ),
    "class of a named tuple by index": (
        "import typing\nimport vllm.x as L\n"
        "class P(typing.NamedTuple):\n    a: int\n    t: object\nP(1, L.F)[1].forward = 1\n"
    ),
    "weak reference": ("import weakref\nimport vllm.x as L\nr = weakref.ref(L.F)\nr().forward = 1\n"),
    "pattern of a sequence": (
        "import vllm.x as L\nmatch (1, L.F):\n    case (a, t):\n        t.forward = 1\n"
    ),
    "pattern behind a star": (
        "import vllm.x as L\nmatch (1, 2, L.F):\n    case (a, *_, t):\n        t.forward = 1\n"
    ),
    "star of a pattern": (
        "import vllm.x as L\nmatch (1, L.F):\n    case (a, *ts):\n        ts[0].forward = 1\n"
    ),
    "pattern of a mapping": (
        "import vllm.x as L\nmatch {'k': (1, L.F)}:\n    case {'k': (_, t)}:\n        t.forward = 1\n"
    ),
    "pattern of a class": (
        "import dataclasses\nimport vllm.x as L\n@dataclasses.dataclass\nclass A:\n    n: int\n    t: object\n"
        "match A(1, L.F):\n    case A(n, t):\n        t.forward = 1\n"
    ),
    "pattern of an attribute": (
        "import vllm.x as L\nmatch L:\n    case object(F=t):\n        t.forward = 1\n"
    ),
    "pattern with alternatives": (
        "import vllm.x as L\nmatch [L.F]:\n    case [t] | (t, _):\n        t.forward = 1\n"
    ),
    "written by out": (
        "import torch\nfrom vllm.x import WEIGHT\ndef f(a):\n    torch.mm(a, a, out=WEIGHT)\n"
    ),
    "written by out into an object of the engine": (
        "import torch\n"
        "from vllm.forward_context import get_forward_context\n"
        "def f(a):\n"
        "    torch.mul(a, a, out=get_forward_context().buf)\n"
    ),
    "in-place method by its class": (
        "import torch\nimport vllm.x as L\ndef f(a):\n    torch.Tensor.copy_(L.BUF, a)\n"
    ),
    "zipped": ("import vllm.x as L\nfor o, n in zip([L.F], ['forward']):\n    setattr(o, n, 1)\n"),
    "enumerated": ("import vllm.x as L\nfor i, o in enumerate([L.F]):\n    o.forward = 1\n"),
    "attribute of self by setattr": (
        "import vllm.x as L\n"
        "class A:\n"
        "    def __init__(self):\n"
        "        setattr(self, 't', L.F)\n"
        "    def go(self):\n"
        "        self.t.forward = 1\n"
    ),
    "field of a dataclass": (
        "import dataclasses\n"
        "import vllm.x as L\n"
        "@dataclasses.dataclass\n"
        "class A:\n"
        "    t: object\n"
        "a = A(L.F)\n"
        "a.t.forward = 1\n"
    ),
    "appended to a list": ("import vllm.x as L\nxs = []\nxs.append(L.F)\nxs[0].forward = 1\n"),
    "entered into a dictionary": ("import vllm.x as L\nd = {}\nd['a'] = L.F\nd['a'].forward = 1\n"),
    "result of a coroutine": (
        "import vllm.x as L\n"
        "async def get():\n"
        "    return L.F\n"
        "async def f():\n"
        "    (await get()).forward = 1\n"
    ),
    "unpacked from a nested tuple": ("import vllm.x as L\na, (b, c) = 1, (L.F, 2)\nb.forward = 1\n"),
    "unpacked by a star": ("import vllm.x as L\na, *b = 1, L.F\nb[0].forward = 1\n"),
    "given to an object that is called": (
        "import vllm.x as L\nclass A:\n    def __call__(self, o):\n        o.forward = 1\nA()(L.F)\n"
    ),
    "entered context of its own": (
        "import vllm.x as L\n"
        "class A:\n"
        "    def __enter__(self):\n"
        "        return L.F\n"
        "    def __exit__(self, *a): ...\n"
        "with A() as x:\n"
        "    x.forward = 1\n"
    ),
    "entered generator of its own": (
        "import contextlib\n"
        "import vllm.x as L\n"
        "@contextlib.contextmanager\n"
        "def cm():\n"
        "    yield L.F\n"
        "with cm() as x:\n"
        "    x.forward = 1\n"
    ),
    "entered null context": (
        "import contextlib\nimport vllm.x as L\nwith contextlib.nullcontext(L.F) as x:\n    x.forward = 1\n"
    ),
    "computed attribute of its own object": (
        "import vllm.x as L\nclass A:\n    def __getattr__(self, n):\n        return L.F\nA().t.forward = 1\n"
    ),
    "item of its own object": (
        "import vllm.x as L\n"
        "class A:\n"
        "    def __getitem__(self, n):\n"
        "        return L.F\n"
        "A()[0].forward = 1\n"
    ),
    "result of a decorated function": (
        "import vllm.x as L\n"
        "def same(f):\n"
        "    return f\n"
        "@same\n"
        "def get():\n"
        "    return L.F\n"
        "get().forward = 1\n"
    ),
    "chained": (
        "import itertools\nimport vllm.x as L\nfor x in itertools.chain([L.F]):\n    x.forward = 1\n"
    ),
    "mapped": ("import vllm.x as L\nfor x in map(lambda n: getattr(L, n), ['F']):\n    x.forward = 1\n"),
    "element of a copy": ("import copy\nimport vllm.x as L\ncopy.copy(L.TABLE)['a'].forward = 1\n"),
    "members of a module": (
        "import inspect\nimport vllm.x as L\nfor n, o in inspect.getmembers(L):\n    o.forward = 1\n"
    ),
    "values of a module": ("import vllm.x as L\nfor n, o in vars(L).items():\n    o.forward = 1\n"),
    "loaded modules in a list": ("import sys\nfor m in list(sys.modules.values()):\n    m.x = 1\n"),
    "bound in a class below a condition": (
        "import vllm.x as L\n"
        "from own.compat import Thing\n"
        "class A:\n"
        "    if Thing:\n"
        "        L = Thing()\n"
        "    L.forward = 1\n"
    ),
    "bound in a class and deleted": (
        "import vllm.x as L\nclass A:\n    L = object()\n    del L\n    L.forward = 1\n"
    ),
    "bound in a class by a loop over nothing": (
        "import vllm.x as L\nclass A:\n    for L in ():\n        pass\n    L.forward = 1\n"
    ),
    "bound by the second part of an and": (
        "import vllm.x as L\ndef own(): return 0\nown() and (L := dict())\nL.forward = 1\n"
    ),
    "bound by one part of a conditional expression": (
        "import vllm.x as L\nimport sys\n(L := dict()) if len(sys.argv) > 9 else 0\nL.forward = 1\n"
    ),
    "bound by a loop over nothing": ("import vllm.x as L\nfor L in ():\n    pass\nL.forward = 1\n"),
    "bound by a loop in a function": (
        "def f(items):\n    import vllm.x as L\n    for L in items:\n        pass\n    L.forward = 1\n"
    ),
    "bound by a handler that does not run": (
        "import vllm.x as L\ntry:\n    pass\nexcept ValueError as L:\n    pass\nL.forward = 1\n"
    ),
    "bound by a case that does not fit": (
        "import vllm.x as L\n"
        "import sys\n"
        "match len(sys.argv):\n"
        "    case 77 as L:\n"
        "        pass\n"
        "L.forward = 1\n"
    ),
    "bound by a pattern that does not fit": (
        "import vllm.x as L\nimport sys\nmatch sys.argv:\n    case [a, b, L]:\n        pass\nL.forward = 1\n"
    ),
    "bound in a comprehension": (
        "import vllm.x as L\nimport sys\nn = [L := 1 for q in sys.argv if q == 'zz']\nL.forward = 1\n"
    ),
    "bound again by a function through global": (
        "def g():\n"
        "    global L\n"
        "    import vllm.x as L\n"
        "def own(): return {}\n"
        "L = own()\n"
        "g()\n"
        "L.forward = 1\n"
    ),
    "bound again by a function through nonlocal": (
        "def f():\n"
        "    def g():\n"
        "        nonlocal L\n"
        "        import vllm.x as L\n"
        "    L = {}\n"
        "    g()\n"
        "    L.forward = 1\n"
    ),
    "built-in that is replaced on one way": (
        "import vllm.x as L\n"
        "import sys\n"
        "if len(sys.argv) > 8:\n"
        "    def setattr(*a): ...\n"
        "def f():\n"
        "    setattr(L, 'forward', 1)\n"
    ),
    "built-in that is replaced no more": (
        "import vllm.x as L\ndef setattr(*a): ...\ndel setattr\nsetattr(L, 'forward', 1)\n"
    ),
    "bound in the same condition": (
        "import sys\nm = None\nif (m := sys.modules.get('vllm.utils')) and setattr(m, 'cdiv', 1):\n    pass\n"
    ),
    "name that is known on one way only": (
        "import vllm.x as L\nimport sys\nn = 'F' if sys.argv else sys.argv[0]\ngetattr(L, n).forward = 1\n"
    ),
    "variable that is known on one way only": (
        "import os, sys\ndef f(k):\n    n = 'OWN_X' if k else k\n    os.environ[n] = '1'\n"
    ),
    "computed function of a module": ("import vllm.x as L\ndef f(n):\n    getattr(L, n)()\n"),
    "computed global": ("import vllm.x as L\ndef f(n):\n    globals()[n].forward = 1\n"),
    "computed global by setattr": (
        "import vllm.x as L\ndef f(n):\n    setattr(globals()[n], 'forward', 1)\n"
    ),
    "computed global by get": ("import vllm.x as L\ndef f(n):\n    globals().get(n).forward = 1\n"),
    "computed name in vars": ("import vllm.x as L\ndef f(n):\n    vars(L)[n].forward = 1\n"),
    "computed name in a dictionary": ("import vllm.x as L\ndef f(n):\n    L.__dict__[n].forward = 1\n"),
    "computed local": ("def f(n):\n    import vllm.x as L\n    locals()[n].forward = 1\n"),
    "computed module": ("import importlib\ndef f(n):\n    importlib.import_module(n).forward = 1\n"),
    "computed module by setattr": (
        "import importlib\ndef f(n):\n    m = importlib.import_module(n)\n    setattr(m, 'forward', 1)\n"
    ),
    "computed module by __import__": ("def f(n):\n    __import__(n).forward = 1\n"),
    "module whose name is put together": (
        "import importlib\ndef f(n):\n    importlib.import_module(f'vllm.{n}').forward = 1\n"
    ),
    "module whose name is reversed": (
        "import importlib\nimportlib.import_module('x.mllv'[::-1]).forward = 1\n"
    ),
    "computed method": (
        "import operator\nimport vllm.x as L\ndef f(n):\n    operator.methodcaller(n, 'a', 1)(L)\n"
    ),
    "computed function by an alias of getattr": (
        "import vllm.x as L\ng = getattr\ndef f(n):\n    g(L, n)()\n"
    ),
    "object found by its name": ("import pkgutil\npkgutil.resolve_name('vllm.x:F').forward = 1\n"),
    "class found by the engine by its name": (
        "from vllm.utils import resolve_obj_by_qualname\nresolve_obj_by_qualname('vllm.x.F').forward = 1\n"
    ),
    "context of decimals": ("import decimal\ndecimal.getcontext().prec = 3\n"),
    "method of list by its class": ("import vllm.x as L\nlist.append(L.TABLE, 1)\n"),
    "bases that a metaclass is given": (
        "import vllm.x as L\n"
        "class M(type):\n"
        "    def __new__(m, n, b, d):\n"
        "        for x in b:\n"
        "            x.forward = 1\n"
        "        return super().__new__(m, n, b, d)\n"
        "class A(L.F, metaclass=M): ...\n"
    ),
    "dispatch of a type by its annotation": ("from vllm.x import f\n@f.register\ndef _(x: int): ...\n"),
    "machine asked inside a sum": ("import torch\nN = torch.cuda.device_count() * 2\nassert N - 2 > 0\n"),
    "machine asked by a function that refuses": (
        "import torch\ndef check():\n    if not torch.cuda.is_available():\n        raise RuntimeError\ncheck()\n"
    ),
    "base class of whoever owns the descriptor": (
        "from vllm.x import Linear\nclass D:\n    def __set_name__(self, owner, name):\n"
        "        for b in owner.__mro__[1:]:\n            b.forward = None\nclass Own(Linear):\n    d = D()\n"
    ),
    "base class behind super": (
        "from vllm.x import Linear\nclass Own(Linear):\n    def f(self):\n"
        "        super().__thisclass__.__base__.forward = None\n"
    ),
    "machine asked at import": ("import torch\nassert torch.cuda.is_available()\n"),
    "machine asked by an own function": (
        "import torch\ndef able():\n    return torch.cuda.is_available()\nif not able():\n    raise RuntimeError\n"
    ),
    "machine asked by a variable": (
        "import os\nWANTED = os.environ.get('OWN_X')\nif WANTED is None:\n    raise RuntimeError('set OWN_X')\n"
    ),
    "version asked": ("import torch\nif torch.__version__ < '2.13':\n    raise RuntimeError\n"),
    "error out of a handler": ("try:\n    n = int('x')\nexcept ValueError:\n    raise\n"),
    "called for its effect": (
        "from vllm.platforms import current_platform\ncurrent_platform.import_kernels()\n"
    ),
    "called for its effect below a condition": ("import vllm.utils as u\nif 1 < 2:\n    u.prepare('x')\n"),
    "cast": ("from typing import Any, cast\nfrom vllm.x import F\ncast(Any, F).forward = 1\n"),
    "proxy": ("import weakref\nfrom vllm.x import F\nweakref.proxy(F).forward = 1\n"),
    "entered for good": ("import torch\nmode = torch.inference_mode()\nmode.__enter__()\n"),
    "mode of its own": (
        "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode): ...\nM().__enter__()\n"
    ),
    "stack that stays open": (
        "import contextlib, torch\nSTACK = contextlib.ExitStack()\nSTACK.enter_context(torch.no_grad())\n"
    ),
    "shared memory at import": (
        "from multiprocessing.shared_memory import SharedMemory\nSharedMemory('x', create=True, size=8)\n"
    ),
    "file at import": ("open('/tmp/x', mode='a').write('x')\n"),
    "path at import": ("from pathlib import Path\nPath('/tmp/x').write_text('x')\n"),
    "path in a variable": (
        "from pathlib import Path\nHOME = Path.home() / '.x'\n(HOME / 'y').resolve().write_text('x')\n"
    ),
    "folder of a path": (
        "import pathlib\nHERE = pathlib.Path(__file__)\nHERE.parent.joinpath('y').touch()\n"
    ),
    "dispatch of a type": ("from vllm.x import load\n@load.register(int)\ndef _(x): ...\n"),
    "a lie about types": (
        "from vllm.x import F\nTYPE_CHECKING = True\nif TYPE_CHECKING:\n    F.forward = 1\n"
    ),
    "written builtins": ("__builtins__['open'] = print\n"),
    "class of an argument": ("def f(layer):\n    layer.__class__ = dict\n"),
    "in-place tensor": ("from vllm.x import F\ndef f():\n    F.weight.data.fill_(0)\n"),
    "update_wrapper": (
        "import functools\nfrom vllm.x import F\nfunctools.update_wrapper(F.forward, print)\n"
    ),
    "enum": ("import aenum\nfrom vllm.x import Kind\naenum.extend_enum(Kind, 'X', 1)\n"),
    "out of tree": (
        "from vllm.model_executor.custom_op import CustomOp\n"
        "@CustomOp.register_oot(name='RMSNorm')\nclass Mine: ...\n"
    ),
    "list elem": ("from vllm.x import FusedMoE as F\n[F][0].forward = 1\n"),
    "for target": ("from vllm.x import FusedMoE as F\nfor F.forward in [1]: pass\n"),
    "tuple target": ("from vllm.x import FusedMoE as F\n(F.forward, y) = 1, 2\n"),
    "with target": ("from vllm.x import FusedMoE as F\nwith open('x') as F.handle: pass\n"),
    "ann": ("from vllm.x import FusedMoE as F\nF.forward: object = 1\n"),
    "globals": ("from vllm.x import F\nglobals()['F'].forward = 1\n"),
    "exec": ("exec('import vllm; vllm.x = 1')\n"),
    "try import": (
        "try:\n    import vllm.fast as v\nexcept ImportError:\n    import vllm.slow as v\nv.x = 1\n"
    ),
    "getter": ("def get():\n    import vllm.utils\n    return vllm.utils\nget().cdiv = 1\n"),
    "lambda": ("from vllm.x import F\nf = lambda: setattr(F, 'x', 1)\n"),
    "match": ("import vllm.utils as u\nmatch u:\n    case mod:\n        mod.cdiv = 1\n"),
    "walrus": ("import sys\nif (m := sys.modules.get('vllm.utils')):\n    m.cdiv = 1\n"),
    "class attr": ("from vllm.x import F\nclass A:\n    target = F\nA.target.forward = 1\n"),
    "inst attr": ("from vllm.x import F\nclass A:\n    target = F\nA().target.forward = 1\n"),
    "closure": (
        "import vllm.utils\n"
        "def outer(mod):\n"
        "    def inner():\n"
        "        mod.x = 1\n"
        "    return inner\n"
        "outer(vllm.utils)()\n"
    ),
    "reduce": ("import functools, vllm\nfunctools.reduce(getattr, ['utils'], vllm).x = 1\n"),
    "attrgetter": ("import operator, vllm\noperator.attrgetter('utils')(vllm).x = 1\n"),
    "lambda arg": ("import vllm.utils\n(lambda m: setattr(m, 'cdiv', 1))(vllm.utils)\n"),
    "map": ("import vllm.utils\nlist(map(lambda m: setattr(m, 'cdiv', 1), [vllm.utils]))\n"),
    "property": (
        "import vllm.utils\n"
        "class A:\n"
        "    @property\n"
        "    def mod(self):\n"
        "        return vllm.utils\n"
        "    def f(self):\n"
        "        self.mod.x = 1\n"
    ),
    "star": ("from vllm.x import F\nargs = [F, 'forward', 1]\nsetattr(*args)\n"),
    "base": ("from torch import nn\nclass A(nn.Module): ...\nA.__base__.forward = 1\n"),
    "getmodule": ("import inspect\nfrom vllm.x import F\ninspect.getmodule(F).cdiv = 1\n"),
    "environ or": ("import os\nos.environ |= {'A': '1'}\n"),
    "putenv": ("from os import putenv as p\np('A', '1')\n"),
    "torch._C": ("import torch\ntorch._C._set_cublas_allow_tf32(True)\n"),
    "concat": ("import torch\ngetattr(torch, 'set_default_' + 'dtype')(torch.half)\n"),
    "fstring unknown": ("import torch, sys\ngetattr(torch, f'set_{sys.argv[1]}')(1)\n"),
    "__import__": ("__import__('os').system('x')\n"),
    "import_module os": ("import importlib\nimportlib.import_module('os').system('x')\n"),
    "mp": ("import torch.multiprocessing as mp\nmp.set_start_method('spawn')\n"),
    "default arg": ("import torch\ndef f(x=torch.set_num_threads(1)): ...\n"),
    "self lib": (
        "import torch\n"
        "class A:\n"
        "    def __init__(self):\n"
        "        self.lib = torch.library.Library('aten', 'IMPL')\n"
        "    def go(self):\n"
        "        self.lib.impl('mm', print, 'CPU')\n"
    ),
    "py_impl": ("import torch\ntorch.ops.aten.mm.default.py_impl(1)(print)\n"),
    "models update": (
        "from vllm import ModelRegistry\nModelRegistry.models.update({'DeepseekV3ForCausalLM': 1})\n"
    ),
    "models aug": ("from vllm import ModelRegistry\nModelRegistry.models |= {'DeepseekV3ForCausalLM': 1}\n"),
    "loop reg": (
        "from vllm import ModelRegistry\n"
        "class M: ...\n"
        "for k, v in {'DeepseekV3ForCausalLM': M}.items():\n"
        "    ModelRegistry.register_model(k, v)\n"
    ),
    "dict dispatch": ("import vllm.utils\n{'a': vllm.utils}['a'].cdiv = 1\n"),
    "star import": ("from vllm.utils import *\ncdiv.fast = 1\n"),
    "conditional": ("import vllm.utils as u, own\nt = u if own.x else own\nt.cdiv = 1\n"),
    "nonlocal": (
        "import vllm.utils\n"
        "def f():\n"
        "    t = None\n"
        "    def g():\n"
        "        nonlocal t\n"
        "        t = vllm.utils\n"
        "    g()\n"
        "    t.cdiv = 1\n"
    ),
    "global": (
        "import vllm.utils\nt = None\ndef g():\n    global t\n    t = vllm.utils\ndef h():\n    t.cdiv = 1\n"
    ),
    "kwargs": ("import vllm.utils\ndef p(*, where):\n    where.cdiv = 1\np(where=vllm.utils)\n"),
    "kwargs dict": ("import vllm.utils\ndef p(where):\n    where.cdiv = 1\np(**{'where': vllm.utils})\n"),
    "default param": ("import vllm.utils\ndef p(where=vllm.utils):\n    where.cdiv = 1\np()\n"),
    "async": ("import vllm.utils\nasync def p():\n    vllm.utils.cdiv = 1\n"),
    "comprehension": ("import vllm.utils\n[setattr(m, 'cdiv', 1) for m in (vllm.utils,)]\n"),
    "genexpr any": ("import vllm.utils\nany(setattr(m, 'cdiv', 1) for m in (vllm.utils,))\n"),
    "generator fn": (
        "import vllm.utils\ndef targets():\n    yield vllm.utils\nfor t in targets():\n    t.cdiv = 1\n"
    ),
    "ctx mgr": (
        "import vllm.utils\n"
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def patched():\n"
        "    old = vllm.utils.cdiv\n"
        "    vllm.utils.cdiv = 1\n"
        "    try:\n"
        "        yield\n"
        "    finally:\n"
        "        vllm.utils.cdiv = old\n"
    ),
    "metaclass __call__": ("from vllm.x import F\ntype(F).__call__ = 1\n"),
    "inst class": ("from vllm.platforms import current_platform\ncurrent_platform.__class__.x = 1\n"),
    "type inst": ("from vllm.platforms import current_platform\ntype(current_platform).x = 1\n"),
    "subclass init hook": (
        "import vllm.utils\nclass A:\n    def __init_subclass__(cls):\n        vllm.utils.cdiv = 1\n"
    ),
    "ctypes": ("import ctypes\nctypes.pythonapi.PyDict_SetItemString(1, 2, 3)\n"),
    "frame": ("import sys\nsys._getframe(1).f_globals['x'] = 1\n"),
    "gc": ("import gc\nfor o in gc.get_objects(): o.x = 1\n"),
    "pickle": ("import pickle\npickle.loads(b'x')\n"),
    "socket alias": ("import socket as s\nconn = s.socket\nconn()\n"),
    "thread at import": ("import threading\nthreading.Thread(target=print).start()\n"),
    "env via dict": ("import os\nenv = os.environ\nenv['A'] = '1'\n"),
    "env setdefault": ("import os\nos.environ.setdefault('OWN_A', '1')\n"),
    "patch.dict": (
        "from unittest.mock import patch\n"
        "import vllm.utils\n"
        "patch.dict(vllm.utils.__dict__, {'cdiv': 1}).start()\n"
    ),
    "patch obj deco": (
        "from unittest.mock import patch\nfrom vllm.x import F\n@patch.object(F, 'forward')\ndef f(): ...\n"
    ),
    "wrapt": ("import wrapt\n@wrapt.patch_function_wrapper('vllm.utils', 'cdiv')\ndef f(*a): ...\n"),
    "module class": (
        "import sys\nfrom types import ModuleType\nimport vllm.utils\nvllm.utils.__class__ = ModuleType\n"
    ),
    "singledispatch": (
        "from vllm.x import dispatch\nimport torch\n@dispatch.register(torch.Tensor)\ndef f(t): ...\n"
    ),
    "inductor lowering": (
        "import torch\n"
        "from torch._inductor.lowering import register_lowering\n"
        "@register_lowering(torch.ops.aten.mm)\n"
        "def f(*a): ...\n"
    ),
    "decomp": (
        "import torch\n"
        "from torch._decomp import decomposition_table\n"
        "decomposition_table[torch.ops.aten.mm.default] = print\n"
    ),
    "dynamo cfg": ("import torch._dynamo.config as c\nc.cache_size_limit = 1\n"),
    "inductor cfg": ("from torch._inductor import config\nconfig.max_autotune = True\n"),
    "logging": ("import logging\nlogging.getLogger('vllm').setLevel(10)\n"),
    "warnings": ("import warnings\nwarnings.filterwarnings('ignore')\n"),
    "np": ("import numpy as np\nnp.random.seed(0)\n"),
    "sys.path": ("import sys\nsys.path.insert(0, '.')\n"),
    "sys.path +=": ("import sys\nsys.path += ['.']\n"),
    "sys.excepthook": ("import sys\nsys.excepthook = print\n"),
    "stdout": ("import sys\nsys.stdout = None\n"),
    "defaults": ("from vllm.utils import cdiv\ncdiv.__defaults__ = (1,)\n"),
    "abstract": ("from vllm.x import F\nF.__abstractmethods__ = frozenset()\n"),
    "hf config obj": (
        "def f(vllm_config: 'VllmConfig'):\n"
        "    vllm_config.cache_config.block_size = 64\n"
        "from vllm.config import VllmConfig\n"
    ),
    "ctx obj": (
        "from vllm.forward_context import get_forward_context\n"
        "def f():\n"
        "    get_forward_context().attn_metadata = None\n"
    ),
    "subprocess in method": (
        "from subprocess import Popen\nclass A:\n    run = Popen\n    def f(self):\n        self.run(['x'])\n"
    ),
    "vars class": ("from vllm.x import F\nvars(F)['forward'] = 1\n"),
    "setattr via getattr": (
        "import builtins, vllm.utils\ngetattr(builtins, 'set' + 'attr')(vllm.utils, 'a', 1)\n"
    ),
    "builtins dict": ("import vllm.utils\n__builtins__['setattr'](vllm.utils, 'a', 1)\n"),
    "hf hub": (
        "from huggingface_hub import snapshot_download\ndef f():\n    return snapshot_download('x')\n"
    ),
    "flag registry": (
        "from vllm.envs import environment_variables\n"
        "environment_variables['VLLM_ATTENTION_BACKEND'] = lambda: 1\n"
    ),
    "append": ("from vllm.x import SUPPORTED\nSUPPORTED.append('DeepseekV3ForCausalLM')\n"),
    "del item": ("from vllm.x import TABLE\ndel TABLE['a']\n"),
    "dispatch via cls": (
        "from vllm.x import F\n"
        "class Own:\n"
        "    @classmethod\n"
        "    def install(cls, owner=F):\n"
        "        owner.forward = cls.forward\n"
        "    def forward(self): ...\n"
    ),
    "staticmethod param": (
        "from vllm.x import F\n"
        "class Own:\n"
        "    @staticmethod\n"
        "    def put(owner):\n"
        "        owner.forward = 1\n"
        "Own.put(F)\n"
    ),
    "method param": (
        "from vllm.x import F\n"
        "class Own:\n"
        "    def put(self, owner):\n"
        "        owner.forward = 1\n"
        "Own().put(F)\n"
    ),
    "getattr dyn": ("import vllm.utils, sys\ngetattr(vllm.utils, sys.argv[1]).x = 1\n"),
    "reexport": ("from own.compat import Thing\nThing.forward = 1\n"),
    "os alias function": ("import os\nrun = getattr(os, 'system')\nrun('x')\n"),
    "torch lib def": ("import torch\ntorch.library.define('aten::mine', '(Tensor x) -> Tensor')\n"),
    "impl computed": ("import torch, sys\ntorch.library.impl(sys.argv[1], 'CPU', print)\n"),
    "direct with lib": (
        "from vllm.utils import direct_register_custom_op\n"
        "import torch\n"
        "lib=torch.library.Library('aten','FRAGMENT')\n"
        "direct_register_custom_op('mine', print, target_lib=lib)\n"
    ),
    "vllm_lib impl": (
        "from vllm.utils import vllm_lib\nvllm_lib.impl('unified_attention', print, dispatch_key='CUDA')\n"
    ),
    "name rebound to a foreign object": (
        "class A: ...\nu = A()\nu.cdiv = 1\nimport vllm.utils as u\nu.cdiv = 1\n"
    ),
    "loop carries the foreign object": (
        "import vllm.utils\nclass A: ...\nt = A()\nfor n in (1, 2):\n    t.cdiv = 1\n    t = vllm.utils\n"
    ),
    "layer table without a guard": (
        "from vllm.config import VllmConfig\n"
        "class L:\n"
        "    def __init__(self, c: VllmConfig, prefix):\n"
        "        c.compilation_config.static_forward_context[prefix] = self\n"
    ),
    "setting of a package that no table holds": (
        "import triton\ndef f():\n    triton.set_allocator(lambda size, align, stream: None)\n"
    ),
    "setting by a display of constants": (
        "from vllm.utils.system_utils import update_environment_variables\n"
        "def f():\n    update_environment_variables({'NCCL_ALGO': 'Ring'})\n"
    ),
    "end of what everybody uses": ("import torch\ndef f():\n    torch.distributed.destroy_process_group()\n"),
    "mode that is switched on for everybody": (
        "from vllm.model_executor.layers.batch_invariant import enable_batch_invariant_mode\n"
        "def f():\n    enable_batch_invariant_mode()\n"
    ),
    "cache of others that is emptied": (
        "from vllm.model_executor.layers.fused_moe.fused_moe import get_moe_configs\n"
        "def f():\n    get_moe_configs.cache_clear()\n"
    ),
    "weights loaded as pickles": (
        "import torch\ndef f():\n    return torch.load('t.pt', weights_only=False)\n"
    ),
    "arrays loaded as pickles": ("import numpy as np\ndef f(**k):\n    return np.load('t.npy', **k)\n"),
    "layer put in the place of the engine's by a bare decorator": (
        "from vllm.model_executor.layers.layernorm import RMSNorm\n"
        "@RMSNorm.register_oot\nclass Mine(RMSNorm): ...\n"
    ),
    "class put in the place of the engine's by a call": (
        "from vllm.model_executor.layers.layernorm import RMSNorm\n"
        "class Mine(RMSNorm): ...\nRMSNorm.register_oot(Mine)\n"
    ),
    "class of whatever object is given": ("def f(layer, g):\n    type(layer).forward = g\n"),
    "class attribute of whatever object is given": ("def f(layer, g):\n    layer.__class__.forward = g\n"),
    "module of whatever object is given": (
        "import inspect\ndef f(model, g):\n    inspect.getmodule(model).RMSNorm = g\n"
    ),
    "limit of the device": (
        "from cuda.bindings import runtime as cudart\n"
        "def f():\n    (err,) = cudart.cudaDeviceSetLimit(cudart.cudaLimit.cudaLimitStackSize, 1024)\n"
    ),
    "limit of the device by torch": (
        "import torch\ndef f():\n    torch.cuda.cudart().cudaDeviceSetLimit(0, 1024)\n"
    ),
    "clocks of the device": (
        "import pynvml\ndef f(h):\n    pynvml.nvmlDeviceSetGpuLockedClocks(h, 1980, 1980)\n"
    ),
    "settings of the compiler as a whole": (
        "import torch._inductor.config as c\ndef f(d):\n    c.load_config(d)\n"
    ),
    "process of a context": (
        "import multiprocessing\ndef f(g):\n    multiprocessing.get_context('fork').Process(target=g).start()\n"
    ),
    "cluster that is started": ("import ray\ndef f():\n    ray.init()\n"),
}
"""None may be let through."""
HARMLESS: dict[str, str] = {
    "own object in a namespace": (
        "import types\nimport vllm.x as L\nn = types.SimpleNamespace(t={}, u=L.F)\nn.t['a'] = 1\nn.u = 2\n"
    ),
    "own field of a named tuple": (
        "from collections import namedtuple\nimport vllm.x as L\n"
        "P = namedtuple('P', 'a t')\np = P({}, L.F)\np.a['x'] = 1\np[0]['y'] = 1\n"
    ),
    "weak reference to an own object": (
        "import weakref\nimport vllm.x as L\nclass A: ...\na = A()\nr = weakref.ref(a)\nr().x = L.F\n"
    ),
    "own part of a pattern": (
        "import vllm.x as L\nclass A: ...\na = A()\nmatch (L.F, a):\n    case (_, t):\n        t.forward = 1\n"
    ),
    "own object that has got an attribute of others": (
        "import vllm.x as L\nclass A: ...\na = A()\na.t = L.F\na.own = 1\n"
    ),
    "written by out into its own": (
        "import torch\n"
        "from vllm.x import WEIGHT\n"
        "def f(a):\n"
        "    y = torch.empty(3)\n"
        "    torch.mul(WEIGHT, a, out=y)\n"
    ),
    "product of two tensors": (
        "import torch\n"
        "from vllm.x import WEIGHT\n"
        "def f(x):\n"
        "    y = WEIGHT * x\n"
        "    y.fill_(0)\n"
        "    z = WEIGHT @ x - 1\n"
        "    z += y\n"
        "    z[0] = 1\n"
    ),
    "product in a function": (
        "from vllm.x import WEIGHT\n"
        "def scaled(a, b):\n"
        "    return a * b\n"
        "def f(x):\n"
        "    y = scaled(WEIGHT, x)\n"
        "    y.add_(1)\n"
        "    y *= 2\n"
    ),
    "negated tensor": ("from vllm.x import WEIGHT\ndef f():\n    y = -WEIGHT\n    y.add_(1)\n"),
    "zipped of its own": ("for a, b in zip([{}], [{}]):\n    a['x'] = b['x'] = 1\n"),
    "enumerated of others and read": (
        "from vllm.x import NAMES\nMINE = {}\nfor i, name in enumerate(NAMES):\n    MINE[i] = name\n"
    ),
    "field of a dataclass of its own": (
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    t: dict\na = A({})\na.t['x'] = 1\n"
    ),
    "list of others that grows": ("from vllm.x import F\nxs = []\nxs.append(F)\nxs.append(1)\n"),
    "entered context of its own object": (
        "class A:\n"
        "    def __enter__(self):\n"
        "        return self\n"
        "    def __exit__(self, *a): ...\n"
        "with A() as x:\n"
        "    x.forward = 1\n"
    ),
    "decorated function of its own": (
        "def same(f):\n    return f\n@same\ndef get():\n    return {}\nget()['x'] = 1\n"
    ),
    "bound in both blocks of an if": (
        "import sys\n"
        "import vllm.x as L\n"
        "if sys.argv:\n"
        "    L = {}\n"
        "else:\n"
        "    L = {'b': 1}\n"
        "L['DeepseekV3ForCausalLM'] = 1\n"
    ),
    "bound in a class on both ways": (
        "import sys\n"
        "import vllm.x as L\n"
        "class A:\n"
        "    if sys.argv:\n"
        "        L = {}\n"
        "    else:\n"
        "        L = {'b': 1}\n"
        "    L['DeepseekV3ForCausalLM'] = 1\n"
    ),
    "bound in a block whose other one leaves": (
        "import vllm.x as X\n"
        "def f(c):\n"
        "    L = X\n"
        "    if c:\n"
        "        return L\n"
        "    else:\n"
        "        L = {}\n"
        "    L['DeepseekV3ForCausalLM'] = 1\n"
    ),
    "loop variable of its own": (
        "import vllm.x as L\ndef f():\n    for L in ({}, {}):\n        L['DeepseekV3ForCausalLM'] = 1\n"
    ),
    "caught error of its own": (
        "import vllm.x as L\n"
        "def f():\n"
        "    try:\n"
        "        return 1\n"
        "    except ValueError as L:\n"
        "        L.note = 1\n"
    ),
    "bound in front of an and": (
        "import vllm.x as L\n"
        "def f(c):\n"
        "    return (L := {}) is not None and L.update({'DeepseekV3ForCausalLM': 1})\n"
    ),
    "optional package": (
        "try:\n"
        "    import numba\n"
        "except ImportError:\n"
        "    numba = None\n"
        "def f(x):\n"
        "    return numba.jit(x) if numba else x\n"
    ),
    "computed module that is only called": (
        "import importlib\ndef f(name, x):\n    return importlib.import_module(name).run(x)\n"
    ),
    "computed function of its own": ("def a(): ...\ndef f(name):\n    return globals()[name]()\n"),
    "computed method of self": (
        "class A:\n    def f(self, name, x):\n        return getattr(self, name)(x)\n"
    ),
    "locals without self": (
        "class A:\n"
        "    def __init__(self, a, b):\n"
        "        given = locals()\n"
        "        given.pop('self')\n"
        "        self.given = given\n"
    ),
    "computed dtype": (
        "import torch\ndef f(config):\n    return torch.empty(3, dtype=getattr(torch, config.dtype))\n"
    ),
    "method of dict on its own": (
        "import operator\nA = {}\nB = []\ndict.update(A, a=1)\nlist.append(B, 1)\noperator.iadd(B, [1])\n"
    ),
    "metaclass that only reads": (
        "class M(type):\n"
        "    def __new__(m, n, bases, d):\n"
        "        return super().__new__(m, n, tuple(b for b in bases if b), d)\n"
        "class A(metaclass=M): ...\n"
    ),
    "dispatch of its own by annotation": (
        "import functools\n@functools.singledispatch\ndef load(x): ...\n@load.register\ndef _(x: int): ...\n"
    ),
    "cast of its own": ("from typing import Any, cast\nclass A: ...\ncast(Any, A).forward = 1\n"),
    "entered in a call": (
        "import contextlib, torch\n"
        "def f(x):\n"
        "    with contextlib.ExitStack() as stack:\n"
        "        stack.enter_context(torch.no_grad())\n"
        "        return x\n"
    ),
    "entered of its own": ("class M:\n    def __enter__(self):\n        return self\nM().__enter__()\n"),
    "lock entered at import": ("import threading\nLOCK = threading.Lock()\nLOCK.__enter__()\n"),
    "shared memory in a call": (
        "from multiprocessing.shared_memory import SharedMemory\n"
        "def f():\n    return SharedMemory('x', create=True, size=8)\n"
    ),
    "file read at import": ("TEXT = open('/tmp/x').read()\n"),
    "path only worked out": (
        "from pathlib import Path\nHOME = Path.home() / '.x'\nNAME = HOME.parent / 'y'\n"
    ),
    "path written in a call": (
        "from pathlib import Path\nHOME = Path.home() / '.x'\ndef f():\n    HOME.touch()\n"
    ),
    "quotient at import": ("A = 1.5\nB = (A / 2).replace\n"),
    "dispatch of its own": (
        "import functools\n@functools.singledispatch\ndef load(x): ...\n@load.register(int)\ndef _(x): ...\n"
    ),
    "dataclass": (
        "from dataclasses import dataclass, field\n"
        "@dataclass\n"
        "class A:\n"
        "    x: list = field(default_factory=list)\n"
        "a = A()\n"
        "a.x.append(1)\n"
    ),
    "enum": ("from enum import Enum\nclass E(Enum):\n    A = 1\n"),
    "nn module": (
        "import torch\n"
        "from torch import nn\n"
        "class M(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.w = nn.Parameter(torch.empty(1))\n"
        "        self.register_buffer('b', torch.zeros(1))\n"
        "        self.w.weight_loader = self.load\n"
        "    def load(self, p, w):\n"
        "        p.data.copy_(w)\n"
    ),
    "logger": ("import logging\nlogger = logging.getLogger(__name__)\nlogger.setLevel(10)\n"),
    "init_logger": (
        "from vllm.logger import init_logger\nlogger = init_logger(__name__)\nlogger.info('x')\n"
    ),
    "lru": ("from functools import lru_cache\n@lru_cache\ndef f(): ...\nf.cache_clear()\n"),
    "triton": ("from vllm.triton_utils import tl, triton\n@triton.jit\ndef k(x): ...\nk[(1,)](1)\n"),
    "grid lambda": (
        "from vllm.triton_utils import triton\n"
        "def f(x):\n"
        "    grid = lambda m: (triton.cdiv(x, m['B']),)\n"
        "    return grid\n"
    ),
    "sets": ("from vllm.x import NAMES\nmine = set(NAMES)\nmine.add('DeepseekV3ForCausalLM')\n"),
    "copied": ("from vllm.x import TABLE\nmine = TABLE.copy()\nmine['DeepseekV3ForCausalLM'] = 1\n"),
    "merged": ("from vllm.x import TABLE\nmine = {**TABLE, 'a': 1}\nmine['DeepseekV3ForCausalLM'] = 1\n"),
    "deepcopy": ("import copy\nfrom vllm.x import CONFIG\nc = copy.deepcopy(CONFIG)\nc.x = 1\n"),
    "replace": (
        "from dataclasses import replace\n"
        "def f(vllm_config: 'VllmConfig'):\n"
        "    return replace(vllm_config, x=1)\n"
        "from vllm.config import VllmConfig\n"
    ),
    "env read": ("import os\nX = os.environ.get('A', '0') == '1'\nY = os.environ['B']\n"),
    "kernel call": (
        "import torch\ndef f(a, out):\n    torch.ops._C.rms_norm(out, a)\n    torch.mm(a, a, out=out)\n"
    ),
    "cuda graph": (
        "import torch\n"
        "def f():\n"
        "    g = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(g):\n"
        "        pass\n"
        "    s = torch.cuda.current_stream()\n"
        "    with torch.cuda.stream(s):\n"
        "        pass\n"
    ),
    "inference": ("import torch\n@torch.inference_mode()\ndef f(): ...\n@torch.no_grad()\ndef g(): ...\n"),
    "context own": ("import contextvars\nv = contextvars.ContextVar('v')\nv.set(1)\n"),
    "getattr const": ("import torch\ndt = getattr(torch, 'float16')\nd = getattr(torch, str(1))\n"),
    "typing cast": ("from typing import cast\nimport subprocess\nx = cast(subprocess.Popen, None)\n"),
    "isinstance": ("import subprocess\ndef f(x):\n    return isinstance(x, subprocess.Popen)\n"),
    "socket const": ("import socket\nF = socket.AF_INET\n"),
    "requests exc": (
        "import requests\ndef f():\n    try: ...\n    except requests.exceptions.Timeout: ...\n"
    ),
    "own register": (
        "REG = {}\n"
        "def register(name):\n"
        "    def w(f):\n"
        "        REG[name] = f\n"
        "        return f\n"
        "    return w\n"
        "@register('DeepseekV3ForCausalLM')\n"
        "def f(): ...\n"
    ),
    "abc register own": ("import abc\nclass A(abc.ABC): ...\nclass B: ...\nA.register(B)\n"),
    "pytree own": (
        "import torch.utils._pytree as p\n"
        "class A: ...\n"
        "p.register_pytree_node(A, lambda a: ([], None), lambda *a: A())\n"
    ),
    "multimodal": (
        "from vllm.multimodal import MULTIMODAL_REGISTRY\n"
        "class P: ...\n"
        "@MULTIMODAL_REGISTRY.register_processor(P)\n"
        "class M: ...\n"
    ),
    "mock in tests only": ("x = 'unittest.mock.patch'\n"),
    "attr on result": (
        "import torch\nt = torch.empty(3)\nt.foo = 1\nl = torch.nn.Linear(1,1)\nl.weight.data = t\n"
    ),
    "own setattr loop": ("class C: ...\nfor n in ('a','b'):\n    setattr(C, n, property(lambda s: 1))\n"),
    "own getattr": ("class C:\n    def __getattr__(self, n):\n        return getattr(self.inner, n)\n"),
    "super setattr": (
        "from torch import nn\n"
        "class M(nn.Module):\n"
        "    def __setattr__(self, n, v):\n"
        "        super().__setattr__(n, v)\n"
    ),
    "custom layer op": (
        "from vllm.model_executor.custom_op import CustomOp\n"
        "@CustomOp.register('own_norm')\n"
        "class N(CustomOp): ...\n"
    ),
    "quant cfg": (
        "from vllm.model_executor.layers.quantization import register_quantization_config\n"
        "@register_quantization_config('own_quant')\n"
        "class N: ...\n"
    ),
    "sys path read": ("import sys\nprint(sys.path[0], sys.argv)\nx = list(sys.path)\nx.append('a')\n"),
    "atexit own class": (
        "class atexit:\n    @staticmethod\n    def register(f): ...\natexit.register(print)\n"
    ),
    "importlib own": ("import importlib\nm = importlib.import_module('own.compat')\nm.limit = 2\n"),
    "importlib rel": ("import importlib\nm = importlib.import_module('.compat', 'own')\nm.limit = 2\n"),
    "with env": (
        "import os\n"
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def env(k, v):\n"
        "    old = os.environ.get(k)\n"
        "    os.environ[k] = v\n"
        "    try:\n"
        "        yield\n"
        "    finally:\n"
        "        if old is None:\n"
        "            os.environ.pop(k)\n"
        "        else:\n"
        "            os.environ[k] = old\n"
    ),
    "cudnn flags": (
        "import torch\ndef f():\n    with torch.backends.cudnn.flags(enabled=False):\n        pass\n"
    ),
    "backend saved": (
        "import torch\n"
        "def f(g):\n"
        "    old = torch.backends.cuda.matmul.allow_tf32\n"
        "    try:\n"
        "        torch.backends.cuda.matmul.allow_tf32 = False\n"
        "        g()\n"
        "    finally:\n"
        "        torch.backends.cuda.matmul.allow_tf32 = old\n"
    ),
    "thread in fn": ("import threading\ndef f():\n    threading.Thread(target=print).start()\n"),
    "json": ("import json\ndef f(p):\n    return json.loads(p)\n"),
    "np": ("import numpy as np\nx = np.zeros(3)\nx[0] = 1\nrng = np.random.default_rng(0)\n"),
    "generator": ("import torch\ng = torch.Generator()\ng.manual_seed(1)\n"),
    "random inst": ("import random\nr = random.Random(1)\nr.seed(2)\n"),
    "loop var": ("import vllm.utils\nfor m in (1,2):\n    x = m\nclass A: ...\nm = A()\nm.cdiv = 1\n"),
    "param shadow": ("import vllm.utils as u\ndef f(u):\n    u.x = 1\n"),
    "class scope": ("import vllm.utils as u\nclass A:\n    u = {}\n    u['x'] = 1\n"),
    "del name": ("import vllm.utils as u\ndel u\n"),
    "string op": (
        "import torch\n"
        "lib = torch.library.Library('own', 'FRAGMENT')\n"
        "lib.define('op(Tensor x) -> Tensor')\n"
        "@torch.library.impl(lib, 'op', 'CPU')\n"
        "def f(x): ...\n"
        "@torch.library.register_fake('own::op')\n"
        "def g(x): ...\n"
    ),
    "register own warmup": (
        "from vllm.warm import register_provider\n"
        "class P:\n"
        "    def go(self):\n"
        "        register_provider(self)\n"
    ),
    "vllm plugin logger": ("from vllm.logger import init_logger as i\ni(__name__).warning_once('x')\n"),
    "hf cfg class": (
        "from transformers import PretrainedConfig\n"
        "class C(PretrainedConfig):\n"
        "    model_type='own'\n"
        "    def __init__(self, **k):\n"
        "        super().__init__(**k)\n"
        "        self.a = 1\n"
    ),
    "attn ctx read": (
        "from vllm.forward_context import get_forward_context\n"
        "def f():\n"
        "    return get_forward_context().attn_metadata['x']\n"
    ),
    "dtype ctx": (
        "from vllm.utils.torch_utils import set_default_torch_dtype\n"
        "import torch\n"
        "def f():\n"
        "    with set_default_torch_dtype(torch.half):\n"
        "        pass\n"
    ),
    "assert_never": ("import typing\ntyping.TYPE_CHECKING\n"),
    "name rebound to an own object": (
        "import vllm.utils as u\nprint(u)\nclass A: ...\nu = A()\nu.cdiv = 1\n"
    ),
    "own instance as the key": ("from vllm.x import TABLE\nclass A: ...\nTABLE[A] = 1\n"),
    "layer table with a guard": (
        "from vllm.config import VllmConfig\n"
        "class L:\n"
        "    def __init__(self, c: VllmConfig, prefix):\n"
        "        t = c.compilation_config.static_forward_context\n"
        "        if prefix in t:\n"
        "            raise ValueError(prefix)\n"
        "        t[prefix] = self\n"
    ),
    "attributes set of an own weight": (
        "import torch\nfrom vllm.model_executor.utils import set_weight_attrs\n"
        "def f(w):\n    set_weight_attrs(w, {'ignore_warning': True})\n"
    ),
    "context of the engine that is left again": (
        "from vllm.config import set_current_vllm_config\n"
        "def f(c):\n    with set_current_vllm_config(c):\n        return 1\n"
    ),
    "logger that is made": ("from vllm.logger import init_logger\nlogger = init_logger(__name__)\n"),
    "own cache that is emptied": (
        "import functools\n@functools.lru_cache\ndef own(x):\n    return x\ndef f():\n    own.cache_clear()\n"
    ),
    "weights loaded as weights": (
        "import torch\nimport numpy as np\n"
        "def f():\n    np.load('t.npy')\n    return torch.load('t.pt', weights_only=True)\n"
    ),
    "class of an own object": (
        "class A: ...\ndef f():\n    a = A()\n    type(a).count = 1\n    a.__class__.size = 2\n"
    ),
    "class of an object that is read": (
        "def f(layer):\n    return type(layer).__name__, type(layer).forward\n"
    ),
    "own methods as instance attributes": (
        "import types\ndef own(s): ...\ndef f(layer):\n    layer.forward = types.MethodType(own, layer)\n"
    ),
    "attribute of an own kernel for the device": (
        "from cuda.bindings import runtime as cudart\n"
        "def f(k):\n    (err,) = cudart.cudaFuncSetAttribute(k, 8, 1024)\n"
    ),
    "context of processes": (
        "import multiprocessing\ndef f():\n    return multiprocessing.get_context('spawn')\n"
    ),
}
"""Each must pass."""
