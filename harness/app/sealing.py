"""Evidence becomes a bundle: judged, sealed and said; `fasttrack bundle seal` does it for a run that did not end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from bundles.machine_names import this_machine
from bundles.partial import read_begun
from bundles.scrub import Scrubber
from bundles.writer import EvidenceStore, seal
from harness.app.judgement_text import render_judgement
from harness.app.judging import decide, render_report
from harness.app.recorder import Progress, Recorder
from harness.app.resuming import unproven
from harness.model.change import Change
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence
from harness.model.words import Tier
from harness.options import CommandResult, OutputOptions, VerifyOptions

INTERRUPTED = "the run ended before it, and its evidence was sealed as it stood"
"""Why a required tier is missing of which nothing was recorded."""


class Asked(Protocol):
    """What evidence is judged under."""

    @property
    def manifest_text(self) -> str:
        """The change's manifest."""

    @property
    def policy_text(self) -> str:
        """What it is held to."""

    @property
    def change(self) -> Change:
        """Its commits."""


def judge_and_seal(
    out: Path, asked: Asked, records: Sequence[AnyEvidence], scrubber: Scrubber, output: OutputOptions
) -> CommandResult:
    """Judges the records that lie in `out`, seals them there, and says what came out."""
    judgement = decide(asked.manifest_text, asked.policy_text, asked.change, records)
    seal(
        out,
        manifest_text=asked.manifest_text,
        policy_text=asked.policy_text,
        judgement=judgement,
        render_report=render_report,
        scrubber=scrubber,
    )
    return CommandResult(text=render_judgement(judgement, out, output), exit_code=judgement.exit_code)


def seal_begun(options: VerifyOptions) -> CommandResult:
    """Judges what a begun bundle holds, whatever sources of fasttrack collected it, and asks nothing anew.

    What was not recorded stays absent: a required tier of which there is nothing becomes a gap, and a check without its
    evidence is not run. Run it where the evidence was made: raw files are scrubbed by this machine's names.

    Raises:
        ConfigurationError: nothing was begun there, it is sealed, or answers are in it whose server's ledger is not.
        BundleError: a record cannot be read back.
    """
    begun = read_begun(options.bundle)
    scrubber = this_machine(
        public=begun.manifest_text + begun.policy_text, verbatim=begun.change.head_subject
    )
    recorder = Recorder(
        sink=EvidenceStore(options.bundle, kept=begun.records, scrubber=scrubber),
        scrub=scrubber.record,
        progress=Progress(quiet=options.output.quiet),
        records=list(begun.records),
    )
    if lost := unproven(recorder.evidence):
        message = f"No ledger was recorded of the servers of {', '.join(lost)}: the answers prove nothing."
        raise ConfigurationError("seal-unproven", message, "Finish the run with `validate --resume`.")
    recorded = {record.tier for record in recorder.records}
    for tier in begun.policy.required:
        if tier is not Tier.STATIC and tier not in recorded:
            recorder.gap(tier, f"tier {tier}", INTERRUPTED, broke=False)
    return judge_and_seal(options.bundle, begun, recorder.evidence.records, scrubber, options.output)
