"""One real engine that serves blocks: tokens as they are made, a ledger that accounts for them, and a pause between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from harness.engine.arm_spec import ArmSpec
from harness.engine.block_server import BlockServer
from harness.engine.ledger_reader import read_ledger
from harness.model.completion import CompletionRequest
from harness.model.evaluation import SuiteItem
from harness.model.ledger import belongs_to

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, write_driven: Callable[[Path], ArmSpec]
) -> Iterator[BlockServer]:
    """The toy subject on a tiny Llama without its tokenizer."""
    spec = write_driven(tmp_path_factory.mktemp("blocks"))
    args = ("--model", str(spec.model_dir), "--max-model-len", "512", "--enforce-eager", "--seed", "0")
    args += ("--skip-tokenizer-init", "--no-async-scheduling", "--no-enable-prefix-caching")
    found = BlockServer(spec, (*args, "--logits-processors", "toy_subject.processor:Toy"))
    found.start()
    yield found
    found.stop()


def block_of(server: BlockServer, batch: int, num_tokens: int = 6) -> tuple[SuiteItem, ...]:
    requests = [
        CompletionRequest(
            item=f"r{number}",
            prompt_token_ids=server.tokenize(f"request {number}"),
            max_tokens=num_tokens,
            ignore_eos=True,
        )
        for number in range(batch)
    ]
    return server.complete_many(requests, concurrency=batch, suite="decode/b3")


def test_every_request_of_a_block_decodes_in_steps_that_hold_the_block_and_the_ledger_accounts_for_it(
    server: BlockServer,
) -> None:
    items = block_of(server, 3)
    server.pause()
    server.resume()
    again = block_of(server, 3)
    assert [i.token_ids for i in items] == [i.token_ids for i in again]
    for item in items:
        assert (len(item.token_ids), item.num_completion_tokens, item.error) == (6, 6, "")
        assert all(a <= b for a, b in pairwise(item.token_times_ms)) and len(item.token_times_ms) == 6
    ledger = read_ledger(server.spec.ledger_dir, server.spec.nonce)
    assert not ledger.problems
    parts = [r for row in ledger.rows for r in row.requests if belongs_to(r.request_id, items[0].request_id)]
    assert sum(part.num_emitted_tokens for part in parts) == 6
    decodes = [row for row in ledger.rows if row.is_pure_decode]
    assert {row.num_reqs for row in decodes} == {3} and len(decodes) == 10


def test_a_request_that_the_engine_refuses_is_an_error_of_its_own(server: BlockServer) -> None:
    good = CompletionRequest(item="good", prompt_token_ids=(1, 2), max_tokens=2)
    bad = CompletionRequest(item="bad", prompt_token_ids=(1,) * 600, max_tokens=2)
    kept, refused = server.complete_many([good, bad], concurrency=2, suite="mixed")
    assert (len(kept.token_ids), kept.error) == (2, "")
    assert (refused.token_ids, refused.finish_reason) == ((), "error") and refused.error


def test_as_many_requests_as_asked_are_in_flight_and_their_times_count_from_when_each_began(
    server: BlockServer,
) -> None:
    requests = [
        CompletionRequest(item=f"r{n}", prompt_token_ids=server.tokenize(f"queued {n}"), max_tokens=6)
        for n in range(5)
    ]
    before = read_ledger(server.spec.ledger_dir, server.spec.nonce).rows
    items = server.complete_many(requests, concurrency=2, suite="mixed/b2")
    after = read_ledger(server.spec.ledger_dir, server.spec.nonce)
    assert not after.problems
    rows = after.rows[len(before) :]
    assert [item.num_completion_tokens for item in items] == [6] * 5
    assert max(row.num_reqs for row in rows) == 2 and sum(len(row.requests) for row in rows) == 30
    steps = [(row.started_ns, row.started_ns + row.duration_ns) for row in rows]
    whole_ms = (steps[-1][1] - steps[0][0]) / 1e6
    last = [item.token_times_ms[-1] for item in items]
    assert sum(last) < 2.5 * whole_ms and min(i.token_times_ms[0] for i in items[2:]) < whole_ms / 4
    assert server.complete_many(requests[:1], concurrency=1, suite="x")[0].token_ids == items[0].token_ids


def test_what_could_be_reused_of_earlier_requests_is_forgotten(server: BlockServer) -> None:
    block_of(server, 2)
    server.reset_prefix_cache()
    assert server.is_running


def test_a_worker_is_asked_as_over_http_and_what_is_not_there_is_not_seen(server: BlockServer) -> None:
    for method, nothing in (
        ("fasttrack_experts", {"layers": [], "problem": ""}),
        ("fasttrack_profile", {"num_steps": 0, "problem": "no CUDA device"}),
    ):
        server.rpc(method, "start")
        block_of(server, 2)
        assert server.rpc(method, "stop") == (nothing,)


def test_the_tracer_writes_its_own_turns_and_none_of_the_others_and_goes_on_afterwards(
    server: BlockServer,
) -> None:
    requests = [
        CompletionRequest(
            item=f"r{number}",
            prompt_token_ids=server.tokenize(f"request {number}"),
            max_tokens=20,
            ignore_eos=True,
        )
        for number in range(3)
    ]
    turns = server.alternate(requests, [True, False, False, True], num_steps=4, suite="overhead")
    assert [(turn.num_rows, turn.num_tokens) for turn in turns] == [(4, 12), (0, 12), (0, 12), (4, 12)]
    items = block_of(server, batch=2)
    ledger = read_ledger(server.spec.ledger_dir, server.spec.nonce)
    assert not [p for p in ledger.problems if "error" in p], ledger.problems
    assert all(len(item.token_ids) == 6 for item in items)
