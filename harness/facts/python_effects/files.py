"""What a committed file is besides Python text: machine code, archives of code, start-up files, plugin tables."""

from __future__ import annotations

import binascii
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from harness.model.effects import Effect, EffectKind

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "machine code (ELF: a shared library, an object file or a cubin)"),
    (b"MZ", "machine code (Windows)"),
    (b"\xfe\xed\xfa\xce", "machine code (Mach-O)"),
    (b"\xcf\xfa\xed\xfe", "machine code (Mach-O)"),
    (b"\xca\xfe\xba\xbe", "machine code (Mach-O, or a Java class)"),
    (b"\x50\xed\x55\xba", "a CUDA fat binary"),
    (b"!<arch>\n", "a static library"),
    (b"PK\x03\x04", "an archive (zip, wheel, egg or PyTorch file)"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"\0asm", "WebAssembly"),
    (b"\x1f\x8b\x08", "a gzip archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"BZh", "a bzip2 archive"),
)
_ENCODED = re.compile(rb"(?P<hex>(?:[0-9a-fA-F]{2}){128,})|(?P<base64>[A-Za-z0-9+/]{256,})")
"""Runs of characters that can stand for bytes; shorter ones hold no program."""
_MIN_MAGIC = 3
"""Bytes: a shorter beginning is met by chance."""
_PTX = re.compile(rb"\A(?:\s|//[^\n]*\n)*\.version\s")
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_CODE_NAMES = re.compile(r".*\.(so(\.\d+)*|pyd|dll|dylib|pyc|pyo|a|o|cubin|fatbin|whl|egg|jar|exe|hsaco|co)$")
_TORCH_LIBRARY = re.compile(
    r"\bTORCH_LIBRARY(_IMPL|_FRAGMENT)?(?:_EXPAND)?\s*\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?,\s*(\w+)\s*\)"
)
_MENTION = re.compile(r"\bTORCH_LIBRARY(_IMPL|_FRAGMENT)?(_EXPAND)?\b(?!\s*\.)")
_DEFINITION = re.compile(r"""\b(\w+)\s*\.\s*(def|impl)\s*\(\s*(?:TORCH_SELECTIVE_\w+\()?\s*"([\w:.]+)""")
_NATIVE = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hip", ".mm")
_STARTUP = ("sitecustomize.py", "usercustomize.py")


def file_effects(path: str, content: bytes) -> Iterator[Effect]:
    """What a file that is no Python text, or that Python runs by its name, reaches."""
    name = path.rpartition("/")[2]
    if name in _STARTUP or name.endswith(".pth"):
        yield _of_file(path, EffectKind.MODULES, f"{name}: Python runs it at every start")
    what = next((text for magic, text in _MAGIC if content.startswith(magic) and _is_no_text(content)), "")
    if what or _CODE_NAMES.fullmatch(name.lower()):
        yield _of_file(path, EffectKind.BINARY, what or "a file of machine or byte code by its name")
    elif _PICKLE.match(content) and content.rstrip().endswith(b"."):
        yield _of_file(path, EffectKind.DYNAMIC_CODE, "a pickle: loading it runs what it says")
    elif what := _encoded(content):
        yield _of_file(path, EffectKind.BINARY, f"{what}, written as text")
    elif _PTX.match(content):
        yield _of_file(path, EffectKind.NATIVE_CODE, "PTX, which a compiler wrote", when="call")
    elif name.endswith(_NATIVE):
        yield from native_operators(path, content.decode("utf-8", errors="replace"))


def _encoded(content: bytes) -> str:
    """What a long run of base64 or hexadecimal digits begins with; empty where it is nothing that runs."""
    for run in _ENCODED.finditer(content):
        digits = run[0][:64]
        start = binascii.unhexlify(digits) if run["hex"] else binascii.a2b_base64(digits)
        for magic, text in _MAGIC:
            if len(magic) >= _MIN_MAGIC and start.startswith(magic):
                return text
    return ""


def _is_no_text(content: bytes) -> bool:
    """Whether the first bytes hold one that no text has."""
    return any(byte < 9 or byte == 0x7F or byte in b"\x0e\x1b" for byte in content[:1024])


def native_operators(path: str, text: str) -> Iterator[Effect]:
    """Operators that C++ or CUDA text defines or implements."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)
    blocks = list(_TORCH_LIBRARY.finditer(text))
    read = {block.start() for block in blocks}
    for mention in _MENTION.finditer(text):
        if mention.start() not in read:
            line = text.count("\n", 0, mention.start()) + 1
            yield Effect(
                path=path,
                line=line,
                end_line=line,
                kind=EffectKind.OPERATOR,
                target="…",
                when="import",
                text=text.splitlines()[line - 1].strip()[:160],
                is_sure=False,
            )
    for block in blocks:
        is_implementation = block[1] == "_IMPL"
        end = text.find("\n}", block.end())
        for found in _DEFINITION.finditer(text, block.end(), end if end > 0 else len(text)):
            if found[1] != block[4]:
                continue
            name = found[3] if "::" in found[3] else f"{block[2]}::{found[3]}"
            line = text.count("\n", 0, found.start()) + 1
            yield Effect(
                path=path,
                line=line,
                end_line=line,
                kind=EffectKind.OPERATOR,
                target=name,
                when="import",
                text=text.splitlines()[line - 1].strip()[:160],
                on_duplicate="overwrites"
                if is_implementation or (found[2] == "impl" and "::" in found[3])
                else "keeps",
            )


def entry_point_effects(path: str, before: bytes | None, after: bytes | None) -> Iterator[Effect]:
    """Entry points of a `pyproject.toml` that are new, changed or gone."""
    old, new = _entry_points(before), _entry_points(after)
    text = (after or b"").decode("utf-8", errors="replace")
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) == new.get(key):
            continue
        group, name = key
        at = re.search(rf"^\s*[\"']?{re.escape(name)}[\"']?\s*=", text, re.MULTILINE)
        line = text.count("\n", 0, at.start()) + 1 if at else 1
        yield Effect(
            path=path,
            line=line,
            end_line=line,
            kind=EffectKind.ENTRY_POINT,
            target=f"{group}: {name}",
            when="import",
            text=f"{name} = {new.get(key, '(removed)')}"[:160],
            key=new.get(key),
            removes=key not in new,
            on_duplicate="overwrites" if key in old else "keeps",
        )


def _entry_points(content: bytes | None) -> Mapping[tuple[str, str], str]:
    try:
        project: Any = tomllib.loads((content or b"").decode("utf-8")).get("project", {})
        groups = dict(project.get("entry-points", {}))
        groups["console_scripts"] = project.get("scripts", {})
        return {(g, n): str(v) for g, entries in groups.items() for n, v in entries.items()}
    except (ValueError, AttributeError):
        return {}


def _of_file(
    path: str, kind: EffectKind, target: str, *, when: Literal["import", "call"] = "import"
) -> Effect:
    return Effect(path=path, line=1, end_line=1, kind=kind, target=target, when=when)
