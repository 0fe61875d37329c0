"""What is refused at start: every obstacle at once, and nothing that is supported."""

from dataclasses import replace

import pytest

from specialized_path.runtime.config import DecodeBackend, parse_decode_backend
from specialized_path.runtime.support import Deployment, UnsupportedDeployment, list_refusals

OBSTACLES = {
    "platform": {"platform": "tpu", "has_provider": False},
    "dtype": {"dtype": "float16"},
    "tensor_parallel_size": {"tensor_parallel_size": 2},
    "pipeline_parallel_size": {"pipeline_parallel_size": 2},
    "data_parallel_size": {"data_parallel_size": 4},
    "decode_context_parallel_size": {"decode_context_parallel_size": 2},
    "enable_expert_parallel": {"enable_expert_parallel": True},
    "enable_microbatching": {"enable_microbatching": True},
    "speculative_method": {"speculative_method": "eagle3"},
    "num_speculative_tokens": {"speculative_method": "ngram", "num_speculative_tokens": 4},
    "quantization": {"quantization": "fp8"},
    "kv_cache_dtype": {"kv_cache_dtype": "fp8"},
    "recurrent_state_dtype": {"recurrent_state_dtype": "bfloat16"},
    "enable_lora": {"enable_lora": True},
    "enable_sleep_mode": {"enable_sleep_mode": True},
    "has_kv_connector": {"has_kv_connector": True},
    "max_model_len": {"max_model_len": 2_000_000},
}

SUPPORTED = [
    {},
    {"dtype": "bfloat16"},
    {"kv_cache_dtype": "float32"},
    {"speculative_method": "ngram", "num_speculative_tokens": 3, "enable_prefix_caching": False},
    {"max_model_len": 1_048_576},
]


@pytest.mark.parametrize("settings", SUPPORTED, ids=str)
def test_supported_deployments_are_not_refused(settings):
    assert list_refusals(replace(Deployment(), **settings)) == ()


@pytest.mark.parametrize("setting", OBSTACLES)
def test_each_obstacle_is_named_with_what_was_got(setting):
    deployment = replace(Deployment(enable_prefix_caching=False), **OBSTACLES[setting])
    (reason,) = list_refusals(deployment)
    assert reason.startswith(f"{setting}: got {getattr(deployment, setting)!r}, expected ")


def test_speculation_with_prefix_caching_is_refused_on_a_cpu_where_the_engine_cannot_copy_its_states():
    deployment = Deployment(speculative_method="ngram", num_speculative_tokens=2, enable_prefix_caching=True)
    (reason,) = list_refusals(deployment)
    assert reason.startswith("enable_prefix_caching: got True")


def test_all_obstacles_are_listed_at_once():
    everything = {name: value for settings in OBSTACLES.values() for name, value in settings.items()}
    reasons = list_refusals(Deployment(**everything | {"speculative_method": "eagle3"}))
    assert {reason.partition(":")[0] for reason in reasons} == set(OBSTACLES)


def test_the_exception_shows_every_reason_and_the_way_out():
    error = UnsupportedDeployment(("dtype: got 'float16'", "enable_lora: got True"))
    assert error.reasons == ("dtype: got 'float16'", "enable_lora: got True")
    assert "\n  - dtype" in str(error)
    assert "\n  - enable_lora" in str(error)
    assert "'auto'" in str(error)


@pytest.mark.parametrize("additional_config", [None, {}, {"other": 1}, {"decode_backend": "auto"}], ids=str)
def test_the_path_is_off_unless_asked_for(additional_config):
    assert parse_decode_backend(additional_config) is DecodeBackend.AUTO


def test_the_path_is_on_when_asked_for():
    asked = {"decode_backend": "latency_specialized"}
    assert parse_decode_backend(asked) is DecodeBackend.LATENCY_SPECIALIZED


@pytest.mark.parametrize("value", ["latency-specialized", "", None, True, ["auto"]], ids=str)
def test_an_unknown_value_is_an_error_that_lists_the_allowed_ones(value):
    with pytest.raises(ValueError, match="'auto', 'latency_specialized'"):
        parse_decode_backend({"decode_backend": value})


@pytest.mark.engine
def test_an_engine_out_of_scope_does_not_start_and_lists_every_reason(start):
    ngram = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3}
    with pytest.raises(ValueError, match="latency_specialized") as refusal:
        start("latency_specialized", dtype="float16", enable_prefix_caching=True, speculative_config=ngram)
    named = [line for line in str(refusal.value).splitlines() if line.startswith("  - ")]
    settings = {line.removeprefix("  - ").partition(":")[0] for line in named}
    assert settings == {"dtype", "num_speculative_tokens", "enable_prefix_caching"}
