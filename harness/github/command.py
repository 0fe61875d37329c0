"""`fasttrack github` and `fasttrack submit`: options only; the work is imported when the command runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from harness.cli_options import PATH, repo_option
from harness.options import CommandResult

_EPILOG = "Exit codes: those of `fasttrack gate`; 4 also when GitHub refused or did not answer."
_repository = click.option(
    "--repository", help="owner/name.  [env: GITHUB_REPOSITORY]", envvar="GITHUB_REPOSITORY", required=True
)
_api_url = click.option(
    "--api-url",
    help="GitHub's API.  [env: GITHUB_API_URL]",
    envvar="GITHUB_API_URL",
    default="https://api.github.com",
    show_default=True,
)


@click.group("github")
def github_group() -> None:
    """Say on GitHub what the gate says."""


@github_group.command(epilog=_EPILOG)
@click.option(
    "--event",
    help="The workflow's event.  [env: GITHUB_EVENT_PATH]",
    envvar="GITHUB_EVENT_PATH",
    type=PATH,
    required=True,
)
@click.option(
    "--event-name", help="Its name.  [env: GITHUB_EVENT_NAME]", envvar="GITHUB_EVENT_NAME", default=""
)
@_repository
@click.option(
    "--bundle",
    "bundles",
    help="A bundle of the head; repeatable.",
    type=PATH,
    multiple=True,
    show_default="those that workflow runs uploaded for the head",
)
@click.option("--waiver", "waivers", help="File of `fasttrack waive`; repeatable.", type=PATH, multiple=True)
@repo_option
@click.option(
    "--policy",
    help="Policy file.",
    type=PATH,
    show_default=".github/fasttrack-policy.toml of the clone's files",
)
@click.option("--check-name", help="Of the check run.", default="fasttrack", show_default=True)
@click.option(
    "--comment-author",
    help="Who the token writes as: only that account's comment is written anew.",
    default="github-actions[bot]",
    show_default=True,
)
@click.option(
    "--summary",
    help="The job summary to add to.  [env: GITHUB_STEP_SUMMARY]",
    envvar="GITHUB_STEP_SUMMARY",
    type=PATH,
)
@click.option("--out", help="Folder for the report that shows the decision, and what it rests on.", type=PATH)
@_api_url
def publish(**options: Any) -> CommandResult:
    """Gate bundles as data; write check run, comment, annotations, code scanning and job summary.

    The token comes from GITHUB_TOKEN. Nothing of the pull request is imported or run.
    """
    from harness.app import publishing
    from harness.github.options import PublishOptions

    return publishing.publish(
        PublishOptions(token=_token(), run_url=_run_url(options["repository"]), **options)
    )


@click.command()
@click.argument("bundle", type=PATH)
@click.option(
    "--repository",
    help="owner/name of the pull request's repository.  [env: GITHUB_REPOSITORY]",
    envvar="GITHUB_REPOSITORY",
    default="",
)
@click.option("--pull-request", help="Its number: whether the bundle is of its head is looked up.", type=int)
@_api_url
def submit(bundle: Path, repository: str, pull_request: int | None, api_url: str) -> CommandResult:
    """Check and pack a bundle, and say what to attach to the pull request, and where."""
    from harness.app import submit
    from harness.github.options import SubmitOptions

    return submit.submit(
        SubmitOptions(
            bundle=bundle, repository=repository, pull_request=pull_request, token=_token(), api_url=api_url
        )
    )


def _token() -> str:
    """From the environment only: a command line can be read by others."""
    return os.environ.get("GITHUB_TOKEN", "")


def _run_url(repository: str) -> str:
    """Where the log of the workflow run is in which this is called; empty outside of one."""
    server, run = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_RUN_ID")
    return f"{server}/{repository}/actions/runs/{run}" if server and run else ""
