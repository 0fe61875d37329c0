"""Planted breaches and their innocent twins: the subject's source, and what must be said of it."""

from __future__ import annotations

from base64 import b64encode

from harness.model.effects import EffectKind as K

Files = dict[str, str]
ELF = b"\x7fELF\x02\x01\x01" + bytes(range(250))


def subject(code: str, **others: str) -> Files:
    """A subject package with one module of the given code; further modules by name."""
    return {"own/__init__.py": "", "own/code.py": code} | {f"own/{k}.py": v for k, v in others.items()}


BREACHES: dict[str, tuple[K, Files]] = {
    "machine code in base64": (K.BINARY, subject(f"K = '{b64encode(ELF).decode()}'\n")),
    "machine code in hexadecimal digits": (K.BINARY, {"own/code.py": "", "own/k.txt": ELF.hex()}),
    "dictionary of a module merged in place": (
        K.ATTRIBUTE,
        subject("import vllm.utils as u\nu.__dict__.__ior__({'cdiv': None})\n"),
    ),
    "method called by its name": (
        K.ATTRIBUTE,
        subject(
            "import operator\nimport vllm.utils as u\noperator.methodcaller('__setattr__', 'cdiv', None)(u)\n"
        ),
    ),
    "environment behind a chain": (
        K.ENVIRONMENT,
        subject("import os, collections\ndef f():\n    collections.ChainMap(os.environ)['NCCL_X'] = 'LL'\n"),
    ),
    "error at the top": (K.AT_IMPORT, subject("raise RuntimeError('no fast path here')\n")),
    "exit at import": (K.AT_IMPORT, subject("import sys\nsys.exit(3)\n")),
    "exit in a function that an import calls": (
        K.AT_IMPORT,
        subject("import sys\ndef check(ok):\n    if not ok:\n        sys.exit(3)\ncheck(1)\n"),
    ),
    "exit of the interactive shell": (K.AT_IMPORT, subject("quit()\n")),
    "wait at import": (K.AT_IMPORT, subject("from time import sleep\nsleep(30)\n")),
    "tensor on a GPU at import": (K.DEVICE, subject("import torch\nX = torch.zeros(1, device='cuda:0')\n")),
    "tensor moved at import": (
        K.DEVICE,
        subject("import torch\nX = torch.zeros(1).to(torch.device('cuda'))\nY = torch.zeros(1).cuda()\n"),
    ),
    "thread of the low module": (K.DEVICE, subject("import _thread\n_thread.start_new_thread(print, ())\n")),
    "pool of threads at import": (
        K.DEVICE,
        subject("from multiprocessing.pool import ThreadPool\nPOOL = ThreadPool(2)\n"),
    ),
    "system of the low module": (K.PROCESS, subject("import posix\ndef f():\n    posix.system('ls')\n")),
    "message queue": (
        K.NETWORK,
        subject("import zmq\ndef f():\n    return zmq.Context().socket(zmq.PUSH)\n"),
    ),
    "processes that meet at an address": (
        K.NETWORK,
        subject("import torch.distributed as dist\ndef f(url):\n    return dist.rendezvous(url)\n"),
    ),
    "process group": (
        K.NETWORK,
        subject("import torch.distributed as dist\ndef f():\n    dist.init_process_group('nccl')\n"),
    ),
    "warnings behind the context that keeps them": (
        K.GLOBAL_SETTING,
        subject(
            "import warnings\ndef f():\n    with warnings.catch_warnings():\n        pass\n"
            "    warnings.simplefilter('ignore')\n"
        ),
    ),
    "method of an imported class": (
        K.ATTRIBUTE,
        subject(
            "from vllm.model_executor.layers.fused_moe import FusedMoE\n"
            "def fast(self, x): ...\n"
            "def install():\n    FusedMoE.forward = fast\n"
        ),
    ),
    "module attribute through an alias": (
        K.ATTRIBUTE,
        subject("import vllm.utils as u\nhelpers = u\nhelpers.cdiv = lambda a, b: a // b\n"),
    ),
    "setattr in a loop over names": (
        K.ATTRIBUTE,
        subject(
            "from vllm import envs\nfor name in ('VLLM_USE_V1', 'VLLM_X'):\n    setattr(envs, name, True)\n"
        ),
    ),
    "setattr under another name": (
        K.ATTRIBUTE,
        subject("import vllm.utils\nput = setattr\ndef f():\n    put(vllm.utils, 'cdiv', None)\n"),
    ),
    "helper that patches what it is given": (
        K.ATTRIBUTE,
        subject(
            "from own.tools import replace\nfrom vllm.v1.worker.gpu_model_runner import GPUModelRunner\n"
            "replace(GPUModelRunner, 'execute_model', lambda self: None)\n",
            tools="def replace(owner, name, new):\n    setattr(owner, name, new)\n",
        ),
    ),
    "decorator that replaces": (
        K.ATTRIBUTE,
        subject(
            "import functools\nfrom vllm.attention import Attention\n"
            "def instead_of(owner, name):\n"
            "    def wrap(new):\n"
            "        old = getattr(owner, name)\n"
            "        @functools.wraps(old)\n"
            "        def inner(*a, **k):\n            return new(old, *a, **k)\n"
            "        setattr(owner, name, inner)\n        return new\n"
            "    return wrap\n"
            "@instead_of(Attention, 'forward')\ndef fast(old, *a): ...\n"
        ),
    ),
    "dictionary of a module": (
        K.ATTRIBUTE,
        subject("import vllm.utils\nvars(vllm.utils)['cdiv'] = None\n"),
    ),
    "update of a class dictionary": (
        K.ATTRIBUTE,
        subject("import vllm.utils as u\nu.__dict__.update({'cdiv': None})\n"),
    ),
    "globals of a foreign function": (
        K.ATTRIBUTE,
        subject("from vllm.utils import cdiv\ncdiv.__globals__['math'] = None\n"),
    ),
    "module found by import_module": (
        K.ATTRIBUTE,
        subject("import importlib\nimportlib.import_module('vllm.v1.sample.sampler').Sampler = object\n"),
    ),
    "module found in sys.modules": (
        K.ATTRIBUTE,
        subject("import sys\nm = sys.modules.get('x') or sys.modules['vllm.utils']\nm.cdiv = None\n"),
    ),
    "code object of a foreign function": (
        K.ATTRIBUTE,
        subject("from vllm.utils import cdiv\ndef f(a, b): ...\ncdiv.__code__ = f.__code__\n"),
    ),
    "mock patch of a name": (
        K.ATTRIBUTE,
        subject("from unittest import mock\ndef on():\n    mock.patch('vllm.utils.cdiv', None).start()\n"),
    ),
    "base class through the own class": (
        K.ATTRIBUTE,
        subject(
            "from torch import nn\nclass Own(nn.Module): ...\ndef f():\n    Own.__mro__[1].forward = None\n"
        ),
    ),
    "classes of a foreign hierarchy": (
        K.ATTRIBUTE,
        subject("from torch import nn\nfor kind in nn.Module.__subclasses__():\n    kind.forward = None\n"),
    ),
    "bound method by MethodType": (
        K.ATTRIBUTE,
        subject(
            "import types\nfrom vllm.platforms import current_platform\n"
            "current_platform.get_attn_backend_cls = types.MethodType(lambda s: 'x', current_platform)\n"
        ),
    ),
    "attribute of type by type.__setattr__": (
        K.ATTRIBUTE,
        subject(
            "from vllm.attention import Attention\ntype.__setattr__(Attention, 'forward', lambda s: None)\n"
        ),
    ),
    "partial of setattr": (
        K.ATTRIBUTE,
        subject("from functools import partial\nimport vllm.utils\npartial(setattr, vllm.utils, 'a')(1)\n"),
    ),
    "deleted attribute": (K.ATTRIBUTE, subject("import vllm.utils\ndel vllm.utils.cdiv\n")),
    "built-in function": (K.ATTRIBUTE, subject("import builtins\nbuiltins.print = None\n")),
    "module kept on an own object": (
        K.ATTRIBUTE,
        subject(
            "import vllm.utils\nclass Patch:\n    def __init__(self):\n        self.target = vllm.utils\n"
            "    def apply(self):\n        self.target.cdiv = None\n"
        ),
    ),
    "module put in sys.modules": (
        K.MODULES,
        subject("import sys, types\nsys.modules['vllm.utils'] = types.ModuleType('x')\n"),
    ),
    "import hook": (K.MODULES, subject("import sys\nclass F: ...\nsys.meta_path.insert(0, F())\n")),
    "start-up file": (K.MODULES, {"own/sitecustomize.py": "x = 1\n"}),
    "operator of PyTorch": (
        K.OPERATOR,
        subject(
            "import torch\nlib = torch.library.Library('aten', 'IMPL')\ndef mm(a, b): ...\n"
            "lib.impl('mm', mm, 'CUDA')\n"
        ),
    ),
    "fake of a vLLM operator": (
        K.OPERATOR,
        subject("import torch\n@torch.library.register_fake('_C::rms_norm')\ndef f(*a): ...\n"),
    ),
    "implementation by decorator": (
        K.OPERATOR,
        subject("from torch.library import impl\n@impl('vllm::unified_attention', 'CUDA')\ndef f(*a): ...\n"),
    ),
    "operator in C++": (
        K.OPERATOR,
        {
            "own/__init__.py": "",
            "own/ops.cu": 'TORCH_LIBRARY_IMPL(aten, CUDA, m) {\n  m.impl("mm", &mine);\n}\n',
        },
    ),
    "model class of another model": (
        K.REGISTRY,
        subject(
            "from vllm import ModelRegistry\n"
            "def register():\n    ModelRegistry.register_model('DeepseekV3ForCausalLM', 'own.code:M')\n"
        ),
    ),
    "configuration of another model": (
        K.REGISTRY,
        subject(
            "from transformers import AutoConfig\nclass C: ...\n"
            "AutoConfig.register('deepseek_v3', C, exist_ok=True)\n"
        ),
    ),
    "entry in a table of vLLM": (
        K.CONTAINER,
        subject(
            "from vllm.transformers_utils.config import _CONFIG_REGISTRY as table\nclass C: ...\n"
            "table['deepseek_v3'] = C\n"
        ),
    ),
    "entry taken out of a table": (
        K.CONTAINER,
        subject("from vllm.transformers_utils.config import _CONFIG_REGISTRY\n_CONFIG_REGISTRY.pop('x')\n"),
    ),
    "environment variable": (
        K.ENVIRONMENT,
        subject("import os\ndef f():\n    os.environ['VLLM_ATTENTION_BACKEND'] = 'X'\n"),
    ),
    "environment by update": (
        K.ENVIRONMENT,
        subject("from os import environ\nenviron.update({'OWN_FLAG': '1'})\n"),
    ),
    "default dtype": (
        K.GLOBAL_SETTING,
        subject("import torch\ndef f():\n    torch.set_default_dtype(torch.bfloat16)\n"),
    ),
    "flag of a backend": (
        K.GLOBAL_SETTING,
        subject("import torch\nmatmul = torch.backends.cuda.matmul\nmatmul.allow_tf32 = True\n"),
    ),
    "setting put back to a fixed value": (
        K.GLOBAL_SETTING,
        subject(
            "import torch\ndef f():\n    torch.set_num_threads(1)\n    try:\n        g()\n    finally:\n"
            "        torch.set_num_threads(8)\ndef g(): ...\n"
        ),
    ),
    "hook on all modules": (
        K.GLOBAL_SETTING,
        subject(
            "from torch.nn.modules.module import register_module_forward_hook as hook\n"
            "hook(lambda *a: None)\n"
        ),
    ),
    "signal handler": (K.SIGNAL, subject("import signal\nsignal.signal(signal.SIGTERM, lambda *a: None)\n")),
    "exit hook by decorator": (
        K.EXIT_HOOK,
        subject("import atexit\n@atexit.register\ndef bye(): ...\n"),
    ),
    "process": (K.PROCESS, subject("import subprocess as sp\ndef f():\n    sp.run(['nvcc'])\n")),
    "process by os": (K.PROCESS, subject("from os import system\ndef f():\n    system('x')\n")),
    "network": (
        K.NETWORK,
        subject("import urllib.request\ndef f():\n    urllib.request.urlopen('http://x')\n"),
    ),
    "files at import, two calls down": (
        K.FILES,
        subject("import os\ndef a():\n    b()\ndef b():\n    os.makedirs('/var/x')\na()\n"),
    ),
    "GPU at import": (K.DEVICE, subject("import torch\nSM = torch.cuda.get_device_capability()\n")),
    "shared library": (K.BINARY, {"own/__init__.py": "", "own/kernels.bin": "\x7fELF\x02\x01\x01"}),
}
"""Each must fail, with a finding of this kind at a line."""

