"""Which sources a record names."""

import sys
from types import ModuleType

from harness.kernels.sources import imported_sources


class Lazy(ModuleType):
    """A module that loads itself when it is asked anything, and cannot."""

    def __getattribute__(self, name: str) -> object:
        raise ImportError(name)


class Pretender:
    """Says that it is a module, as libraries of cffi do."""

    __slots__ = ()
    __class__ = ModuleType  # type: ignore[assignment]


def test_what_only_calls_itself_a_module_has_no_source(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pretender", Pretender())
    assert isinstance(sys.modules["pretender"], ModuleType) and imported_sources(tmp_path) == {}


def test_a_module_that_loads_itself_when_it_is_asked_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    assert imported_sources(tmp_path) == {}


def test_a_name_that_may_not_be_imported_has_no_source(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "blocked", None)
    assert imported_sources(tmp_path) == {}
