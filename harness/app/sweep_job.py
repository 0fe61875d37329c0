"""`fasttrack job`: a sweep for somebody else's machine, its signed return, and what several returns say together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bundles.archive import SUFFIX, opened, pack
from bundles.dsse import Envelope, open_envelope, sign
from bundles.error import BundleError
from bundles.files import write_atomic
from bundles.keys import PrivateKey, PublicKey, parse_public_key, read_private_key
from bundles.statement import STATEMENT_TYPE
from harness.app.sweep import assumed_rates, sweep
from harness.app.sweep_question import AskedSweep, read_sweep
from harness.app.sweep_result import margins_of
from harness.config import decode_configuration, read_configuration
from harness.model.errors import ConfigurationError, EvidenceError
from harness.model.record import render_canonical_json
from harness.model.words import ExitCode, Tier, Verdict
from harness.options import CommandResult, JobRunOptions, JobTakeOptions, SweepOptions
from perf_sweeps.analysis import analyse
from perf_sweeps.job import ReplicatedCell, Return, SweepJob, parse_job, replicate
from perf_sweeps.journal import PLAN, RECORDS, RecordIndex, read_plan
from perf_sweeps.price import price_sweep
from reports.shown import visible

PREDICATE = "urn:fasttrack:sweep:v1"
ENVELOPE = "return.dsse.json"
SIGNED = (PLAN, RECORDS)
"""What the signature covers; all else is computed from these two."""
_VERDICT_CODES = {
    Verdict.ADMIT: ExitCode.ADMIT,
    Verdict.REJECT: ExitCode.REJECT,
    Verdict.UNDECIDED: ExitCode.UNDECIDED,
}


def make(options: SweepOptions) -> CommandResult:
    """Writes the job of a sweep to `options.out` and starts nothing."""
    asked = read_sweep(options)
    if options.prompts or options.trace or options.simulate is not None:
        raise ConfigurationError(
            "sweep-job",
            "A job asks for a commit's cells with the prompts that are shipped.",
            "Leave out --prompts, --trace and --simulate.",
        )
    price = price_sweep(asked.plan, assumed_rates(asked, options))
    job = SweepJob(
        head=asked.question.change.head,
        base=options.change.base or "",
        preset=options.preset,
        match=options.match,
        tier=asked.plan.tier,
        num_blocks=options.num_blocks,
        seed=options.seed,
        load=options.load,
        num_gpus=max(c.engine.tensor_parallel for c in asked.plan.cells)
        if asked.plan.tier is Tier.GPU
        else 0,
        gpu_type=options.gpu_type,
        gpu_minutes=price.gpu_minutes,
        sweep=asked.plan.digest,
        code_digest=asked.code_digest,
    )
    write_atomic(options.out, render_canonical_json(job) + b"\n")
    return CommandResult(
        text=f"{options.out}: {len(asked.plan.cells)} cells, sweep {job.sweep[:16]}", exit_code=ExitCode.ADMIT
    )


def run(options: JobRunOptions) -> CommandResult:
    """Measures a job here and packs the signed return.

    Raises:
        ConfigurationError: the clone or the judge here is not the one that the job asks for.
    """
    key = read_private_key(options.key, options.passphrase)
    job = _read_job(options.job)
    asked_for = _options_of(job, options.sweep)
    _require_same(job, read_sweep(asked_for))
    result = sweep(asked_for)
    archive = options.sweep.out.with_name(options.sweep.out.name + SUFFIX)
    sign_return(options.sweep.out, key)
    pack(options.sweep.out, archive)
    return replace(result, text=f"{result.text}\n\nSigned by {key.public.fingerprint}: {archive}")


def sign_return(folder: Path, key: PrivateKey) -> None:
    """Writes a sweep's signed statement into its folder."""
    subjects = [{"name": name, "digest": {"sha256": _digest(folder / name)}} for name in SIGNED]
    predicate = {"sweep": read_plan(folder).digest}
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": predicate,
    }
    write_atomic(
        folder / ENVELOPE, render_canonical_json(sign(render_canonical_json(statement), key)) + b"\n"
    )


