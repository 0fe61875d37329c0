"""Made evidence of the evaluation suites: answers of three arms and of a control, with the candidate's ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.model.evaluation import ChatMessage, EvalRow, SuiteItem
from harness.model.evidence import (
    AnyEvidence,
    EvalSetEvidence,
    EvidenceSet,
    LedgerEvidence,
    SuiteEvidence,
    evidence_set,
)
from harness.model.ledger import LedgerRow, StepDecision, StepRequest
from harness.model.words import Arm, Tier
from tests.harness.checks.evidence_builder import DECISION, EXECUTOR, MAX_BATCH, PLAIN

LEVELS = (1, 2, 4, 8, 9)
PROMPT_TOKENS = {"short": 60, "middle": 150, "long": 400}
"""By length bin; the made scope's context is 512."""
AT = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalWorld:
    """How the arms do on the suites. The defaults are a clean change on the miniature's plan."""

    seed: int = 0
    num_rows: int = 110
    """Of MRCR."""
    num_problems: int = 30
    samples: int = 8
    skill: float = 0.6
    """Share of answers that the baseline gets right."""
    loss: float = 0.0
    """By how much the candidate's share is smaller."""
    discordance: float = 0.0
    """Share of the candidate's and of the A/A's answers that are drawn anew."""
    control_loss: float = 0.5
    """By how much the candidate made wrong is worse."""
    serves: Callable[[str], bool] = lambda _item: True
    """By item: whether the candidate's specialised code ran its decode steps."""


def mrcr_rows(count: int) -> tuple[EvalRow, ...]:
    """Rows in three length bins, two to four of them on one conversation now and then."""
    return tuple(_mrcr_row(index) for index in range(count))


