"""MRCR: multi-round retrieval from long conversations, in the published data set's format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from eval_suites.row_files import RowError, count_field, text_field
from harness.model.evaluation import ChatMessage, EvalRow

PUBLISHED_LENGTHS = tuple(4096 << power for power in range(9))
"""Bounds of the data set's bins in tokens of prompt and answer: 4k to 8k, ... 512k to 1M, and what lies below."""


def parse_mrcr_row(values: Mapping[str, Any], name: str) -> EvalRow:
    """One row of the published format; its length bin is not known yet.

    Raises:
        RowError: a field is missing, has another type, or the answer does not begin with its prefix.
    """
    messages = _parse_messages(text_field(values, "prompt"))
    prefix = text_field(values, "random_string_to_prepend")
    answer = text_field(values, "answer")
    if not answer.startswith(prefix):
        raise RowError(f"answer: got {answer[:40]!r}, expected it to begin with the prefix {prefix!r}")
    if answer == prefix:
        raise RowError("answer: got nothing behind the prefix, expected a text")
    for key in ("desired_msg_index", "total_messages", "n_chars"):
        if values.get(key) is not None:
            count_field(values, key)
    return EvalRow(
        row=name,
        messages=messages,
        answer=answer,
        prefix=prefix,
        num_needles=count_field(values, "n_needles"),
        cluster=_digest_of_conversation(messages),
    )


def _parse_messages(text: str) -> tuple[ChatMessage, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"prompt: not JSON: {error}") from error
    if not isinstance(found, list) or not found:
        raise RowError(f"prompt: got {text[:40]!r}, expected a list of messages")
    try:
        messages = tuple(ChatMessage.model_validate(message, strict=True) for message in found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "message"
        raise RowError(f"prompt: a message's {where}: {first['msg']}") from error
    if messages[-1].role != "user" or not messages[-1].content:
        raise RowError("prompt: its last message is not a user's question")
    return messages


def _digest_of_conversation(messages: tuple[ChatMessage, ...]) -> str:
    """The same for rows that ask different things of the same conversation."""
    digest = hashlib.sha256()
    for message in messages[:-1]:
        digest.update(f"{message.role}\0{message.content}\0".encode())
    return digest.hexdigest()[:12]
