"""What is still to ask for, and what the report does not show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bundles.contents import Bundle
from bundles.layout import CHANGE, JUDGEMENT, POLICY, SUBJECT_MANIFEST
from harness.model.evidence import ChangedFilesEvidence, EnvironmentEvidence, GapEvidence
from harness.model.manifest import ScopeSection
from harness.model.words import Outcome, Tier
from reports.checks import CheckCard
from reports.marks import WORST_FIRST
from reports.shown import Count, Length, Piece, Sentence, Shown, clip, format_number, pointer, visible

MESSAGE_CHARACTERS = 100
"""Of a message that the check's own section shows whole."""
NUM_NAMES = 4
"""Check ids in one sentence."""
_OF_SERVING = {"throughput": "throughput under load", "ttft": "time to first token"}
"""By a word of a measurement's name."""
_DECIDED = (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Required checks that do not let the change through for one reason, and what would settle them."""

    checks: tuple[Shown, ...]
    outcome: Outcome
    message: Shown | None
    """None when the checks said nothing."""
    advice: Shown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One thing that the report does not show."""

    title: Sentence
    reason: Sentence


def view_asks(cards: Iterable[CheckCard]) -> tuple[Ask, ...]:
    """An entry for each reason why a required check does not let through, worst first."""
    asks: dict[tuple[Outcome, str, str], Ask] = {}
    for card in cards:
        if not card.required or card.outcome.lets_through:
            continue
        first = card.open[0] if card.open else None
        message = clip(first.message, MESSAGE_CHARACTERS) if first else None
        advice = clip(first.advice, MESSAGE_CHARACTERS) if first and first.advice else None
        key = (card.outcome, message.text if message else "", advice.text if advice else "")
        same = asks.get(key)
        asks[key] = Ask(
            checks=(*(same.checks if same else ()), card.id),
            outcome=card.outcome,
            message=same.message if same else message,
            advice=same.advice if same else advice,
        )
    return tuple(sorted(asks.values(), key=lambda ask: WORST_FIRST.index(ask.outcome)))


def view_limits(bundle: Bundle, cards: tuple[CheckCard, ...], *, is_ruled: bool) -> tuple[Limit, ...]:
    """Files, tiers, machines and checks that the evidence does not reach; who made it, where no gate has said so."""
    return (
        *_files_not_judged(bundle),
        *_tiers_not_run(bundle, cards),
        *_full_model(cards),
        *_hardware(bundle),
        *_not_judged(cards),
        *_other_gaps(bundle),
        *_advisory_open(cards),
        *([] if is_ruled else [_nobodys_word(bundle)]),
    )


def _gaps(bundle: Bundle) -> list[tuple[str, GapEvidence]]:
    return [(f.path, f.record) for f in bundle.evidence if isinstance(f.record, GapEvidence)]


def _tiers_not_run(bundle: Bundle, cards: tuple[CheckCard, ...]) -> list[Limit]:
    limits, without_checks = [], []
    for tier in Tier:
        here = [card for card in cards if card.tier is tier]
        if any(card.outcome in _DECIDED for card in here):
            continue
        gap = next(((path, g) for path, g in _gaps(bundle) if g.what == f"tier {tier}"), None)
        if gap is None and not here:
            without_checks.append(str(tier))
            continue
        names = [" (", *_names(here), ")"] if here else []
        broke = any(card.outcome is Outcome.ERROR for card in here)
        word = "decided nothing" if broke else "not run"
        limits.append(Limit(title=(f"{tier} tier {word}", *names), reason=_reason(gap, here)))
    if without_checks:
        title = f"No check at the tiers {', '.join(without_checks)}"
        limits.append(Limit(title=(title,), reason=("nothing was asked or run there.",)))
    return limits


def _full_model(cards: tuple[CheckCard, ...]) -> list[Limit]:
    decided = {card.tier for card in cards if card.outcome in _DECIDED}
    if any(tier.rank > Tier.CPU.rank for tier in decided):
        return []
    if Tier.CPU in decided:
        reason = "what ran is a miniature with other weights and sizes."
    else:
        reason = "no model was served for any check that decided."
    return [Limit(title=("The full model",), reason=(reason,))]


def _reason(gap: tuple[str, GapEvidence] | None, cards: list[CheckCard]) -> Sentence:
    if gap is not None:
        return (Shown(text=visible(gap[1].reason), ref=pointer(gap[0], "reason")),)
    message = next((f.message for card in cards for f in card.open), None)
    return (message,) if message is not None else ("no check said why.",)


def _platforms(bundle: Bundle) -> list[Shown]:
    """The platforms of every deployment that the manifest declares, each once."""
    scopes: list[tuple[tuple[str, ...], ScopeSection]] = [(("scope",), bundle.manifest.scope)]
    if bundle.manifest.models.slice is not None:
        scopes.append((("models", "slice", "scope"), bundle.manifest.models.slice.scope))
    platforms: dict[str, Shown] = {}
    for keys, scope in scopes:
        for i, name in enumerate(scope.platforms):
            ref = pointer(SUBJECT_MANIFEST, *keys, "platforms", i)
            platforms.setdefault(name, Shown(text=visible(name), ref=ref))
    return list(platforms.values())


def _hardware(bundle: Bundle) -> list[Limit]:
    seen: dict[str, Shown] = {}
    for i, finding in enumerate(bundle.judgement.findings):
        for j, m in enumerate(finding.measurements):
            ref = pointer(JUDGEMENT, "findings", i, "measurements", j, "hardware")
            seen.setdefault(m.hardware, Shown(text=visible(m.hardware), ref=ref))
    for file in bundle.evidence:
        text = file.record.hardware
        seen.setdefault(text, Shown(text=visible(text), ref=pointer(file.path, "hardware")))
    seen.pop("", None)
    declared: list[Piece] = ["the change declares ", *join_pieces(_platforms(bundle)), ". "]
    machines = [r for r in bundle.records if isinstance(r, EnvironmentEvidence)]
    no_gpu = "No GPU took part. " if not any(m.gpus for m in machines) else ""
    if not seen:
        return [
            Limit(
                title=("No hardware is named",),
                reason=(*declared, no_gpu + "No number here holds for any machine."),
            )
        ]
    return [
        Limit(
            title=("Hardware other than ", *join_pieces(list(seen.values()))),
            reason=(*declared, no_gpu + "What was measured holds for that machine only."),
        )
    ]


def _not_judged(cards: tuple[CheckCard, ...]) -> list[Limit]:
    """What a reader of a performance claim asks for and no number of this judgement is about."""
    names = [m.name.text.lower() for card in cards for f in card.findings for m in f.measurements]
    missing = [what for word, what in _OF_SERVING.items() if not any(word in name for name in names)]
    if not missing:
        return []
    title = " and ".join(missing).capitalize()
    return [Limit(title=(title,), reason=("no number here is about it.",))]


def _other_gaps(bundle: Bundle) -> list[Limit]:
    tiers = {f"tier {tier}" for tier in Tier}
    return [
        Limit(
            title=(
                Shown(text=visible(gap.what), ref=pointer(path, "what")),
                f" ({gap.tier} tier) {'broke' if gap.broke else 'not collected'}",
            ),
            reason=(Shown(text=visible(gap.reason), ref=pointer(path, "reason")),),
        )
        for path, gap in _gaps(bundle)
        if gap.what not in tiers
    ]


def _files_not_judged(bundle: Bundle) -> list[Limit]:
    limits = []
    for file in bundle.evidence:
        if isinstance(file.record, ChangedFilesEvidence) and file.record.num_not_judged:
            number = Shown(
                text=format_number(file.record.num_not_judged), ref=pointer(file.path, "num_not_judged")
            )
            limits.append(
                Limit(title=(number, " changed files outside what was judged"), reason=_limited_to(bundle))
            )
    if bundle.change.uncommitted_files:
        number = Shown(
            text=format_number(bundle.change.uncommitted_files), ref=pointer(CHANGE, "uncommitted_files")
        )
        limits.append(
            Limit(
                title=(number, " uncommitted files"),
                reason=("only what is committed at the head is judged.",),
            )
        )
    return limits


def _nobodys_word(bundle: Bundle) -> Limit:
    """Signatures and waivers come after a report; what the policy will ask of them stands in the bundle."""
    required = bundle.policy.trust.required
    asked: Sentence = ()
    if required:
        levels: list[Piece] = ["The policy asks for "]
        for number, (tier, level) in enumerate(required.items()):
            ref = pointer(POLICY, "trust", "required", tier)
            levels += [
                ", " if number else "",
                Shown(text=str(level), ref=ref),
                f" evidence at the {tier} tier",
            ]
        asked = (*levels, ". ")
    reason = (*asked, "The gate looks at them, and its report shows them.")
    return Limit(title=("Signatures and waivers",), reason=reason)


def _limited_to(bundle: Bundle) -> Sentence:
    globs = [
        Shown(text=visible(glob), ref=pointer(CHANGE, "limited_to", i))
        for i, glob in enumerate(bundle.change.limited_to)
    ]
    if not globs:
        return ("they were left out of the diff.",)
    if len(globs) > 4:
        return (
            "judged were only files that match one of ",
            Length(value=len(globs), ref=pointer(CHANGE, "limited_to")),
            " globs.",
        )
    return ("judged were only files that match ", *join_pieces(globs, " or "), ".")


def _advisory_open(cards: tuple[CheckCard, ...]) -> list[Limit]:
    open_cards = [card for card in cards if not card.required and not card.outcome.lets_through]
    if not open_cards:
        return []
    count = Count(refs=tuple(card.id.ref.removesuffix("/check") for card in open_cards))
    return [
        Limit(
            title=(count, " advisory checks without a pass"),
            reason=("they do not change the verdict: ", *_names(open_cards), "."),
        )
    ]


def _names(cards: list[CheckCard]) -> list[Piece]:
    """The ids of the first checks, and how many more there are."""
    rest = cards[NUM_NAMES:]
    more = Count(refs=tuple(card.id.ref.removesuffix("/check") for card in rest))
    names = join_pieces([card.id for card in cards[:NUM_NAMES]])
    if rest:
        names += [" and ", more, " more"]
    return names


def join_pieces(pieces: list[Shown], separator: str = ", ") -> list[Piece]:
    """The pieces with the separator between them."""
    joined: list[Piece] = []
    for piece in pieces:
        joined += [separator, piece] if joined else [piece]
    return joined
