"""One real vLLM server: ledger, forced tokens, coverage, and an end without remains."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from harness.engine.arm_spec import ArmSpec
from harness.engine.client import CompletionClient
from harness.engine.coverage_reader import read_coverage
from harness.engine.hold import held_engine
from harness.engine.ledger_reader import LedgerReading, read_ledger
from harness.engine.server import ArmServer
from harness.model.completion import CompletionRequest
from harness.model.errors import EngineError
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.ledger import belongs_to, count_served
from harness.model.manifest import DispatchSection
from harness.model.words import Arm

pytestmark = pytest.mark.engine
SCHEMA = (
    '{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false}'
)
GLOBS = ("toy_subject/*.py",)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    write_toy: Callable[[Path], Path],
    toy_dispatch: DispatchSection,
) -> Iterator[ArmServer]:
    """The toy subject on a tiny Llama; a small budget and cache make prefills chunked and requests preempted."""
    folder = tmp_path_factory.mktemp("engine")
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("tiny_llama.py")), folder / "model"], check=True
    )
    spec = ArmSpec(
        arm=Arm.CANDIDATE,
        model_dir=folder / "model",
        import_path=write_toy(folder / "head"),
        import_roots=("toy_subject",),
        dispatch=toy_dispatch,
        ledger_dir=folder / "ledger",
        nonce="n0",
        max_model_len=512,
        coverage_globs=GLOBS,
        additional_config={"decode_backend": "toy"},
        engine_args=(
            *("--logits-processors", "harness.engine.force_tokens:ForceTokens", "toy_subject.processor:Toy"),
            *("--max-num-batched-tokens", "64", "--block-size", "32", "--num-gpu-blocks-override", "20"),
            "--no-enable-prefix-caching",
        ),
    )
    with ArmServer(spec) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ArmServer) -> Iterator[CompletionClient]:
    """A client of the module's server."""
    found = CompletionClient(server, timeout_s=120)
    yield found
    found.close()


@pytest.fixture(scope="module")
def ragged(server: ArmServer, client: CompletionClient) -> tuple[SuiteItem, ...]:
    """24 requests of uneven lengths, eight in flight."""
    draw = random.Random(0)
    server.rpc("fasttrack_suite", "ragged")
    requests = [
        CompletionRequest(
            item=f"item{i}",
            prompt_token_ids=tuple(draw.randrange(256) for _ in range(draw.choice([1, 5, 60, 130, 200]))),
            max_tokens=draw.randrange(1, 90),
            temperature=draw.choice([0.0, 1.0]),
            logprobs=draw.choice([0, 20]),
            stream=i % 2 == 0,
        )
        for i in range(24)
    ]
    return client.complete_many(requests, concurrency=8, suite="ragged", together=True)


def ledger(server: ArmServer) -> LedgerReading:
    return read_ledger(server.spec.ledger_dir, server.spec.nonce)


def emitted(reading: LedgerReading, item: SuiteItem) -> int:
    requests = (r for row in reading.rows for r in row.requests if belongs_to(r.request_id, item.request_id))
    return sum(r.num_emitted_tokens for r in requests)


def same(left: TokenLogprobs, right: TokenLogprobs) -> bool:
    pairs = dict(zip(right.token_ids, right.logprobs, strict=True))
    return (
        all(
            abs(pairs[t] - v) < 1e-4 for t, v in zip(left.token_ids, left.logprobs, strict=True) if t in pairs
        )
        and len(set(left.token_ids) & set(right.token_ids)) >= 19
    )


def test_the_ledger_holds_every_token_that_the_client_got(
    server: ArmServer, ragged: tuple[SuiteItem, ...]
) -> None:
    reading = ledger(server)
    assert [i.error for i in ragged if i.error] == [] and reading.problems == ()
    assert [emitted(reading, i) for i in ragged] == [i.num_completion_tokens for i in ragged]
    assert all(len(i.token_times_ms) in (0, i.num_completion_tokens) for i in ragged)


