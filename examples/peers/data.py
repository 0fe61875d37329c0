"""What ranks exchange, and what must come out: drawn from seeds, so that every process knows every rank's rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from examples.peers.exchange import LAYERS, NUM_BLOCKS, Residual
from examples.peers.session import Session
from specialized_path.kernels.attn_res.launch import attn_res_after_attention
from specialized_path.kernels.attn_res.variants import HIDDEN
from specialized_path.kernels.projection.launch import project
from specialized_path.reference import rank_order_sum
from tests.specialized_path.kernels.exchange.payloads import payload

INPUTS = 1536
"""Columns of a rank's output projection in the TP8 deployment, which is the shape here for any number of ranks."""
_PAYLOAD_RANKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One exchange of this process."""

    x: Tensor
    """[L, B, 1536], of the local ranks."""
    weight: Tensor
    """[L, 7168, 1536]."""
    residual: Residual
    """Of all local ranks."""
    wanted: Tensor
    """[2, 1, B, 7168]: output and new prefix, the same for every rank."""

    @property
    def num_rows(self) -> int:
        """Of one rank."""
        return int(self.x.shape[1])


def draw_weights(session: Session) -> Tensor:
    """[N, 7168, 1536], of all ranks."""
    return draw(session, 1, session.num_ranks, HIDDEN, INPUTS)


def draw_case(session: Session, weights: Tensor, num_rows: int, seed: int) -> Case:
    """Real products: what every rank must get is the attention residual kernel behind the oracle's sum of them."""
    x = draw(session, seed, session.num_ranks, num_rows, INPUTS)
    partials = [project(x[rank], weights[rank], use_pdl=False) for rank in range(session.num_ranks)]
    return _case(session, x, weights, torch.stack(partials), "add", seed)


def payload_case(session: Session, name: str, update: str) -> Case:
    """A payload of the kernels' tests, of its last ranks where there are fewer here."""
    x, weights, partials = (
        tensor[-session.num_ranks :] for tensor in payload(name, _PAYLOAD_RANKS, 3, str(session.device))
    )
    return _case(session, x, weights, partials, update, 3)


def draw(session: Session, seed: int, *shape: int) -> Tensor:
    """Normal BF16, in every process the same."""
    generator = torch.Generator(session.device).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=session.device).bfloat16()


def digest(tensors: Iterable[Tensor]) -> str:
    """sha256 of their bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return found.hexdigest()


def outputs(session: Session, num_rows: int) -> Tensor:
    """[2, L * B, 7168], NaN: output and new prefix of the local ranks."""
    shape = (2, session.num_local * num_rows, HIDDEN)
    return torch.full(shape, float("nan"), dtype=torch.bfloat16, device=session.device)


def count_wrong(case: Case, found: Tensor) -> Tensor:
    """Elements of `outputs` whose bits are not the wanted ones; any NaN stands for a NaN. int64, on the GPU."""
    return count_differing(found.unflatten(1, (-1, case.num_rows)), case.wanted)


def count_differing(found: Tensor, wanted: Tensor) -> Tensor:
    """Elements whose bits are not the wanted ones, as `count_wrong`; the shapes broadcast."""
    bits = {2: torch.int16, 4: torch.int32}[wanted.element_size()]
    same = found.view(bits) == wanted.view(bits)
    return (~(same | (found.isnan() & wanted.isnan()))).sum()


def _case(session: Session, x: Tensor, weights: Tensor, partials: Tensor, update: str, seed: int) -> Case:
    num_rows = x.shape[1]
    residual = Residual(
        prefix=draw(session, seed + 1000, num_rows, HIDDEN),
        blocks=draw(session, seed + 2000, num_rows, NUM_BLOCKS, HIDDEN),
        weights=tuple(draw(session, seed + 3000, 3, HIDDEN)),
    )
    attended = rank_order_sum(partials + 0.0)
    wanted = attn_res_after_attention(
        residual.prefix,
        residual.blocks,
        attended,
        *residual.weights,
        layer_idx=LAYERS[update],
        use_pdl=False,
    )
    local = slice(session.first_rank, session.first_rank + session.num_local)
    return Case(
        x=x[local].contiguous(),
        weight=weights[local],
        residual=residual.repeated(session.num_local),
        wanted=torch.stack(wanted).unsqueeze(1),
    )
