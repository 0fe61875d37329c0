"""`fasttrack validate`: collects evidence for a change, judges it, writes bundle and report."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bundles.machine_names import this_machine
from bundles.partial import begin
from bundles.scrub import Scrubber
from bundles.scrub_forms import PUBLISHED
from bundles.writer import EvidenceStore
from harness.app.cpu_tier import CpuRun, collect_cpu_tier
from harness.app.gpu_tier import collect_gpu_tier
from harness.app.judging import known_checks
from harness.app.kernel_tests import record_kernel_tests
from harness.app.kernels import KernelRun, collect_kernels
from harness.app.own_tests import own_tests_of
from harness.app.reaching import StaticQuestion
from harness.app.recorder import Progress, Recorder, utc_now
from harness.app.resuming import RUN_FOLDER, is_awaited, mark_run, recover, reopened
from harness.app.sealing import judge_and_seal
from harness.app.static_tier import collect_text
from harness.app.suite_plan import SIZES
from harness.app.sweep_evidence import record_sweeps
from harness.config import (
    DEFAULT_MANIFEST,
    DEFAULT_POLICY,
    decode_configuration,
    load_manifest,
    load_policy,
    read_configuration,
)
from harness.facts.environment import can_run, collect_environment
from harness.facts.git import Repository
from harness.facts.packages import RECORDED, digest_of_judge
from harness.model.change import EMPTY_TREE, Change
from harness.model.errors import ConfigurationError
from harness.model.evidence import ChangedFilesEvidence, OwnersEvidence, SubjectEvidence, WaitSourceEvidence
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.words import ExitCode, Tier
from harness.options import ChangeOptions, CommandResult, ValidateOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: the change, what it declares and what it is held to."""

    repository: Repository
    change: Change
    changed_files: ChangedFilesEvidence
    manifest: Manifest
    manifest_text: str
    policy: Policy
    policy_text: str

    @property
    def public_text(self) -> str:
        """What the repository publishes in any case: a name that stands in it is no secret of a machine."""
        return "\n".join((self.manifest_text, self.policy_text, *RECORDED, self._paths))

    @property
    def published(self) -> Scrubber:
        """Scrubs the head's message and the paths by nothing but what git holds: alike here and at the gate."""
        return Scrubber(public=self._paths, left=PUBLISHED - {"<email>"})

    @property
    def _paths(self) -> str:
        paths = {file.path for file in self.changed_files.files}
        paths.update(self.repository.paths(self.change.head))
        return "\n".join(sorted(paths))


def read_question(options: ChangeOptions) -> Question:
    """Reads change, manifest and policy; raises `ConfigurationError` for anything that cannot be used."""
    repository = Repository(options.repo)
    change, diff = repository.change(options.base, options.head, options.paths)
    manifest_text = configuration_text(
        repository, options.manifest, "manifest", DEFAULT_MANIFEST, change.head
    )
    policy_text = configuration_text(repository, options.policy, "policy", DEFAULT_POLICY, change.held_by)
    manifest = load_manifest(manifest_text, str(options.manifest or DEFAULT_MANIFEST))
    policy = load_policy(policy_text, str(options.policy or DEFAULT_POLICY), known_checks=known_checks())
    changed = ChangedFilesEvidence(
        tier=Tier.STATIC,
        recorded_at=utc_now(),
        command=("git", "diff-tree", "-r", "-M", "-C", change.merge_base, change.head),
        files=diff.files,
        num_not_judged=diff.num_not_judged,
    )
    return Question(
        repository=repository,
        change=change,
        changed_files=changed,
        manifest=manifest,
        manifest_text=manifest_text,
        policy=policy,
        policy_text=policy_text,
    )


def configuration_text(
    repository: Repository, given: Path | None, kind: str, default: str, commit: str
) -> str:
    """The text of the file that was named, or of the default file as the commit has it."""
    if given is not None:
        content = read_configuration(given, kind)
    else:
        first = repository.read(commit, default)
        if first is None:
            raise ConfigurationError(
                f"no-{kind}",
                f"There is no {default} in commit {commit[:12]}.",
                f"Commit one, or name one with --{kind}. README.md shows how to begin.",
            )
        content = first
    return decode_configuration(content, str(given or default), kind)


