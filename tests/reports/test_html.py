"""Laws of the page as a file: nothing leaves it, nothing of the change becomes markup, every link leads somewhere."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bundles.archive import unpack
from harness.model.words import Outcome
from reports.html import NUM_ASKS_AT_TOP, NUM_LIMITS_AT_TOP, render_html
from reports.view import build_view
from tests.bundles.examples import CHECK_HELP
from tests.reports.flood import flooded, grown
from tests.reports.large import NUM_CHECKS, write_large
from tests.reports.pages import NAMES, parse_page, read_example

RECORDED = Path(__file__).parents[2] / "examples" / "bundles" / "kimi-k3-cpu-smoke.tar.gz"
URL_ATTRIBUTES = (
    "src",
    "href",
    "action",
    "data",
    "poster",
    "srcset",
    "xlink:href",
    "formaction",
    "background",
)


def html_of(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bundle_gives_the_same_page(examples: dict[str, Path], name: str) -> None:
    bundle = read_example(examples[name])
    pages = [render_html(build_view(bundle, CHECK_HELP)) for _ in range(2)]
    assert pages[0] == pages[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_holds_no_script_no_handler_and_no_address_of_elsewhere(
    examples: dict[str, Path], name: str
) -> None:
    for element in parse_page(html_of(examples[name])).walk():
        assert element.tag not in (
            "script",
            "iframe",
            "object",
            "embed",
            "link",
            "base",
            "form",
            "img",
            "style2",
        )
        for attribute, value in element.attributes.items():
            assert not attribute.startswith("on")
            assert attribute != "style"
            if attribute in URL_ATTRIBUTES:
                assert re.fullmatch(r"#[\w.-]+|(evidence|raw)/[\w./-]+|[\w-]+\.(json|toml)", value), value


@pytest.mark.parametrize("name", NAMES)
def test_the_page_forbids_itself_everything_but_its_own_style(examples: dict[str, Path], name: str) -> None:
    policies = [
        e.attributes["content"]
        for e in parse_page(html_of(examples[name])).walk()
        if e.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


@pytest.mark.parametrize("name", NAMES)
def test_every_link_inside_the_page_leads_to_one_place_and_every_file_link_to_a_file(
    examples: dict[str, Path], name: str
) -> None:
    elements = list(parse_page(html_of(examples[name])).walk())
    ids = [e.attributes["id"] for e in elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in elements:
        href = element.attributes.get("href", "#map")
        assert href[1:] in ids if href.startswith("#") else (examples[name] / href).is_file()
        for label in element.attributes.get("aria-labelledby", "map").split():
            assert label in ids


def test_hostile_text_is_shown_as_text(examples: dict[str, Path]) -> None:
    html = html_of(examples["hostile"])
    assert "&lt;script&gt;alert(" in html
    assert "<script" not in html
    assert "{{ 7*7 }}" in html
    assert "onerror=alert(1)&gt;" in html


def test_no_character_that_hides_or_turns_text_reaches_the_page(examples: dict[str, Path]) -> None:
    html = html_of(examples["hostile"])
    assert not [c for c in set(html) if not c.isprintable() and c != "\n"]
    assert "\\u202e" in html
    assert "\\x1b[2J" in html


@pytest.mark.parametrize("name", NAMES)
def test_the_headings_go_down_one_level_at_a_time_below_one_title(
    examples: dict[str, Path], name: str
) -> None:
    levels = [
        int(e.tag[1]) for e in parse_page(html_of(examples[name])).walk() if re.fullmatch(r"h[1-6]", e.tag)
    ]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_a_check_that_found_nothing_is_said_to_be_an_error_and_no_pass(examples: dict[str, Path]) -> None:
    page = parse_page(html_of(examples["silent"]))
    (card,) = [e for e in page.walk() if e.attributes.get("aria-labelledby") == "check-ISO001"]
    assert "error" in card.text
    assert "gave no finding" in card.text
    assert "pass" not in card.text.replace("never a pass", "")


def test_what_is_open_is_not_folded_and_what_passes_is_folded_with_its_count(
    examples: dict[str, Path],
) -> None:
    page = parse_page(html_of(examples["reject"]))
    findings = [e for e in page.walk() if e.attributes.get("class", "").startswith("finding ")]
    folded = {
        e.attributes["class"].split()[1]: any(a.tag == "details" for a in e.ancestors()) for e in findings
    }
    assert folded == {"fail": False, "not_run": False, "pass": True}
    (card,) = [e for e in page.walk() if e.attributes.get("aria-labelledby") == "check-PERF001"]
    assert next(e.text for e in card.walk() if e.tag == "summary") == "1 finding lets it through"


def test_a_title_that_says_admit_is_a_quotation_behind_the_verdict(examples: dict[str, Path]) -> None:
    bundle = read_example(examples["undecided"])
    change = bundle.manifest.change.model_copy(update={"title": "✓ Admit: all checks pass"})
    manifest = bundle.manifest.model_copy(update={"change": change})
    page = parse_page(render_html(build_view(replace(bundle, manifest=manifest), {})))
    (heading,) = [e for e in page.walk() if e.tag == "h1"]
    assert heading.text == "Undecided “✓ Admit: all checks pass”"
    assert [e.text for e in page.walk() if e.attributes.get("class") == "verdict"] == ["Undecided"]


def test_what_is_shown_names_claims_that_pass_and_no_others(examples: dict[str, Path]) -> None:
    page = parse_page(html_of(examples["undecided"]))
    (held,) = [e for e in page.walk() if e.attributes.get("aria-labelledby") == "held"]
    named = {
        e.attributes["data-ref"] for e in held.walk() if e.attributes.get("href", "").startswith("#check-")
    }
    cards = build_view(read_example(examples["undecided"]), {}).checks
    assert named == {c.id.ref for c in cards if c.required and c.outcome is Outcome.PASS}


def test_where_nothing_holds_the_first_screen_says_nothing_yet(examples: dict[str, Path]) -> None:
    page = parse_page(html_of(examples["silent"]))
    (held,) = [e for e in page.walk() if e.attributes.get("aria-labelledby") == "held"]
    assert held.text.count("nothing yet.") == 4


def test_the_glossary_defines_every_outcome_verdict_and_exit_code(examples: dict[str, Path]) -> None:
    page = parse_page(html_of(examples["admit"]))
    (glossary,) = [e for e in page.walk() if e.attributes.get("aria-labelledby") == "glossary"]
    words = {e.text.split(" (")[0] for e in glossary.walk() if e.tag == "dt"}
    assert {"pass", "fail", "inconclusive", "not run", "not applicable", "error"} <= words
    assert {"admit", "reject", "undecided", "0", "1", "2", "3", "4", "130"} <= words


def test_a_large_bundle_gives_a_page_of_at_most_a_megabyte_and_a_half(tmp_path: Path) -> None:
    write_large(tmp_path / "b")
    html = render_html(build_view(read_example(tmp_path / "b"), {}))
    assert len(html.encode("utf-8")) <= 1_500_000
    assert html.count('<article class="card ') == NUM_CHECKS


@pytest.mark.parametrize(
    ("num_findings", "num_characters", "num_details"), [(1000, 400, 40), (3, 2_000_000, 2), (10, 10, 50_000)]
)
def test_a_flood_of_findings_keeps_the_page_small_and_every_finding_on_it(
    examples: dict[str, Path], num_findings: int, num_characters: int, num_details: int
) -> None:
    text = "It broke. " * (num_characters // 10)
    bundle = flooded(read_example(examples["undecided"]), num_findings, text=text, num_details=num_details)
    html = render_html(build_view(bundle, CHECK_HELP))
    assert len(html.encode()) <= 1_500_000
    assert html.count('<li class="finding fail" ') == num_findings


def test_a_page_that_would_be_too_large_shows_less_of_the_files_and_as_many_findings(
    examples: dict[str, Path],
) -> None:
    bundle = flooded(read_example(examples["undecided"]), 1500, text="It broke. " * 60)
    crowded = replace(bundle, evidence=bundle.evidence * 30)
    html = render_html(build_view(crowded, CHECK_HELP))
    pages = parse_page(html).walk()
    excerpts = [e.text for e in pages if e.attributes.get("data-excerpt-of", "").startswith("evidence/")]
    assert {len(text) for text in excerpts} == {100}
    assert html.count('<li class="finding fail" ') == 1500


@pytest.mark.parametrize("name", NAMES)
def test_each_thing_to_ask_for_and_each_limit_is_listed_once_and_the_first_are_not_folded(
    examples: dict[str, Path], name: str
) -> None:
    view = build_view(read_example(examples[name]), CHECK_HELP)
    elements = list(parse_page(html_of(examples[name])).walk())
    for section, items, at_top in (
        ("asks", view.asks, NUM_ASKS_AT_TOP),
        ("limits", view.limits, NUM_LIMITS_AT_TOP),
    ):
        (part,) = [e for e in elements if e.attributes.get("aria-labelledby") == section]
        listed = [e for e in part.walk() if e.tag == "li"]
        folded = [e for e in listed if any(a.tag == "details" for a in e.ancestors())]
        assert len(listed) == len(items)
        assert len(folded) == max(len(items) - at_top, 0)


def test_two_hundred_checks_with_the_findings_of_a_real_run_fit_and_their_open_findings_are_whole(
    tmp_path: Path,
) -> None:
    unpack(RECORDED, tmp_path)
    bundle = grown(read_example(tmp_path), NUM_CHECKS)
    begun = time.process_time()
    html = render_html(build_view(bundle, CHECK_HELP))
    assert time.process_time() - begun < 3
    open_ones = sum(
        f.outcome not in (Outcome.PASS, Outcome.NOT_APPLICABLE) for f in bundle.judgement.findings
    )
    assert len(html.encode("utf-8")) <= 1_500_000
    whole = r'<li class="finding (?:fail|inconclusive|not_run|error)" data-at="[^"]+">\n'
    assert len(re.findall(whole, html)) == open_ones
