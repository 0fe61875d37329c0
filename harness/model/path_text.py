"""Names of files as text: git and the kernel keep bytes, evidence keeps UTF-8."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(\\|x[0-9a-f]{2})")


def escape_path(name: bytes) -> str:
    """The name as text: a backslash becomes two, a byte that is no UTF-8 becomes `\\xNN`; never ambiguous."""
    return name.replace(b"\\", b"\\\\").decode("utf-8", errors="backslashreplace")


def unescape_path(text: str) -> bytes:
    """The bytes that `escape_path` was given."""
    out = bytearray()
    end = 0
    for match in _ESCAPE.finditer(text):
        out += text[end : match.start()].encode()
        out += b"\\" if match[1] == "\\" else bytes.fromhex(match[1][1:])
        end = match.end()
    return bytes(out + text[end:].encode())
