"""The policy of the repository that gates: what a change must show."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.model.effects import EffectKind
from harness.model.record import Record
from harness.model.words import Tier


class TokenLevelPolicy(Record):
    """Limits of the teacher-forced comparison."""

    max_mean_kl_ratio: float = Field(gt=1, default=2.0)
    """Candidate's mean KL over the A/A mean KL."""
    kl_floor: float = Field(gt=0, default=1e-5)
    """Nats; a mean KL below it is numerical noise whatever the A/A says."""
    max_p999_kl: float = Field(gt=0, default=1e-3)
    """Nats; the 99.9th percentile of the token KL may not pass the larger of this and twice the A/A's."""
    min_tokens_per_batch: int = Field(ge=1, default=64)
    """Decode tokens that the candidate must have served at each compared batch."""


class ImportsPolicy(Record):
    """What the subject may not take of the engine."""

    preset: Literal["vllm-core", "none"] = "vllm-core"
    """Named list of modules: sampling, scheduler, cache management; private names are out of reach with any."""
    forbidden: tuple[str, ...] = ()
    """Further modules, each with what is below it, or names in one, as dotted names."""
    allowed: tuple[str, ...] = ()
    """Dotted names that may be imported all the same."""


class Policy(Record):
    """Required checks by tier, and the margins they are held to. Its digest is in every verdict."""

    schema_version: Literal[1]
    version: str
    required: dict[Tier, tuple[str, ...]]
    """Check ids by tier; a tier that is listed must have run."""
    preset: Literal["vllm-core", "none"] = "vllm-core"
    """Named list of protected paths; holds whatever the change's own manifest says."""
    protected: tuple[str, ...] = ()
    """Further globs that no change may edit, own or call its tests or documents."""
    alpha: float = Field(gt=0, lt=0.5, default=0.05)
    min_specialized_share: float = Field(gt=0, le=1, default=0.95)
    """Of the decode tokens inside the declared scope, by suite and by batch."""
    min_executed_line_share: float = Field(gt=0, le=1, default=0.8)
    """Of the executable lines that the manifest expects the CPU tier to run."""
    greedy_margin: float = Field(gt=0, lt=1, default=0.05)
    """Non-inferiority margin of the share of greedy continuations that agree."""
    itl_margin: float = Field(gt=0, lt=1, default=0.02)
    """Non-inferiority margin of decode inter-token latency, as a ratio minus one."""
    min_timing_blocks: int = Field(ge=2, default=5)
    max_state_difference: float = Field(ge=0, default=1e-3)
    """The largest `[state] max_relative_difference` that a manifest may ask for."""
    declarable: tuple[EffectKind, ...] = (
        EffectKind.ENVIRONMENT,
        EffectKind.EXIT_HOOK,
        EffectKind.PROCESS,
        EffectKind.FILES,
        EffectKind.NATIVE_CODE,
        EffectKind.ENTRY_POINT,
    )
    """Reaches outside that a manifest may declare; the others stay what the code shows."""
    token_level: TokenLevelPolicy = TokenLevelPolicy()
    imports: ImportsPolicy = ImportsPolicy()

    @property
    def required_checks(self) -> tuple[str, ...]:
        """All required ids, in tier order."""
        return tuple(c for tier in sorted(self.required, key=lambda t: t.rank) for c in self.required[tier])