def test_the_ragged_requests_were_chunked_and_preempted(
    server: ArmServer, ragged: tuple[SuiteItem, ...]
) -> None:
    chunks: Counter[str] = Counter()
    prefilled: Counter[str] = Counter()
    for row in ledger(server).rows:
        for request in row.requests:
            for item in ragged:
                if belongs_to(request.request_id, item.request_id):
                    chunks[item.item] += request.num_emitted_tokens == 0
                    prefilled[item.item] += request.num_prefill_tokens
    assert max(chunks.values()) >= 3
    assert any(prefilled[i.item] > i.num_prompt_tokens for i in ragged)
    assert all(prefilled[i.item] >= i.num_prompt_tokens for i in ragged)


def test_small_batches_ran_on_the_special_path_and_large_ones_did_not(
    server: ArmServer, ragged: tuple[SuiteItem, ...], toy_dispatch: DispatchSection
) -> None:
    rows = ledger(server).rows
    served = count_served(rows, toy_dispatch.targets, [i.request_id for i in ragged])
    assert served.specialized > 0 and served.baseline > 0 and served.contradictory == 0
    assert {row.decisions[0].specialized for row in rows if row.num_reqs > 4} == {False}


def test_forced_tokens_run_the_decode_path_and_keep_the_models_own_logprobs(
    server: ArmServer, client: CompletionClient
) -> None:
    prompt = tuple(range(40, 70))
    free = client.complete(CompletionRequest(item="f", prompt_token_ids=prompt, max_tokens=6, logprobs=20))
    other = tuple((t + 17) % 256 for t in free.token_ids[2:])
    forced = client.complete(
        CompletionRequest(
            item="g",
            prompt_token_ids=prompt,
            max_tokens=6,
            logprobs=20,
            force_token_ids=(*free.token_ids[:2], *other),
            ignore_eos=True,
        )
    )
    assert forced.error == "" and forced.token_ids == (*free.token_ids[:2], *other)
    # The forced prefix is the free one up to position 2; from position 3 on the contexts differ.
    assert [same(a, b) for a, b in zip(free.top_logprobs, forced.top_logprobs, strict=True)][:4] == [
        True,
        True,
        True,
        False,
    ]
    rows = [row for row in ledger(server).rows if belongs_to(row.requests[0].request_id, forced.request_id)]
    assert [row.is_pure_decode for row in rows] == [False, *[True] * 5]


def test_forcing_what_is_no_list_of_tokens_is_refused(server: ArmServer) -> None:
    body = {
        "model": server.spec.served_model_name,
        "prompt": [1],
        "max_tokens": 1,
        "vllm_xargs": {"force_token_ids": '["x"]'},
    }
    answer = httpx2.post(f"{server.base_url}/v1/completions", json=body, trust_env=False)
    assert answer.status_code == 400 and "force_token_ids" in answer.text


def test_a_json_schema_is_obeyed(client: CompletionClient) -> None:
    request = CompletionRequest(item="s", prompt_token_ids=(1, 2), max_tokens=40, json_schema=SCHEMA)
    assert client.complete(request).text in ('{"a":true}', '{"a":false}')


def test_a_request_that_the_engine_refuses_keeps_its_reason(client: CompletionClient) -> None:
    item = client.complete(CompletionRequest(item="long", prompt_token_ids=(1,), max_tokens=5000))
    assert item.error.startswith("HTTP 400") and "max_model_len" in item.error


def test_an_aborted_request_leaves_the_ledger_whole(server: ArmServer, client: CompletionClient) -> None:
    """The engine is held while it is told, since it may otherwise finish first."""
    url = f"{server.base_url}/v1/completions"
    body = {"model": server.spec.served_model_name, "prompt": [1], "max_tokens": 500, "stream": True}
    body |= {"ignore_eos": True}
    with (
        ExitStack() as held,
        httpx2.Client(trust_env=False) as http,
        http.stream("POST", url, json=body, headers={"X-Request-Id": "abortedr"}) as answer,
    ):
        next(answer.iter_lines())
        held.enter_context(held_engine(server))
    client.complete(CompletionRequest(item="after", prompt_token_ids=(1, 2), max_tokens=3))
    rows = ledger(server).rows
    num_steps = sum(belongs_to(r.request_id, "abortedr") for row in rows for r in row.requests)
    assert 0 < num_steps < 500 and ledger(server).problems == ()


