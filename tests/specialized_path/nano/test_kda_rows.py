"""How a step's metadata becomes requests with tokens and state slots."""

from types import SimpleNamespace

import torch

from specialized_path.nano.kda_rows import kda_rows_of_step


def metadata(**fields):
    """Gated DeltaNet metadata; what is not given is absent."""
    absent = dict.fromkeys(
        (
            "has_initial_state",
            "non_spec_query_start_loc",
            "non_spec_state_indices_tensor",
            "non_spec_token_indx",
            "spec_query_start_loc",
            "spec_state_indices_tensor",
            "spec_token_indx",
            "num_accepted_tokens",
        )
    )
    counts = dict.fromkeys(("num_prefills", "num_decodes", "num_spec_decodes"), 0)
    return SimpleNamespace(**absent | counts | fields)


def test_an_empty_step_has_no_rows():
    assert kda_rows_of_step(metadata()) == []


def test_decodes_continue_the_state_in_their_slot():
    (rows,) = kda_rows_of_step(
        metadata(
            num_decodes=2,
            non_spec_query_start_loc=torch.tensor([0, 1, 2]),
            non_spec_state_indices_tensor=torch.tensor([7, 4]),
        )
    )
    assert rows.tokens.tolist() == [[0], [1]]
    assert rows.start_slots.tolist() == [7, 4]
    assert rows.end_slots.tolist() == [[7], [4]]
    assert rows.has_initial_state.all()
    assert not rows.keeps_every_state


def test_ragged_prefills_are_padded_with_tokens_that_do_not_count():
    (rows,) = kda_rows_of_step(
        metadata(
            num_prefills=2,
            non_spec_query_start_loc=torch.tensor([0, 3, 4]),
            non_spec_state_indices_tensor=torch.tensor([7, 4]),
            has_initial_state=torch.tensor([False, True]),
        )
    )
    assert rows.tokens.tolist() == [[0, 1, 2], [3, 3, 3]]
    assert rows.is_active.tolist() == [[True, True, True], [True, False, False]]
    assert rows.has_initial_state.tolist() == [False, True]


def test_a_padding_request_has_no_tokens_and_a_null_slot():
    (rows,) = kda_rows_of_step(
        metadata(
            num_decodes=1,
            non_spec_query_start_loc=torch.tensor([0, 1, 1]),
            non_spec_state_indices_tensor=torch.tensor([7, 0]),
        )
    )
    assert rows.lengths.tolist() == [1, 0]
    assert rows.is_active.tolist() == [[True], [False]]
    assert rows.start_slots.tolist() == [7, 0]


def test_a_verify_step_starts_from_the_last_accepted_token_and_keeps_one_state_a_token():
    (rows,) = kda_rows_of_step(
        metadata(
            num_spec_decodes=2,
            spec_query_start_loc=torch.tensor([0, 3, 6]),
            spec_state_indices_tensor=torch.tensor([[11, 12, 13, 14], [21, 22, 23, 24]]),
            num_accepted_tokens=torch.tensor([1, 4]),
        )
    )
    assert rows.start_slots.tolist() == [11, 24]
    assert rows.window_slots.tolist() == [11, 21]
    assert rows.window_offsets.tolist() == [0, 3]
    assert rows.end_slots.tolist() == [[11, 12, 13], [21, 22, 23]]
    assert rows.keeps_every_state


def test_a_mixed_step_takes_each_kind_from_its_own_tokens():
    prefill, verify = kda_rows_of_step(
        metadata(
            num_prefills=1,
            num_spec_decodes=1,
            non_spec_query_start_loc=torch.tensor([0, 2]),
            non_spec_state_indices_tensor=torch.tensor([5]),
            non_spec_token_indx=torch.tensor([3, 4]),
            has_initial_state=torch.tensor([False]),
            spec_query_start_loc=torch.tensor([0, 3]),
            spec_state_indices_tensor=torch.tensor([[8, 9, 10]]),
            spec_token_indx=torch.tensor([0, 1, 2]),
            num_accepted_tokens=torch.tensor([2]),
        )
    )
    assert prefill.tokens.tolist() == [[3, 4]]
    assert verify.tokens.tolist() == [[0, 1, 2]]
    assert verify.start_slots.tolist() == [9]
