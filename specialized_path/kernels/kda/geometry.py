"""How the work of a KDA kernel lies on clusters, warps and lanes: numbers known when it is compiled."""

from specialized_path.kernels.kda.schedule import Schedule

DIM = 128
"""Key and value size of a head, and the rank of the gate's low-rank product."""
TAPS = 4
WARPS = 8
THREADS = 32 * WARPS


class Geometry:
    """Sizes of one schedule, and the constants of the contracts."""

    def __init__(
        self, schedule: Schedule, *, lower_bound: float = -5.0, l2_eps: float = 1e-6, norm_eps: float = 1e-5
    ) -> None:
        self.heads = schedule.heads
        self.tokens = schedule.tokens
        self.requests = schedule.requests
        self.columns = self.tokens * self.requests
        """Rows of the projection that a CTA reads: tokens of a request, or requests of one token."""
        self.cluster = schedule.cluster
        self.min_blocks = schedule.min_blocks
        self.rows = DIM // self.cluster
        """Rows of a head's state in a CTA."""
        self.pairs = self.rows // (2 * WARPS)
        """Pairs of rows of a warp; a half-warp holds one row of each pair."""
        self.gates_a_thread = -(-self.columns * self.rows // THREADS)
        self.lower_bound = lower_bound
        self.l2_eps = l2_eps
        self.norm_eps = norm_eps