def verify_return(folder: Path) -> PublicKey:
    """The key that signed the plan and the records of a folder as they are; raises `BundleError`."""
    try:
        envelope = Envelope.model_validate_json((folder / ENVELOPE).read_bytes())
    except (OSError, ValidationError) as error:
        raise BundleError("attestation-malformed", ENVELOPE, "there is no signed statement.") from error
    payload, key = open_envelope(envelope, ENVELOPE)
    subjects = [{"name": name, "digest": {"sha256": _digest(folder / name)}} for name in SIGNED]
    statement = json.loads(payload)
    if statement.get("predicateType") != PREDICATE or statement.get("subject") != subjects:
        raise BundleError("attestation-other-bytes", ENVELOPE, "it is about other files than these.")
    return key


def take(options: JobTakeOptions) -> CommandResult:
    """Verifies the returns of a job, judges each anew and holds them against each other."""
    job = _read_job(options.job)
    asked = read_sweep(_options_of(job, options.sweep))
    _require_same(job, asked)
    returns = [_read_return(place, asked) for place in options.returns]
    verdict, cells = replicate(returns)
    code = _VERDICT_CODES[verdict]
    if options.sweep.output.format == "json":
        document = {
            "schema_version": 1,
            "verdict": str(verdict),
            "cells": [c.model_dump(mode="json") for c in cells],
            "returns": [r.model_dump(mode="json") for r in returns],
        }
        return CommandResult(text=json.dumps(document, indent=2, allow_nan=False), exit_code=code)
    return CommandResult(text=_render(verdict, cells, returns), exit_code=code)


def _read_job(path: Path) -> SweepJob:
    return parse_job(decode_configuration(read_configuration(path, "job"), str(path), "job"), str(path))


def _options_of(job: SweepJob, here: SweepOptions) -> SweepOptions:
    """The options here, with what the job asks for in their place."""
    change = replace(here.change, head=job.head, base=job.base or here.change.base)
    wanted: dict[str, Any] = {
        name: getattr(job, name)
        for name in ("preset", "match", "tier", "num_blocks", "seed", "load", "gpu_type")
    }
    return replace(here, change=change, **wanted)


def _require_same(job: SweepJob, asked: AskedSweep) -> None:
    if asked.code_digest != job.code_digest:
        raise ConfigurationError(
            "other-code",
            f"The job was made by another judge ({job.code_digest[:12]}) than the one here "
            f"({asked.code_digest[:12]}).",
            "Install the wheel of fasttrack that the job was made with.",
        )
    if asked.plan.digest != job.sweep:
        message = "What the job's words give here is another plan than the job's."
        raise ConfigurationError("other-sweep", message, "Fetch the commit and the base that it names.")


def _read_return(place: Path, asked: AskedSweep) -> Return:
    with opened(place) as folder:
        key = verify_return(folder)
        if read_plan(folder).digest != asked.plan.digest:
            raise EvidenceError("other-sweep", f"{place.name}: it answers another job.")
        index = RecordIndex(folder)
        result = analyse(asked.plan, index.of, margins_of(asked), code_digest=asked.code_digest)
    holders = {
        parse_public_key(k.public_key).fingerprint: str(k.level) for k in asked.question.policy.trust.keys
    }
    return Return(signer=key.fingerprint, trust=holders.get(key.fingerprint, "unknown"), result=result)


def _render(verdict: Verdict, cells: Sequence[ReplicatedCell], returns: Sequence[Return]) -> str:
    lines = [f"{verdict}: {len(returns)} returns of one job"]
    lines += [f"  {r.signer} ({r.trust}): {r.result.verdict}" for r in returns]
    for cell in cells:
        optional = "" if cell.is_required else " (not required)"
        lines += [f"{cell.outcome:<13} {cell.cell}{optional}", f"              {cell.message}"]
    return "\n".join(visible(line) for line in lines)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
