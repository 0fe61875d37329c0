"""`fasttrack github publish`: gates bundles as data and says on the pull request what came out, whatever it was.

Runs with a token that writes, in a workflow of the base repository: nothing of the pull request is imported or run, its
commits are read as git objects, its bundles as data. A check run is there before anything is looked at, in progress,
which lets nothing through; it ends as a failure unless the gate admits.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.app.gate import rule
from harness.app.gate_text import (
    Answer,
    render_annotations,
    render_comment,
    render_summary,
    render_title,
)
from harness.app.gate_view import view_of, write_gate_folder
from harness.app.judgement_text import PAGES
from harness.config import DEFAULT_POLICY
from harness.github.artifact import collect_bundles
from harness.github.calls import CheckRun, Conclusion, GitHub, Output, PullRequest
from harness.github.clock import Clock
from harness.github.event import Event, read_event, refuse_untrusted
from harness.github.limits import MAX_ANNOTATIONS_A_REQUEST, MAX_SUMMARY_HEAD, cut_text
from harness.github.options import PublishOptions
from harness.github.pull_request import find_pull_request
from harness.github.sticky_comment import write_comment
from harness.github.transport import GitHubError, Transport
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.words import ExitCode, Verdict
from harness.options import CommandResult, GateOptions, OutputOptions
from reports.job_summary import render_job_summary
from reports.sarif import render_sarif

_UNPROCESSABLE = 422


def publish(options: PublishOptions, *, clock: Clock | None = None) -> CommandResult:
    """Writes check run, comment, annotations, code scanning and job summary; ends as the gate does.

    Raises:
        ConfigurationError: no token, or an event whose run must not write; nothing was written then.
        GitHubError: the check run could not be written.
    """
    if not options.token:
        raise ConfigurationError("no-token", "GITHUB_TOKEN is not set.", "docs/github.md shows the job.")
    event = read_event(options.event, options.event_name)
    refuse_untrusted(event, options.repository)
    transport = Transport(options.token, url=options.api_url, clock=clock)
    publisher = _Publisher(options, event, GitHub(transport, options.repository))
    return publisher.run()


@dataclass(frozen=True, slots=True)
class _Publisher:
    options: PublishOptions
    event: Event
    github: GitHub

    def run(self) -> CommandResult:
        name, run_url = self.options.check_name, self.options.run_url
        check = self.github.create_check_run(name, self.event.head_sha, _STARTED, run_url)
        broken = Answer(verdict=Verdict.UNDECIDED, code=ExitCode.HARNESS, lines=(_BROKE,))
        concluded = False
        try:
            pull, answer = self._answer()
            notes = self._tell(check, pull, answer) if pull is not None else ()
            if pull is not None and (moved := self._moved(pull.number)):
                answer = moved
            self._conclude(check, answer, notes)
            concluded = True
        finally:
            if not concluded:
                self._conclude(check, broken, ())
        self._write_job_summary(answer, notes)
        lines = [render_title(answer), *answer.lines, *notes]
        return CommandResult(text="\n".join(lines), exit_code=answer.code)

    def _answer(self) -> tuple[PullRequest | None, Answer]:
        """What the gate says; the pull request when there is one whose head it concerns."""
        pull = None
        try:
            pull = find_pull_request(self.github, self.event)
            with tempfile.TemporaryDirectory(prefix="fasttrack-publish-") as folder:
                bundles = self.options.bundles or tuple(
                    collect_bundles(self.github, pull, self.event.head_sha, Path(folder))
                )
                answer = self._gate(bundles, pull) if bundles else _missing(self.event)
        except FasttrackError as error:
            answer = Answer(
                verdict=Verdict.UNDECIDED,
                code=ExitCode.HARNESS,
                lines=(f"{error.message} [{error.slug}]", *([error.advice] if error.advice else [])),
            )
        moved = self._moved(pull.number) if pull is not None else None
        return (None, moved) if moved else (pull, answer)

    def _gate(self, bundles: Sequence[Path], pull: PullRequest) -> Answer:
        """The gate's word under the policy of the trusted checkout, never one of the pull request or of an old base."""
        policy = self.options.policy or self.options.repo / DEFAULT_POLICY
        ruling = rule(
            GateOptions(
                bundles=tuple(bundles),
                repo=self.options.repo,
                base=pull.base.sha,
                head=self.event.head_sha,
                policy=policy,
                output=OutputOptions(quiet=True),
                waivers=self.options.waivers,
            )
        )
        if self.options.out is not None:
            write_gate_folder(ruling, self.options.out)
        return Answer(
            verdict=ruling.verdict,
            code=ruling.code,
            lines=(*ruling.lines, ruling.about),
            view=view_of(ruling),
            waived=tuple(r.waiver.check for r in ruling.waivers if not r.refusal),
            is_from_fork=pull.is_from_fork,
        )

    def _tell(self, check: CheckRun, pull: PullRequest, answer: Answer) -> tuple[str, ...]:
        """Writes comment and code scanning; what GitHub refuses is said in the check run and changes no verdict."""
        notes = []
        text = render_comment(answer, self.event.head_sha, check.html_url)
        try:
            write_comment(self.github, pull.number, text, self.options.comment_author)
        except GitHubError as error:
            notes.append(f"The comment was not written: {error.message}")
        if answer.view is not None:
            try:
                ref = f"refs/pull/{pull.number}/head"
                self.github.upload_sarif(
                    self.event.head_sha, ref, render_sarif(answer.view, os.environ.get(PAGES, ""))
                )
            except GitHubError as error:
                notes.append(f"Code scanning did not take the SARIF log: {error.message}")
        return tuple(notes)

    def _moved(self, number: int) -> Answer | None:
        """The answer that what was judged is the head no more; None while it is, and where GitHub cannot say."""
        pull = self.github.pull_request(number)
        return _stale(self.event, pull) if pull.head.sha != self.event.head_sha else None

    def _conclude(self, check: CheckRun, answer: Answer, notes: Sequence[str]) -> None:
        """Ends the check run; annotations that GitHub does not take must not keep it from ending."""
        annotations = render_annotations(answer.view)
        try:
            self._update(check, answer, notes, annotations)
        except GitHubError as error:
            if error.status != _UNPROCESSABLE or not annotations:
                raise
            self._update(check, answer, (*notes, f"The annotations were not taken: {error.message}"), [])

    def _update(
        self, check: CheckRun, answer: Answer, notes: Sequence[str], annotations: Sequence[dict[str, Any]]
    ) -> None:
        admits = answer.verdict is Verdict.ADMIT and answer.code is ExitCode.ADMIT
        title, summary = render_title(answer), render_summary(answer, notes)
        step = MAX_ANNOTATIONS_A_REQUEST
        for start in range(0, max(len(annotations), 1), step):
            batch = annotations[start : start + step]
            is_last = start + step >= len(annotations)
            conclusion: Conclusion | None = ("success" if admits else "failure") if is_last else None
            output = Output(title=title, summary=summary, annotations=batch)
            self.github.update_check_run(check, output, conclusion, num_before=start)

    def _write_job_summary(self, answer: Answer, notes: Sequence[str]) -> None:
        if self.options.summary is None:
            return
        text = cut_text(render_summary(answer, notes, with_view=False), MAX_SUMMARY_HEAD)
        text += render_job_summary(answer.view) if answer.view else ""
        with self.options.summary.open("a", encoding="utf-8") as file:
            file.write(text)


_STARTED = Output(
    title="The bundles are being read",
    summary="Where this stays, the publishing run was killed: nothing is shown of the change. Run it again.",
)
_BROKE = "fasttrack broke while it judged: its own run shows where. Nothing is shown of the change."


def _stale(event: Event, pull: PullRequest) -> Answer:
    line = (
        f"The head of #{pull.number} is {pull.head.sha[:12]} now; what was judged is {event.head_sha[:12]},"
        " which is stale. Its own run speaks for the new head."
    )
    return Answer(verdict=Verdict.UNDECIDED, code=ExitCode.HARNESS, lines=(line,), is_stale=True)


def _missing(event: Event) -> Answer:
    ended = f" Run {event.run_id} ended with: {event.run_conclusion or 'nothing'}." if event.run_id else ""
    line = f"No bundle of {event.head_sha[:12]} was uploaded, so there is no evidence.{ended}"
    return Answer(verdict=Verdict.UNDECIDED, code=ExitCode.HARNESS, lines=(line,))
