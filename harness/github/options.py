"""What `fasttrack github publish` and `fasttrack submit` ask of `harness.app`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.github.sticky_comment import ACTIONS_BOT
from harness.github.transport import API_URL

CHECK_NAME = "fasttrack"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """`fasttrack github publish`."""

    event: Path
    event_name: str
    """`GITHUB_EVENT_NAME`; empty: as the event's own keys tell."""
    repository: str
    """`owner/name` of the repository that gates."""
    token: str
    repo: Path = Path()
    """A clone with base and head, at a commit that is trusted."""
    policy: Path | None = None
    """None: `.github/fasttrack-policy.toml` of the clone's working tree."""
    bundles: tuple[Path, ...] = ()
    """None: those that workflow runs uploaded for the head."""
    waivers: tuple[Path, ...] = ()
    check_name: str = CHECK_NAME
    comment_author: str = ACTIONS_BOT
    """Who the token writes as."""
    run_url: str = ""
    """Where the log of this very run is."""
    summary: Path | None = None
    """`GITHUB_STEP_SUMMARY`."""
    out: Path | None = None
    """Where the report that shows the ruling goes; None: nowhere."""
    api_url: str = API_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """`fasttrack submit`."""

    bundle: Path
    repository: str
    """Where the pull request is; needed when one is named."""
    pull_request: int | None
    token: str = ""
    """A public repository needs none."""
    api_url: str = API_URL
