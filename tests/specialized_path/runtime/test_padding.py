"""Padding rows of a step: whole requests without tokens, whose slots are null."""

import dataclasses
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from vllm.forward_context import get_forward_context

from specialized_path.runtime.state_slots import state_slots_of_step


def test_padding_requests_get_null_slots_and_one_accepted_token():
    metadata = SimpleNamespace(
        num_decodes=0,
        num_spec_decodes=2,
        spec_state_indices_tensor=torch.tensor([[4, 5, 6], [7, 8, 9]]),
        num_accepted_tokens=torch.tensor([3, 1]),
    )
    slots = state_slots_of_step(metadata, 4)
    assert slots.table.tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0], [0, 0, 0]]
    assert slots.num_accepted_tokens.tolist() == [3, 1, 1, 1]


def test_rows_staged_beyond_the_live_requests_are_not_taken_for_requests():
    staged = torch.tensor([3, 9, 0, 0])
    metadata = SimpleNamespace(num_decodes=2, num_spec_decodes=0, non_spec_state_indices_tensor=staged)
    slots = state_slots_of_step(metadata, 2)
    assert slots.table.tolist() == [[3], [9]]


@pytest.mark.engine
def test_padding_rows_change_no_cache_and_no_other_row(candidate, prompts_of, monkeypatch):
    _check_padding(candidate, prompts_of([5, 1, 20], seed=950), monkeypatch)


@pytest.mark.engine
def test_padding_rows_of_a_verify_step_change_no_cache_and_no_other_row(verifying, prompts_of, monkeypatch):
    def propose(_num_drafts, sampled, *_args, **_kwargs):
        return [[65, 66, 67] for _ in sampled]

    monkeypatch.setattr(verifying.runner.drafter, "propose", propose)
    _check_padding(verifying, prompts_of([5, 1, 20], seed=951), monkeypatch)


def _check_padding(engine, prompts, monkeypatch):
    """Repeats each specialised step of a served batch with one padding request more and compares."""
    run = engine.model.executor.run
    checked = []

    def run_twice(plan, token_ids):
        before = _copy_caches(engine)
        hidden = run(plan, token_ids)
        after = _copy_caches(engine)
        _restore_caches(engine, before)
        with _padded_context(engine, plan.query_len):
            padding = token_ids.new_full((plan.query_len,), -1)
            padded_hidden = run(plan, torch.cat((token_ids, padding)))
        torch.testing.assert_close(padded_hidden[: len(hidden)], hidden, rtol=1e-4, atol=1e-5)
        assert padded_hidden.isfinite().all()
        for expected, got in zip(after, _copy_caches(engine), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        checked.append(plan.reason)
        return hidden

    monkeypatch.setattr(engine.model.executor, "run", run_twice)
    engine.generate(prompts, 5)
    assert len(checked) >= 2


def _caches(engine):
    """Window, state and KV caches of all layers, the null slot included, up to the slots in use."""
    for layer in engine.model.model.layers:
        if layer.is_mla:
            yield layer.self_attn.attn.kv_cache
        else:
            yield from layer.self_attn.kv_cache


NUM_COMPARED_SLOTS = 200


def _copy_caches(engine):
    return [cache[:NUM_COMPARED_SLOTS].clone() for cache in _caches(engine)]


def _restore_caches(engine, copies):
    for cache, copy in zip(_caches(engine), copies, strict=True):
        cache[:NUM_COMPARED_SLOTS].copy_(copy)


@contextmanager
def _padded_context(engine, num_rows):
    """While it lasts, the step has `num_rows` padding rows.

    The KV insert gets a negative slot for each, and what the engine's attention leaves in their rows is NaN,
    as its uninitialised output may be.
    """
    context = get_forward_context()
    kept = context.attn_metadata, context.slot_mapping
    metadata, slots = dict(kept[0]), dict(kept[1])
    attentions = [layer.self_attn.attn for layer in engine.model.model.layers if layer.is_mla]
    for attention in attentions:
        name = attention.layer_name
        num_tokens = metadata[name].num_actual_tokens
        slots[name] = torch.cat((slots[name][:num_tokens], slots[name].new_full((num_rows,), -1)))
        metadata[name] = dataclasses.replace(metadata[name], slot_mapping=slots[name])
        attention.forward = _poison_rows(attention.forward, num_tokens)
    context.attn_metadata, context.slot_mapping = metadata, slots
    yield
    context.attn_metadata, context.slot_mapping = kept
    for attention in attentions:
        del attention.forward


def _poison_rows(forward, first_row):
    def poisoned(*args):
        output = forward(*args)
        output[first_row:] = float("nan")
        return output

    return poisoned
