"""lm-eval's tasks reach an arm request by request: every document has answers of its own, and lm-eval's own score."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from eval_suites.mrcr_generator import generate_rows
from harness.model.completion import CompletionRequest
from harness.model.errors import ConfigurationError, EngineError
from harness.model.evals import LmEvalTask
from harness.model.evaluation import SuiteItem, TokenLogprobs

pytest.importorskip("lm_eval", reason='needs pip install "fasttrack[lm-eval]", which make setup leaves out')

from eval_suites.lm_eval_task import TaskResult, run_task

TASKS = Path(__file__).parents[2] / "eval_suites" / "lm_eval_tasks"
NO_TOKEN = 999


class FakeCompleter:
    """Answers everything with one text; a forced token n has the logprob -n / 1000, and its rival -0.05."""

    def __init__(self, text: str = "P one", *, error: str = "", forgets: bool = False) -> None:
        self.asked: list[CompletionRequest] = []
        self._text, self._error, self._forgets = text, error, forgets

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        self.asked += requests
        return tuple(self._answer(request, concurrency, suite) for request in requests)

    def _answer(self, request: CompletionRequest, concurrency: int, suite: str) -> SuiteItem:
        tokens = request.force_token_ids or tuple(self._text.encode())
        return SuiteItem(
            item=request.item,
            row=request.row,
            request_id=f"{suite}-{request.item}",
            concurrency=concurrency,
            num_prompt_tokens=1,
            token_ids=tokens,
            text=self._text,
            finish_reason="stop",
            num_completion_tokens=len(tokens),
            top_logprobs=tuple(self._top(token) for token in tokens) if request.logprobs else (),
            error=self._error,
        )

    def _top(self, token: int) -> TokenLogprobs:
        pairs = [(NO_TOKEN, -0.05)] if self._forgets else [(token, -token / 1000), (NO_TOKEN, -0.05)]
        pairs.sort(key=lambda pair: -pair[1])
        return TokenLogprobs(
            token_ids=tuple(t for t, _ in pairs), logprobs=tuple(value for _, value in pairs)
        )


def write_task(folder: Path, body: str, rows: Sequence[dict[str, str]]) -> None:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder}/rows.jsonl}}}}\ntest_split: test\n"
    (folder / "task.yaml").write_text(f"task: tiny\n{files}{body}")


GENERATE = """
output_type: generate_until
doc_to_text: "{{q}} ->"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
CHOOSE = """
output_type: multiple_choice
doc_to_text: "{{q}} ->"
doc_to_choice: ["ab", "zz"]
doc_to_target: "{{a}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def run(
    folder: Path, completer: FakeCompleter, *, chat: bool = False, limit: int = 0, name: str = "tiny"
) -> TaskResult:
    task = LmEvalTask(task=name, include_path=".", limit=limit)
    return run_task(
        task, completer, root=folder, tokenize=lambda t: tuple(t.encode()), concurrency=2, chat=chat
    )


def test_a_generated_answer_is_scored_by_the_tasks_own_metric(folder: Path) -> None:
    write_task(folder, GENERATE, [{"q": "Q0", "a": "P one"}, {"q": "Q1", "a": "two"}])
    result = run(folder, FakeCompleter())
    assert [(s.row, s.metric, s.value) for s in result.scores] == [
        ("0", "exact_match", 1),
        ("1", "exact_match", 0),
    ]


def test_every_document_has_request_ids_of_its_own(folder: Path) -> None:
    write_task(folder, GENERATE, [{"q": f"Q{n}", "a": "x"} for n in range(5)])
    items = run(folder, FakeCompleter(), limit=3).items
    assert [item.row for item in items] == ["0", "1", "2"]
    assert len({item.request_id for item in items}) == 3


def test_stop_strings_lengths_and_greed_reach_the_request(folder: Path) -> None:
    write_task(folder, GENERATE, [{"q": "Q0", "a": "x"}])
    completer = FakeCompleter()
    run(folder, completer)
    (asked,) = completer.asked
    assert (asked.max_tokens, asked.temperature, json.loads(asked.options_text)) == (8, 0.0, {"stop": ["\n"]})
    assert asked.prompt_token_ids == tuple(b"Q0 ->")


def test_with_a_chat_template_the_server_gets_messages(folder: Path) -> None:
    write_task(folder, GENERATE, [{"q": "Q0", "a": "x"}])
    completer = FakeCompleter()
    run(folder, completer, chat=True)
    assert [(m.role, m.content) for m in completer.asked[0].messages] == [("user", "Q0 ->")]


def test_a_continuation_is_decoded_token_by_token_and_its_logprobs_are_summed(folder: Path) -> None:
    write_task(folder, CHOOSE, [{"q": "Q0", "a": "0"}, {"q": "Q1", "a": "1"}])
    completer = FakeCompleter()
    result = run(folder, completer)
    assert [r.force_token_ids for r in completer.asked[:2]] == [tuple(b" ab"), tuple(b" zz")]
    assert [s.value for s in result.scores if s.metric == "acc"] == [1, 0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (GENERATE.replace("do_sample: false", "num_beams: 4"), "num_beams"),
        (GENERATE.replace("generate_until", "loglikelihood_rolling"), "not scored"),
        (GENERATE.replace("{{q}} ->", ""), "empty context"),
    ],
    ids=["beams", "rolling", "empty"],
)
def test_what_cannot_be_served_is_refused_and_not_changed(body: str, said: str, folder: Path) -> None:
    write_task(folder, body, [{"q": "Q0", "a": "x"}])
    with pytest.raises(ConfigurationError, match=said):
        run(folder, FakeCompleter())


def test_a_task_that_does_not_exist_is_named(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="no task 'tinny'"):
        run(folder, FakeCompleter(), name="tinny")


def test_a_refused_request_is_no_answer(folder: Path) -> None:
    write_task(folder, GENERATE, [{"q": "Q0", "a": "x"}])
    with pytest.raises(EngineError, match="HTTP 400"):
        run(folder, FakeCompleter(error="HTTP 400"))


def test_a_logprob_that_did_not_come_back_is_not_guessed(folder: Path) -> None:
    write_task(folder, CHOOSE, [{"q": "Q0", "a": "0"}])
    with pytest.raises(EngineError, match="no logprob of token"):
        run(folder, FakeCompleter(forgets=True))


def test_a_task_without_its_data_set_is_an_error_of_ours(folder: Path) -> None:
    write_task(folder, GENERATE, [{"q": "Q0", "a": "x"}])
    (folder / "rows.jsonl").unlink()
    with pytest.raises(EngineError, match="tiny: lm-eval ended with"):
        run(folder, FakeCompleter())


@pytest.fixture
def mrcr(folder: Path) -> Path:
    """The MRCR task that is shipped, on generated rows."""
    rows = list(generate_rows(seed=1, count=3, num_bytes=500, needles=2))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copy(TASKS / "mrcr_task.py", folder)
    local = f"dataset_path: json\ndataset_kwargs: {{data_files: {{train: {folder}/rows.jsonl}}}}"
    text = (TASKS / "mrcr.yaml").read_text()
    assert "dataset_path: openai/mrcr" in text
    (folder / "mrcr.yaml").write_text(text.replace("dataset_path: openai/mrcr", local))
    return folder


def test_an_mrcr_conversation_reaches_the_model_as_its_messages(mrcr: Path) -> None:
    rows = [json.loads(line) for line in (mrcr / "rows.jsonl").read_text().splitlines()]
    completer = FakeCompleter(rows[0]["answer"])
    result = run(mrcr, completer, chat=True, name="mrcr")
    assert [[m.model_dump() for m in r.messages] for r in completer.asked] == [
        json.loads(row["prompt"]) for row in rows
    ]
    assert [s.value for s in result.scores] == [1.0, 0.0, 0.0]


def test_an_mrcr_conversation_is_never_flattened_into_one_text(mrcr: Path) -> None:
    with pytest.raises(ConfigurationError, match="chat = true"):
        run(mrcr, FakeCompleter(), name="mrcr")
