"""The report for a terminal: verdict first, then every check, then what is open."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from harness.model.words import Outcome, Verdict
from reports.checks import CheckCard
from reports.findings import FindingView, MeasurementView
from reports.marks import MARKS, WORST_FIRST
from reports.shown import plain
from reports.view import ReportView

_COLORS = {
    Outcome.PASS: "32",
    Outcome.FAIL: "31",
    Outcome.ERROR: "35",
    Outcome.INCONCLUSIVE: "33",
    Outcome.NOT_RUN: "34",
    Outcome.NOT_APPLICABLE: "2",
}
_VERDICT_OUTCOMES = {
    Verdict.ADMIT: Outcome.PASS,
    Verdict.REJECT: Outcome.FAIL,
    Verdict.UNDECIDED: Outcome.INCONCLUSIVE,
}
_ASCII = str.maketrans({"…": "...", "–": "-", "→": "->", "∞": "inf", "−": "-", "·": "-"})
_NO_BREAK = "\xa0"
_WORD_WIDTH = max(len(mark.word) for mark in MARKS.values())


def render_text(view: ReportView, *, color: bool, ascii_only: bool, width: int = 100) -> str:
    """The report as lines of at most `width` characters, the escape sequences of `color` not counted."""
    lines = _Terminal(color=color, ascii_only=ascii_only, width=width).lines(view)
    text = "\n".join(lines).replace(_NO_BREAK, " ") + "\n"
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii") if ascii_only else text


class _Terminal:
    """What the terminal can show."""

    def __init__(self, *, color: bool, ascii_only: bool, width: int) -> None:
        self._color, self._ascii_only, self._width = color, ascii_only, width

    def lines(self, view: ReportView) -> Iterator[str]:
        """Every line of the report."""
        header = view.header
        verdict = self._paint(_VERDICT_OUTCOMES[header.verdict], header.verdict.upper())
        yield f"{verdict}  {header.title.text}"
        yield from self._wrap(plain(header.reason), 0)
        yield from self._wrap(
            f"Model {header.model.text}, vLLM {plain(header.vllm)}, head {header.head.text}, "
            f"fasttrack {header.harness_version.text}, policy {header.policy_version.text}, "
            f"bundle {header.content_sha256.text}",
            0,
        )
        yield from self._checks(view.checks)
        yield from self._open_findings(view.checks)
        yield from self._numbers(view.checks)
        yield from ("", "What this report does not show")
        for limit in view.limits:
            yield from self._wrap(f"- {plain(limit.title)}: {plain(limit.reason)}", 2)

    def _checks(self, cards: tuple[CheckCard, ...]) -> Iterator[str]:
        yield from ("", "Checks")
        id_width = max((len(card.id.text) for card in cards), default=0)
        id_width = min(id_width, self._width // 3)
        for card in cards:
            need = "required" if card.required else "advisory"
            head = f"{card.id.text:<{id_width}}  {card.tier:<7}  {need}  {card.title.text}"
            yield from self._marked(card.outcome, head, id_width + 2)

    def _open_findings(self, cards: tuple[CheckCard, ...]) -> Iterator[str]:
        found = [(card, finding) for card in cards for finding in card.open]
        silent = [card for card in cards if not card.findings]
        if found or silent:
            yield from ("", "What does not let the change through")
        for outcome in WORST_FIRST:
            for card, finding in found:
                if finding.outcome is outcome:
                    yield from self._finding(card, finding)
        for card in silent:
            message = "The check gave no finding, which is an error, never a pass."
            yield from self._marked(Outcome.ERROR, f"{card.id.text}  {message}", 2)

    def _finding(self, card: CheckCard, finding: FindingView) -> Iterator[str]:
        subject = finding.subject.text
        if finding.path and finding.path.text != subject:
            subject += f" ({finding.path.text})"
        line = f", line {finding.line.text}" if finding.line else ""
        yield from self._marked(finding.outcome, f"{card.id.text}  {subject}{line}", 2)
        yield from self._wrap("    " + finding.message.text, 4)
        if finding.advice:
            yield from self._wrap("    → " + finding.advice.text, 6)

    def _numbers(self, cards: tuple[CheckCard, ...]) -> Iterator[str]:
        measured = [(c, f, m) for c in cards for f in c.findings for m in f.measurements]
        if measured:
            yield from ("", "Numbers")
        for card, finding, m in measured:
            number = show_measurement(m).replace(" ", _NO_BREAK)
            text = f"{card.id.text}  {finding.subject.text}: {m.name.text} {number}"
            yield from self._marked(finding.outcome, text, 2)

    def _marked(self, outcome: Outcome, text: str, indent: int) -> Iterator[str]:
        """Lines that start with the outcome's sign and word."""
        mark = MARKS[outcome]
        word = f"{mark.letter if self._ascii_only else mark.glyph} {mark.word:<{_WORD_WIDTH}}"
        first, *rest = self._wrap(f"{word}  {text}", len(word) + 2 + indent)
        yield self._paint(outcome, word) + first[len(word) :]
        yield from rest

    def _wrap(self, text: str, indent: int) -> list[str]:
        lines: list[str] = []
        for paragraph in text.split("\n"):
            lines += textwrap.wrap(
                paragraph,
                self._width,
                subsequent_indent=" " * indent,
                initial_indent=" " * indent if lines else "",
                drop_whitespace=True,
                break_on_hyphens=False,
            )
        return lines or [""]

    def _paint(self, outcome: Outcome, text: str) -> str:
        return f"\x1b[{_COLORS[outcome]}m{text}\x1b[0m" if self._color else text


def show_measurement(m: MeasurementView) -> str:
    """`1.08 [0.94, 1.25], margin 2.00, n 64`."""
    text = m.estimate.text
    if m.ci_low or m.ci_high:
        text += f" [{m.ci_low.text if m.ci_low else '−∞'}, {m.ci_high.text if m.ci_high else '∞'}]"
    unit = f" {m.unit.text}" if m.unit else ""
    margin = f", margin {m.margin.text}" if m.margin else ""
    return f"{text}{unit}{margin}, n {m.n.text}"
