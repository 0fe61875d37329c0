"""`fasttrack keygen`, `bundle sign`, `bundle pack` and `waive`: what its maker does to evidence that travels."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from bundles.archive import SUFFIX, pack
from bundles.attestation import sign_bundle
from bundles.files import write_atomic
from bundles.keyless import sign_keyless
from bundles.keys import make_private_key, read_private_key, write_key_pair
from bundles.waiver import Waiver, sign_waiver
from bundles.writer import require_outside
from harness.app.intact import read_intact
from harness.app.judging import known_checks
from harness.model.errors import ConfigurationError
from harness.model.words import ExitCode
from harness.options import CommandResult, SignOptions, WaiveOptions


def keygen(out: Path, passphrase: str) -> CommandResult:
    """Makes a key pair."""
    require_outside(out)
    key = make_private_key()
    public = write_key_pair(out, key, passphrase)
    lines = [
        f"private key: {out} (keep it to yourself{'' if passphrase else '; it has no passphrase'})",
        f"public key:  {public}",
        f"fingerprint: {key.public.fingerprint}",
        "A policy that trusts it names its public key under [[trust.keys]].",
    ]
    return CommandResult(text="\n".join(lines), exit_code=ExitCode.ADMIT)


def sign(options: SignOptions) -> CommandResult:
    """Signs a bundle that is intact."""
    key = read_private_key(options.key, options.passphrase)
    read_intact(options.bundle)
    path = sign_bundle(options.bundle, key, options.trust)
    text = f"signed by {key.public.fingerprint}: {options.bundle / path}"
    return CommandResult(text=text, exit_code=ExitCode.ADMIT)


def sign_as_job(bundle: Path) -> CommandResult:
    """Signs a bundle that is intact, keyless, as the CI job that this runs in."""
    read_intact(bundle)
    path = sign_keyless(bundle)
    return CommandResult(text=f"signed as this job: {bundle / path}", exit_code=ExitCode.ADMIT)


def pack_bundle(bundle: Path, out: Path | None) -> CommandResult:
    """Writes a bundle that is intact into one file."""
    read_intact(bundle)
    archive = out or bundle.with_name(bundle.name + SUFFIX)
    require_outside(archive)
    pack(bundle, archive)
    text = f"{archive}: {archive.stat().st_size} bytes"
    return CommandResult(text=text, exit_code=ExitCode.ADMIT)


def waive(options: WaiveOptions) -> CommandResult:
    """Writes a signed waiver."""
    if options.check not in known_checks():
        raise ConfigurationError(
            "unknown-check", f"There is no check {options.check}.", "docs/checks lists them."
        )
    if options.out.exists():
        raise ConfigurationError("out-exists", f"{options.out} exists.", "Name another file with --out.")
    require_outside(options.out)
    if options.until < datetime.now(UTC).date():
        message = f"{options.until} is over, so that the waiver would never count."
        raise ConfigurationError("waiver-over", message, "Name its last day with --until.")
    key = read_private_key(options.key, options.passphrase)
    waiver = Waiver(check=options.check, head=options.head, reason=options.reason, until=options.until)
    write_atomic(options.out, sign_waiver(waiver, key))
    return CommandResult(
        text=f"{options.out}: {waiver.check} waived until {waiver.until}", exit_code=ExitCode.ADMIT
    )
