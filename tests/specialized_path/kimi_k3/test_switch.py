"""Who runs Kimi K3's decode steps, and what is refused at start."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from specialized_path.kimi_k3 import switch
from specialized_path.kimi_k3.switch import (
    DecodeProvider,
    K3Deployment,
    choose_decode_provider,
    list_costs,
    list_refusals,
    take_switch,
    without_switch,
)
from specialized_path.runtime.support import UnsupportedDeployment

ON = {"decode_backend": "latency_specialized"}
HOPPER, SM100, SM103 = (9, 0), (10, 0), (10, 3)

OBSTACLES = {
    "vllm_version": "0.34.0",
    "capability": (8, 0),
    "dtype": "float16",
    "kv_cache_dtype": "fp8",
    "state_dtypes": ("bfloat16", "bfloat16"),
    "tensor_parallel_size": 8,
    "pipeline_parallel_size": 2,
    "data_parallel_size": 2,
    "decode_context_parallel_size": 2,
    "enable_expert_parallel": True,
    "enable_microbatching": True,
    "speculative_method": "dspark",
    "enable_lora": True,
    "enable_sleep_mode": True,
    "has_kv_connector": True,
    "use_replayssm": True,
    "decode_graphs": "NONE",
    "mixed_graphs": "FULL",
    "local_heads": 96,
}


@pytest.mark.parametrize("capability", [HOPPER, SM100])
@pytest.mark.parametrize(
    "additional_config", [{}, None, {"decode_backend": "auto"}, {"decode_provider": "cute"}]
)
def test_nobody_is_chosen_while_the_switch_is_off(additional_config, capability):
    assert choose_decode_provider(additional_config, capability) is None


@pytest.mark.parametrize("capability", [SM100, SM103])
def test_vllm_keeps_the_devices_of_its_own_path(capability):
    assert choose_decode_provider(ON, capability) is DecodeProvider.VLLM


def test_this_package_takes_the_other_devices():
    assert choose_decode_provider(ON, HOPPER) is DecodeProvider.CUTE


@pytest.mark.parametrize("capability", [HOPPER, SM100])
@pytest.mark.parametrize("provider", DecodeProvider)
def test_an_explicit_choice_stands_on_every_device(provider, capability):
    assert choose_decode_provider(ON | {"decode_provider": str(provider)}, capability) is provider


def test_an_unknown_choice_is_refused_with_the_allowed_ones():
    with pytest.raises(
        ValueError, match="decode_provider: got 'fast', expected one of 'vllm', 'cute', 'cute-exp"
    ):
        choose_decode_provider(ON | {"decode_provider": "fast"}, HOPPER)


def test_vllms_own_code_sees_neither_the_switch_nor_the_choice():
    assert without_switch(ON | {"decode_provider": "cute", "kda_prefill_backend": "triton"}) == {
        "kda_prefill_backend": "triton"
    }


@pytest.mark.parametrize(
    "deployment", [K3Deployment(), K3Deployment(local_heads=6, mixed_graphs="PIECEWISE")]
)
def test_a_supported_deployment_is_not_refused(deployment):
    assert list_refusals(deployment) == ()


@pytest.mark.parametrize("setting", OBSTACLES)
def test_each_obstacle_is_named_with_what_was_got(setting):
    (reason,) = list_refusals(replace(K3Deployment(), **{setting: OBSTACLES[setting]}))
    assert reason.startswith(f"{setting}: got {OBSTACLES[setting]!r}, expected ")


def test_all_obstacles_are_listed_at_once():
    assert len(list_refusals(replace(K3Deployment(), **OBSTACLES))) == len(OBSTACLES)


@pytest.mark.parametrize("part", ["model", "kda"])
def test_each_constant_of_the_kernels_is_required_of_the_checkpoint(part):
    constants = getattr(K3Deployment(), part)
    found = [
        len(list_refusals(replace(K3Deployment(), **{part: constants | {key: None}}))) for key in constants
    ]
    assert found == [1] * len(constants)


def test_an_experimental_choice_lifts_what_was_not_proven_and_nothing_else():
    lifted = {
        setting
        for setting, value in OBSTACLES.items()
        if not list_refusals(replace(K3Deployment(), **{setting: value}), experimental=True)
    }
    assert lifted == {"capability", "tensor_parallel_size"}


def _take(monkeypatch, additional_config, deployment, capability=HOPPER):
    platform = SimpleNamespace(
        get_device_capability=lambda: SimpleNamespace(major=capability[0], minor=capability[1])
    )
    monkeypatch.setattr("vllm.platforms.current_platform", platform)
    monkeypatch.setattr(
        switch, "collect_k3_deployment", lambda _, found: replace(deployment, capability=found)
    )
    config = SimpleNamespace(additional_config=additional_config)
    return config, take_switch(config)


def test_vllms_model_never_reads_the_switch_that_this_package_took(monkeypatch):
    config, (is_self_served, engine_config) = _take(monkeypatch, ON | {"other": 1}, K3Deployment())
    found = (is_self_served, engine_config.additional_config, config.additional_config)
    assert found == (True, {"other": 1}, ON | {"other": 1})


def test_vllms_model_reads_its_own_switch_where_vllm_serves(monkeypatch):
    config, (is_self_served, engine_config) = _take(monkeypatch, ON, K3Deployment(), capability=SM100)
    assert (is_self_served, engine_config) == (False, config)


def test_a_deployment_out_of_scope_does_not_start(monkeypatch):
    with pytest.raises(UnsupportedDeployment) as raised:
        _take(monkeypatch, ON, K3Deployment(pipeline_parallel_size=2, enable_lora=True))
    assert [reason.split(":")[0] for reason in raised.value.reasons] == [
        "pipeline_parallel_size",
        "enable_lora",
    ]


@pytest.mark.parametrize(("mode", "named"), [("NONE", []), ("VLLM_COMPILE", ["compilation mode"])])
def test_a_compilation_that_the_model_does_not_take_is_named_as_a_cost(mode, named):
    costs = list_costs(K3Deployment(compilation_mode=mode))
    assert [cost.split(":")[0] for cost in costs] == named
