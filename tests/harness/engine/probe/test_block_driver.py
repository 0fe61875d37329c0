"""Laws of the timed arms' driver, with a made engine."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine.probe.block_driver import BlockEngine, can_replay, spread_tokens


class MadeEngine:
    """Emits as many tokens a request as it is asked for, one a step."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.steps = SimpleNamespace(is_aside=False, num_steps=0, held_back=nullcontext, settle=lambda: None)
        """A tracer's, which writes a row a step unless it is set aside."""
        self.tracer = SimpleNamespace(steps=self.steps)
        self.batches: list[int] = []
        self.tells: set[str] = set()
        """Requests that asked for logprobs."""
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 1000)
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(enable_prefix_caching=True))

    def has_unfinished_requests(self) -> bool:
        return bool(self.left)

    def get_num_unfinished_requests(self) -> int:
        return len(self.left)

    def reset_prefix_cache(self) -> bool:
        return not self.left

    def step(self) -> list[Any]:
        assert self.left, "nothing is to be computed"
        self.batches.append(len(self.left))
        self.steps.num_steps += not self.steps.is_aside
        names = list(self.left)
        self.left = {name: count - 1 for name, count in self.left.items() if count > 1}
        top = [{7: SimpleNamespace(logprob=-0.5), 9: SimpleNamespace(logprob=-inf)}]
        return [
            SimpleNamespace(
                request_id=n,
                outputs=[SimpleNamespace(token_ids=[7], logprobs=top if n in self.tells else None)],
            )
            for n in names
        ]


class MadeDriver(BlockEngine):
    """Adds requests to the made engine; it refuses prompts of more than four tokens."""

    def _add(self, request: Mapping[str, Any]) -> None:
        if len(request["prompt"]) > 4:
            raise ValueError("too long")
        self._engine.left[request["id"]] = request["max_tokens"]


def answers_to(*commands: Mapping[str, Any], engine: MadeEngine | None = None) -> list[dict[str, Any]]:
    said = io.StringIO()
    asked = io.StringIO("".join(json.dumps(command) + "\n" for command in commands))
    engine = engine or MadeEngine()
    MadeDriver(engine, said, engine.tracer).obey(asked)
    return [json.loads(line) for line in said.getvalue().splitlines()]


def request(name: str, num_prompt: int = 2, max_tokens: int = 3) -> dict[str, Any]:
    return {"id": name, "prompt": [1] * num_prompt, "max_tokens": max_tokens}


def serve(*requests: Mapping[str, Any], concurrency: int = 2) -> dict[str, Any]:
    return {"do": "serve", "concurrency": concurrency, "requests": requests}


def test_a_block_starts_together_and_every_step_is_told_by_itself() -> None:
    engine = MadeEngine()
    told = answers_to(serve(request("a"), request("b")), engine=engine)
    assert engine.batches == [2, 2, 2]
    assert told == [
        *[{"tokens": {"a": [7], "b": [7]}}] * 3,
        {"counts": {"a": 3, "b": 3}, "refused": {}},
    ]


def test_a_refused_request_is_told_with_its_reason_and_the_others_are_served() -> None:
    told = answers_to(serve(request("a"), request("b", num_prompt=5)))
    assert told[-1] == {"counts": {"a": 3}, "refused": {"b": "ValueError: too long"}}


def test_the_rest_waits_until_one_ends_and_each_that_waited_is_told_when_it_begins() -> None:
    engine = MadeEngine()
    asked = [request("a", max_tokens=1), request("b"), request("c", num_prompt=5), request("d"), request("e")]
    told = answers_to(serve(*asked), engine=engine)
    assert engine.batches == [2, 2, 2, 2, 1, 1]
    assert [line["begun"] for line in told if "begun" in line] == [["d"], ["e"]]
    assert told[-1]["counts"] == {"a": 1, "b": 3, "d": 3, "e": 3} and list(told[-1]["refused"]) == ["c"]


def test_a_block_of_which_all_is_refused_computes_nothing() -> None:
    told = answers_to(serve(request("a", num_prompt=5), request("b", num_prompt=5)))
    assert told == [{"counts": {}, "refused": dict.fromkeys("ab", "ValueError: too long")}]


@pytest.mark.parametrize(
    ("keeps", "is_idle", "forgot"), [(True, True, True), (True, False, False), (False, False, True)]
)
def test_what_is_kept_of_earlier_requests_is_forgotten_or_the_answer_says_no(
    keeps: bool, is_idle: bool, forgot: bool
) -> None:
    engine = MadeEngine()
    engine.vllm_config.cache_config.enable_prefix_caching = keeps
    engine.left = {} if is_idle else {"a": 1}
    assert answers_to({"do": "forget"}, engine=engine) == [{"forgot": forgot}]


