"""Verifying a bundle: its digests hold, and its judgement and report come out the same when made again.

What this shows: the folder is whole, and the judge of this version, given this evidence, says what the bundle says.

What it cannot show by itself: who made the evidence. Someone who edits a record, renames it to its new id, judges again
and writes new digests has made a bundle of their own, and no digest inside it can tell. A signature of a key that the
reader knows, or evidence made again by someone else, closes that. An edit of findings, verdict or report alone is found
even when every digest was written anew, because they are rebuilt here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundles.attestation import Attestation, read_attestations
from bundles.contents import Bundle
from bundles.error import BundleError
from bundles.json_diff import diff_json
from bundles.json_text import parse_json, render_pretty_json
from bundles.layout import CHANGE, JUDGEMENT, REPORT, RO_CRATE, SHA256SUMS
from bundles.reader import Folder, find_digest_problems, load_folder, parse_folder
from bundles.ro_crate import render_ro_crate
from bundles.writer import RenderReport
from harness.model.change import Change
from harness.model.errors import FasttrackError
from harness.model.evidence import AnyEvidence, EnvironmentEvidence
from harness.model.judgement import Judgement
from harness.model.record import render_canonical_json

Decide = Callable[[str, str, Change, Sequence[AnyEvidence]], Judgement]
"""(manifest text, policy text, change, evidence) to judgement; pure, injected by the harness."""
JUDGED_BY_OTHERS = "judged-by-other-sources"
MADE_ANEW = frozenset({"judgement-differs", "report-differs", "ro-crate-differs"})
"""Slugs of differences in what is made from the evidence: other sources of fasttrack may make it otherwise."""
_SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as it should be."""

    slug: str
    where: str
    """A path in the bundle, with a JSON pointer or a line after `#` where it is known; empty for the folder."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What verification found; intact means that nothing differs and that everything was rebuilt."""

    differences: tuple[Difference, ...]
    num_files: int
    num_evidence: int
    rebuilt: Judgement | None
    """None when the bundle could not be read far enough to judge again."""
    attestations: tuple[Attestation, ...] = ()
    """Who signed it; each signature holds and speaks of this bundle."""
    bundle: Bundle | None = None
    """What was verified: whoever reads the folder again may find other files in it."""

    @property
    def intact(self) -> bool:
        """Whether digests, judgement and report all hold."""
        return not self.differences and self.rebuilt is not None

    @property
    def judged_by_others(self) -> bool:
        """Whether nothing differs but what other sources of fasttrack made of evidence that holds."""
        slugs = {difference.slug for difference in self.differences}
        return (
            self.bundle is not None and JUDGED_BY_OTHERS in slugs and slugs <= {JUDGED_BY_OTHERS, *MADE_ANEW}
        )


def verify_bundle(
    folder: Path,
    decide: Decide,
    render_report: RenderReport,
    *,
    judge_sha256: str = "",
    sigstore_root: Path | None = None,
) -> VerifyResult:
    """Digests, judgement and report of the bundle in `folder`, each compared with what it must be.

    Args:
        folder: The bundle.
        decide: The judge.
        render_report: The report's maker.
        judge_sha256: Digest over the sources of both, so that a judgement of other sources is told apart.
        sigstore_root: As in `bundles.keyless.read_keyless`.

    Raises:
        BundleError: there is no such folder.
    """
    try:
        loaded = load_folder(folder)
    except BundleError as error:
        if error.slug == "bundle-not-found":
            raise
        return VerifyResult(differences=(difference_of(error),), num_files=0, num_evidence=0, rebuilt=None)
    differences = [difference_of(problem) for problem in find_digest_problems(loaded)]
    num_files = len(loaded.digests)
    try:
        bundle = parse_folder(loaded)
        rebuilt = decide(bundle.manifest_text, bundle.policy_text, bundle.change, bundle.records)
    except FasttrackError as error:
        found = difference_of(error)
        if found not in differences:
            differences.append(found)
        return VerifyResult(differences=tuple(differences), num_files=num_files, num_evidence=0, rebuilt=None)
    made_anew = _compare_judgements(loaded, rebuilt) or _compare_forms(loaded, bundle)
    made_anew += _compare_reports(loaded, bundle, render_report)
    made_anew += _compare_crates(loaded, bundle)
    differences += [*(_other_judge(bundle, judge_sha256) if made_anew else []), *made_anew]
    attestations: tuple[Attestation, ...] = ()
    try:
        sums = loaded.data.get(SHA256SUMS, b"")
        attestations = read_attestations(loaded.attestations, bundle, sums, sigstore_root)
    except BundleError as error:
        differences.append(difference_of(error))
    return VerifyResult(
        differences=tuple(differences),
        num_files=num_files,
        num_evidence=len(bundle.evidence),
        rebuilt=rebuilt,
        attestations=attestations,
        bundle=bundle,
    )


