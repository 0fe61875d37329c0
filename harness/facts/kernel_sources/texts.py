"""Kernels in files that are no Python, and in strings: CUDA C++, PTX, machine code."""

from __future__ import annotations

import re

SUFFIXES = {
    ".cu": "CUDA C++",
    ".cuh": "CUDA C++",
    ".ptx": "PTX",
    ".cubin": "machine code",
    ".fatbin": "machine code",
}
_CUDA_MACHINE = 190
"""`e_machine` of an ELF file that holds SASS."""
_FAT_BINARY = b"\x50\xed\x55\xba"
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CUDA = re.compile(r"\b__global__\b")
_PTX = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.(?:entry|func)\b", re.MULTILINE)
_PTX_HEAD = re.compile(r"^\s*\.(?:version|target)\s", re.MULTILINE)
_DSL = re.compile(r"^\s*@[\w.]+\.(?:jit|kernel)\b", re.MULTILINE)


def kernel_text(path: str, content: bytes) -> str:
    """What kind of kernel a file that is no Python holds, by its name or what stands in it; empty for none."""
    named = next((form for suffix, form in SUFFIXES.items() if path.lower().endswith(suffix)), "")
    return named or _binary(content) or text_form(content.decode("utf-8", "replace"))


def _binary(content: bytes) -> str:
    if content.startswith(_FAT_BINARY):
        return "machine code"
    if not content.startswith(b"\x7fELF"):
        return ""
    machine = int.from_bytes(content[18:20], "little")
    return "machine code" if machine == _CUDA_MACHINE or b".nv_fatbin" in content else ""


def text_form(text: str) -> str:
    """What kind of kernel a text holds outside of its comments; empty for none."""
    if "__global__" in text and _CUDA.search(_COMMENTS.sub(" ", text)):
        return "CUDA C++"
    if ".target" in text and _PTX_HEAD.search(text) and _PTX.search(_COMMENTS.sub(" ", text)):
        return "PTX"
    return ""


def quoted_form(text: str) -> str:
    """As `text_form`, for a string of a program, which may be Python in turn."""
    return text_form(text) or ("Python in a string" if _DSL.search(text) else "")
