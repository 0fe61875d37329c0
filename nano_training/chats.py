"""Chats as the served tokenizer and chat template write them, with the tokens that are to be learned."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from specialized_path.nano.tokenizer import BOS, END, special_token_id

_BOS, _END = special_token_id(BOS), special_token_id(END)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedChat:
    """One chat."""

    token_ids: list[int]
    learned: list[bool]
    """Per token whether the model is to predict it: what assistants write and the token that ends it."""


def tokenize_chat(messages: list[dict[str, Any]]) -> TokenizedChat:
    """Returns the tokens of `messages`; assistant messages are learned unless their `weight` is 0."""
    token_ids, learned = [_BOS], [False]
    for message in messages:
        content = [*message["content"].encode(), _END]
        token_ids += [special_token_id(f"<|{message['role']}|>"), *content]
        is_learned = message["role"] == "assistant" and message.get("weight", 1) != 0
        learned += [False, *[is_learned] * len(content)]
    return TokenizedChat(token_ids=token_ids, learned=learned)


def read_chats(lines: IO[str]) -> Iterator[TokenizedChat]:
    """Yields the chats of JSON lines: `messages`, or a question and its `answer` as `prompt_messages` reads them."""
    for line in lines:
        row = json.loads(line)
        if "messages" not in row:
            muted = [message | {"weight": 0} for message in prompt_messages(row)]
            row = {"messages": [*muted, {"role": "assistant", "content": str(row["answer"])}]}
        yield tokenize_chat(row["messages"])


def prompt_messages(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what a row of a data set asks: its `prompt`, a JSON list of messages or plain text, or its `problem`."""
    prompt: str = row["prompt"] if "prompt" in row else row["problem"]
    if prompt.startswith("["):
        messages: list[dict[str, Any]] = json.loads(prompt)
        return messages
    return [{"role": "user", "content": prompt}]
