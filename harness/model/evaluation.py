"""What suites ask and what arms answer: questions with their reference answers, and served answers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from harness.model.record import Record

GIVEN_UP = "given up"
"""The finish reason of an answer whose client closed the connection."""


class ChatMessage(Record):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class EvalRow(Record):
    """One question of an evaluation suite with what its grader needs."""

    row: str
    """Its name inside the suite; answers carry it."""
    messages: tuple[ChatMessage, ...]
    answer: str
    """The reference answer, as the data set has it."""
    prefix: str = ""
    """MRCR: the string that an answer must begin with; part of `answer`."""
    num_needles: int = 0
    """MRCR: how many messages of the asked kind the conversation holds; 0 where the suite has no needles."""
    bin: str = ""
    """The class that results are shown by: a range of prompt lengths, a kind of problem."""
    cluster: str = ""
    """Rows that share a document or conversation; empty: the row is a cluster of its own."""


class TokenLogprobs(Record):
    """The most likely tokens at one position: ids and natural-log probabilities, most likely first.

    A value that was not finite is kept in `num_not_finite` and left out of the lists.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    num_not_finite: int = 0

    @model_validator(mode="after")
    def _require_one_each(self) -> Self:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"got {len(self.logprobs)} log probabilities of {len(self.token_ids)} tokens")
        return self


class Choice(Record):
    """A further answer to a request that asked for several."""

    token_ids: tuple[int, ...]
    text: str
    """Untrusted text."""
    finish_reason: str


class SuiteItem(Record):
    """One request of a suite and what the arm answered."""

    item: str
    """The same across arms."""
    request_id: str
    row: str = ""
    """The `EvalRow` that was asked, where the suite has rows."""
    sample: int = 0
    """Which of several samples of the row."""
    concurrency: int
    """Requests that the client kept in flight together with this one, itself included."""
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    text: str
    """Untrusted text."""
    finish_reason: str
    stop_reason: str = ""
    """The stop string or token id that ended the answer, as the server says; empty for any other end."""
    num_completion_tokens: int
    """As the server's usage block says, over all choices."""
    temperature: float = 0.0
    seed: int | None = None
    top_logprobs: tuple[TokenLogprobs, ...] = ()
    """One entry a generated token, where the suite asks for them."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """One entry a prompt token but the first, where the suite asks for them."""
    choices: tuple[Choice, ...] = ()
    """The second and further choices, where the suite asks for several."""
    tool_calls_text: str = ""
    """JSON of the calls in a chat answer; untrusted text."""
    options_text: str = ""
    """JSON of what was asked of the API beyond the fields here."""
    schema_text: str = ""
    """JSON schema that the answer had to obey, where one was given."""
    token_times_ms: tuple[float, ...] = ()
    """Arrival of each token at the client since the request was sent, where the suite times."""
    error: str = ""
    """HTTP status and body of a request that failed."""

    @property
    def num_received_tokens(self) -> int:
        """Tokens that the client got, over all choices."""
        return len(self.token_ids) + sum(len(choice.token_ids) for choice in self.choices)


class TaskScore(Record):
    """What lm-eval's own filters and metrics say of one document."""

    task: str
    """A group of tasks has several."""
    row: str
    """The document's number; items of the suite carry it."""
    filter: str
    metric: str
    value: float
