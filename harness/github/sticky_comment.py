"""One comment on a pull request, found again by a hidden marker and written anew."""

from __future__ import annotations

from harness.github.calls import Comment, GitHub
from harness.github.limits import MAX_COMMENT, cut_text

MARKER = "<!-- fasttrack:gate -->"
ACTIONS_BOT = "github-actions[bot]"
"""Who a workflow's own token writes as."""


def write_comment(github: GitHub, number: int, text: str, author: str = ACTIONS_BOT) -> None:
    """Leaves one comment of `author` with the marker, and `text` in it.

    Only the author's own comments count: anybody can write the marker. Two publishers that both find none both write
    one, and each looks again: both keep the oldest, so that one is left.

    Raises:
        GitHubError: GitHub refused.
    """
    body = cut_text(f"{MARKER}\n{text}", MAX_COMMENT)
    found = _own(github, number, author)
    if found:
        github.update_comment(found[0], body)
        surplus = found[1:]
    else:
        created = github.create_comment(
            number, body, lambda: next((c for c in _own(github, number, author) if c.body == body), None)
        )
        kept, *surplus = _own(github, number, author) or [created]
        if kept.id != created.id:
            github.update_comment(kept, body)
    for comment in surplus:
        github.delete_comment(comment)


def _own(github: GitHub, number: int, author: str) -> list[Comment]:
    """The author's comments that bear the marker, oldest first."""
    own = [
        comment
        for comment in github.comments(number)
        if comment.user is not None
        and comment.user.type == "Bot"
        and comment.user.login == author
        and comment.body.startswith(MARKER)
    ]
    return sorted(own, key=lambda comment: comment.id)
