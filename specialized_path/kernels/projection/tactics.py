"""How a projection is cut into CTAs, stages and warps. Pure numbers: no GPU, no DSL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product, zip_longest

ATOM = 64
"""K of a swizzled atom: 128 bytes of a row, what one bulk tensor copy takes of each."""
PRODUCT_K = 16
"""K of one matrix instruction."""
COLUMNS = 8
"""Rows of activations in one product tile."""
SUM_PAD = 4
"""FP32 words behind each column of partial sums: a warp's scattered stores then miss each other's banks."""
SHARED_BYTES = 226 * 1024
"""Dynamic shared memory that a CTA may take on sm_90, sm_100 and sm_103, with room for the barriers."""
MAX_BOX_ROWS = 256
"""Rows of one bulk tensor copy."""
_SUM_REGISTERS = 96
"""FP32 sums of a thread that leave room for operands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tactic:
    """One cut."""

    n_tiles: int
    """Tiles of eight activation rows: serves batches up to `8 * n_tiles`."""
    splits: int = 1
    """CTAs of a cluster that share K."""
    m_warps: int = 1
    """Warps that share the weight rows."""
    n_warps: int = 1
    """Warps that share the activation rows."""
    k_warps: int = 8
    """Warps that share the K of a stage."""
    tiles: int = 3
    """Tiles of 16 weight rows of a warp."""
    atoms: int = 2
    """Atoms of K in a stage."""
    stages: int = 12

    @property
    def name(self) -> str:
        """Short, unique among tactics."""
        return (
            f"b{self.n_tiles * COLUMNS} s{self.splits} m{self.m_warps} n{self.n_warps} k{self.k_warps} "
            f"t{self.tiles} a{self.atoms} r{self.stages}"
        )

    @property
    def rows(self) -> int:
        """Weight rows of a CTA, and of its cluster."""
        return 16 * self.m_warps * self.tiles

    @property
    def columns(self) -> int:
        """Activation rows that it serves at most."""
        return COLUMNS * self.n_tiles

    @property
    def consumer_warps(self) -> int:
        """Warps that multiply; one more streams."""
        return self.m_warps * self.n_warps * self.k_warps

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * (self.consumer_warps + 1)

    @property
    def warp_n_tiles(self) -> int:
        """Tiles of activation rows of a warp."""
        return self.n_tiles // self.n_warps

    @property
    def steps(self) -> int:
        """Steps of 16 of K that a warp takes in a stage."""
        return self.atoms * ATOM // PRODUCT_K // self.k_warps

    @property
    def weight_bytes(self) -> int:
        """Weights of a stage."""
        return self.atoms * self.rows * ATOM * 2

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage: weights, then activations."""
        return self.weight_bytes + self.atoms * self.columns * ATOM * 2

    @property
    def sum_column_bytes(self) -> int:
        """Distance of two activation rows' partial sums."""
        return (self.rows + SUM_PAD) * 4

    @property
    def sum_bytes(self) -> int:
        """One K warp's partial sums."""
        return self.sum_column_bytes * self.columns

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: the ring, and later in its place the partial sums."""
        return max(self.stages * self.stage_bytes, self.k_warps * self.sum_bytes)

    def loads(self, num_inputs: int) -> int:
        """Stages that a CTA fills."""
        return num_inputs // (self.splits * self.atoms * ATOM)

    def problems(self, num_outputs: int, num_inputs: int) -> list[str]:
        """Why the cut does not fit a weight shape; empty when it does."""
        wrong = {
            f"K {num_inputs} is no multiple of {self.splits * self.atoms * ATOM}": num_inputs
            % (self.splits * self.atoms * ATOM),
            f"a stage's K does not divide among {self.k_warps} warps": self.atoms
            * ATOM
            % (PRODUCT_K * self.k_warps),
            f"{self.n_tiles} tiles do not divide among {self.n_warps} warps": self.n_tiles % self.n_warps,
            f"outputs {num_outputs} are not even": num_outputs % 2,
            f"{self.rows} rows do not divide among {self.splits} CTAs in pairs": self.rows
            % (2 * self.splits),
            f"{self.rows} rows, {MAX_BOX_ROWS} at most": self.rows > MAX_BOX_ROWS,
            f"{self.shared_bytes} bytes of shared memory, {SHARED_BYTES} at most": self.shared_bytes
            > SHARED_BYTES,
            f"clusters of {self.splits}": self.splits not in (1, 2, 4, 8),
            f"{self.stages} stages": not 1 <= self.stages <= self.loads(num_inputs),
        }
        return [what for what, is_wrong in wrong.items() if is_wrong]


def candidates(
    num_outputs: int, num_inputs: int, n_tiles: int, *, num_sms: int = 132, most: int = 24
) -> list[Tactic]:
    """At most `most` cuts worth timing on a GPU of `num_sms` multiprocessors, those that load them evenly first.

    Each is one wave with a ring as deep as fits. Of cuts that share splits, K warps and CTAs an SM, the best come first
    in turn, so that a short list still holds every kind.
    """
    kinds: dict[tuple[int, int, int], list[tuple[float, Tactic]]] = {}
    for per_sm, cut in _cuts(num_outputs, num_inputs, n_tiles, num_sms):
        if cut.problems(num_outputs, num_inputs) or 4 * cut.tiles * cut.warp_n_tiles > _SUM_REGISTERS:
            continue
        busiest = per_sm * cut.rows * num_inputs // cut.splits
        bytes_in_flight = per_sm * cut.stages * cut.stage_bytes
        kind = (per_sm, cut.splits, cut.k_warps)
        kinds.setdefault(kind, []).append((busiest - bytes_in_flight / 16, cut))
    ranked = [[cut for _, cut in sorted(cuts, key=_cost)] for cuts in kinds.values()]
    turns = zip_longest(*sorted(ranked, key=lambda cuts: cuts[0].name))
    return [cut for turn in turns for cut in turn if cut is not None][:most]


def _cost(item: tuple[float, Tactic]) -> tuple[float, str]:
    return item[0], item[1].name


def _cuts(num_outputs: int, num_inputs: int, n_tiles: int, num_sms: int) -> Iterator[tuple[int, Tactic]]:
    """CTAs an SM, and cuts with that many."""
    for per_sm, splits, m_warps, n_warps, k_warps, atoms in product(
        (1, 2), (1, 2, 4), range(1, 8), (1, 2), (1, 2, 4, 8), (1, 2, 3, 4)
    ):
        if not 4 <= m_warps * n_warps * k_warps <= 8 or n_tiles % n_warps:
            continue
        # Clusters of four leave two of a GPC's 18 multiprocessors idle.
        clusters = (num_sms * per_sm // splits) if splits < 4 else num_sms * per_sm * 31 // 128
        cut = Tactic(
            n_tiles=n_tiles,
            splits=splits,
            m_warps=m_warps,
            n_warps=n_warps,
            k_warps=k_warps,
            tiles=-(-num_outputs // (16 * m_warps * clusters)),
            atoms=atoms,
            stages=1,
        )
        stages = SHARED_BYTES // per_sm // cut.stage_bytes
        yield per_sm, replace(cut, stages=min(stages, cut.loads(num_inputs)))