def validate(
    options: ValidateOptions,
    *,
    collect_cpu: Callable[[CpuRun], None] = collect_cpu_tier,
    collect_gpu: Callable[[CpuRun], None] = collect_gpu_tier,
) -> CommandResult:
    """Judges the change and leaves bundle and report in `options.out`.

    An interrupted run stops its servers, keeps its evidence, and is judged as far as it went; it ends with exit
    code 130.
    """
    question = read_question(options.change)
    question = replace(question, change=question.published.record(question.change))
    scrubber = scrubber_for(question)
    progress = Progress(quiet=options.output.quiet)
    if (options.kernel_tests or options.sweeps) and options.change.tier.rank < Tier.GPU.rank:
        message = "Records of the kernels' tests and of sweeps are evidence of the gpu tier."
        raise ConfigurationError("recorded-tier", message, "Ask for it: --tier gpu.")
    recorder = open_recorder(question, options, progress, scrubber)
    interrupted = False
    try:
        collect_static(question, options, recorder)
        record_kernel_tests(question, options.kernel_tests, recorder)
        record_sweeps(options.sweeps, recorder, digest_of_judge())
        collect_tiers(question, options, recorder, {Tier.CPU: collect_cpu, Tier.GPU: collect_gpu})
    except KeyboardInterrupt:
        interrupted = True
        collected = {record.tier for record in recorder.records}
        for tier in question.policy.required:
            if tier is not Tier.STATIC and tier not in collected:
                recorder.gap(tier, f"tier {tier}", "the run was interrupted before it", broke=False)
    progress.say("judging")
    result = judge_and_seal(options.out, question, recorder.evidence.records, scrubber, options.output)
    progress.say(f"report: {options.out / 'report.html'}")
    return replace(result, exit_code=ExitCode.INTERRUPTED) if interrupted else result


def scrubber_for(question: Question) -> Scrubber:
    """What takes names out of evidence made here, and leaves the head's message as git has it.

    Raises:
        ConfigurationError: that message or the path of a changed file holds a secret of this machine. Without it the
            bundle would be of another change for the gate, which does not know the secret.
    """
    scrubber = this_machine(public=question.public_text, verbatim=question.change.head_subject)
    texts = question.change.head_subject + question.changed_files.model_dump_json()
    found = [f"<{variable}>" for secret, variable in scrubber.names.secrets.items() if secret in texts]
    if found:
        raise ConfigurationError(
            "change-names-secret",
            f"The head's message or a changed path holds {', '.join(found)}.",
            "Git publishes it: write another commit. Where the value is no secret, unset the variable.",
        )
    return scrubber


def open_recorder(
    question: Question, options: ValidateOptions, progress: Progress, scrubber: Scrubber
) -> Recorder:
    """Begins the bundle, or takes up the one that a killed run began, and says on what machine this is."""
    command = ("fasttrack", "validate", "--profile", options.profile)
    # As it is kept: every record names the machine as this one does.
    environment = scrubber.record(collect_environment(Tier.STATIC).model_copy(update={"command": command}))
    about = {"manifest_text": question.manifest_text, "policy_text": question.policy_text}
    kept = None
    if options.resume:
        kept = reopened(options.out, environment, change=question.change, **about)
        progress.say(f"{len(kept)} records are in evidence")
    recorder = Recorder(
        sink=EvidenceStore(options.out, replace=kept is None, kept=kept, scrubber=scrubber),
        scrub=scrubber.record,
        progress=progress,
        hardware=environment.machine,
        records=list(kept or ()),
    )
    if kept is None:
        recorder.record(environment)
        begin(options.out, change=question.change, scrubber=scrubber, **about)
        recorder.record(question.published.record(question.changed_files))
    else:
        recover(options.out, recorder)
    return recorder


def collect_static(question: Question, options: ValidateOptions, recorder: Recorder) -> None:
    """Collects what text and compilers show, but what is in evidence already."""
    evidence = recorder.evidence
    if not evidence.of(OwnersEvidence):
        collect_text(static_question(question), recorder)
    if not evidence.of(WaitSourceEvidence):
        collect_kernels(_kernel_run(question, options), recorder)


