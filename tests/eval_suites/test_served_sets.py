"""Which rows a served model is asked, in which bins and at which concurrency: short and long, small and large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_suites.eval_set import EvalSet, build_suite, control_of, scope_concurrencies, spread_rows
from eval_suites.loaded_rows import LoadedRows, choose_rows
from eval_suites.mrcr import PUBLISHED_LENGTHS
from eval_suites.served_sets import ServedModel, bin_of, build_aime_set, build_mrcr_set
from harness.model.evals import AimeSection, MrcrSection
from harness.model.evaluation import ChatMessage, EvalRow


def count_bytes(messages: Sequence[ChatMessage]) -> int:
    return 2 + sum(2 + len(message.content.encode()) for message in messages)


MODEL = ServedModel(
    count_prompt=count_bytes, count_text=lambda t: len(t.encode()), max_context=2048, max_seeded_prompt=128
)
SCOPE = scope_concurrencies(8)


def row(name: str, *, length: int = 100, bin: str = "", needles: int = 2, answer: str = "Ptext") -> EvalRow:
    return EvalRow(
        row=name,
        messages=(ChatMessage(role="user", content="x" * (length - 4)),),
        answer=answer,
        prefix="P",
        num_needles=needles,
        bin=bin,
    )


def mrcr_set(*rows: EvalRow, num_rows: int = 100, model: ServedModel = MODEL, **section: object) -> EvalSet:
    loaded = LoadedRows(rows=rows, source="rows.jsonl", sha256="0" * 64) if rows else None
    return build_mrcr_set(MrcrSection.model_validate(section), loaded, model, num_rows=num_rows, seed=1)


def aime_set(*rows: EvalRow, model: ServedModel = MODEL, num_samples: int = 4, **section: object) -> EvalSet:
    loaded = LoadedRows(rows=rows, source="rows.jsonl", sha256="0" * 64) if rows else None
    return build_aime_set(
        AimeSection.model_validate(section), loaded, model, num_rows=16, num_samples=num_samples, seed=1
    )


@pytest.mark.parametrize(
    ("max_batch", "expected"),
    [(1, (1, 2)), (3, (1, 2, 3, 4)), (6, (1, 2, 4, 6, 7)), (8, (1, 2, 4, 8, 9)), (16, (1, 2, 4, 8, 16, 17))],
)
def test_concurrencies_are_the_powers_of_two_the_limit_and_one_more(
    max_batch: int, expected: tuple[int, ...]
) -> None:
    assert scope_concurrencies(max_batch) == expected


@pytest.mark.parametrize(
    ("num_tokens", "label"),
    [
        (1, "0-4k"),
        (4096, "0-4k"),
        (4097, "4k-8k"),
        (8192, "4k-8k"),
        (131_072, "64k-128k"),
        (524_289, "512k-1024k"),
        (1_048_576, "512k-1024k"),
        (1_048_577, ""),
    ],
)
def test_published_bins_double_from_4k_to_1m_with_their_upper_bound_inside(
    num_tokens: int, label: str
) -> None:
    assert bin_of(num_tokens, PUBLISHED_LENGTHS) == label


def test_the_bin_counts_the_tokens_of_prompt_and_answer() -> None:
    (found,) = mrcr_set(row("r", length=1000, answer="P" + "y" * 24), lengths=(1023, 2048)).rows
    assert found.bin == "1023-2k"


def test_rows_beyond_the_context_are_left_out_and_counted() -> None:
    found = mrcr_set(row("fits", length=2022), row("long", length=2023), lengths=(2048,))
    assert ([r.row for r in found.rows], found.num_left_out) == (["fits"], 1)


def test_an_answer_may_be_twice_as_long_as_the_reference_before_it_is_cut() -> None:
    assert mrcr_set(row("r", answer="P" + "y" * 49)).max_tokens == {"r": 116}
    assert mrcr_set(row("r"), max_tokens=7).max_tokens == {"r": 7}


def test_generated_rows_fill_every_bin_and_needle_count_up_to_the_whole_context() -> None:
    found = mrcr_set(lengths=(512, 1024, 2048), needles=(2, 4), num_rows=24)
    cells = Counter((r.bin, r.num_needles) for r in found.rows)
    assert cells.keys() >= {(b, n) for b in ("512-1k", "1k-2k") for n in (2, 4)} | {("0-512", 2)}
    longest = max(count_bytes(r.messages) + found.max_tokens[r.row] for r in found.rows)
    assert 0.9 * MODEL.max_context < longest <= MODEL.max_context
    assert found.num_left_out == 0


def test_generated_rows_follow_the_tokenizer_and_not_the_bytes() -> None:
    coarse = replace(MODEL, count_prompt=lambda m: count_bytes(m) // 4, count_text=lambda t: len(t) // 4)
    found = mrcr_set(model=coarse, lengths=(1024, 2048), num_rows=8)
    assert Counter(r.bin for r in found.rows).keys() == {"0-1k", "1k-2k"}


def test_lengths_beyond_the_served_context_are_asked_once() -> None:
    found = mrcr_set(lengths=(2048, 4096, 8192), needles=(2,), num_rows=9)
    names = [r.row for r in found.rows]
    assert len(names) == len(set(names)) == 9


def test_the_source_of_generated_rows_is_the_command_that_makes_them_again() -> None:
    found = mrcr_set(lengths=(1024,), needles=(2,), num_rows=3)
    assert found.source.startswith("python -m eval_suites.mrcr_generator --seed 1 --count 3 --num-bytes ")
    assert found.source_sha256 == mrcr_set(lengths=(1024,), needles=(2,), num_rows=3).source_sha256


def test_a_scope_too_short_for_any_needle_asks_nothing() -> None:
    assert mrcr_set(model=replace(MODEL, max_context=64)).rows == ()


def test_prompts_that_may_not_be_sampled_with_a_seed_are_left_out() -> None:
    found = aime_set(row("short", length=128, answer="7"), row("long", length=129, answer="7"))
    assert ([r.row for r in found.rows], found.num_left_out) == (["short"], 1)


def test_a_profile_caps_the_samples_and_the_context_caps_the_answer() -> None:
    found = aime_set(row("r", answer="7"), samples=64, num_samples=8)
    assert (found.samples, found.max_tokens["r"]) == (8, 2048 - 100)
    assert aime_set(row("r", answer="7"), samples=2, num_samples=8).samples == 2


def test_chosen_rows_do_not_hang_on_the_order_of_the_file() -> None:
    rows = [row(f"r{n}", bin=f"b{n % 3}", needles=2 + n % 2) for n in range(60)]
    chosen = choose_rows(rows, 12)
    assert {r.row for r in chosen} == {r.row for r in choose_rows(sorted(rows, key=lambda r: r.row), 12)}
    assert set(Counter((r.bin, r.num_needles) for r in chosen).values()) == {2}


@given(
    num_bins=st.integers(1, 5),
    per_bin=st.integers(5, 20),
    samples=st.integers(1, 8),
    max_batch=st.integers(1, 8),
)
def test_every_bin_has_rows_at_every_concurrency_and_every_row_is_asked_once(
    num_bins: int, per_bin: int, samples: int, max_batch: int
) -> None:
    rows = [row(f"r{n}", bin=f"b{n % num_bins}") for n in range(num_bins * per_bin)]
    dealt = spread_rows(rows, scope_concurrencies(max_batch), samples)
    assert sorted(index for indexes in dealt.values() for index in indexes) == list(range(len(rows)))
    cells = {(rows[index].bin, c) for c, indexes in dealt.items() for index in indexes}
    assert len(cells) == num_bins * len(scope_concurrencies(max_batch))


@pytest.mark.parametrize(("num_rows", "samples"), [(36, 1), (96, 1), (16, 4), (32, 8)])
def test_there_are_as_many_requests_as_each_concurrency_keeps_in_flight(num_rows: int, samples: int) -> None:
    rows = [row(f"r{n}", bin=f"b{n % 3}") for n in range(num_rows)]
    dealt = spread_rows(rows, SCOPE, samples)
    assert all(len(indexes) * samples >= concurrency for concurrency, indexes in dealt.items())


def test_needle_counts_do_not_go_hand_in_hand_with_concurrencies() -> None:
    rows = [row(f"r{n}", bin=f"b{n % 3}", needles=2 << (n // 3) % 3) for n in range(24)]
    dealt = spread_rows(rows, scope_concurrencies(6))
    assert len({(rows[i].num_needles, c) for c, indexes in dealt.items() for i in indexes}) >= 12


def test_an_item_is_named_by_row_sample_and_the_requests_in_flight() -> None:
    found = aime_set(*[row(f"r{n}", answer="7") for n in range(10)])
    for part in build_suite(found, SCOPE).parts:
        assert all(r.item == f"{r.row}/k{r.sample}@c{part.concurrency}" for r in part.requests)


def test_a_name_never_claims_more_requests_in_flight_than_there_are() -> None:
    suite = build_suite(mrcr_set(*[row(f"r{n}") for n in range(3)]), (8,))
    assert [(p.concurrency, p.requests[0].item.partition("@")[2]) for p in suite.parts] == [(3, "c3")]


def test_samples_of_a_row_have_seeds_of_their_own_that_every_arm_shares() -> None:
    found = aime_set(*[row(f"r{n}", answer="7") for n in range(10)], num_samples=8)
    seeds = [r.seed for _ in range(2) for p in build_suite(found, SCOPE).parts for r in p.requests]
    assert seeds[:80] == seeds[80:] and len(set(seeds)) == 80


def test_greedy_answers_have_no_seed_and_conversations_stay_messages() -> None:
    (part,) = build_suite(mrcr_set(row("r")), (1,)).parts
    (request,) = part.requests
    assert (request.seed, request.temperature, request.prompt_token_ids) == (None, 0.0, ())
    assert request.messages == row("r").messages


def test_temperature_and_top_p_are_the_manifests() -> None:
    found = aime_set(row("r", answer="7"), temperature=0.6, top_p=0.95)
    request = build_suite(found, (1,)).parts[0].requests[0]
    assert (request.temperature, request.options_text) == (0.6, '{"top_p": 0.95}')


def test_a_control_asks_the_same_of_a_part_of_the_rows_inside_the_scope() -> None:
    suite = build_suite(mrcr_set(*[row(f"r{n}", bin="b") for n in range(60)]), SCOPE)
    control = control_of(suite, max_batch=8, num_requests=16)
    asked = {r.item: r for part in suite.parts for r in part.requests}
    assert control.name == "mrcr_control" and max(p.concurrency for p in control.parts) == 8
    assert all(asked[r.item] == r for part in control.parts for r in part.requests)
    assert 12 <= control.num_requests <= 30


@pytest.mark.parametrize("num_rows", [3, 16, 24, 60])
@pytest.mark.parametrize("num_requests", [4, 16, 32])
def test_a_control_has_as_many_requests_in_flight_as_its_suite(num_rows: int, num_requests: int) -> None:
    suite = build_suite(mrcr_set(*[row(f"r{n}", bin="b") for n in range(num_rows)]), SCOPE)
    control = control_of(suite, max_batch=8, num_requests=num_requests)
    assert all(len(part.requests) >= part.concurrency for part in control.parts)
