"""Laws of the comparison of two bundles: nothing that differs is called the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundles.compare import compare_bundles
from bundles.contents import Bundle
from bundles.reader import read_bundle
from harness.model.finding import Finding, Measurement
from tests.bundles.examples import evidence_to_reject, plain_report, write_bundle

NUMBER = Measurement(name="ratio", unit="1", estimate=1.00001, ci_high=1.1, margin=0.02, n=8)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    place = tmp_path_factory.mktemp("bundle") / "b"
    write_bundle(place, evidence_to_reject(), plain_report)
    return read_bundle(place)


def with_numbers(bundle: Bundle, *numbers: Measurement) -> Bundle:
    """The bundle with one finding for each number, all of one check and subject."""
    first = bundle.judgement.findings[0]
    findings: tuple[Finding, ...] = tuple(first.model_copy(update={"measurements": (n,)}) for n in numbers)
    return replace(bundle, judgement=bundle.judgement.model_copy(update={"findings": findings}))


def test_a_bundle_is_the_same_as_itself(bundle: Bundle) -> None:
    differences, num_same = compare_bundles(bundle, bundle)
    assert not differences and num_same > 0


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"estimate": 1.00002}, id="the sixth digit"),
        pytest.param({"ci_high": 1.2}, id="the one bound of an interval"),
        pytest.param({"ci_low": 0.9}, id="a bound that only one has"),
        pytest.param({"margin": 0.2}, id="the margin"),
        pytest.param({"n": 9}, id="the number of units"),
        pytest.param({"unit": "ms"}, id="the unit"),
    ],
)
def test_a_number_that_differs_anywhere_differs(bundle: Bundle, changed: dict[str, object]) -> None:
    left = with_numbers(bundle, NUMBER)
    right = with_numbers(bundle, NUMBER.model_copy(update=changed))
    (difference,), _ = compare_bundles(left, right)
    assert difference.number == "ratio" and difference.left != difference.right


def test_of_findings_with_one_subject_no_number_hides_behind_another(bundle: Bundle) -> None:
    other = NUMBER.model_copy(update={"estimate": 5.0})
    left, right = with_numbers(bundle, NUMBER, NUMBER), with_numbers(bundle, other, NUMBER)
    assert [d.number for d in compare_bundles(left, right)[0]] == ["ratio"]