def static_question(question: Question) -> StaticQuestion:
    """What the readers of the change's text need."""
    return StaticQuestion(
        repository=question.repository,
        change=question.change,
        changed=question.changed_files,
        manifest=question.manifest,
        policy=question.policy,
    )


def _kernel_run(question: Question, options: ValidateOptions) -> KernelRun:
    return KernelRun(
        section=question.manifest.kernels,
        repository=question.repository,
        commit=question.change.head,
        manifest=options.change.manifest,
        python=options.python,
        quiet=options.output.quiet,
    )


def collect_tiers(
    question: Question,
    options: ValidateOptions,
    recorder: Recorder,
    collectors: Mapping[Tier, Callable[[CpuRun], None]],
) -> None:
    """Collects every tier up to the one that was asked for that this machine can run and that has a collector.

    Each of the others that the policy requires or the user asked for leaves a gap that says why.
    """
    tier = options.change.tier
    for wanted in Tier:
        if wanted is Tier.STATIC or (wanted not in question.policy.required and wanted.rank > tier.rank):
            continue
        able, why_not = can_run(wanted)
        if wanted in collectors and able and (why_not := question.manifest.why_not_on_a_cpu):
            able = False
        if wanted.rank > tier.rank:
            reason = f"it was not asked for (--tier {tier})" + (f"; {why_not}" if why_not else "")
            recorder.gap(wanted, f"tier {wanted}", reason, broke=False)
        elif not able:
            recorder.gap(wanted, f"tier {wanted}", why_not, broke=False)
        elif wanted in collectors:
            remove_abandoned_folders(options.out)
            prefix = f"{RUN_FOLDER}{os.getpid()}-"
            with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
                mark_run(Path(folder), options.out)
                run_cpu_tier(question, options, recorder, Path(folder), collectors[wanted], wanted)


def remove_abandoned_folders(out: Path) -> None:
    """Removes the working folders of runs that were killed: the process that their name carries is gone.

    Those stay with which `--resume` can finish another bundle than `out`.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{RUN_FOLDER}*"):
        owner = folder.name.removeprefix(RUN_FOLDER).partition("-")[0]
        is_gone = owner.isdigit() and not Path(f"/proc/{owner}").exists()
        if is_gone and not is_awaited(folder, out):
            shutil.rmtree(folder, ignore_errors=True)


def run_cpu_tier(
    question: Question,
    options: ValidateOptions,
    recorder: Recorder,
    workdir: Path,
    collect: Callable[[CpuRun], None],
    tier: Tier = Tier.CPU,
) -> None:
    """Writes both commits' files for the arms to import, records the head's digests, and collects."""
    manifest, change = question.manifest, question.change
    arms_folder = workdir / "arms"
    arms_folder.mkdir()
    import_path = workdir / "head"
    globs = [f"{root}/**" for root in manifest.paths.import_roots]
    files = question.repository.export(change.head, globs, import_path)
    if not recorder.evidence.of(SubjectEvidence):
        recorder.record(SubjectEvidence(tier=tier, recorded_at=utc_now(), commit=change.head, files=files))
    base_path = workdir / "base"
    base_path.mkdir()
    if change.merge_base != EMPTY_TREE:
        question.repository.export(change.merge_base, globs, base_path)
    tasks_root = workdir / "tasks"
    tasks_root.mkdir()
    # Task definitions can hold code: a change must not bring what it is judged by.
    tasks = [f"{task.include_path}/**" for task in manifest.evals.lm_eval if task.include_path]
    if tasks:
        question.repository.export(change.held_by, tasks, tasks_root)
    found = manifest.models.slice
    collect(
        CpuRun(
            manifest=manifest,
            recorder=recorder,
            change=change,
            import_path=import_path,
            base_path=base_path,
            workdir=arms_folder,
            data_root=options.change.repo,
            tasks_root=tasks_root,
            slice_config=None if found is None else question.repository.read(change.head, found.config),
            slice_weights=question.repository.read(change.head, found.weights.partition(":")[0])
            if found is not None and found.weights
            else None,
            own_tests=own_tests_of(static_question(question), recorder, workdir / "own_tests"),
            sizes=SIZES[options.profile],
        )
    )