def _mrcr_row(index: int) -> EvalRow:
    texts = [f"ode on w{index}: {_words(index, place)}." for place in range(4)]
    asked = [ChatMessage(role="user", content=f"Write: ode on w{index}.")]
    messages = [m for t in texts for m in (*asked, ChatMessage(role="assistant", content=t))]
    question = ChatMessage(
        role="user", content=f"Put x{index}y before the {index % 4 + 1}th ode on w{index}."
    )
    return EvalRow(
        row=f"m{index}",
        messages=(*messages, question),
        answer=f"x{index}y" + texts[index % 4],
        prefix=f"x{index}y",
        num_needles=(2, 4, 8)[index % 3],
        bin=("short", "middle", "long")[index // 3 % 3],
    )


def _words(index: int, place: int) -> str:
    letters = np.random.default_rng([index, place]).integers(97, 123, size=(6, 6))
    return " ".join("".join(map(chr, word)) for word in letters)


def aime_rows(count: int) -> tuple[EvalRow, ...]:
    """Problems with different answers."""
    return tuple(
        EvalRow(
            row=f"a{i}",
            messages=(ChatMessage(role="user", content=f"What is {i} and {i}?"),),
            answer=str(2 * i),
            bin="sum",
        )
        for i in range(count)
    )


def answer_of(suite: str, row: EvalRow, is_right: bool) -> str:
    """A right answer, or a wrong one of the same form."""
    if suite == "aime":
        return f"It is \\boxed{{{int(row.answer) + (not is_right)}}}"
    others = [m.content for m in row.messages if m.role == "assistant" and m.content not in row.answer]
    return row.answer if is_right else row.prefix + others[0]


def build_evals(world: EvalWorld | None = None) -> EvidenceSet:
    """Questions, answers of all arms, controls and the candidate's ledger."""
    world = world or EvalWorld()
    records: list[AnyEvidence] = []
    ledger: list[LedgerRow] = []
    for suite, rows, samples in (
        ("mrcr", mrcr_rows(world.num_rows), 1),
        ("aime", aime_rows(world.num_problems), world.samples),
    ):
        records.append(
            EvalSetEvidence(
                tier=Tier.CPU,
                recorded_at=AT,
                suite=suite,
                source="made",
                source_sha256="0" * 64,
                grader=f"{suite}, version 1",
                rows=rows,
            )
        )
        asked = [(row, sample) for row in rows for sample in range(samples)]
        draws = np.random.default_rng([world.seed, len(suite)]).random((len(asked), 3))
        for arm in Arm:
            is_right = _outcomes(world, arm, draws)
            items = [
                _item(suite, arm.value, row, k, right)
                for (row, k), right in zip(asked, is_right, strict=True)
            ]
            records.append(_suite(suite, arm, items, world))
            if arm is Arm.CANDIDATE:
                _serve(ledger, items, world)
        wrong = (draws[:, 0] < world.skill - world.loss - world.control_loss)[::4]
        control = [
            _item(suite, "control", row, k, bool(right))
            for (row, k), right in zip(asked[::4], wrong, strict=True)
        ]
        _serve(ledger, control, world)
        records.append(_control(suite, control))
    records.append(LedgerEvidence(tier=Tier.CPU, recorded_at=AT, arm=Arm.CANDIDATE, rows=tuple(ledger)))
    return evidence_set(records)


def _outcomes(world: EvalWorld, arm: Arm, draws: np.ndarray) -> list[bool]:
    if arm is Arm.BASELINE:
        return list(map(bool, draws[:, 0] < world.skill))
    rng = np.random.default_rng([world.seed, list(Arm).index(arm)])
    fresh = rng.random(len(draws)) < world.discordance
    values = np.where(fresh, rng.random(len(draws)), draws[:, 0])
    return list(map(bool, values < world.skill - (world.loss if arm is Arm.CANDIDATE else 0)))


def _item(suite: str, mark: str, row: EvalRow, sample: int, is_right: bool) -> SuiteItem:
    level = LEVELS[int(row.row[1:]) % len(LEVELS)]
    text = answer_of(suite, row, is_right)
    name = f"{row.row}/k{sample}@c{level}"
    return SuiteItem(
        item=name,
        request_id=f"{suite}-{mark}-{name}r",
        row=row.row,
        sample=sample,
        concurrency=level,
        num_prompt_tokens=PROMPT_TOKENS.get(row.bin, 40),
        token_ids=tuple(text.encode()),
        text=text,
        finish_reason="stop",
        num_completion_tokens=len(text.encode()),
        temperature=0.0 if suite == "mrcr" else 1.0,
        seed=None if suite == "mrcr" else 1000 * int(row.row[1:]) + sample,
    )


def _serve(ledger: list[LedgerRow], items: Sequence[SuiteItem], world: EvalWorld) -> None:
    """A prefill step and a decode step for each item, at the batch of its concurrency."""
    for item in items:
        is_fast = item.concurrency <= MAX_BATCH and world.serves(item.item)
        for is_prefill in (True, False):
            fast = is_fast and not is_prefill
            request = StepRequest(
                request_id=f"chatcmpl-{item.request_id}-5f",
                num_scheduled_tokens=item.num_prompt_tokens if is_prefill else 1,
                num_prefill_tokens=item.num_prompt_tokens if is_prefill else 0,
                num_emitted_tokens=1 if is_prefill else len(item.token_ids) - 1,
            )
            ledger.append(
                LedgerRow(
                    step=len(ledger),
                    started_ns=len(ledger),
                    duration_ns=1,
                    num_reqs=item.concurrency,
                    requests=(request,),
                    decisions=(StepDecision(target=DECISION, specialized=fast, reason="made"),),
                    ran={EXECUTOR: 1} if fast else {PLAIN: 1},
                )
            )


def _suite(suite: str, arm: Arm, items: Sequence[SuiteItem], world: EvalWorld) -> SuiteEvidence:
    return SuiteEvidence(
        tier=Tier.CPU, recorded_at=AT, seed=world.seed, suite=suite, arm=arm, items=tuple(items)
    )


def _control(suite: str, items: Sequence[SuiteItem]) -> SuiteEvidence:
    return SuiteEvidence(
        tier=Tier.CPU,
        recorded_at=AT,
        suite=f"{suite}_control",
        arm=Arm.CANDIDATE,
        perturbation="made noise",
        num_perturbed_calls=10_000,
        items=tuple(items),
    )
