"""One real engine of two ranks that serves blocks: each rank has a ledger, and both did the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.app.sweep_arms import ONE_HOST, parallel_arguments
from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.engine.block_server import BlockServer
from harness.engine.ledger_reader import read_ledger
from harness.model.completion import CompletionRequest
from harness.model.errors import EngineRefused
from harness.model.words import Arm
from perf_sweeps.cell import Engine
from perf_sweeps.ledger_tail import LedgerTail

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory, write_driven: Callable[[Path], ArmSpec]) -> ArmSpec:
    """The toy subject on a tiny Llama without its tokenizer, cut among two ranks."""
    spec = write_driven(tmp_path_factory.mktemp("ranks"))
    return replace(spec, worker_processes=2, env=CPU_ENV | ONE_HOST)


@pytest.fixture(scope="module")
def server(spec: ArmSpec) -> Iterator[BlockServer]:
    """Started; what vLLM's CPU ranks leave in shared memory is taken away with it."""
    args = ("--model", str(spec.model_dir), "--max-model-len", "512", "--enforce-eager", "--seed", "0")
    args += ("--skip-tokenizer-init", "--no-async-scheduling", "--no-enable-prefix-caching")
    args += ("--logits-processors", "toy_subject.processor:Toy")
    found = BlockServer(spec, (*args, *parallel_arguments(Engine(tensor_parallel=2))))
    found.start()
    groups = [path.name for path in found._temp_dir.glob("vllm_dist_*")]
    yield found
    found.stop()
    for group in groups:
        for left in Path("/dev/shm").glob(f"{group}*"):
            left.unlink()


def serve(server: BlockServer, batch: int, num_tokens: int = 6) -> list[tuple[str, int]]:
    requests = [
        CompletionRequest(
            item=f"r{number}",
            prompt_token_ids=server.tokenize(f"request {number}"),
            max_tokens=num_tokens,
            ignore_eos=True,
        )
        for number in range(batch)
    ]
    items = server.complete_many(requests, concurrency=batch, suite=f"decode/b{batch}")
    assert [(len(item.token_ids), item.error) for item in items] == [(num_tokens, "")] * batch
    return [(item.request_id, len(item.token_ids)) for item in items]


def test_every_rank_tells_the_same_steps_and_the_account_is_rank_0s(server: BlockServer) -> None:
    spec = server.spec
    assert len(server.rpc("fasttrack_status")) == 2
    tail = LedgerTail(spec.ledger_dir, 2)
    tail.skip()
    for batch in (3, 5):
        answered = serve(server, batch)
        server.pause()
        server.resume()
        steps = tail.account(answered, batch=batch, targets=spec.dispatch.targets)
        assert (steps.num_tokens, steps.num_ranks, steps.rank_difference) == (6 * batch, 2, "")
        assert steps.specialized_share == float(batch <= 4)
        assert steps.fallbacks == ({} if batch <= 4 else {"5 requests": 5})
    ledger = read_ledger(spec.ledger_dir, spec.nonce, 2)
    assert not ledger.problems
    assert "2 workers wrote ledgers, one was expected" in read_ledger(spec.ledger_dir, spec.nonce).problems
    # A rank that decides otherwise once must be found.
    (other,) = [p for p in spec.ledger_dir.glob("*.jsonl") if '"rank":1' in p.read_text()]
    before = other.read_text()
    lines = before.splitlines()
    place = max(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "row")
    lines[place] = lines[place].replace('"specialized":false', '"specialized":true')
    other.write_text("\n".join(lines) + "\n")
    try:
        (problem,) = read_ledger(spec.ledger_dir, spec.nonce, 2).problems
    finally:
        other.write_text(before)
    assert "ranks do not agree" in problem and "decisions of rank 1" in problem


def test_an_engine_that_does_not_take_the_deployment_says_so_and_why(spec: ArmSpec, tmp_path: Path) -> None:
    alone = replace(spec, worker_processes=0, ledger_dir=tmp_path)
    server = BlockServer(
        alone, ("--model", str(spec.model_dir), "--max-model-len", "100000", "--enforce-eager")
    )
    with pytest.raises(EngineRefused, match="max_model_len") as caught:
        server.start()
    assert caught.value.arm == Arm.CANDIDATE and not server.is_running
