"""What a suite asks of an arm: one completion request, and the seam through which many are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.model.evaluation import ChatMessage, SuiteItem


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One request: token ids for the completions endpoint, or messages for the chat endpoint."""

    item: str
    """The name of the request inside its suite, the same across arms."""
    max_tokens: int
    prompt_token_ids: tuple[int, ...] = ()
    messages: tuple[ChatMessage, ...] = ()
    """A conversation, message by message; the server applies the model's chat template."""
    row: str = ""
    """The `EvalRow` that is asked, where the suite has rows."""
    sample: int = 0
    """Which of several samples of the row."""
    temperature: float = 0.0
    seed: int | None = None
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    top_p: float = 1.0
    force_token_ids: tuple[int, ...] = ()
    """Tokens that the sampler must emit, one a step from the first; the logprobs stay the model's own."""
    logprobs: int = 0
    """How many of the most likely tokens to report at each position (at most 20); 0 reports none."""
    json_schema: str = ""
    """JSON schema that the answer must obey; empty for free text."""
    options_text: str = ""
    """JSON object of further fields of the API, as vLLM spells them; what it sets, it sets last."""
    ignore_eos: bool = False
    stream: bool = False
    """Whether tokens are sent as they are made, with their arrival times in the item."""
    give_up_after: int = 0
    """Tokens after which the client closes a streamed answer's connection; 0 reads to the end."""

    def __post_init__(self) -> None:
        if bool(self.prompt_token_ids) == bool(self.messages):
            raise ValueError(f"{self.item}: a request needs prompt tokens or messages, and not both")
        if self.give_up_after and not self.stream:
            raise ValueError(f"{self.item}: only a streamed answer can be given up")
        if self.max_tokens < 1:
            raise ValueError(f"{self.item}: max_tokens is {self.max_tokens}, expected at least 1")
        if len(self.force_token_ids) > self.max_tokens:
            raise ValueError(
                f"{self.item}: {len(self.force_token_ids)} forced tokens, max_tokens {self.max_tokens}"
            )
        if not 0 <= self.logprobs <= 20:
            raise ValueError(f"{self.item}: logprobs is {self.logprobs}, expected 0 to 20")


class Completer(Protocol):
    """Sends requests to one arm."""

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        """Answers in the order of `requests`; exactly `concurrency` of them are in flight while enough remain.

        `together`: the first `concurrency` of them start in one step of the engine, so that a batch of that size
        occurs however slowly requests travel.

        A request that the server refuses is an item with its `error`; a server that cannot be reached or dies
        raises `EngineError`.
        """
        ...
