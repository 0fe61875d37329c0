"""Laws of the page in a browser: no request, no barrier, readable in every light and width, and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright

from bundles.archive import opened
from bundles.reader import read_bundle
from harness.app.judging import render_report
from tests.reports.pages import NAMES

CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
RECORDED = Path(__file__).parents[2] / "examples" / "bundles" / "kimi-k3-cpu-smoke.tar.gz"
WIDE = (1280, 720)
A4_PX, PRINT_MARGIN_PX = (794, 1123), 46
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield started
        started.close()


def open_page(browser: Browser, folder: Path, size: tuple[int, int] = WIDE, scheme: str = "light") -> Page:
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.goto((folder / "report.html").as_uri())
    return page


def recorded(folder: Path) -> Path:
    """The report on a bundle that a run of this repository left, whose judgement is open in many places."""
    with opened(RECORDED) as bundle:
        (folder / "report.html").write_text(render_report(read_bundle(bundle)), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_page_asks_for_nothing_and_runs_nothing(
    browser: Browser, examples: dict[str, Path], name: str
) -> None:
    page = browser.new_page()
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("dialog", lambda dialog: messages.append(dialog.message))
    address = (examples[name] / "report.html").as_uri()
    page.goto(address, wait_until="networkidle")
    page.close()
    assert requests == [address]
    assert messages == []


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("reject", "light"), ("hostile", "dark"), ("drills", "light"), ("drills", "dark")],
)
def test_axe_finds_no_barrier(browser: Browser, examples: dict[str, Path], name: str, scheme: str) -> None:
    page = open_page(browser, examples[name], scheme=scheme)
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    results = Axe().run(page)
    page.close()
    assert results.violations_count == 0, results.generate_report()


@pytest.mark.parametrize("name", ["undecided", "reject", "hostile", "drills"])
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_sticks_out_at_any_width(
    browser: Browser, examples: dict[str, Path], name: str, width: int
) -> None:
    page = open_page(browser, examples[name], (width, 800))
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert wide <= width


@pytest.mark.parametrize("name", ["undecided", "hostile", "recorded"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_is_whole_on_a_phone(
    browser: Browser, examples: dict[str, Path], tmp_path: Path, name: str, scheme: str
) -> None:
    folder = recorded(tmp_path) if name == "recorded" else examples[name]
    page = open_page(browser, folder, (390, 844), scheme)
    outside = page.evaluate(
        "[...document.querySelectorAll('.top *, .screen *')].filter(e => e.checkVisibility()"
        " && !e.closest('svg, thead') && e.getBoundingClientRect().right > 390).map(e => e.textContent)"
    )
    page.close()
    assert outside == []


def test_the_first_screen_says_that_nobody_had_signed(browser: Browser, examples: dict[str, Path]) -> None:
    page = open_page(browser, examples["undecided"])
    facts = page.locator(".top .facts").inner_text()
    page.close()
    assert "Signed by nobody when this was written" in " ".join(facts.split())


@pytest.mark.parametrize("name", ["admit", "undecided", "reject", "error", "silent", "drills", "recorded"])
def test_what_is_shown_what_is_not_and_what_to_ask_for_fit_on_one_screen(
    browser: Browser, examples: dict[str, Path], tmp_path: Path, name: str
) -> None:
    page = open_page(browser, recorded(tmp_path) if name == "recorded" else examples[name])
    bottoms = page.evaluate(
        "[...document.querySelectorAll('.held, .map, .claims, .asks, .limits')].map("
        "e => e.getBoundingClientRect().bottom)"
    )
    page.close()
    assert len(bottoms) == 5 and max(bottoms) <= WIDE[1]


def test_what_is_not_shown_is_set_as_large_as_what_is(browser: Browser, examples: dict[str, Path]) -> None:
    page = open_page(browser, examples["undecided"])
    sizes = page.evaluate(
        "['.limits li', '.limits b', '.claims td', '.asks li', '.map td'].map("
        "s => getComputedStyle(document.querySelector(s)).fontSize)"
    )
    page.close()
    assert len(set(sizes)) == 1


def test_paper_shows_what_the_screen_folds(browser: Browser, examples: dict[str, Path]) -> None:
    page = open_page(browser, examples["undecided"])
    passing = page.locator("article .findings .finding.pass").first
    seen = "e => e.checkVisibility({contentVisibilityAuto: true})"
    on_screen = passing.evaluate(seen)
    page.emulate_media(media="print")
    on_paper = passing.evaluate(seen)
    page.close()
    assert (on_screen, on_paper) == (False, True)


def test_the_first_screen_is_the_first_sheet(browser: Browser, examples: dict[str, Path]) -> None:
    page = open_page(browser, examples["undecided"], A4_PX)
    page.emulate_media(media="print")
    page.evaluate("px => document.body.style.width = px + 'px'", A4_PX[0] - 2 * PRINT_MARGIN_PX)
    bottom = page.evaluate("document.querySelector('.screen').getBoundingClientRect().bottom")
    page.close()
    assert bottom <= A4_PX[1] - 2 * PRINT_MARGIN_PX


def test_the_keyboard_reaches_the_checks_and_opens_them(browser: Browser, examples: dict[str, Path]) -> None:
    page = open_page(browser, examples["undecided"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    opened = page.evaluate("document.activeElement.parentElement.open")
    page.close()
    assert opened


def test_an_outcome_is_told_without_color(browser: Browser, examples: dict[str, Path]) -> None:
    page = open_page(browser, examples["reject"])
    marks = page.evaluate(
        "[...document.querySelectorAll('.mark')].map("
        "e => [e.textContent.trim(), e.querySelector('svg') !== null])"
    )
    page.close()
    assert marks
    assert all(text and has_shape for text, has_shape in marks)
