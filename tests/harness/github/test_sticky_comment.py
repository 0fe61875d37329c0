"""There is one comment, whoever else writes at the same time, and it is our own."""

from __future__ import annotations

from harness.github.calls import GitHub
from harness.github.limits import MAX_COMMENT
from harness.github.sticky_comment import MARKER, write_comment
from tests.harness.github.server import BOT, FakeGitHub, Fault, Request


def ours(server: FakeGitHub) -> list[str]:
    return [c["body"] for c in server.comments.values() if c["user"]["login"] == BOT]


def test_the_second_word_replaces_the_first_though_it_is_on_a_later_page(
    server: FakeGitHub, github: GitHub
) -> None:
    server.page_size = 2
    for _ in range(4):
        server.add_comment("chatter", "someone")
    write_comment(github, 12, "first")
    write_comment(github, 12, "second")
    assert ours(server) == [f"{MARKER}\nsecond"]


def test_a_comment_of_somebody_else_that_bears_the_marker_is_left_alone(
    server: FakeGitHub, github: GitHub
) -> None:
    others = (("mallory", "User"), (BOT, "User"), ("other[bot]", "Bot"))
    forged = [server.add_comment(f"{MARKER}\nadmit", login, kind) for login, kind in others]
    write_comment(github, 12, "reject")
    assert all(server.comments[i]["body"] == f"{MARKER}\nadmit" for i in forged)
    assert f"{MARKER}\nreject" in ours(server)


def test_two_publishers_that_race_leave_one_comment(server: FakeGitHub, github: GitHub) -> None:
    def rival(request: Request) -> None:
        if request.method == "GET" and not server.comments:
            server.after = lambda _: None
            write_comment(github, 12, "the rival's")

    server.after = rival
    write_comment(github, 12, "mine")
    assert ours(server) == [f"{MARKER}\nmine"]


def test_a_comment_that_was_written_though_github_said_502_is_not_written_twice(
    server: FakeGitHub, github: GitHub
) -> None:
    server.faults.append(Fault(method="POST", path="/comments", status=502, is_done=True))
    write_comment(github, 12, "once")
    assert ours(server) == [f"{MARKER}\nonce"]
    assert [r.method for r in server.requests].count("POST") == 1


def test_a_comment_above_the_limit_is_cut_and_says_what_is_missing(
    server: FakeGitHub, github: GitHub
) -> None:
    write_comment(github, 12, "".join(f"line {i}\n" for i in range(20_000)))
    body = ours(server)[0]
    assert len(body) <= MAX_COMMENT and "of 20001 lines are left out" in body


def test_a_comment_of_just_the_limit_is_whole(server: FakeGitHub, github: GitHub) -> None:
    text = "é" * (MAX_COMMENT - len(MARKER) - 1)
    write_comment(github, 12, text)
    assert ours(server) == [f"{MARKER}\n{text}"]
