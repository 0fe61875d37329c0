"""Registration with vLLM."""

import subprocess
import sys

from transformers import AutoConfig

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.plugin import register


def test_registering_twice_is_registering_once():
    from vllm.model_executor.models.registry import ModelRegistry

    register()
    once = ModelRegistry.models["KimiK3NanoForCausalLM"]
    register()
    assert ModelRegistry.models["KimiK3NanoForCausalLM"] is once


def test_the_configuration_class_is_found_by_model_type(tmp_path):
    register()
    (tmp_path / "config.json").write_text('{"model_type": "kimi_k3_nano", "hidden_size": 64}')
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, KimiK3NanoConfig)
    assert config.hidden_size == 64


def test_registration_imports_no_model_and_nothing_of_the_specialised_path():
    code = (
        "import sys; from specialized_path.plugin import register; register();"
        "print(sorted(m for m in sys.modules if m.startswith('specialized_path.')))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    expected = ["specialized_path.nano", "specialized_path.nano.config", "specialized_path.plugin"]
    assert finished.stdout.splitlines()[-1] == str(expected)


def test_layer_kinds_follow_from_the_sizes():
    config = KimiK3NanoConfig()
    assert [i for i in range(5) if config.is_mla_layer(i)] == [3]
    assert config.layer_types.count("linear_attention") == 4
    assert (config.num_attn_res_blocks, config.head_dim, config.num_key_value_heads) == (3, 64, 1)
