"""Laws of the bundle's JSON: one byte form, read back as it was, and no surprise while reading."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.error import BundleError
from bundles.json_text import parse_json, render_evidence_json, render_pretty_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=25,
)


@given(st.dictionaries(TEXT, VALUES, max_size=6))
def test_what_is_written_is_read_back_whatever_the_form(value: dict[str, object]) -> None:
    for render in (render_pretty_json, render_evidence_json):
        assert parse_json(render(value), "x.json") == value


@given(st.dictionaries(TEXT, VALUES, max_size=6))
def test_the_order_of_keys_does_not_change_the_bytes(value: dict[str, object]) -> None:
    turned = dict(reversed(value.items()))
    for render in (render_pretty_json, render_evidence_json):
        assert render(turned) == render(value)


def test_a_long_list_of_evidence_has_one_line_an_element() -> None:
    text = render_evidence_json(
        {"arm": "candidate", "items": [{"item": f"q{i:030d}"} for i in range(5)]}
    ).decode()
    assert [line.strip() for line in text.splitlines() if "q0" in line] == [
        f'{{"item":"q{i:030d}"}}' + ("," if i < 4 else "") for i in range(5)
    ]


@given(st.binary(max_size=60))
def test_bytes_that_are_not_json_raise_the_one_error_type(data: bytes) -> None:
    try:
        parse_json(data, "x.json")
    except BundleError as error:
        assert error.where == "x.json"
        assert error.advice


@pytest.mark.parametrize(
    ("data", "slug"),
    [
        (b'{"a": NaN}', "evidence-malformed-json"),
        (b'{"a": -Infinity}', "evidence-malformed-json"),
        (b'{"a": 1, "a": 2}', "evidence-malformed-json"),
        (b'{"a": 1}}', "evidence-malformed-json"),
        (b"", "evidence-malformed-json"),
        (b"[" * 200_000, "evidence-malformed-json"),
        (b"1" * 5000, "evidence-malformed-json"),
        (b'{"a": "\xff"}', "evidence-not-utf8"),
        (b"\xef\xbb\xbf{}", "evidence-malformed-json"),
    ],
    ids=["nan", "infinity", "key-twice", "rest", "empty", "deep", "long-integer", "latin-1", "bom"],
)
def test_json_that_two_readers_could_take_differently_is_refused(data: bytes, slug: str) -> None:
    with pytest.raises(BundleError) as caught:
        parse_json(data, "x.json")
    assert caught.value.slug == slug


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        render_evidence_json({"a": float("nan")})


def test_pretty_json_is_what_the_standard_library_reads() -> None:
    assert json.loads(render_pretty_json({"é": [1, 2.5, None]})) == {"é": [1, 2.5, None]}