def difference_of(error: FasttrackError) -> Difference:
    """An error in the shape of every other difference."""
    if isinstance(error, BundleError):
        return Difference(slug=error.slug, where=error.where, message=error.problem)
    return Difference(slug=error.slug, where="", message=error.message)


def _compare_judgements(loaded: Folder, rebuilt: Judgement) -> list[Difference]:
    pairs = diff_json(parse_json(loaded.data[JUDGEMENT], JUDGEMENT), rebuilt.model_dump(mode="json"))
    return [
        Difference(
            slug="judgement-differs",
            where=f"{JUDGEMENT}#{pair.pointer}",
            message=f"The bundle says {_show(pair.stored)}; its evidence gives {_show(pair.rebuilt)}.",
        )
        for pair in pairs
    ]


def _compare_forms(loaded: Folder, bundle: Bundle) -> list[Difference]:
    """Files that say the right thing in other bytes than the writer's; evidence is held to its bytes when read."""
    wanted = {CHANGE: render_pretty_json(bundle.change), JUDGEMENT: render_pretty_json(bundle.judgement)}
    message = "The file was not written by fasttrack: its content is right, its bytes are not."
    return [
        Difference(slug="file-not-canonical", where=path, message=message)
        for path, data in wanted.items()
        if loaded.data[path] != data
    ]


def _compare_crates(loaded: Folder, bundle: Bundle) -> list[Difference]:
    if loaded.data[RO_CRATE] == render_ro_crate(bundle):
        return []
    message = "It is not the description of this bundle."
    return [Difference(slug="ro-crate-differs", where=RO_CRATE, message=message)]


def _other_judge(bundle: Bundle, judge_sha256: str) -> list[Difference]:
    makers = {r.harness_sha256 for r in bundle.records if isinstance(r, EnvironmentEvidence)}
    if not judge_sha256 or makers <= {judge_sha256}:
        return []
    message = (
        f"It was judged by other sources of fasttrack ({', '.join(sorted(m[:12] for m in makers))}) than those that "
        f"judge now ({judge_sha256[:12]}), which may say other things of the same evidence."
    )
    return [Difference(slug=JUDGED_BY_OTHERS, where="", message=message)]


def _compare_reports(loaded: Folder, bundle: Bundle, render_report: RenderReport) -> list[Difference]:
    stored = loaded.data[REPORT]
    rebuilt = render_report(bundle).encode("utf-8")
    if stored == rebuilt:
        return []
    left, right = stored.decode("utf-8", "backslashreplace"), rebuilt.decode("utf-8")
    shorter = min(len(left), len(right))
    at = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    line = left.count("\n", 0, at) + 1
    around = slice(max(at - 20, 0), at + 60)
    message = f"The report says {_show(left[around])}; the bundle gives {_show(right[around])}."
    return [Difference(slug="report-differs", where=f"{REPORT}#line={line}", message=message)]


def _show(value: Any) -> str:
    try:
        text = render_canonical_json(value).decode("utf-8")
    except TypeError:
        text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
