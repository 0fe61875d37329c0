"""The change's code: files by kind, lines that nothing ran, and the engine's code that it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from bundles.contents import Bundle
from harness.model.evidence import (
    ChangedFilesEvidence,
    CoverageEvidence,
    CoverageFile,
    ImportsEvidence,
)
from harness.model.globs import matching_glob
from harness.model.words import Arm
from reports.checks import CheckCard
from reports.drills.pivot import missing_check
from reports.drills.placed import Placed, placed
from reports.drills.tables import Drill, Missing, Table, code_cell, number_cell, table_of, text_cell
from reports.shown import Shown, Tally, clip, pointer, visible

CHECK = "COR004"
START = "start"
"""The name under which lines are recorded that ran before the first suite."""
LINES_CHARACTERS = 300
_Files = dict[str, list[tuple[str, int, CoverageFile]]]
"""By path of the file: path of the record, place in it, and the lines."""


def view_code(bundle: Bundle, cards: Sequence[CheckCard]) -> Drill:
    """Files by kind, coverage a file, files without any, imports of the engine."""
    parts: list[Table | Missing] = []
    diffs = placed(bundle, ChangedFilesEvidence)
    parts += [_kinds(diff) for diff in diffs]
    if not diffs:
        parts.append(missing_check(cards, ("ISO001",), "Changed files by kind"))
    records = [c for c in placed(bundle, CoverageEvidence) if c.record.arm is Arm.CANDIDATE]
    files: _Files = {}
    for record in records:
        for place, file in enumerate(record.record.files):
            files.setdefault(file.path, []).append((record.path, place, file))
    if files:
        parts.append(_coverage(files, cards))
    else:
        parts.append(missing_check(cards, (CHECK,), "Lines of the change without a test"))
    parts += [_not_covered(diff, bundle.manifest.paths.owned, files) for diff in diffs]
    imports = placed(bundle, ImportsEvidence)
    parts += [_imports(record) for record in imports]
    if not imports:
        parts.append(missing_check(cards, ("ISO004",), "Code of the engine that the change uses"))
    return Drill(
        anchor="code",
        title="Code",
        question="What it touches, and what nothing ran",
        checks=("ISO001", CHECK, "ISO004"),
        parts=tuple(parts),
    )


def kind_of_file(path: str) -> str:
    """The last suffix, lower case; "no suffix" for none."""
    return PurePosixPath(path).suffix.lower() or "no suffix"


def _kinds(diff: Placed[ChangedFilesEvidence]) -> Table:
    """A row for each suffix; `like=N` in a rule means: with the suffix of file N."""
    groups: dict[str, list[int]] = {}
    for place, file in enumerate(diff.record.files):
        groups.setdefault(kind_of_file(file.path), []).append(place)
    rows = []
    for _, places in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        found = [diff.record.files[place] for place in places]
        like = f"like={places[0]}"
        example = diff.text(found[0].path, "files", places[0], "path")
        added, deleted = (
            sum(getattr(f, key) or 0 for f in found) for key in ("added_lines", "deleted_lines")
        )
        rows.append(
            (
                code_cell(example),
                number_cell(diff.tally(len(found), f"files {like}", "files")),
                number_cell(diff.tally(added, f"added-lines {like}", "files")),
                number_cell(diff.tally(deleted, f"deleted-lines {like}", "files")),
            )
        )
    return table_of(
        "Changed files by suffix, with the first of each",
        ("First of its kind", "Files", "Added lines", "Deleted"),
        rows,
    )


def _coverage(files: _Files, cards: Sequence[CheckCard]) -> Table:
    """Executable lines of each file, and how many ran; the lines that none ran are the check's own list."""
    missed = _missed_lines(cards)
    rows = []
    for path, found in sorted(files.items(), key=lambda pair: (-_num_missed(pair[1]), pair[0])):
        record, place, file = found[0]
        refs = tuple(pointer(r, "files", p) for r, p, _ in found)
        ran, in_suite = (len(lines_run(found, with_start=start)) for start in (True, False))
        total = len(set(file.executable_lines))
        rows.append(
            (
                code_cell(
                    clip(
                        Shown(text=visible(file.path), ref=pointer(record, "files", place, "path")),
                        LINES_CHARACTERS,
                    )
                ),
                number_cell(Tally(value=total, rule="executable-lines", refs=refs)),
                number_cell(Tally(value=ran, rule="executed-lines", refs=refs)),
                number_cell(Tally(value=in_suite, rule="executed-lines-in-suites", refs=refs)),
                code_cell(missed.get(path)),
            )
        )
    head = ("File", "Executable lines", "Ran", "Ran in an evaluation", "Lines without a test")
    return table_of("Lines of the change that the candidate's workers ran, most missed first", head, rows)


def lines_run(found: Sequence[tuple[str, int, CoverageFile]], *, with_start: bool) -> set[int]:
    """Executable lines that ran in any record, imports before the first suite counted or not."""
    lines: set[int] = set()
    for _, _, file in found:
        for suite, ran in file.executed_lines.items():
            if with_start or suite != START:
                lines |= set(ran) & set(file.executable_lines)
    return lines


def _num_missed(found: Sequence[tuple[str, int, CoverageFile]]) -> int:
    return len(set(found[0][2].executable_lines)) - len(lines_run(found, with_start=True))


def _missed_lines(cards: Sequence[CheckCard]) -> Mapping[str, Shown]:
    """By path, the check's own line on what did not run."""
    details = [d for c in cards if c.id.text == CHECK for f in c.findings for d in f.details]
    return {
        d.text.partition(": lines ")[0]: clip(d, LINES_CHARACTERS) for d in details if ": lines " in d.text
    }


def _not_covered(
    diff: Placed[ChangedFilesEvidence], owned: Sequence[str], files: Mapping[str, object]
) -> Table:
    """Python files of the subject that no worker imported while its lines were traced."""
    found = [
        (place, file)
        for place, file in enumerate(diff.record.files)
        if file.path.endswith(".py") and file.status != "deleted" and matching_glob(file.path, owned)
        if file.path not in files
    ]
    rows = [
        (
            code_cell(diff.text(file.path, "files", place, "path")),
            number_cell(diff.known(file.added_lines, "files", place, "added_lines")),
        )
        for place, file in found
    ]
    caption = "Python files that the change owns and that no coverage record holds: nothing shows that a test ran them"
    return table_of(caption, ("File", "Added lines"), rows)


def _imports(record: Placed[ImportsEvidence]) -> Table:
    rows = [
        (
            code_cell(record.text(use.target, "outward", i, "target")),
            text_cell(record.text(use.form, "outward", i, "form")),
            code_cell(
                record.text(use.path, "outward", i, "path"),
                ":",
                record.number(use.line, "outward", i, "line"),
            ),
        )
        for i, use in enumerate(record.record.outward)
    ]
    caption = "Code of the engine that the change uses"
    return table_of(caption, ("Used", "How", "Where"), rows, record.length(record.record.outward, "outward"))
