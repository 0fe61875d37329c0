"""The commands on finished bundles: sign, verify, pack, show, diff, merge, reproduce; keys and waivers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from harness.cli_options import (
    PATH,
    option,
    output,
    output_options,
    python_option,
    repo_option,
    report_output_options,
    sigstore_root_option,
)
from harness.model.words import TrustLevel
from harness.options import (
    CombineOptions,
    CommandResult,
    ReproduceOptions,
    SignOptions,
    VerifyOptions,
    WaiveOptions,
)

_key = option(
    "--key", "The private key, of `fasttrack keygen` or `ssh-keygen -t ed25519`.", type=PATH, required=True
)
_passphrase = click.option(
    "--passphrase",
    help="Of the private key.  [env: FASTTRACK_KEY_PASSPHRASE]",
    envvar="FASTTRACK_KEY_PASSPHRASE",
    default="",
)


@click.group("bundle")
def bundle_group() -> None:
    """Verify, sign, pack, compare, join and reproduce bundles."""


@bundle_group.command()
@click.argument("bundle", type=PATH)
@click.option(
    "--key",
    "keys",
    help="Public key that must have signed it; repeatable, one suffices.",
    type=PATH,
    multiple=True,
)
@sigstore_root_option
@output_options
def verify(bundle: Path, keys: tuple[Path, ...], sigstore_root: Path | None, **options: Any) -> CommandResult:
    """Rebuild findings, verdict and report from the evidence and say what differs."""
    from harness.app import bundles

    return bundles.verify(
        VerifyOptions(bundle=bundle, output=output(options), keys=keys, sigstore_root=sigstore_root)
    )


@bundle_group.command()
@click.argument("bundle", type=PATH)
@output_options
def show(bundle: Path, **options: Any) -> CommandResult:
    """Say what a bundle holds and who signed it."""
    from harness.app import bundles

    return bundles.show(VerifyOptions(bundle=bundle, output=output(options)))


@bundle_group.command()
@click.argument("bundle", type=PATH)
@report_output_options
def seal(bundle: Path, **options: Any) -> CommandResult:
    """Judge and seal the evidence of a run that ended early; nothing is asked anew, and what is missing stays so."""
    from harness.app import sealing

    return sealing.seal_begun(VerifyOptions(bundle=bundle, output=output(options)))


@bundle_group.command()
@click.argument("bundle", type=PATH)
@_key
@_passphrase
@click.option(
    "--trust",
    help="What you sign as; the reader's policy decides what your key is worth.",
    type=click.Choice([str(TrustLevel.CONTRIBUTOR), str(TrustLevel.MAINTAINER)]),
    default=str(TrustLevel.CONTRIBUTOR),
    show_default=True,
)
def sign(bundle: Path, key: Path, passphrase: str, trust: str) -> CommandResult:
    """Sign a bundle: DSSE envelopes of two in-toto statements, beside its files."""
    from harness.app import attest

    return attest.sign(SignOptions(bundle=bundle, key=key, passphrase=passphrase, trust=TrustLevel(trust)))


@bundle_group.command()
@click.argument("bundle", type=PATH)
def attest(bundle: Path) -> CommandResult:
    """Sign a bundle without a key, by Sigstore, as the CI job that this runs in. Needs the extra `attest`."""
    from harness.app import attest

    return attest.sign_as_job(bundle)


@bundle_group.command()
@click.argument("bundle", type=PATH)
@click.option("--out", help="The archive.", type=PATH, show_default="BUNDLE.tar.gz")
def pack(bundle: Path, out: Path | None) -> CommandResult:
    """Write a bundle into one file; the other commands take it in place of the folder."""
    from harness.app import attest

    return attest.pack_bundle(bundle, out)


@bundle_group.command()
@click.argument("left", type=PATH)
@click.argument("right", type=PATH)
@output_options
def diff(left: Path, right: Path, **options: Any) -> CommandResult:
    """Compare two bundles cell by cell: outcomes and numbers. Exit code 1 when any differs."""
    from harness.app import bundles

    return bundles.diff(CombineOptions(bundles=(left, right), out=None, output=output(options)))


@bundle_group.command()
@click.argument("bundles", type=PATH, nargs=-1, required=True)
@click.option("--out", help="Folder of the merged bundle.", type=PATH, required=True)
@report_output_options
def merge(bundles: tuple[Path, ...], out: Path, **options: Any) -> CommandResult:
    """Join bundles of one change whose tiers ran on different machines, and judge them together."""
    from harness.app import bundles as use_cases

    return use_cases.merge(CombineOptions(bundles=bundles, out=out, output=output(options)))


@bundle_group.command()
@click.argument("bundle", type=PATH)
@click.argument("cell", required=False)
@click.option(
    "--run",
    help="Make the cell once more and compare; 1 when it differs, 3 when it cannot be made.",
    is_flag=True,
)
@repo_option
@python_option
@output_options
def reproduce(
    bundle: Path, cell: str | None, run: bool, repo: Path, python: Path, **options: Any
) -> CommandResult:
    """Say which commands made a cell: a suite on an arm, a timing, a probe, or all that a check rests on.

    CELL is a cell's name, the id of a record or of a check; without it the cells are listed.
    """
    from harness.app import reproduce

    return reproduce.reproduce(
        ReproduceOptions(bundle=bundle, cell=cell, run=run, repo=repo, python=python, output=output(options))
    )


@click.command()
@click.option("--out", help="The private key's file; the public one gets .pub.", type=PATH, required=True)
@_passphrase
def keygen(out: Path, passphrase: str) -> CommandResult:
    """Make an Ed25519 key pair to sign bundles and waivers with."""
    from harness.app import attest

    return attest.keygen(out, passphrase)


@click.command()
@click.argument("check")
@click.option("--head", help="The commit, 40 hex digits.", required=True)
@click.option("--reason", help="Why the merge may not wait for it.", required=True)
@click.option("--until", help="The last day, UTC.", type=click.DateTime(["%Y-%m-%d"]), required=True)
@click.option("--out", help="The waiver's file.", type=PATH, required=True)
@_key
@_passphrase
def waive(
    check: str, head: str, reason: str, until: datetime, out: Path, key: Path, passphrase: str
) -> CommandResult:
    """Sign that one check need not hold for one commit, until a day; the gate shows it."""
    from harness.app import attest

    return attest.waive(
        WaiveOptions(
            check=check, head=head, reason=reason, until=until.date(), out=out, key=key, passphrase=passphrase
        )
    )
