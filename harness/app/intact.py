"""A finished bundle, for whoever acts on what it says: its judgement was made again and came out the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bundles.attestation import Attestation
from bundles.contents import Bundle
from bundles.error import BundleError
from bundles.verify import VerifyResult, verify_bundle
from harness.app.collector import collector_paused
from harness.app.judging import decide, render_report
from harness.facts.packages import digest_of_judge
from harness.model.words import ExitCode

JUDGE_AGAIN = (
    "`fasttrack bundle merge BUNDLE --out NEW` judges its evidence with the fasttrack that runs here, as `fasttrack "
    "gate` does by itself; the fasttrack that judged it can tell whether its verdict is what it gave."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntactBundle:
    """What was verified, and who signed it."""

    bundle: Bundle
    attestations: tuple[Attestation, ...]


def read_intact(folder: Path) -> IntactBundle:
    """The bundle in `folder`, verified whole.

    Raises:
        BundleError: anything in it is not as it was sealed, or does not follow from its evidence.
    """
    with collector_paused():
        result = verify_bundle(folder, decide, render_report, judge_sha256=digest_of_judge())
    if result.judged_by_others:
        first = result.differences[0]
        raise BundleError(first.slug, first.where, first.message, JUDGE_AGAIN)
    if result.bundle is None or not result.intact:
        first, number = result.differences[0], len(result.differences)
        message = (
            f"NOT intact, {number} difference{'s' if number > 1 else ''}: {first.message} [{first.slug}]"
        )
        raise BundleError(
            "bundle-not-intact", first.where, message, "`fasttrack bundle verify` names them all."
        )
    return IntactBundle(bundle=result.bundle, attestations=result.attestations)


def exit_code_of(result: VerifyResult) -> ExitCode:
    """Whether a bundle is as it was sealed: undecided where only another fasttrack can say."""
    if result.judged_by_others:
        return ExitCode.UNDECIDED
    return ExitCode.ADMIT if result.intact else ExitCode.HARNESS
