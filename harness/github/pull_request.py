"""Which pull request a run belongs to, and whether its head is still the one that was judged."""

from __future__ import annotations

from harness.github.calls import GitHub, PullRequest
from harness.github.event import Event
from harness.model.errors import ConfigurationError


def find_pull_request(github: GitHub, event: Event) -> PullRequest:
    """The one pull request of the event, as it is now: its head may have moved since.

    GitHub does not name the pull requests of a fork's run: they are looked for by commit, then by branch.

    Raises:
        ConfigurationError: there is none, or more than one, so that none can be told apart; or it is to be merged into
            another branch than the default one, whose policy and judge the gate has.
        GitHubError: GitHub did not answer.
    """
    if event.pull_request is not None:
        return _into_the_default_branch(github.pull_request(event.pull_request))
    found = {pull.number: pull for pull in github.pull_requests_of_commit(event.head_sha)}
    if event.head_repository and event.head_branch:
        owner = event.head_repository.partition("/")[0]
        for pull in github.pull_requests_of_branch(owner, event.head_branch):
            found.setdefault(pull.number, pull)
    fitting = [pull for pull in found.values() if _is_of(pull, event, github.repository)]
    at_head = [pull for pull in fitting if pull.head.sha == event.head_sha]
    chosen = at_head or fitting
    if len(chosen) == 1:
        return _into_the_default_branch(chosen[0])
    if not chosen:
        message = f"No open pull request of {github.repository} has the head {event.head_sha[:12]}."
        raise ConfigurationError("no-pull-request", message, "There is nothing to decide on.")
    numbers = ", ".join(f"#{pull.number}" for pull in chosen)
    message = f"Several pull requests have the head {event.head_sha[:12]}: {numbers}."
    advice = "Close all but one: what a head is worth depends on what it is merged into."
    raise ConfigurationError("several-pull-requests", message, advice)


def _into_the_default_branch(pull: PullRequest) -> PullRequest:
    if pull.base.repo is None or pull.base.ref != pull.base.repo.default_branch:
        message = f"#{pull.number} is to be merged into {pull.base.ref!r}, which is not the default branch."
        raise ConfigurationError(
            "other-base-branch", message, "The gate decides on the default branch alone."
        )
    return pull


def _is_of(pull: PullRequest, event: Event, repository: str) -> bool:
    head = pull.head.repo.full_name if pull.head.repo else None
    base = pull.base.repo.full_name if pull.base.repo else None
    return pull.state == "open" and base == repository and head == event.head_repository
