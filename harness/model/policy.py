"""The policy of the repository that gates: what a change must show."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.model.effects import EffectKind
from harness.model.number_format import EPSILON, SINGLE
from harness.model.record import Record
from harness.model.words import Tier, TrustLevel


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


class EvalsPolicy(Record):
    """What the evaluation suites must show, and what makes one void."""

    mrcr_margin: float = Field(gt=0, lt=1, default=0.04)
    """Non-inferiority margin of the mean MRCR score, in all and by length bin."""
    aime_margin: float = Field(gt=0, lt=1, default=0.03)
    """Non-inferiority margin of avg@k."""
    min_above_chance: float = Field(gt=0, lt=1, default=0.1)
    """The baseline's mean score less what guessing scores; below it a suite judges nothing."""
    max_baseline_score: float = Field(gt=0, le=1, default=0.98)
    """A baseline above it finds the suite too easy to show harm."""
    min_gating_rows: int = Field(ge=2, default=100)
    """Rows that a length bin needs to gate by itself; smaller ones are shown, and fail when clearly worse."""
    max_gate_difference: float = Field(gt=0, lt=1, default=0.02)
    """How far the arms' shares of truncated, empty, unreadable, looping, shortened or failed answers may differ."""
    min_specialized_share: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    """By suite, where it differs from the general `min_specialized_share`."""


class ImportsPolicy(Record):
    """What the subject may not take of the engine."""

    preset: Literal["vllm-core", "none"] = "vllm-core"
    """Named list of modules: sampling, scheduler, cache management; private names are out of reach with any."""
    forbidden: tuple[str, ...] = ()
    """Further modules, each with what is below it, or names in one, as dotted names."""
    allowed: tuple[str, ...] = ()
    """Dotted names that may be imported all the same."""


class TrustedKey(Record):
    """A key whose signature on evidence, or on a waiver, counts."""

    name: str
    """Who holds it; shown beside what it signed."""
    public_key: str
    """The line of a `.pub` file: ssh-ed25519 and the key."""
    level: Literal[TrustLevel.CONTRIBUTOR, TrustLevel.MAINTAINER] = TrustLevel.CONTRIBUTOR
    """What evidence that it signed is worth; `replicated` is reached by agreement, not by a key."""
    may_waive: tuple[str, ...] = ()
    """Ids of the checks that it may waive."""


class TrustedIdentity(Record):
    """Somebody whose keyless signature on evidence counts (Sigstore, docs/bundles.md)."""

    name: str
    """Who that is; shown beside what was signed."""
    identity: str = Field(min_length=1)
    """As the certificate has it, whole: an e-mail address, or `https://github.com/OWNER/NAME/.github/workflows/FILE@REF`."""
    issuer: str = Field(min_length=1)
    """Address of the identity provider, for GitHub Actions `https://token.actions.githubusercontent.com`."""
    level: Literal[TrustLevel.CONTRIBUTOR, TrustLevel.MAINTAINER] = TrustLevel.CONTRIBUTOR


class TrustPolicy(Record):
    """Whose evidence counts at the gate, and for how long."""

    required: dict[Tier, TrustLevel] = Field(default_factory=dict)
    """By tier; a tier that is not listed takes evidence of anybody."""
    max_age_days: int | None = Field(ge=1, default=None)
    """Of every record of the evidence; none: age does not matter."""
    max_waiver_days: int = Field(ge=1, default=14)
    """How far ahead a waiver may end."""
    keys: tuple[TrustedKey, ...] = ()
    identities: tuple[TrustedIdentity, ...] = ()


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
    """The largest `[state] max_relative_difference` that a manifest may ask for in single precision or finer."""
    max_state_difference_units: float = Field(ge=0, default=4.0)
    """The same where states or activations are rounded to a coarser format: units in the last place of the largest
    number of a buffer."""
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
    evals: EvalsPolicy = EvalsPolicy()
    imports: ImportsPolicy = ImportsPolicy()
    trust: TrustPolicy = TrustPolicy()

    def min_specialized_share_of(self, suite: str) -> float:
        """The specialised share that the decode tokens of one suite need."""
        return self.evals.min_specialized_share.get(suite, self.min_specialized_share)

    def max_state_difference_in(self, number_format: str) -> float | None:
        """The bound of a declared state difference, relative; None in a format whose rounding is not understood."""
        unit = EPSILON.get(number_format)
        if unit is None:
            return None
        if unit <= EPSILON[SINGLE]:
            return self.max_state_difference
        return max(self.max_state_difference, self.max_state_difference_units * unit)

    @property
    def required_checks(self) -> tuple[str, ...]:
        """All required ids, in tier order."""
        return tuple(c for tier in sorted(self.required, key=lambda t: t.rank) for c in self.required[tier])
