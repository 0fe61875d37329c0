"""Chats become the tokens that the served chat template gives."""

import io
import json

import pytest
from transformers import AutoTokenizer

from nano_training.chats import prompt_messages, read_chats, tokenize_chat
from specialized_path.nano.checkpoint import write_checkpoint

CHAT = [
    {"role": "system", "content": "Kürz"},
    {"role": "user", "content": "a?"},
    {"role": "assistant", "content": "b", "weight": 0},
    {"role": "user", "content": "c?"},
    {"role": "assistant", "content": "dé"},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The checkpoint's tokenizer, as the engine loads it."""
    return AutoTokenizer.from_pretrained(write_checkpoint(tmp_path_factory.mktemp("nano"), seed=0))


def learned_text(tokenizer, chat):
    return tokenizer.decode([t for t, learned in zip(chat.token_ids, chat.learned, strict=True) if learned])


def test_tokens_are_those_of_the_chat_template(tokenizer):
    messages = [{key: message[key] for key in ("role", "content")} for message in CHAT]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert tokenize_chat(CHAT).token_ids == tokenizer(text)["input_ids"]


def test_what_assistants_write_is_learned_with_its_end_unless_its_weight_is_zero(tokenizer):
    assert learned_text(tokenizer, tokenize_chat(CHAT)) == "dé<|end|>"


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": json.dumps(CHAT[:2]), "answer": "x"},
        {"prompt": "a?", "answer": "x"},
        {"problem": "a?", "answer": "x"},
    ],
)
def test_of_a_data_set_row_the_answer_alone_is_learned(tokenizer, row):
    (chat,) = read_chats(io.StringIO(json.dumps(row) + "\n"))
    assert learned_text(tokenizer, chat) == "x<|end|>"


def test_a_number_as_answer_is_learned_as_its_digits(tokenizer):
    (chat,) = read_chats(io.StringIO('{"problem": "2 + 5?", "answer": 7}'))
    assert learned_text(tokenizer, chat) == "7<|end|>"


def test_plain_text_is_one_user_message():
    assert prompt_messages({"problem": "2 + 5?"}) == [{"role": "user", "content": "2 + 5?"}]
