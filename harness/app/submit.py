"""`fasttrack submit`: checks and packs a bundle, and says what to attach to the pull request.

GitHub has no call that attaches a file to a pull request, so a person does that; a maintainer takes it in by hand as
well, since nothing that a contributor writes may start a job that holds a token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from bundles.archive import SUFFIX, opened, pack
from bundles.attestation import Attestation
from bundles.contents import Bundle
from bundles.merge import supplied_tiers
from harness.app.intact import read_intact
from harness.github.calls import GitHub
from harness.github.options import SubmitOptions
from harness.github.transport import Transport
from harness.model.errors import ConfigurationError
from harness.model.words import ExitCode, Tier, Verdict
from harness.options import CommandResult
from reports.shown import visible

MAX_ATTACHMENT_BYTES = 25_000_000
"""GitHub takes attachments of 25 MB."""


def submit(options: SubmitOptions) -> CommandResult:
    """What to attach, what it is, and what of it keeps the gate shut.

    Raises:
        BundleError: the bundle is not intact.
        ConfigurationError: it is of another commit than the pull request's head, too large to attach, or a pull request
            is named without its repository.
    """
    with opened(options.bundle) as folder:
        intact = read_intact(folder)
        archive = _packed(options.bundle, folder)
    bundle = intact.bundle
    _check_head(options, bundle)
    size = archive.stat().st_size
    if size > MAX_ATTACHMENT_BYTES:
        message = f"{archive} has {size} bytes; GitHub takes attachments of {MAX_ATTACHMENT_BYTES}."
        advice = "Lay it where a maintainer can fetch it, and give its sha256 in the pull request."
        raise ConfigurationError("submit-too-large", message, advice)
    return CommandResult(
        text="\n".join(_lines(archive, bundle, intact.attestations)), exit_code=ExitCode.ADMIT
    )


def _packed(given: Path, folder: Path) -> Path:
    if given.is_file():
        return given
    archive = given.resolve().with_name(given.resolve().name + SUFFIX)
    pack(folder, archive)
    return archive


def _check_head(options: SubmitOptions, bundle: Bundle) -> None:
    if options.pull_request is None:
        return
    if not options.repository:
        message = f"In which repository is #{options.pull_request}?"
        raise ConfigurationError("no-repository", message, "Name it with --repository OWNER/NAME.")
    github = GitHub(Transport(options.token, url=options.api_url), options.repository)
    head = github.pull_request(options.pull_request).head.sha
    if bundle.change.head != head:
        message = (
            f"The bundle is of {bundle.change.head[:12]}; the head of #{options.pull_request} is {head[:12]}."
        )
        raise ConfigurationError("submit-stale", message, "Validate the head, and submit that bundle.")


def _lines(archive: Path, bundle: Bundle, attestations: Sequence[Attestation]) -> list[str]:
    signers = ", ".join(f"`{a.signer.fingerprint}`" for a in attestations)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return [
        *_warnings(bundle),
        f"Attach this file to the pull request: {archive} ({archive.stat().st_size} bytes)",
        "and write beside it:",
        "",
        f"    fasttrack bundle of {bundle.change.head}",
        f"    tiers: {', '.join(tier for tier in Tier if tier in supplied_tiers(bundle))}",
        f"    verdict of the bundle: {bundle.judgement.verdict}",
        f"    bundle: {bundle.content_sha256}",
        f"    sha256 of the file: {digest}",
        f"    signed by: {signers or 'nobody (`fasttrack bundle sign` signs it)'}",
        "",
        "A maintainer takes it in with the link of the attachment: docs/gpu-machine.md says how.",
    ]


def _warnings(bundle: Bundle) -> list[str]:
    """Why the gate will not admit it, as far as the bundle itself tells."""
    warnings = []
    if bundle.change.limited_to:
        warnings.append(
            "The gate will refuse it: it was made with --paths and leaves out a part of the change."
        )
    if bundle.judgement.verdict is Verdict.REJECT:
        warnings.append(visible(f"Under its own policy it rejects the change: {bundle.judgement.reason}"))
    return [*warnings, ""] if warnings else []
