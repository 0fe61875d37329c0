"""The server that the tests ask is as strict as GitHub's published description."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.github.published import Request, find_operation, find_problems, published_operations

HEADERS = {
    "accept": "application/vnd.github+json",
    "x-github-api-version": "2022-11-28",
    "user-agent": "fasttrack",
    "content-type": "application/json",
}
CHECK_RUN = Request(
    method="POST",
    path="/repos/o/r/check-runs",
    query={},
    headers=HEADERS,
    body={
        "name": "n",
        "head_sha": "a" * 40,
        "status": "in_progress",
        "output": {"title": "t", "summary": "s"},
    },
)
ANNOTATION = {"path": "p", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "m"}


def problems(request: Request) -> list[str]:
    found = find_operation(published_operations(), request)
    return ["no such call"] if found is None else find_problems(*found, request)


def with_output(**output: object) -> Request:
    return replace(CHECK_RUN, body={**CHECK_RUN.body, "output": {**CHECK_RUN.body["output"], **output}})


def test_a_right_request_has_no_problem() -> None:
    assert problems(with_output(annotations=[ANNOTATION] * 50)) == []


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(replace(CHECK_RUN, method="PUT"), id="method"),
        pytest.param(replace(CHECK_RUN, path="/repos/o/r/checkruns"), id="path"),
        pytest.param(replace(CHECK_RUN, query={"per_page": "1"}), id="query"),
        pytest.param(replace(CHECK_RUN, headers={**HEADERS, "accept": "*/*"}), id="header"),
        pytest.param(replace(CHECK_RUN, headers={**HEADERS, "user-agent": ""}), id="user agent"),
        pytest.param(replace(CHECK_RUN, body={**CHECK_RUN.body, "head-sha": "x"}), id="misspelt property"),
        pytest.param(replace(CHECK_RUN, body={"name": "n"}), id="missing property"),
        pytest.param(replace(CHECK_RUN, body={**CHECK_RUN.body, "status": "done"}), id="word"),
        pytest.param(with_output(summary="x" * 65_536), id="summary too long"),
        pytest.param(with_output(annotations=[ANNOTATION] * 51), id="51 annotations"),
        pytest.param(with_output(annotations=[{**ANNOTATION, "annotation_level": "error"}]), id="level"),
        pytest.param(with_output(annotations=[{**ANNOTATION, "start_line": "1"}]), id="line as text"),
    ],
)
def test_a_wrong_request_is_noticed(request_: Request) -> None:
    assert problems(request_)
