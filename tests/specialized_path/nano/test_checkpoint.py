"""What the checkpoint writer leaves on disk."""

import json

import pytest
from transformers import AutoTokenizer

from specialized_path.nano.checkpoint import write_checkpoint
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.tokenizer import NUM_BYTES, SPECIAL_TOKENS, special_token_id


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of seed 0."""
    return write_checkpoint(tmp_path_factory.mktemp("nano"), seed=0)


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    """The checkpoint's tokenizer, as the engine loads it."""
    return AutoTokenizer.from_pretrained(checkpoint)


def test_the_same_seed_gives_the_same_bytes(checkpoint, tmp_path):
    again = write_checkpoint(tmp_path, seed=0)
    names = sorted(path.name for path in checkpoint.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert all((checkpoint / name).read_bytes() == (again / name).read_bytes() for name in names)


def test_another_seed_changes_the_weights_only(checkpoint, tmp_path):
    other = write_checkpoint(tmp_path, seed=1)
    changed = [
        path.name for path in checkpoint.iterdir() if path.read_bytes() != (other / path.name).read_bytes()
    ]
    assert changed == ["model.safetensors"]


def test_the_written_configuration_reads_back(checkpoint):
    written = json.loads((checkpoint / "config.json").read_text())
    config = KimiK3NanoConfig(**written)
    assert config.to_dict() | written == config.to_dict()
    assert written["architectures"] == ["KimiK3NanoForCausalLM"]


def test_other_sizes_are_written_as_asked(tmp_path):
    small = KimiK3NanoConfig(num_hidden_layers=4, hidden_size=64)
    written = json.loads((write_checkpoint(tmp_path, config=small) / "config.json").read_text())
    assert (written["num_hidden_layers"], written["hidden_size"]) == (4, 64)


def test_a_vocabulary_that_is_not_the_tokenizers_is_refused(tmp_path):
    with pytest.raises(ValueError, match="vocab_size: got 512, expected 320"):
        write_checkpoint(tmp_path, config=KimiK3NanoConfig(vocab_size=512))


def test_every_byte_is_its_own_token_and_every_id_has_a_text(tokenizer):
    assert len(tokenizer) == NUM_BYTES + len(SPECIAL_TOKENS) == KimiK3NanoConfig().vocab_size
    text = "".join(map(chr, range(128))) + "é漢🙂"
    assert tokenizer(text)["input_ids"] == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text


def test_special_tokens_are_single_ids(tokenizer):
    assert tokenizer("a<|user|>b")["input_ids"] == [97, special_token_id("<|user|>"), 98]
    assert tokenizer.eos_token_id == special_token_id("<|eos|>")
    assert tokenizer.pad_token_id == special_token_id("<|pad|>")


def test_the_chat_template_marks_roles_and_asks_for_an_answer(tokenizer):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|bos|><|user|>hi<|end|><|assistant|>x<|end|><|assistant|>"
