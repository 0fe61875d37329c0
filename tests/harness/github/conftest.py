"""A GitHub that every test's requests must be right for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.github.calls import GitHub
from harness.github.transport import Transport
from tests.harness.github.server import REPOSITORY, TOKEN, FakeClock, FakeGitHub, serving


@pytest.fixture
def server() -> Iterator[FakeGitHub]:
    """The server; a request that breaks GitHub's published description fails the test that made it."""
    github = FakeGitHub()
    with serving(github):
        yield github
    assert github.problems == []


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def github(server: FakeGitHub, clock: FakeClock) -> GitHub:
    """The client, of that server."""
    return GitHub(Transport(TOKEN, url=server.url, clock=clock), REPOSITORY)
