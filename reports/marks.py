"""How outcomes, verdicts and the other words are written, and what each means."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.words import Arm, ExitCode, Outcome, Principle, Tier, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The signs of an outcome; a reader without colour, or without the glyph, has the letter and the word."""

    outcome: Outcome
    letter: str
    glyph: str
    word: str
    meaning: str


MARKS = {
    mark.outcome: mark
    for mark in (
        Mark(
            outcome=Outcome.FAIL,
            letter="F",
            glyph="✗",
            word="fail",
            meaning="The evidence shows that the claim does not hold. A required check that fails rejects the change.",
        ),
        Mark(
            outcome=Outcome.ERROR,
            letter="E",
            glyph="!",
            word="error",
            meaning="The harness or its machine broke, or a check said nothing: nothing is known about the claim.",
        ),
        Mark(
            outcome=Outcome.INCONCLUSIVE,
            letter="I",
            glyph="?",
            word="inconclusive",
            meaning="It was tested, and the evidence decides neither way: more of it is needed.",
        ),
        Mark(
            outcome=Outcome.NOT_RUN,
            letter="N",
            glyph="○",
            word="not run",
            meaning="It was not tested. This says nothing for or against the change.",
        ),
        Mark(
            outcome=Outcome.PASS,
            letter="P",
            glyph="✓",
            word="pass",
            meaning="The evidence shows that the claim holds, within the margin that the policy sets.",
        ),
        Mark(
            outcome=Outcome.NOT_APPLICABLE,
            letter="–",
            glyph="–",
            word="not applicable",
            meaning="The change does not have what the claim is about.",
        ),
    )
}
"""Worst first."""

WORST_FIRST = tuple(MARKS)

VERDICT_MEANINGS = {
    Verdict.ADMIT: "Every check that the policy requires lets the change through.",
    Verdict.REJECT: "At least one check that the policy requires failed.",
    Verdict.UNDECIDED: "No required check failed, but not everything that the policy requires was shown.",
}

QUESTIONS = {
    Principle.ISOLATION: "Are others left alone?",
    Principle.SCOPE: "Does it serve what it declares?",
    Principle.CORRECTNESS: "Is the result the same?",
    Principle.PERFORMANCE: "Faster, nowhere slower?",
}

TIER_MEANINGS = {
    Tier.STATIC: "Seconds on any laptop; no engine runs.",
    Tier.CPU: "Minutes; the real engine on a CPU with a miniature of the model.",
    Tier.GPU: "One GPU: kernels, and a slice of the real model.",
    Tier.NODE: "One machine with eight GPUs.",
    Tier.CLUSTER: "Sixteen GPUs in one NVLink domain.",
}

TIER_SUBJECTS = {
    Tier.STATIC: "no engine",
    Tier.CPU: "miniature model",
    Tier.GPU: "one GPU",
    Tier.NODE: "eight GPUs",
    Tier.CLUSTER: "sixteen GPUs",
}
"""What runs at a tier, in two words."""

ARM_MEANINGS = {
    Arm.BASELINE: "The engine with the change's switch off.",
    Arm.CANDIDATE: "The engine with the switch on.",
    Arm.BASELINE_AGAIN: "The baseline started a second time: how much two runs of the same code differ.",
}

EXIT_CODE_MEANINGS = {
    ExitCode.ADMIT: "admit",
    ExitCode.REJECT: "reject",
    ExitCode.USAGE: "the command line, the manifest or the policy cannot be used",
    ExitCode.UNDECIDED: "undecided",
    ExitCode.HARNESS: "undecided, because the harness or its machine failed",
    ExitCode.INTERRUPTED: "interrupted",
}

OTHER_WORDS = {
    "interval": "The range that holds the true value at the policy's confidence level, given the spread that was seen.",
    "margin": "How far from the baseline a number may lie; the whole interval must lie on the good side of it.",
    "n": "Independent units behind a number: prompts, items or timed blocks, never tokens or steps of one of them.",
    "A/A": "A second baseline run against the first: how far one engine differs from itself.",
    "negative control": "The same questions while the candidate is made wrong on purpose: the suite must notice.",
    "decode step": "A step of the engine in which no request computes a prompt position; others are prefill or mixed.",
    "specialised, baseline, contradictory": "Which code served a step; contradictory when what was decided and what "
    "ran disagree, which counts for neither.",
    "ledger": "The record of every engine step of one arm: its requests, what was decided and which code ran.",
    "KL": "How far one distribution of next tokens is from another, in nats; equal ones are at nothing.",
    "hand-over": "A step on one path that continues what a step on the other path left behind.",
    "twin": "A run of the same script that never takes the specialised path.",
    "ttft_ms, tpot_ms, ITL": "Time to the first token, time per later token of one request, and time between tokens, "
    "in milliseconds.",
    "required": "The policy asks for this check. Others are advisory: they are shown and do not change the verdict.",
    "evidence": "A record of what was run and seen, named by the digest of its content.",
}
