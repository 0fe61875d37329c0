"""What evidence is worth at the gate: who signed each bundle, what the policy makes of it, whether replicates agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from bundles.contents import Bundle
from bundles.keys import parse_public_key
from bundles.merge import Choice, supplied_tiers
from bundles.signer import Signer, SigstoreIdentity
from harness.app.run_marks import marks_of
from harness.model.judgement import Judgement
from harness.model.policy import TrustPolicy
from harness.model.words import Outcome, Tier, TrustLevel

_DECIDED = frozenset({Outcome.PASS, Outcome.FAIL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One bundle that fits the change, and whose word it is."""

    name: str
    bundle: Bundle
    signers: tuple[Signer, ...]
    """Each signature holds and speaks of this bundle."""
    judged_by_others: bool = False
    """Whether other sources of fasttrack sealed it: nothing that they made of the evidence counts."""

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers of which it holds evidence."""
        return tuple(tier for tier in Tier if tier in supplied_tiers(self.bundle))


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whom the policy knows behind a key or an identity."""

    name: str
    level: TrustLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTrust:
    """What one tier's evidence is worth."""

    tier: Tier
    required: TrustLevel
    reached: TrustLevel
    suppliers: tuple[Part, ...]
    """The bundles that hold evidence of the tier; more than one: replicates."""
    agree: bool | None
    """Whether every required check of the tier comes out the same with each of them; None of one alone, and where none
    of these checks decided anything, so that nothing was compared."""

    @property
    def is_enough(self) -> bool:
        """Whether the policy takes it."""
        return self.reached.rank >= self.required.rank


def known_holders(trust: TrustPolicy) -> Mapping[Signer, Holder]:
    """Everybody whose signature the policy takes for more than anybody's."""
    found: dict[Signer, Holder] = {
        parse_public_key(key.public_key): Holder(name=key.name, level=TrustLevel(key.level))
        for key in trust.keys
    }
    for known in trust.identities:
        signer = SigstoreIdentity(identity=known.identity, issuer=known.issuer)
        found[signer] = Holder(name=known.name, level=TrustLevel(known.level))
    return found


def level_of(part: Part, trust: TrustPolicy) -> TrustLevel:
    """What the bundle's signatures are worth under the policy; that of a contributor where none is known."""
    holders = known_holders(trust)
    known = [holders[signer].level for signer in part.signers if signer in holders]
    return max(known, key=lambda level: level.rank, default=TrustLevel.CONTRIBUTOR)


def rule_trust(
    parts: Sequence[Part], choices: Sequence[Choice], judged: Sequence[Judgement], trust: TrustPolicy
) -> tuple[TierTrust, ...]:
    """Every tier of which there is evidence, of replicates by the one that is trusted least.

    Args:
        parts: The bundles.
        choices: Every way to take each tier from one of them.
        judged: What each choice came to.
        trust: The policy's.
    """
    ruled = []
    for tier in Tier:
        suppliers = tuple(parts[i] for i in sorted({choice[tier] for choice in choices if tier in choice}))
        if not suppliers:
            continue
        agree = _agree(tier, choices, judged) if len(suppliers) > 1 else None
        reached = min((level_of(part, trust) for part in suppliers), key=lambda level: level.rank)
        if agree and _are_independent(tier, suppliers, trust):
            reached = TrustLevel.REPLICATED
        required = trust.required.get(tier, TrustLevel.CONTRIBUTOR)
        ruled.append(
            TierTrust(tier=tier, required=required, reached=reached, suppliers=suppliers, agree=agree)
        )
    return tuple(ruled)


def _agree(tier: Tier, choices: Sequence[Choice], judged: Sequence[Judgement]) -> bool | None:
    outcomes = {
        tuple(c.outcome for c in judgement.checks if c.required and c.tier is tier)
        for choice, judgement in zip(choices, judged, strict=True)
        if tier in choice
    }
    if not any(outcome in _DECIDED for one in outcomes for outcome in one):
        return None
    return len(outcomes) == 1


def _are_independent(tier: Tier, suppliers: Sequence[Part], trust: TrustPolicy) -> bool:
    """Whether known holders collected the tier, each for itself: nobody signed two, no run and no record is in two.

    Evidence that bears no mark of a run shows none, and so no second one.
    """
    holders = known_holders(trust)
    names = [frozenset(holders[s].name for s in part.signers if s in holders) for part in suppliers]
    records = [[r for r in part.bundle.records if r.tier is tier] for part in suppliers]
    runs = [marks_of(one) for one in records]
    ids = [frozenset(r.id for r in one) for one in records]
    shared = not (_are_disjoint(names) and _are_disjoint(runs) and _are_disjoint(ids))
    return all(names) and all(runs) and not shared


def _are_disjoint(sets: Sequence[Set[object]]) -> bool:
    return sum(map(len, sets)) == len(set[object]().union(*sets))


def say_trust(ruled: TierTrust) -> str:
    """One line: what the policy asks of a tier's evidence and what it is."""
    names = ", ".join(part.name for part in ruled.suppliers)
    text = (
        f"tier {ruled.tier}: {ruled.reached} evidence of {names}; the policy takes {ruled.required} evidence"
    )
    if not ruled.is_enough:
        asked = f"tier {ruled.tier}: the policy asks for {ruled.required} evidence"
        text = f"{asked}; that of {names} is {ruled.reached} evidence"
    alone = len(ruled.suppliers) == 1
    compared = {True: "replicates agree", False: "replicates disagree"}
    nothing = "no required check decided with any of them, so nothing is replicated"
    return text if alone else f"{text}; {nothing if ruled.agree is None else compared[ruled.agree]}"


def say_signers(part: Part, trust: TrustPolicy) -> str:
    """One line: what a bundle holds and who signed it."""
    holders = known_holders(trust)
    signers = [
        f"{holders[s].name} ({holders[s].level}, {s.fingerprint})"
        if s in holders
        else f"{s.fingerprint}, whom the policy does not know"
        for s in part.signers
    ]
    return f"{part.name}: tiers {', '.join(part.tiers)}; signed by {'; '.join(signers) or 'nobody'}"
