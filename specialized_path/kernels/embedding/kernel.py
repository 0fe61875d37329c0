"""Rows of the table, or zeros: a CTA has a token, a thread eight columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common import device

HIDDEN = 7168
_COLUMN_BYTES = 16
_THREADS = HIDDEN * 2 // _COLUMN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingKernel:
    """The kernel for ids of one width."""

    id_bytes: int
    """4 or 8."""

    @cute.jit
    def __call__(
        self,
        token_ids: cute.Pointer,
        weight: cute.Pointer,
        out: cute.Pointer,
        num_tokens: Int32,
        vocab_start: Int64,
        num_rows: Int64,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`out[b] = weight[token_ids[b] - vocab_start]` where that is one of `num_rows` rows, else zero."""
        self.kernel(token_ids, weight, out, vocab_start, num_rows).launch(
            grid=(num_tokens, 1, 1), block=(_THREADS, 1, 1), stream=stream, use_pdl=use_pdl
        )

    @cute.kernel
    def kernel(
        self,
        token_ids: cute.Pointer,
        weight: cute.Pointer,
        out: cute.Pointer,
        vocab_start: Int64,
        num_rows: Int64,
    ) -> None:
        """CTA t serves token t."""
        token, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        column_byte = Int64(thread) * _COLUMN_BYTES
        device.wait_for_dependencies()
        device.release_dependents()
        row = self.load_id(token_ids.toint() + Int64(token) * self.id_bytes) - vocab_start
        place = out.toint() + Int64(token) * (HIDDEN * 2) + column_byte
        if row >= 0 and row < num_rows:
            device.store_words(place, device.load_words(weight.toint() + row * (HIDDEN * 2) + column_byte))
        else:
            device.store_words(place, (Uint32(0),) * 4)

    def load_id(self, address: Any) -> Any:
        """A token's id, sign-extended."""
        code = (
            "ld.global.s64 {$w0}, [{$r0}];"
            if self.id_bytes == 8
            else ("{ .reg .s32 t; ld.global.s32 t, [{$r0}]; cvt.s64.s32 {$w0}, t; }")
        )
        return inline_ptx(code, write_only_types=[Int64], read_only_args=[Int64(address)])
