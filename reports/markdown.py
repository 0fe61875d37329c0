"""The first screen as Markdown, for a job summary or a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from harness.model.words import Verdict
from reports.checks import GridCell
from reports.claims import ClaimRow
from reports.limits import Ask
from reports.marks import MARKS, TIER_SUBJECTS, VERDICT_MEANINGS
from reports.shown import Sentence, Shown, plain
from reports.text import show_measurement
from reports.view import ReportView

MAX_LINES = 60
NUM_CLAIMS, NUM_ASKS, NUM_LIMITS, NUM_TITLES = 7, 6, 6, 1
CELL_CHARACTERS, SENTENCE_CHARACTERS, REASON_CHARACTERS = 120, 400, 1500
_VERDICT_GLYPHS = {Verdict.ADMIT: "✓", Verdict.REJECT: "✗", Verdict.UNDECIDED: "?"}
_MARKUP = re.compile(r"[\\`*_\[\]<>#|~$&!]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_ZERO_WIDTH_SPACE = "\u200b"
_MENTION = re.compile(r"@|#(?=\d)|\bGH-(?=\d)|(?<=://)|(?<=www)")


def render_markdown(view: ReportView) -> str:
    """At most 60 lines of GitHub-flavoured Markdown."""
    return "\n".join(_lines(view)) + "\n"


def escape_markdown(text: str, num_characters: int = SENTENCE_CHARACTERS) -> str:
    """`text` on one line, clipped, without markup, mentions, references or links of its own."""
    line = " ".join(text.split())
    if len(line) > num_characters:
        line = line[: num_characters - 1] + "…"
    parts = []
    for index, part in enumerate(_split_mentions(line)):
        parts.append((_ZERO_WIDTH_SPACE if index else "") + _MARKUP.sub(_entity, part))
    return "".join(parts)


def _split_mentions(line: str) -> list[str]:
    """The line cut after everything that GitHub would turn into a mention, a reference or a link."""
    cuts = [match.end() for match in _MENTION.finditer(line)]
    return [line[a:b] for a, b in zip([0, *cuts], [*cuts, len(line)], strict=True)]


def _entity(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0], "\\" + match[0])


def _lines(view: ReportView) -> Iterator[str]:
    h = view.header
    glyph = _VERDICT_GLYPHS[h.verdict]
    yield f"## {glyph} {h.verdict.capitalize()}: “{escape_markdown(h.title.text, CELL_CHARACTERS)}”"
    yield ""
    meaning = "" if view.ruling is not None and view.ruling.additions else f" {VERDICT_MEANINGS[h.verdict]}"
    yield f"**Why:** {_sentence(h.reason, REASON_CHARACTERS)}{meaning}"
    yield ""
    facts = [
        f"model {_text(h.model)}",
        f"vLLM {_sentence(h.vllm)}",
        f"head {_text(h.head)}",
        f"fasttrack {_text(h.harness_version)}",
        f"policy {_text(h.policy_version)}",
        f"bundle {_text(h.content_sha256)}",
        *(() if view.ruling is not None else ("signed by nobody when this was written",)),
    ]
    yield ", ".join(facts)
    yield ""
    yield from _held(view)
    yield from _grid(view)
    yield from _claims(view)
    yield from _asks(view.asks)
    yield from ("", "**What this report does not show**", "")
    for limit in view.limits[:NUM_LIMITS]:
        yield f"- **{_sentence(limit.title)}**: {_sentence(limit.reason)}"
    yield from _more(len(view.limits) - NUM_LIMITS)


def _held(view: ReportView) -> Iterator[str]:
    """What is shown, a line a principle; the claims beyond the first are named."""
    yield from ("**What is shown**", "")
    for entry in view.held:
        titles = [
            f"{_text(c.check)} {_text(c.title)} ({TIER_SUBJECTS[c.tier]})" for c in entry.first[:NUM_TITLES]
        ]
        named = [_text(check) for check in (*(c.check for c in entry.first[NUM_TITLES:]), *entry.named)]
        also = [f"also {', '.join(named)}"] if named else []
        more = [f"{entry.further.text} more"] if entry.further.refs else []
        says = "; ".join([*titles, *also, *more]) or "nothing yet"
        yield f"- **{entry.principle.capitalize()}**: {says}"
    yield ""


def _grid(view: ReportView) -> Iterator[str]:
    tiers = [cell.tier for cell in view.grid[0].cells]
    yield "| Principle | " + " | ".join([*tiers, "let through"]) + " |"
    yield "| --- |" + " --- |" * (len(tiers) + 1)
    for row in view.grid:
        through = f"{row.let_through.text} of {row.required.text}" if row.required.refs else "none required"
        cells = [_cell(cell) for cell in row.cells]
        yield f"| {row.principle.capitalize()} | " + " | ".join([*cells, through]) + " |"


def _cell(cell: GridCell) -> str:
    counts = [(c, "") for c in cell.required] + [(c, " advisory") for c in cell.advisory]
    shown = [
        f"{MARKS[c.outcome].glyph} {c.count.text} {MARKS[c.outcome].word}{advisory}" for c, advisory in counts
    ]
    return ", ".join(shown) or "no check"


def _claims(view: ReportView) -> Iterator[str]:
    yield ""
    if view.claims:
        yield "| Claim | Number | Outcome |"
        yield "| --- | --- | --- |"
    for row in view.claims[:NUM_CLAIMS]:
        yield _claim(row)
    yield from _more(len(view.claims) - NUM_CLAIMS)
    for group in view.unmeasured:
        names = ", ".join(_text(check) for check in group.checks)
        yield ""
        yield f"No number, {MARKS[group.outcome].word}: {names}"


def _claim(row: ClaimRow) -> str:
    m = row.measurement
    claim = f"{_text(row.check)} {_text(row.title)}: {_text(row.subject)}, {_text(m.name)}"
    mark = MARKS[row.outcome]
    number = escape_markdown(show_measurement(m), CELL_CHARACTERS)
    return f"| {claim} | {number} | {mark.glyph} {mark.word} |"


def _asks(asks: tuple[Ask, ...]) -> Iterator[str]:
    yield from ("", "**What to ask for**", "")
    for ask in asks[:NUM_ASKS]:
        names = escape_markdown(", ".join(check.text for check in ask.checks), CELL_CHARACTERS)
        message = _sentence((ask.message,)) if ask.message else "The check said nothing, which is an error."
        advice = f" → {_sentence((ask.advice,))}" if ask.advice else ""
        yield f"- {MARKS[ask.outcome].glyph} **{MARKS[ask.outcome].word}** {names}: {message}{advice}"
    yield from _more(len(asks) - NUM_ASKS)
    if not asks:
        yield "Nothing: every required check lets the change through."


def _more(number: int) -> Iterator[str]:
    if number > 0:
        yield ""
        yield f"{number:,} more in the report"


def _text(shown: Shown) -> str:
    return escape_markdown(shown.text, CELL_CHARACTERS)


def _sentence(sentence: Sentence, num_characters: int = SENTENCE_CHARACTERS) -> str:
    """Pieces of one text are escaped together, so that no mark that they only form together is missed."""
    whole = []
    for _, group in groupby(sentence, key=lambda piece: piece.ref if isinstance(piece, Shown) else None):
        pieces = tuple(group)
        if isinstance(pieces[0], Shown):
            whole.append(_keep_spaces(plain(pieces), num_characters))
        else:
            whole += [piece if isinstance(piece, str) else _keep_spaces(plain((piece,))) for piece in pieces]
    return "".join(whole)


def _keep_spaces(text: str, num_characters: int = SENTENCE_CHARACTERS) -> str:
    escaped = escape_markdown(text, num_characters)
    before = " " if text[:1].isspace() else ""
    after = " " if text[-1:].isspace() and text.strip() else ""
    return f"{before}{escaped}{after}"
