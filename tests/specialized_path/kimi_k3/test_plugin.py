"""What the plugin registers of Kimi K3, and where."""

from types import SimpleNamespace

import pytest

from specialized_path import plugin

OURS, VLLMS = "KimiK3SpecializedForCausalLM", "KimiLinearForCausalLM"


def _registered(monkeypatch, is_cuda, vllm_version):
    registry = pytest.importorskip("vllm.model_executor.models.registry")
    models = {VLLMS: "vLLM's", plugin._ARCHITECTURE: "there"}
    fake = SimpleNamespace(models=models, register_model=models.__setitem__)
    monkeypatch.setattr(registry, "ModelRegistry", fake)
    monkeypatch.setattr("vllm.platforms.current_platform", SimpleNamespace(is_cuda=lambda: is_cuda))
    monkeypatch.setattr(plugin, "version", lambda _: vllm_version)
    plugin.register()
    return models


def test_the_class_is_registered_on_cuda_under_a_name_of_its_own(monkeypatch):
    models = _registered(monkeypatch, is_cuda=True, vllm_version="0.33.0")
    assert (models[OURS], models[VLLMS]) == (f"specialized_path.kimi_k3.model:{OURS}", "vLLM's")


@pytest.mark.parametrize(("is_cuda", "vllm_version"), [(False, "0.33.0"), (True, "0.32.0"), (True, "0.34.0")])
def test_the_class_is_not_registered_elsewhere(monkeypatch, is_cuda, vllm_version):
    assert OURS not in _registered(monkeypatch, is_cuda, vllm_version)
