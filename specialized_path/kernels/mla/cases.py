"""Adversarial inputs of OC-8 to OC-11, as data. Whatever a contract says is not read holds NaN or garbage."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KV_RANK, ROPE, NOPE, Q_RANK, V_DIM = 512, 64, 128, 1536, 128
ROW = KV_RANK + ROPE
NAN = float("nan")
PAGE_GARBAGE = (-1, 2**31 - 1, -(2**31))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCase:
    """One batch for the attention core."""

    name: str
    lengths: tuple[int, ...]
    num_tokens: int = 1
    num_heads: int = 12
    page_size: int = 64
    fill: str = "random"
    """random, equal (all scores equal), dominant (one score far above), negative zero, huge (scores of +-3e4)."""
    pages_before: int = 3
    """Unused pages at the front of the cache; enough of them put offsets past 2^31 elements."""
    max_context: int = 131072
    """What the plan is made for."""

    @property
    def has_exact_scores(self) -> bool:
        """Whether each score's sum of 576 products is a whole number below 2^24, exact in float32 in any order."""
        return self.fill == "huge"


_PAGE = 48
ATTENTION_CASES = (
    AttentionCase(name="lengths at the page's edge", lengths=(0, 1, 63, 64, 65, 130, 7)),
    AttentionCase(name="pages of 48, tp16", lengths=(47, 48, 49, 0, 500), num_heads=6, page_size=_PAGE),
    AttentionCase(name="pages of one row", lengths=(5, 0, 70), page_size=1),
    AttentionCase(name="one empty request", lengths=(0,)),
    AttentionCase(name="one token", lengths=(1,)),
    AttentionCase(name="128k", lengths=(131072,), page_size=1024),
    AttentionCase(name="128k less one, tp16", lengths=(131071,), num_heads=6),
    AttentionCase(name="128k among short ones", lengths=(3, 131072, 0, 900, 2048, 1)),
    AttentionCase(name="longer than the plan", lengths=(5000, 64), max_context=1024),
    AttentionCase(name="64 requests", lengths=tuple((37 * i * i) % 4097 for i in range(64))),
    AttentionCase(name="all scores equal", lengths=(1, 200, 4097), fill="equal"),
    AttentionCase(name="one score dominates", lengths=(300, 5000), fill="dominant"),
    AttentionCase(name="negative zeros", lengths=(65, 3), fill="negative zero"),
    AttentionCase(name="scores of 3e4", lengths=(64, 1000, 20000), fill="huge"),
    AttentionCase(name="scores of 3e4, verify", lengths=(64, 5000), fill="huge", num_tokens=4),
    AttentionCase(name="past 2^31 elements", lengths=(200, 65), pages_before=2**31 // (64 * ROW) + 10),
    *(
        AttentionCase(name=f"verify q={q}", lengths=(q, 200, 64, 1, 0, 4099), num_tokens=q)
        for q in range(2, 9)
    ),
    *(
        AttentionCase(name=f"verify q={q}, tp16", lengths=(64 + q // 2, 1000, 2), num_tokens=q, num_heads=6)
        for q in range(2, 9)
    ),
    AttentionCase(name="verify q=8, 128k", lengths=(131072, 9), num_tokens=8),
    AttentionCase(name="all heads", lengths=(129, 3000), num_heads=96),
    AttentionCase(name="all heads, verify", lengths=(129, 700), num_heads=96, num_tokens=3),
)


@dataclass(kw_only=True)
class AttentionInputs:
    """What the core reads."""

    query: Tensor
    """[B, q, H, 576]."""
    kv_cache: Tensor
    """[pages, P, 576], a view with room between pages; rows that no request owns hold NaN."""
    block_table: Tensor
    """[B, pages] int32, wider than needed, garbage past each length; rows lie apart."""
    seq_lens: Tensor
    """[B] int32."""


def attention_inputs(case: AttentionCase, dtype: torch.dtype, device: str, seed: int = 0) -> AttentionInputs:
    """The case's tensors for a cache of `dtype` (bfloat16 or float8_e4m3fn)."""
    generator = torch.Generator(device).manual_seed(seed)
    used = [-(-n // case.page_size) for n in case.lengths]
    order = case.pages_before + torch.randperm(sum(used), generator=torch.Generator().manual_seed(seed))
    pages = order.split(used)
    table = torch.tensor(PAGE_GARBAGE, dtype=torch.int32).repeat(len(used), -(-max([1, *used]) // 3) + 2)
    for row, ids in zip(table, pages, strict=True):
        row[: len(ids)] = ids
    cache = _poisoned_cache(case.pages_before + sum(used), case.page_size, dtype, device)
    query = _query(case, generator, device)
    for b, (n, ids) in enumerate(zip(case.lengths, pages, strict=True)):
        rows = _rows(case, query[b], n, generator, device).to(dtype)
        for p, page in enumerate(ids.tolist()):
            part = rows[p * case.page_size : (p + 1) * case.page_size]
            cache[page, : len(part)] = part
    return AttentionInputs(
        query=query.to(dtype),
        kv_cache=cache,
        block_table=table.to(device),
        seq_lens=torch.tensor(case.lengths, dtype=torch.int32, device=device),
    )


def _poisoned_cache(num_pages: int, page_size: int, dtype: torch.dtype, device: str) -> Tensor:
    """[pages, P, 576] with 32 elements between pages, NaN in every byte that is small enough to fill."""
    stride = page_size * ROW + 32
    if num_pages * stride > 2**31:
        flat = torch.empty(
            num_pages * stride, dtype=torch.uint8 if dtype.itemsize == 1 else torch.int16, device=device
        )
        flat[-(stride * 64) :] = 0x7F if dtype.itemsize == 1 else 0x7FC0
    else:
        flat = torch.full((num_pages * stride,), 0x7F if dtype.itemsize == 1 else 0x7FC0, device=device,
                          dtype=torch.uint8 if dtype.itemsize == 1 else torch.int16)  # fmt: skip
    return flat.view(dtype).as_strided((num_pages, page_size, ROW), (stride, ROW, 1))


def _query(case: AttentionCase, generator: torch.Generator, device: str) -> Tensor:
    shape = (len(case.lengths), case.num_tokens, case.num_heads, ROW)
    if case.fill == "equal":
        return torch.zeros(shape, device=device)
    noise = torch.randn(shape, generator=generator, device=device)
    return 30.0 * noise.sign() if case.fill == "huge" else noise


def _rows(case: AttentionCase, query: Tensor, length: int, generator: torch.Generator, device: str) -> Tensor:
    noise = torch.randn(length, ROW, generator=generator, device=device)
    if case.fill == "negative zero":
        return torch.full_like(noise, -0.0)
    if case.fill == "dominant" and length:
        noise[length // 2] = 8.0 * query[0, 0]
    if case.fill == "huge":
        # Whole numbers up to 30 x 26: `has_exact_scores`, so that only the softmax is tested.
        signs = torch.where(torch.rand(length, 1, generator=generator, device=device) < 0.5, -1.0, 1.0)
        steps = torch.where(noise.abs() > 2.2, 2.0, 0.0) * noise.sign()
        return (24.0 + steps) * query[0, 0].sign() * signs
    return noise


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCase:
    """One step for the query side."""

    name: str
    num_rows: int
    num_heads: int = 12
    page_size: int = 64
    slots: tuple[int, ...] = ()
    """By row; rows beyond it get random slots."""
    gain: float = 1.0
    """Scale of the projection's rows, which the norms take out of all but the rope part of the cache row."""
    norm_gain: float = 1.0
    """Scale of both norms' weights."""
    zero_rows: tuple[int, ...] = ()
    nan_rows: tuple[int, ...] = ()
    """Padded rows: NaN throughout, slot -1."""


QUERY_CASES = (
    *(QueryCase(name=f"{n} rows", num_rows=n) for n in (1, 2, 8, 16, 17, 33, 64, 100)),
    *(QueryCase(name=f"{n} rows, tp16", num_rows=n, num_heads=6) for n in (1, 16, 64)),
    QueryCase(name="edges of pages", num_rows=5, page_size=48, slots=(0, 47, 48, 95, 10 * 48 - 1)),
    QueryCase(name="no slot", num_rows=4, slots=(-1, 3, -7, -1)),
    QueryCase(name="zero rows", num_rows=18, zero_rows=(0, 17)),
    QueryCase(name="NaN padding", num_rows=20, nan_rows=(3, 16, 19)),
    QueryCase(name="large rows", num_rows=3, gain=3e4),
    QueryCase(name="saturation", num_rows=3, gain=100.0, norm_gain=200.0),
    QueryCase(name="tiny rows", num_rows=3, gain=1e-6),
)


@dataclass(kw_only=True)
class QueryInputs:
    """What the query side reads, and the cache that it writes into; its rows hold NaN."""

    projected: Tensor
    q_a_norm: Tensor
    kv_a_norm: Tensor
    w_q_b: Tensor
    w_kv_b: Tensor
    """[H * 256, 512], of which W_UK and W_UV are views."""
    kv_cache: Tensor
    slot_mapping: Tensor


def query_inputs(case: QueryCase, dtype: torch.dtype, device: str, seed: int = 0) -> QueryInputs:
    """The case's tensors for a cache of `dtype`."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape, generator=generator, device=device)).bfloat16()

    projected = normal(case.num_rows, Q_RANK + ROW + case.num_heads * V_DIM, scale=case.gain)
    projected[list(case.zero_rows)] = 0.0
    projected[list(case.nan_rows)] = NAN
    num_pages = max(10, -(-case.num_rows // case.page_size) + 2)
    slots = torch.randperm(num_pages * case.page_size, generator=torch.Generator().manual_seed(seed))
    slots = slots[: case.num_rows]
    slots[: len(case.slots)] = torch.tensor(case.slots, dtype=torch.int64)
    slots[list(case.nan_rows)] = -1
    return QueryInputs(
        projected=projected,
        q_a_norm=(normal(Q_RANK, scale=0.2) + 1.0) * case.norm_gain,
        kv_a_norm=(normal(KV_RANK, scale=0.2) + 1.0) * case.norm_gain,
        w_q_b=normal(case.num_heads * (NOPE + ROPE), Q_RANK, scale=Q_RANK**-0.5),
        w_kv_b=normal(case.num_heads * (NOPE + V_DIM), KV_RANK, scale=NOPE**-0.5),
        kv_cache=_poisoned_cache(num_pages, case.page_size, dtype, device),
        slot_mapping=slots.to(device),
    )
