"""Laws of prompts: real text of several kinds, seeded, never shared by two blocks; files without any are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.model.errors import ConfigurationError, EvidenceError
from perf_sweeps.cell import Cell, Workload
from perf_sweeps.prompts import PromptSource, read_prompt_file, shipped_passages


def tokenize(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def detokenize(tokens: Sequence[int]) -> str:
    """Bytes that begin in the middle of a letter become three bytes each, as a server's replacement character does."""
    return bytes(tokens).decode("utf-8", "replace")


def cell(**changed: object) -> Cell:
    return Cell.model_validate(
        {"workload": Workload.DECODE, "batch": 4, "input_len": 700, "output_len": 8} | changed
    )


def source(seed: int = 0, vocabulary: int | None = None) -> PromptSource:
    return PromptSource(tokenize, shipped_passages(), seed=seed, vocabulary=vocabulary)


def test_the_shipped_text_holds_many_scripts_code_and_dialogue() -> None:
    text = "\n".join(shipped_passages())
    samples = (
        "ß",
        "où",
        "ñ",
        "библиотека",
        "夜明け",
        "石匠",
        "الساعاتي",
        "def ",
        "struct ",
        "SELECT",
        "User:",
        "| K-01 |",
    )
    assert [s for s in samples if s not in text] == []


def test_no_two_shipped_passages_are_the_same() -> None:
    assert len(set(shipped_passages())) == len(shipped_passages()) >= 15


def test_prompts_have_the_cells_length_and_one_is_there_for_each_request() -> None:
    assert [len(p) for p in source().of(cell(), 0)] == [700] * 4


def test_the_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    assert source().of(cell(), 3) == source().of(cell(), 3) != source(1).of(cell(), 3)


def test_no_prompt_comes_again_in_another_block_round_or_cell() -> None:
    found = [
        prompt
        for asked in (cell(), cell(input_len=699))
        for block in range(3)
        for round_ in range(2)
        for prompt in source().of(asked, block, round_)
    ]
    assert len({p[:600] for p in found}) == len(found) == 48


def test_random_tokens_come_only_when_asked_and_never_without_a_vocabulary() -> None:
    asked = cell(prompts="random")
    assert max(max(p) for p in source(vocabulary=9).of(asked, 0)) < 9
    with pytest.raises(ConfigurationError):
        source().of(asked, 0)


def test_random_prompts_are_labelled_in_the_cells_name() -> None:
    assert cell(prompts="random").name == cell().name + "/random"


@pytest.mark.parametrize(
    ("content", "prompts"),
    [
        ("one\ntwo\n%\nthree\n", ("one\ntwo", "three\n")),
        ('{"prompt": "one"}\n{"text": "two"}\n', ("one", "two")),
        ("one\r\n%\r\ntwo", ("one", "two")),
    ],
)
def test_a_file_of_ones_own_is_json_lines_or_text(
    tmp_path: Path, content: str, prompts: tuple[str, ...]
) -> None:
    (tmp_path / "p").write_bytes(content.encode())
    assert read_prompt_file(tmp_path / "p") == prompts


@pytest.mark.parametrize(
    "content", [b"", b" \n%\n \n", b"\xff\xfe", b'{"prompt": 1}', b'{"prompt": "a"}\n[1]', b"{"]
)
def test_a_prompt_file_without_usable_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(ConfigurationError):
        read_prompt_file(tmp_path / "p")


def test_a_prompt_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        read_prompt_file(tmp_path / "p")


def test_a_stretch_of_text_is_that_of_its_name_alone() -> None:
    one = source()
    first = one.stretch("a", 900)
    one.of(cell(), 0)
    assert (one.stretch("a", 900), one.stretch("a", 900)[:50]) == (first, one.stretch("a", 50))
    assert one.stretch("b", 900) != first


def test_prompts_as_text_have_the_cells_length_again_when_they_are_read() -> None:
    prompts = PromptSource(tokenize, shipped_passages(), seed=0, detokenize=detokenize)
    texts = prompts.texts(cell(), 0)
    assert {len(tokenize(text)) for text in texts} == {700}
    assert len(set(texts)) == 4


def test_a_text_that_never_has_the_length_again_is_said() -> None:
    prompts = PromptSource(tokenize, shipped_passages(), seed=0, detokenize=lambda _: "")
    with pytest.raises(EvidenceError, match="none has"):
        prompts.texts(cell(), 0)
