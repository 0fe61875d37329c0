"""A byte-level tokenizer: token id n < 256 is byte n, the 64 ids above are special tokens."""

from typing import Any

NUM_BYTES = 256
BOS, EOS, PAD, END = "<|bos|>", "<|eos|>", "<|pad|>", "<|end|>"
_NAMED = (BOS, EOS, PAD, END, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
SPECIAL_TOKENS = (*_NAMED, *(f"<|reserved_{i}|>" for i in range(64 - len(_NAMED))))

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def special_token_id(token: str) -> int:
    """Returns the id of a special token; raises ValueError for any other text."""
    return NUM_BYTES + SPECIAL_TOKENS.index(token)


def tokenizer_json() -> dict[str, Any]:
    """Returns the content of `tokenizer.json`: byte-level BPE without a single merge."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(token) for token in SPECIAL_TOKENS],
        "normalizer": None,
        "pre_tokenizer": _byte_level(),
        "post_processor": None,
        "decoder": _byte_level(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {_byte_symbol(byte): byte for byte in range(NUM_BYTES)},
            "merges": [],
        },
    }


def tokenizer_config(max_length: int) -> dict[str, Any]:
    """Returns the content of `tokenizer_config.json`, chat template included."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "chat_template": CHAT_TEMPLATE,
    }


def _byte_level() -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def _added_token(token: str) -> dict[str, Any]:
    return {
        "id": special_token_id(token),
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _byte_symbol(byte: int) -> str:
    """The printable character that byte-level BPE writes for a byte.

    Printable Latin-1 bytes stand for themselves, the others are numbered from U+0100 upwards.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    others = [b for b in range(NUM_BYTES) if b not in printable]
    return chr(0x100 + others.index(byte))
