"""Objects of others that go through records and containers, and own objects beside them."""

from __future__ import annotations

_BEFORE = (
    "from collections import namedtuple\n"
    "import typing, dataclasses, copy, types\n"
    "import vllm.x as L\n"
    "T = namedtuple('T', 'a t')\n"
    "class C(typing.NamedTuple):\n"
    "    a: int\n"
    "    t: object\n"
    "@dataclasses.dataclass\n"
    "class D:\n"
    "    a: object = None\n"
    "    t: object = None\n"
)
_THROUGH = {
    "field that _replace gives a named tuple": ("T(1,2)._replace(t=L.F).t.forward = 1\n"),
    "field that _replace keeps": ("p = T(1,L.F)\nq = p._replace(a=3)\nq.t.forward = 1\n"),
    "_replace of a dictionary": ("p = T(1,2)\nq = p._replace(**{'t': L.F})\nq.t.forward = 1\n"),
    "index of what _replace gives": ("T(1,2)._replace(t=L.F)[1].forward = 1\n"),
    "field of what _make gives": ("T._make([1, L.F]).t.forward = 1\n"),
    "index of what _make gives": ("T._make([1, L.F])[1].forward = 1\n"),
    "_asdict of a named tuple": ("T(1, L.F)._asdict()['t'].forward = 1\n"),
    "_replace of a class of a named tuple": ("C(1,2)._replace(t=L.F).t.forward = 1\n"),
    "_make of such a class": ("C._make([1, L.F]).t.forward = 1\n"),
    "index of what its _make gives": ("C._make([1, L.F])[1].forward = 1\n"),
    "such a class of a starred list": ("xs=[1, L.F]\nC(*xs).t.forward = 1\n"),
    "such a class of an unpacked dictionary": ("C(**{'t': L.F, 'a': 1}).t.forward = 1\n"),
    "_asdict of such a class": ("C(1, L.F)._asdict()['t'].forward = 1\n"),
    "dataclasses.replace": ("dataclasses.replace(D(), t=L.F).t.forward = 1\n"),
    "copy.replace": ("copy.replace(D(), t=L.F).t.forward = 1\n"),
    "asdict of a dataclass": ("dataclasses.asdict(D(t=L.F))['t'].forward = 1\n"),
    "astuple of a dataclass": ("dataclasses.astuple(D(t=L.F))[1].forward = 1\n"),
    "dataclass of an unpacked dictionary": ("D(**{'t': L.F}).t.forward = 1\n"),
    "namespace of a mapping": ("types.SimpleNamespace({'t': L.F}).t.forward = 1\n"),
    "namespace of pairs": ("types.SimpleNamespace([('t', L.F)]).t.forward = 1\n"),
    "vars of a namespace": ("n = types.SimpleNamespace(t=L.F)\nvars(n)['t'].forward = 1\n"),
    "__dict__ of a namespace": ("n = types.SimpleNamespace(t=L.F)\nn.__dict__['t'].forward = 1\n"),
    "namespace of the namespace of a module": ("n = types.SimpleNamespace(vars(L))\nn.F.forward = 1\n"),
    "dict of keywords": ("dict(t=L.F)['t'].forward = 1\n"),
    "dict of pairs": ("dict([('t', L.F)])['t'].forward = 1\n"),
    "dict of zipped lists": ("dict(zip(['t'], [L.F]))['t'].forward = 1\n"),
    "dictionary unpacked into another": ("{**{'t': L.F}}['t'].forward = 1\n"),
    "dictionaries joined": ("({'a': 1} | {'t': L.F})['t'].forward = 1\n"),
    "dictionary comprehension": ("{k: L.F for k in 'ab'}['a'].forward = 1\n"),
    "dict of a dictionary and a keyword": ("dict({'t': L.F}, a=1)['t'].forward = 1\n"),
    "update by keyword": ("d = {}\nd.update(t=L.F)\nd['t'].forward = 1\n"),
    "update by a dictionary": ("d = {}\nd.update({'t': L.F})\nd['t'].forward = 1\n"),
    "dictionary joined in place": ("d = {}\nd |= {'t': L.F}\nd['t'].forward = 1\n"),
    "lists joined": ("([1] + [L.F])[1].forward = 1\n"),
    "list repeated": ("([L.F] * 2)[1].forward = 1\n"),
    "items of a dictionary": ("for k, v in {'t': L.F}.items():\n    v.forward = 1\n"),
    "values of a dict": ("for v in dict(t=L.F).values():\n    v.forward = 1\n"),
    "popped from a list": ("[L.F].pop().forward = 1\n"),
    "popped from a dictionary": ("{'t': L.F}.pop('t').forward = 1\n"),
    "what setdefault gives": ("{}.setdefault('t', L.F).forward = 1\n"),
    "replace of a made dataclass": (
        "M = dataclasses.make_dataclass('M', ['a','t'])\ndataclasses.replace(M(1,2), t=L.F).t.forward = 1\n"
    ),
    "element of a list that is a value of a dictionary": (
        "from collections import defaultdict\n"
        "d = defaultdict(list)\n"
        "d['t'].append(L.F)\n"
        "d['t'][0].forward = 1\n"
    ),
    "list of an own object": (
        "class A:\n"
        "    def __init__(self):\n"
        "        self.xs = []\n"
        "        self.xs.append(L.F)\n"
        "    def go(self):\n"
        "        self.xs[0].forward = 1\n"
    ),
    "dictionary of an own object": (
        "class A:\n"
        "    def __init__(self):\n"
        "        self.d = {}\n"
        "        self.d['t'] = L.F\n"
        "    def go(self):\n"
        "        self.d['t'].forward = 1\n"
    ),
    "product of lists": (
        "import itertools\nfor n, c in itertools.product('ab', [L.F]):\n    setattr(c, n, 1)\n"
    ),
}
_BESIDE = {
    "field that _replace makes an own one": ("p = T(1, L.F)\nq = p._replace(t={})\nq.t['x'] = 1\n"),
    "own field that _replace keeps": ("p = T({}, 1)\nq = p._replace(t=L.F)\nq.a['x'] = 1\n"),
    "its index": ("p = T(1, L.F)\nq = p._replace(t={})\nq[1]['x'] = 1\n"),
    "own field of what _make gives": ("T._make([{}, L.F]).a['x'] = 1\n"),
    "_asdict written to": ("d = T({}, L.F)._asdict()\nd['a']['x'] = 1\nd['n'] = 1\n"),
    "own attribute of a namespace of a mapping": (
        "n = types.SimpleNamespace({'a': {}, 't': L.F})\nn.a['x'] = 1\nn.t = 2\n"
    ),
    "namespace written to by its dictionary": (
        "n = types.SimpleNamespace(t=L.F)\nvars(n)['t'] = 1\nn.__dict__.update(u=2)\n"
    ),
    "dict of keywords written to": ("d = dict(t=L.F, a={})\nd['t'] = 1\nd['a']['x'] = 1\n"),
    "dict of pairs written to": ("d = dict([('t', L.F), ('a', {})])\nd['t'] = 1\nd['a']['x'] = 1\n"),
    "own value beside an unpacked dictionary": ("d = {**{'t': L.F}, 'a': {}}\nd['t'] = 1\nd['a']['x'] = 1\n"),
    "own value of joined dictionaries": ("d = {'t': L.F} | {'a': {}}\nd['t'] = 1\nd['a']['x'] = 1\n"),
    "fields set of what dataclasses.replace gives": (
        "d = dataclasses.replace(D(), t=L.F)\nd.a = 3\nd.t = 2\n"
    ),
    "own method called _replace": (
        "class R:\n    def _replace(self, t):\n        return {}\nR()._replace(t=L.F)['x'] = 1\n"
    ),
    "own field of what a class makes by _make": ("C._make([{}, L.F]).a['x'] = 1\n"),
    "values of a comprehension": ("d = {k: {} for k in L.NAMES}\nd['a']['x'] = 1\nd['b'] = L.F\n"),
    "joined list written to": ("xs = [1] + [L.F]\nxs[0] = 2\nxs.append(3)\n"),
    "dict of a table of others and a keyword": ("from vllm.x import CFG\nd = dict(CFG, a=1)\nd['x'] = 1\n"),
    "table of others unpacked into an own one": ("from vllm.x import CFG\nd = {**CFG, 'a': 1}\nd['x'] = 1\n"),
    "dict of an unpacked table of others": ("from vllm.x import CFG\nd = dict(**CFG)\nd['x'] = 1\n"),
    "table of others joined with an own one": ("from vllm.x import CFG\nd = CFG | {'a': 1}\nd['x'] = 1\n"),
}
THROUGH: dict[str, str] = {name: _BEFORE + code for name, code in _THROUGH.items()}
"""None may be let through."""
BESIDE: dict[str, str] = {name: _BEFORE + code for name, code in _BESIDE.items()}