def test_nothing_is_obeyed_after_the_end() -> None:
    assert answers_to({"do": "end"}, {"do": "tokenize", "text": "a"}) == []


def test_without_a_tokenizer_texts_become_tokens_of_the_whole_vocabulary() -> None:
    (told,) = answers_to({"do": "tokenize", "text": "abc"})
    assert told["tokens"] == spread_tokens("abc", 1000)
    texts = [spread_tokens(f"prompt {number} of many", 160_000) for number in range(64)]
    last = [tokens[-1] for tokens in texts]
    assert len(set(last)) == 64 and max(last) > 120_000 and min(last) < 40_000


@pytest.mark.parametrize("vocabulary", [2, 97])
def test_no_token_lies_beyond_the_vocabulary(vocabulary: int) -> None:
    assert set(spread_tokens("every good boy does fine" * 4, vocabulary)) <= set(range(vocabulary))


def test_the_logprobs_of_those_that_asked_are_told_with_their_tokens() -> None:
    engine = MadeEngine()
    engine.tells = {"b"}
    told = answers_to(serve(request("a", max_tokens=1), request("b", max_tokens=2)), engine=engine)
    likely = [{"7": -0.5, "9": -inf}]
    assert told[:-1] == [
        {"tokens": {"a": [7], "b": [7]}, "logprobs": {"b": likely}},
        {"tokens": {"b": [7]}, "logprobs": {"b": likely}},
    ]


def asked_of_vllm(
    monkeypatch: pytest.MonkeyPatch, engine: MadeEngine, **more: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """The parameters that vLLM is given for a request, and what is refused."""
    made = {
        "vllm": SimpleNamespace(SamplingParams=SimpleNamespace),
        "vllm.exceptions": SimpleNamespace(VLLMClientError=KeyError),
        "vllm.sampling_params": SimpleNamespace(RequestOutputKind=SimpleNamespace(DELTA=1)),
    }
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    found: dict[str, Any] = {}
    engine.add_request = lambda name, _, params: found.update({name: vars(params)})  # type: ignore[attr-defined]
    said = io.StringIO()
    BlockEngine(engine, said, engine.tracer).obey(io.StringIO(json.dumps(serve(request("a") | more)) + "\n"))
    return found.get("a", {}), json.loads(said.getvalue().splitlines()[-1])["refused"]


def test_a_request_is_given_its_tokens_by_vllms_trace_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MadeEngine()
    engine.model_config.enable_trace_replay = True
    params, refused = asked_of_vllm(monkeypatch, engine, given=[3, 4, 5], logprobs=1)
    assert (params["trace_decode_token_ids"], params["logprobs"], refused) == ([3, 4, 5], 1, {})
    params, refused = asked_of_vllm(monkeypatch, engine)
    assert ("trace_decode_token_ids" in params, params["logprobs"], refused) == (False, None, {})


def test_an_engine_that_cannot_be_given_tokens_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    params, refused = asked_of_vllm(monkeypatch, MadeEngine(), given=[3, 4, 5])
    assert (params, refused) == ({}, {"a": "ValueError: this engine cannot be given tokens"})


@pytest.mark.parametrize(
    ("fields", "drafts", "can"),
    [
        ({"enable_trace_replay": True}, None, True),
        ({"enable_trace_replay": True}, 1, False),
        ({}, None, False),
    ],
)
def test_an_engine_says_whether_it_can_be_given_tokens(
    fields: dict[str, bool], drafts: int | None, can: bool
) -> None:
    config = SimpleNamespace(speculative_config=drafts)
    assert can_replay(SimpleNamespace(model_config=SimpleNamespace(**fields), vllm_config=config)) is can


def test_the_tracer_is_set_aside_by_turns_of_one_batch_and_back_at_the_end() -> None:
    engine = MadeEngine()
    requests = [request("a", max_tokens=9), request("b", max_tokens=9)]
    command = {"do": "alternate", "requests": requests, "turns": [True, False, False, True], "num_steps": 2}
    (told,) = answers_to(command, engine=engine)
    assert [(t["num_rows"], t["num_tokens"]) for t in told["turns"]] == [(2, 4), (0, 4), (0, 4), (2, 4)]
    assert all(t["seconds"] > 0 for t in told["turns"])
    assert engine.batches == [2] * 9 and not engine.steps.is_aside
