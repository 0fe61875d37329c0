"""Laws of the timed arms' driver, with a made engine."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine.probe.block_driver import BlockEngine, spread_tokens


class MadeEngine:
    """Emits as many tokens a request as it is asked for, one a step."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.batches: list[int] = []
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 1000)

    def has_unfinished_requests(self) -> bool:
        return bool(self.left)

    def step(self) -> list[Any]:
        self.batches.append(len(self.left))
        names = list(self.left)
        self.left = {name: count - 1 for name, count in self.left.items() if count > 1}
        return [SimpleNamespace(request_id=n, outputs=[SimpleNamespace(token_ids=[7])]) for n in names]


class MadeDriver(BlockEngine):
    """Adds requests to the made engine; it refuses prompts of more than four tokens."""

    def _add(self, request: Mapping[str, Any]) -> None:
        if len(request["prompt"]) > 4:
            raise ValueError("too long")
        self._engine.left[request["id"]] = request["max_tokens"]


def answers_to(*commands: Mapping[str, Any], engine: MadeEngine | None = None) -> list[dict[str, Any]]:
    said = io.StringIO()
    asked = io.StringIO("".join(json.dumps(command) + "\n" for command in commands))
    MadeDriver(engine or MadeEngine(), said).obey(asked)
    return [json.loads(line) for line in said.getvalue().splitlines()]


def request(name: str, num_prompt: int = 2, max_tokens: int = 3) -> dict[str, Any]:
    return {"id": name, "prompt": [1] * num_prompt, "max_tokens": max_tokens}


def test_a_block_starts_together_and_every_step_is_told_by_itself() -> None:
    engine = MadeEngine()
    told = answers_to({"do": "serve", "requests": [request("a"), request("b")]}, engine=engine)
    assert engine.batches == [2, 2, 2]
    assert told == [
        *[{"tokens": {"a": [7], "b": [7]}}] * 3,
        {"counts": {"a": 3, "b": 3}, "refused": {}},
    ]


def test_a_refused_request_is_told_with_its_reason_and_the_others_are_served() -> None:
    told = answers_to({"do": "serve", "requests": [request("a"), request("b", num_prompt=5)]})
    assert told[-1] == {"counts": {"a": 3}, "refused": {"b": "ValueError: too long"}}


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
