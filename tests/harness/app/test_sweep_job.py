"""Laws of `fasttrack job`: a return is believed for its signature and its plan, and judged from its records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bundles.error import BundleError
from bundles.keys import PrivateKey, make_private_key, write_key_pair
from harness.app import sweep_job, sweep_question
from harness.app.sweep_question import AskedSweep, read_sweep
from harness.model.errors import ConfigurationError, EvidenceError
from harness.model.words import ExitCode
from harness.options import (
    ChangeOptions,
    CommandResult,
    JobRunOptions,
    JobTakeOptions,
    OutputOptions,
    SweepOptions,
)
from perf_sweeps.block import SweepPlan
from perf_sweeps.journal import RECORDS, Journal
from perf_sweeps.measure import run_here
from perf_sweeps.simulated import Simulation

REPO = Path(__file__).parents[3]


@dataclass(frozen=True)
class Desk:
    """A job, and what was asked with it."""

    job: Path
    options: SweepOptions
    asked: AskedSweep

    def answer(self, out: Path, key: PrivateKey, plan: SweepPlan | None = None) -> Path:
        """A return whose arms answered by arithmetic."""
        self.measure(out, plan or self.asked.plan)
        sweep_job.sign_return(out, key)
        return out

    def measure(self, out: Path, wanted: SweepPlan) -> None:
        journal = Journal(out, wanted, resume=False)
        run_here(
            wanted.tasks(), Simulation(), journal.add, sweep=wanted.digest, code_digest=self.asked.code_digest
        )
        journal.close()

    def take(self, *returns: Path) -> tuple[ExitCode, str]:
        result = sweep_job.take(JobTakeOptions(job=self.job, returns=returns, sweep=self.options))
        return result.exit_code, result.text


@pytest.fixture(scope="module", autouse=True)
def unchanging_judge() -> Iterator[None]:
    """The checkout may be worked on while this file runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_question, "digest_of_judge", lambda: "c" * 64)
        yield


@pytest.fixture(scope="module")
def keys() -> tuple[PrivateKey, PrivateKey]:
    return make_private_key(), make_private_key()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, keys: tuple[PrivateKey, ...]) -> Desk:
    folder = tmp_path_factory.mktemp("job")
    lines = [
        f"[[trust.keys]]\nname = 'k{i}'\npublic_key = '{key.public.line}'\n" for i, key in enumerate(keys)
    ]
    policy = folder / "policy.toml"
    own = (REPO / ".github/fasttrack-policy.toml").read_text("utf-8")
    policy.write_text(own + "\n" + "\n".join(lines), encoding="utf-8")
    options = SweepOptions(
        preset="cpu-quick",
        match="decode/*/b[18]/*",
        change=ChangeOptions(repo=REPO, base="empty", policy=policy),
        out=folder / "job.json",
        output=OutputOptions(format="text", quiet=True),
        num_blocks=5,
        seed=3,
    )
    sweep_job.make(options)
    return Desk(folder / "job.json", replace(options, preset="scope", seed=0), read_sweep(options))


def test_two_returns_of_known_keys_are_judged_anew_and_replicate(
    desk: Desk, keys: tuple[PrivateKey, PrivateKey], tmp_path: Path
) -> None:
    code, text = desk.take(*(desk.answer(tmp_path / str(i), key) for i, key in enumerate(keys)))
    assert (code, text.count("Replicated")) == (ExitCode.ADMIT, 2)


def test_a_job_that_is_run_leaves_one_signed_file_for_the_asker(
    desk: Desk, keys: tuple[PrivateKey, PrivateKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(options: SweepOptions) -> CommandResult:
        desk.measure(options.out, desk.asked.plan)
        return CommandResult(text="", exit_code=ExitCode.UNDECIDED)

    monkeypatch.setattr(sweep_job, "sweep", measured)
    write_key_pair(tmp_path / "key", keys[0], "")
    here = replace(desk.options, out=tmp_path / "out")
    sweep_job.run(JobRunOptions(job=desk.job, sweep=here, key=tmp_path / "key", passphrase=""))
    code, text = desk.take(tmp_path / "out.tar.gz")
    assert code is ExitCode.UNDECIDED
    assert f"{keys[0].public.fingerprint} (contributor): admit" in text


def test_a_record_that_was_changed_after_it_was_signed_is_refused(
    desk: Desk, keys: tuple[PrivateKey, PrivateKey], tmp_path: Path
) -> None:
    out = desk.answer(tmp_path / "out", keys[0])
    with (out / RECORDS).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(BundleError, match="other files"):
        desk.take(out)


def test_a_return_without_a_signature_is_refused(
    desk: Desk, keys: tuple[PrivateKey, PrivateKey], tmp_path: Path
) -> None:
    out = desk.answer(tmp_path / "out", keys[0])
    (out / sweep_job.ENVELOPE).unlink()
    with pytest.raises(BundleError, match="no signed statement"):
        desk.take(out)


def test_a_signed_return_of_another_plan_is_refused(
    desk: Desk, keys: tuple[PrivateKey, PrivateKey], tmp_path: Path
) -> None:
    other = desk.asked.plan.model_copy(update={"seed": 9})
    with pytest.raises(EvidenceError, match="another job"):
        desk.take(desk.answer(tmp_path / "out", keys[0], other))


def test_a_job_of_another_judge_is_refused_before_anything_is_measured(desk: Desk, tmp_path: Path) -> None:
    job = json.loads(desk.job.read_text()) | {"code_digest": "0" * 64}
    (tmp_path / "job.json").write_text(json.dumps(job))
    with pytest.raises(ConfigurationError, match="another judge"):
        replace(desk, job=tmp_path / "job.json").take(tmp_path)
