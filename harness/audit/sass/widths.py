"""How many registers an instruction reads or writes at once.

A result that is wider than noted here would leave a register with a value it no longer has, so an opcode whose
width does not follow from its suffixes is not listed as arithmetic at all.
"""

from __future__ import annotations

import re

_TWO = frozenset(["DADD", "DMUL", "DFMA", "DMNMX", "FADD2", "FMUL2", "FFMA2", "HFMA2X2"])
_FOUR_WIDE = ("HMMA", "QMMA", "OMMA", "IMMA", "BMMA", "DMMA")
_TENSOR_ROWS = {"16dp256bit": 4, "16dp128bit": 2, "16dp64bit": 1, "16dp32bit_t0_t15": 1, "32dp32bit": 1}


def access_bytes(words: list[str]) -> int:
    """Bytes of one thread's access, from the suffixes of a load or store; 4 without any."""
    for word in words:
        if word in ("U8", "S8"):
            return 1
        if word in ("U16", "S16"):
            return 2
        if word in ("64", "128", "256"):
            return int(word) // 8
    return 4


def registers_of(num_bytes: int) -> int:
    """Registers that hold `num_bytes`."""
    return max(1, num_bytes // 4)


def arithmetic_width(root: str, words: list[str]) -> int:
    """Result registers of an arithmetic instruction."""
    if root in _TWO:
        return 2
    if root in ("IMAD", "UIMAD") and "WIDE" in words:
        return 2
    if root == "CS2R":
        return 1 if "32" in words else 2
    if root in ("F2F", "I2F", "MUFU", "FRND") and words[:1] == ["F64"]:
        return 2
    if root == "F2I" and any(word in ("S64", "U64") for word in words):
        return 2
    if root in ("UIADD3", "IADD", "IADD3", "MOV", "UMOV", "SEL", "USEL", "UIADD") and "64" in words:
        return 2
    if root == "R2UR" and "64" in words:
        return 2
    if root in ("SHF", "USHF") and "64" in words and "HI" not in words:
        return 2
    return 1


def matrix_width(words: list[str]) -> int:
    """Result registers of a warp-wide matrix product: two for 16-bit accumulators, four else."""
    return 2 if words[1:2] == ["F16"] else 4


def warpgroup_width(words: list[str]) -> int | None:
    """Result registers of `HGMMA.64xNxK`: 64 N values over 128 threads; None when the shape is not printed."""
    shape = re.match(r"64x(\d+)x\d+$", words[0]) if words else None
    if shape is None:
        return None
    return int(shape.group(1)) // (4 if words[1:2] == ["F16"] else 2)


def tensor_memory_width(words: list[str]) -> int:
    """Registers of `LDTM` and `STTM`: the rows of the shape times its repetition."""
    rows, times = 1, 1
    for word in words:
        rows = _TENSOR_ROWS.get(word, rows)
        if re.match(r"x\d+$", word):
            times = int(word[1:])
    return rows * times


def is_matrix(root: str) -> bool:
    """Whether the opcode is a matrix product of one warp."""
    return root in _FOUR_WIDE