def test_requests_sent_together_start_in_one_step(server: ArmServer, client: CompletionClient) -> None:
    requests = [
        CompletionRequest(item=f"t{i}", prompt_token_ids=(1, i), max_tokens=4, ignore_eos=True)
        for i in range(6)
    ]
    items = client.complete_many(requests, concurrency=6, suite="together", together=True)
    rows = ledger(server).rows
    first = {
        item.item: next(
            row.step for row in rows if any(belongs_to(r.request_id, item.request_id) for r in row.requests)
        )
        for item in items
    }
    assert len(set(first.values())) == 1, first


def test_only_imported_files_of_the_subject_are_listed(
    server: ArmServer, ragged: tuple[SuiteItem, ...]
) -> None:
    assert ragged
    names = {"toy_subject", "toy_subject.paths", "toy_subject.planner", "toy_subject.processor"}
    assert set(ledger(server).modules) == names


def test_noise_on_purpose_changes_answers_is_counted_and_leaves_no_trace(
    server: ArmServer, client: CompletionClient, toy_dispatch: DispatchSection
) -> None:
    request = CompletionRequest(item="noisy", prompt_token_ids=(1, 2, 3), max_tokens=12, logprobs=5)
    before = client.complete(request)
    server.rpc("fasttrack_perturb", "1.0", "3", *toy_dispatch.specialized_code)
    noisy = client.complete(request)
    (answer,) = server.rpc("fasttrack_perturb", "0", "0")
    server.reset_prefix_cache()
    after = client.complete(request)
    assert noisy.token_ids != before.token_ids and answer["num_perturbed_calls"] >= len(noisy.token_ids)
    assert (after.token_ids, after.top_logprobs) == (before.token_ids, before.top_logprobs)


def test_coverage_is_recorded_by_suite_and_leaves_no_trace_function(
    server: ArmServer, client: CompletionClient, ragged: tuple[SuiteItem, ...]
) -> None:
    assert ragged
    server.rpc("fasttrack_suite", "single")
    client.complete(CompletionRequest(item="one", prompt_token_ids=(1, 2), max_tokens=3))
    assert server.rpc("fasttrack_coverage_stop") == ({"tracing": False},)
    server.rpc("fasttrack_coverage_save")
    files = {f.path: f for f in read_coverage(server.spec.ledger_dir, server.spec.import_path, GLOBS)}
    paths = files["toy_subject/paths.py"].executed_lines
    assert (paths["start"], paths["single"], paths["ragged"]) == ((1, 4), (2,), (2, 5))
    assert files["toy_subject/unused.py"].executed_lines == {}


def test_a_killed_worker_is_noticed_and_nothing_is_left_of_the_server(
    server: ArmServer, client: CompletionClient, all_gone: Callable[..., bool]
) -> None:
    (status,) = server.rpc("fasttrack_status")
    worker_pid = int(status["pid"])
    shared = {
        w for w in Path(f"/proc/{worker_pid}/maps").read_text().split() if w.startswith("/dev/shm/psm_")
    }
    group = [
        int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _same_session(p.name, worker_pid)
    ]
    os.kill(worker_pid, signal.SIGKILL)
    requests = [CompletionRequest(item="r", prompt_token_ids=(1,), max_tokens=3)] * 4
    with pytest.raises(EngineError) as caught:
        for _ in range(10):
            client.complete_many(requests, concurrency=2, suite="late")
            time.sleep(0.5)
    server.stop()
    assert caught.value.log_tail and len(group) >= 3 and all_gone(group)
    assert shared and not any(Path(p).exists() for p in shared)
    assert ledger(server).is_sound


def _same_session(pid: str, other: int) -> bool:
    try:
        return os.getsid(int(pid)) == os.getsid(other)
    except ProcessLookupError:
        return False