TWINS: dict[str, Files] = {
    "memory that the ranks of a group show each other": subject(
        "import torch.distributed._symmetric_memory as symm_mem\n"
        "def f(t, group):\n    return symm_mem.rendezvous(t, group)\n"
    ),
    "function that gives the first that fits": subject(
        "def first(names):\n    for name in names:\n        if name:\n            return name\n    raise ValueError\n"
        "NAME = first(('a', 'b'))\n"
    ),
    "own files that must be there": subject(
        "import pathlib\ndef root():\n    here = pathlib.Path(__file__).parent\n    if not here.is_dir():\n"
        "        raise FileNotFoundError(here)\n    return here\nROOT = root()\n"
    ),
    "own class changed by a method of type": subject("class A: ...\ntype.__setattr__(A, 'x', None)\n"),
    "table of weights in base64": subject(f"K = '{b64encode(bytes(range(256)) * 2).decode()}'\n"),
    "long hexadecimal digest": subject(f"SHA = '{(bytes(range(256)) * 2).hex()}'\n"),
    "document about PTX": {"own/code.py": "", "own/notes.md": "Kernels begin with\n\n.version 8.0\n"},
    "own mapping before the environment": subject(
        "import os, collections\ndef f():\n    collections.ChainMap({}, os.environ)['NCCL_X'] = 'LL'\n"
    ),
    "method called by its name on a tensor": subject(
        "import operator\nimport torch\ndef f():\n    operator.methodcaller('update', 'x')(dict())\n"
    ),
    "bases that are only read": subject("def f(x):\n    return [c.__name__ for c in type(x).__mro__]\n"),
    "error below the call": subject(
        "import sys\ndef f(x):\n    if x:\n        raise ValueError\n    sys.exit(3)\n"
    ),
    "wait in a function": subject("import time\ndef f():\n    time.sleep(30)\n"),
    "own constants agree": subject(
        "A = 4 * 16\nB: int = A // 2\nassert A == 2 * B\nif A % 8:\n    raise ValueError(A)\n"
    ),
    "own table is whole": subject(
        "T = {'a': 1}\nfor k, v in T.items():\n    assert k and v > 0, k\nassert len(T) == 1\n"
    ),
    "own function over constants": subject("def fits(n):\n    return n % 8 == 0\nassert fits(64)\n"),
    "better words for an import that failed": subject(
        "try:\n    import quack\nexcept ImportError as e:\n    raise ImportError('install quack') from e\n"
    ),
    "error for programs": subject("import sys\nif __name__ == '__main__':\n    sys.exit(f())\n"),
    "log line at import": subject(
        "from vllm.logger import init_logger\nlogger = init_logger(__name__)\nlogger.info('loaded')\n"
        "import warnings\nwarnings.warn('experimental')\n"
    ),
    "result is kept": subject("from vllm.utils import find\nX = find()\n"),
    "tensors in a function": subject(
        "import torch\nX = torch.zeros(1, device='cpu')\n"
        "def f(x):\n    return x.to('cuda'), torch.zeros(1, device='cuda'), x.cuda()\n"
    ),
    "communication of a group that is there": subject(
        "import torch.distributed as dist\ndef f(x):\n    dist.all_reduce(x)\n"
    ),
    "warnings in the context that keeps them": subject(
        "import warnings\nfrom warnings import catch_warnings as kept\n"
        "def f():\n    with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n"
        "    with kept():\n        warnings.filterwarnings('ignore')\n"
    ),
    "method of an own subclass": subject(
        "from vllm.model_executor.layers.fused_moe import FusedMoE\n"
        "class Fast(FusedMoE): ...\ndef fast(self, x): ...\nFast.forward = fast\n"
    ),
    "own module through an alias": subject("import own.tools as t\nt.limit = 3\n", tools="limit = 1\n"),
    "name that was foreign before": subject(
        "import vllm.utils as u\nclass Own: ...\ndef f():\n    u = Own()\n    u.cdiv = 1\n"
    ),
    "setattr on itself": subject("class A:\n    def __init__(self, **k):\n        setattr(self, 'a', k)\n"),
    "object.__setattr__ on itself": subject(
        "class A:\n    def __init__(self):\n        object.__setattr__(self, 'x', 1)\n"
    ),
    "helper that patches own classes": subject(
        "from own.tools import replace\nclass A: ...\nreplace(A, 'f', None)\n",
        tools="def replace(owner, name, new):\n    setattr(owner, name, new)\n",
    ),
    "attribute of a new foreign object": subject(
        "from torch import nn\ndef f(t):\n    p = nn.Parameter(t)\n    p.weight_loader = print\n    return p\n"
    ),
    "decorator that wraps": subject(
        "import functools\ndef timed(f):\n    @functools.wraps(f)\n    def inner(*a):\n        return f(*a)\n"
        "    inner.original = f\n    return inner\n@timed\ndef g(): ...\n"
    ),
    "copy of a table": subject(
        "from vllm.transformers_utils.config import _CONFIG_REGISTRY\n"
        "table = dict(_CONFIG_REGISTRY.items() if False else {})\ntable['deepseek_v3'] = 1\n"
    ),
    "own dictionary": subject("table = {}\ntable['deepseek_v3'] = 1\ntable.update(a=2)\n"),
    "own operator": subject(
        "import torch\n@torch.library.custom_op('own::gemm', mutates_args=())\ndef gemm(x: int) -> int: ...\n"
        "@torch.library.register_fake('own::gemm')\ndef fake(x): ...\n@gemm.register_fake\ndef f2(x): ...\n"
    ),
    "own operator by library": subject(
        "from torch.library import Library\nlib = Library('own', 'DEF')\nlib.define('f(Tensor x) -> Tensor')\n"
        "lib.impl('f', lambda x: x, 'CPU')\n"
    ),
    "new operator in vLLM's namespace": subject(
        "from vllm.utils.torch_utils import direct_register_custom_op\ndef f(x): ...\n"
        "direct_register_custom_op(op_name='own_gemm', op_func=f, fake_impl=f)\n"
    ),
    "new model class": subject(
        "from vllm import ModelRegistry\n"
        "def register():\n    ModelRegistry.register_model('OwnForCausalLM', 'own.code:M')\n"
    ),
    "model class where it is missing": subject(
        "from vllm import ModelRegistry\nNAME = 'DeepseekV3ForCausalLM'\n"
        "def register():\n    if NAME in ModelRegistry.get_supported_archs():\n        return\n"
        "    ModelRegistry.register_model(NAME, 'own.code:M')\n"
    ),
    "new configuration": subject(
        "from transformers import AutoConfig\nclass C:\n    model_type = 'own_model'\n"
        "AutoConfig.register(C.model_type, C)\n"
    ),
    "environment for a child": subject(
        "import os\ndef f():\n    env = dict(os.environ)\n    env['VLLM_X'] = '1'\n    return env\n"
    ),
    "environment put back": subject(
        "import os\ndef f(g):\n    old = os.environ.get('COMPILE_ONLY')\n    os.environ['COMPILE_ONLY'] = '1'\n"
        "    try:\n        g()\n    finally:\n        if old is None:\n            del os.environ['COMPILE_ONLY']\n"
        "        else:\n            os.environ['COMPILE_ONLY'] = old\n"
    ),
    "default dtype put back": subject(
        "import torch\ndef f(g):\n    old = torch.get_default_dtype()\n    torch.set_default_dtype(torch.half)\n"
        "    try:\n        return g()\n    finally:\n        torch.set_default_dtype(old)\n"
    ),
    "setting for the length of a with": subject(
        "import torch\ndef f(g):\n    with torch.set_grad_enabled(False):\n        return g()\n"
    ),
    "settings that are read": subject("import torch\ndef f():\n    return torch.get_num_threads()\n"),
    "process as a program": subject(
        "import subprocess\nif __name__ == '__main__':\n    subprocess.run(['ls'])\n"
    ),
    "names like those of the table": subject(
        "class os:\n    environ = {}\n    @staticmethod\n    def system(x): ...\n"
        "os.environ['A'] = 1\nos.system('x')\n"
    ),
    "files when called": subject("import os\ndef f(p):\n    os.makedirs(p)\n"),
    "GPU when called": subject("import torch\ndef f():\n    return torch.cuda.get_device_capability()\n"),
    "only for the type checker": subject(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import subprocess\n    subprocess.run([])\n"
    ),
    "tensor arithmetic": subject(
        "import torch\nx = torch.zeros(3)\nx[0] = 1\nx.requires_grad = True\ny = torch.add(x, x)\ny.add_(1)\n"
    ),
    "text file": {"own/__init__.py": "", "own/notes.txt": "MZ is what a Windows file begins with\n"},
}
"""Each must pass."""
