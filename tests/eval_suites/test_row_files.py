"""Data sets are read as they are published; what is wrong with one is said with file and row."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eval_suites import row_files
from eval_suites.aime import parse_aime_row
from eval_suites.aime_generator import generate_rows as generate_aime
from eval_suites.loaded_rows import LoadedRows, load_rows
from eval_suites.mrcr import parse_mrcr_row
from eval_suites.mrcr_generator import generate_rows as generate_mrcr
from harness.model.errors import ConfigurationError
from harness.model.evals import EvalSource

Rows = Sequence[dict[str, Any]]
MRCR = list(generate_mrcr(seed=1, count=4, num_bytes=600, needles=2))
AIME = [
    {"id": row["id"], "problem": row["problem"], "answer": str(row["answer"])}
    for row in generate_aime(seed=1, count=8)
]


def write_jsonl(file: Path, rows: Rows) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(file: Path, rows: Rows) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {"jsonl": write_jsonl, "parquet": write_parquet}


def load(root: Path, path: str = "rows.jsonl", *, max_context: int = 4096, aime: bool = False) -> LoadedRows:
    parse = parse_aime_row if aime else parse_mrcr_row
    return load_rows(EvalSource(path=path), root, parse, max_context)


@pytest.mark.parametrize("suffix", WRITERS)
def test_mrcr_rows_are_read_from_either_format(suffix: str, tmp_path: Path) -> None:
    WRITERS[suffix](tmp_path / f"2needle.{suffix}", MRCR)
    loaded = load(tmp_path, f"2needle.{suffix}")
    assert [row.answer for row in loaded.rows] == [row["answer"] for row in MRCR]
    assert [row.row for row in loaded.rows] == [f"2needle-{n}" for n in (1, 2, 3, 4)]
    assert [[m.model_dump() for m in row.messages] for row in loaded.rows] == [
        json.loads(r["prompt"]) for r in MRCR
    ]


@pytest.mark.parametrize("suffix", WRITERS)
def test_aime_rows_are_read_from_either_format(suffix: str, tmp_path: Path) -> None:
    WRITERS[suffix](tmp_path / f"test.{suffix}", AIME)
    loaded = load(tmp_path, f"test.{suffix}", aime=True)
    assert [row.answer for row in loaded.rows] == [row["answer"] for row in AIME]
    assert all(
        row.messages[0].content.startswith(r["problem"]) for row, r in zip(loaded.rows, AIME, strict=True)
    )


def test_both_formats_of_the_same_rows_have_one_digest(tmp_path: Path) -> None:
    for suffix, write in WRITERS.items():
        write(tmp_path / f"rows.{suffix}", MRCR)
    assert load(tmp_path, "rows.jsonl").sha256 == load(tmp_path, "rows.parquet").sha256


def test_another_answer_is_another_digest(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", AIME)
    write_jsonl(tmp_path / "b.jsonl", [AIME[0] | {"answer": "999"}, *AIME[1:]])
    assert load(tmp_path, "a.jsonl", aime=True).sha256 != load(tmp_path, "b.jsonl", aime=True).sha256


def test_a_folder_is_read_file_by_file_in_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "README.md").write_text("no rows")
    names = [f"{n}needle" for n in (7, 3, 10, 1, 9, 4, 2, 8, 6, 5)]
    for index, name in enumerate(names):
        WRITERS["parquet" if index == 0 else "jsonl"](
            tmp_path / "data" / f"{name}.{'parquet' if index == 0 else 'jsonl'}", MRCR[:1]
        )
    assert [row.row for row in load(tmp_path, "data").rows] == [f"{name}-1" for name in sorted(names)]


def test_rows_that_no_context_can_hold_are_counted_and_not_kept(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "rows.jsonl", [MRCR[0] | {"prompt": json.dumps([{"role": "user", "content": "x" * 2000}])}]
    )
    assert (load(tmp_path, max_context=100).num_left_out, load(tmp_path, max_context=200).num_left_out) == (
        1,
        0,
    )


def test_rows_of_one_conversation_share_a_cluster(tmp_path: Path) -> None:
    messages = json.loads(MRCR[0]["prompt"])
    messages[-1]["content"] = f"Put {MRCR[0]['random_string_to_prepend']} before the other one."
    write_jsonl(tmp_path / "rows.jsonl", [MRCR[0], MRCR[0] | {"prompt": json.dumps(messages)}, MRCR[1]])
    first, other, stranger = (row.cluster for row in load(tmp_path).rows)
    assert first == other != stranger


def messages_of(*messages: object) -> str:
    return json.dumps(list(messages))


BAD_MRCR: dict[str, tuple[dict[str, Any], str]] = {
    "no answer": ({"answer": None}, "answer: got None"),
    "an answer without its prefix": ({"answer": "something else"}, "begin with the prefix"),
    "an answer of its prefix alone": (
        {"answer": MRCR[1]["random_string_to_prepend"]},
        "answer: got nothing behind the prefix",
    ),
    "an empty prefix": ({"random_string_to_prepend": ""}, "random_string_to_prepend: got ''"),
    "an empty prompt": ({"prompt": ""}, "prompt: got ''"),
    "a prompt without messages": ({"prompt": "[]"}, "expected a list of messages"),
    "a prompt that is no JSON": ({"prompt": "[{"}, "prompt: not JSON"),
    "a prompt of one text": ({"prompt": '"hello"'}, "expected a list of messages"),
    "an unknown role": ({"prompt": messages_of({"role": "judge", "content": "x"})}, "a message's role"),
    "a message without content": ({"prompt": messages_of({"role": "user"})}, "a message's content"),
    "a message that is no object": ({"prompt": messages_of("x")}, "prompt: a message"),
    "a last message of the assistant": (
        {"prompt": messages_of({"role": "assistant", "content": "x"})},
        "not a user's question",
    ),
    "needles as text": ({"n_needles": "2"}, "n_needles: got '2'"),
    "needles as a truth value": ({"n_needles": True}, "n_needles: got True"),
    "no needles": ({"n_needles": 0}, "n_needles: got 0"),
    "characters as a decimal": ({"n_chars": 4.5}, "n_chars: got 4.5"),
    "half a surrogate pair": ({"answer": "\ud800"}, "surrogate"),
}


@pytest.mark.parametrize("name", BAD_MRCR)
def test_a_bad_mrcr_row_is_named_with_its_file_and_number(name: str, tmp_path: Path) -> None:
    change, said = BAD_MRCR[name]
    write_jsonl(tmp_path / "rows.jsonl", [MRCR[0], MRCR[1] | change])
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path)
    assert f"rows.jsonl, row 2: {said}" in caught.value.message or (
        "rows.jsonl, row 2" in caught.value.message and said in caught.value.message
    )


@pytest.mark.parametrize(
    "answer", ["1000", "-1", "4.0", "", "forty-two", None, 1000, -1, 4.5, True, [4]], ids=repr
)
def test_an_aime_answer_that_is_no_integer_from_0_to_999_is_named(answer: object, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [AIME[0] | {"answer": answer}])
    with pytest.raises(ConfigurationError, match=r"row 1: answer: got .*, expected an integer from 0 to 999"):
        load(tmp_path, aime=True)


def test_every_bad_row_is_listed_and_not_only_the_first(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [AIME[0], *[{"answer": "1"}] * 30])
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, aime=True)
    assert (
        caught.value.message.startswith("30 rows") and "row 2: problem: got nothing" in caught.value.message
    )
    assert caught.value.message.endswith("and 10 more")


@pytest.mark.parametrize("line", ["{", "[1]", '{"answer": NaN}', "[" * 100_000, "\x00"], ids=range(5))
def test_a_line_that_is_no_json_object_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(MRCR[0]) + "\n\n" + line + "\n")
    with pytest.raises(ConfigurationError, match=r"rows\.jsonl, row 3"):
        load(tmp_path)


def test_a_number_that_is_not_finite_is_found_in_parquet(tmp_path: Path) -> None:
    write_parquet(tmp_path / "rows.parquet", [AIME[0] | {"extra": float("nan")}])
    with pytest.raises(ConfigurationError, match=r"rows\.parquet, row 1"):
        load(tmp_path, "rows.parquet", aime=True)


def test_a_damaged_parquet_file_is_an_error_of_ours_and_not_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ConfigurationError, match=r"rows\.parquet cannot be read"):
        load(tmp_path, "rows.parquet")


@pytest.mark.parametrize("path", ["nothing", "empty"])
def test_a_place_without_rows_is_said(path: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"no \.jsonl or \.parquet file"):
        load(tmp_path, path)


def test_a_link_out_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    write_jsonl(tmp_path / "rows.jsonl", MRCR)
    (tmp_path / "repo" / "rows.jsonl").symlink_to(tmp_path / "rows.jsonl")
    with pytest.raises(ConfigurationError, match="leads out"):
        load(tmp_path / "repo")


REVISION = "0" * 40


class FakeHub:
    """What `huggingface_hub` has of a data set."""

    class errors:
        class HfHubHTTPError(Exception): ...

    def __init__(self, answer: Path | Exception) -> None:
        self._answer = answer
        self.asked: tuple[object, ...] = ()

    def snapshot_download(self, name: str, **options: object) -> str:
        self.asked = (name, options["repo_type"], options["revision"])
        if isinstance(self._answer, Exception):
            raise self._answer
        return str(self._answer)


def test_a_hub_data_set_is_read_at_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "2needle.parquet", MRCR)
    hub = FakeHub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    source = EvalSource(hub="openai/mrcr", revision=REVISION)
    loaded = load_rows(source, Path("elsewhere"), parse_mrcr_row, 4096)
    assert (len(loaded.rows), loaded.source) == (4, f"openai/mrcr@{REVISION}")
    assert hub.asked == ("openai/mrcr", "dataset", REVISION)


@pytest.mark.parametrize("error", [OSError("no route"), FakeHub.errors.HfHubHTTPError("404")], ids=repr)
def test_a_hub_that_cannot_be_reached_says_what_to_do(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", FakeHub(error))
    with pytest.raises(ConfigurationError, match="cannot be had") as caught:
        row_files.fetch_from_hub("openai/mrcr", REVISION)
    assert "path in [evals]" in caught.value.advice


def test_the_real_library_says_offline_as_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigurationError, match="cannot be had"):
        row_files.fetch_from_hub("openai/mrcr", REVISION)


@pytest.mark.parametrize("library", ["huggingface_hub", "pyarrow.parquet"])
def test_a_missing_library_is_named_with_what_to_install(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "rows.parquet", MRCR)
    monkeypatch.setitem(sys.modules, library, None)
    source = EvalSource(path="rows.parquet") if "." in library else EvalSource(hub="a/b", revision=REVISION)
    with pytest.raises(ConfigurationError, match=library) as caught:
        load_rows(source, tmp_path, parse_mrcr_row, 4096)
    assert "fasttrack[eval]" in caught.value.advice


@pytest.mark.parametrize("names", [("a b", "a-b"), ("a/b", "a-b")])
def test_files_whose_rows_would_have_one_name_are_named(names: tuple[str, str], tmp_path: Path) -> None:
    for name, row in zip(names, MRCR, strict=False):
        file = tmp_path / "data" / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(file, [row])
    with pytest.raises(ConfigurationError, match="its name would be a-b-1"):
        load(tmp_path, "data")


def test_one_question_with_two_answers_is_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [AIME[0], AIME[0], AIME[0] | {"answer": "999"}])
    with pytest.raises(
        ConfigurationError, match=r"row 3: answer: got '999' to the question of rows.jsonl, row 1"
    ):
        load(tmp_path, aime=True)


def test_rows_that_occur_twice_alike_are_kept(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [*AIME, *AIME])
    assert len(load(tmp_path, aime=True).rows) == 2 * len(AIME)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_a_row_is_said(content: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(ConfigurationError, match="hold no row"):
        load(tmp_path)


def test_a_folder_of_a_data_files_name_is_no_data_file(tmp_path: Path) -> None:
    (tmp_path / "data" / "x.jsonl").mkdir(parents=True)
    write_jsonl(tmp_path / "data" / "y.jsonl", MRCR[:1])
    assert [row.row for row in load(tmp_path, "data").rows] == ["y-1"]
