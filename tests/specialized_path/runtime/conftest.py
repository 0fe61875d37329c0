"""Real vLLM engines in this process, with every planned and executed step on record."""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from specialized_path.nano.checkpoint import write_checkpoint
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.recompute import recompute_logits

ENGINE_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
}


@dataclass
class Engine:
    """A served arm, its model in this process, and what its steps did since the last `clear`."""

    llm: Any
    model: Any
    plans: list[Any] = field(default_factory=list)
    accepted: Counter[int] = field(default_factory=Counter)
    num_executed: int = 0
    num_plain: int = 0

    def clear(self) -> None:
        """Forgets the recorded steps."""
        self.plans.clear()
        self.accepted.clear()
        self.num_executed = self.num_plain = 0

    def reasons(self) -> Counter[str]:
        """How often each reason was given."""
        return Counter(plan.reason for plan in self.plans)

    def generate(self, prompts: list[list[int]], max_tokens: int | list[int], **sampling: Any) -> list[Any]:
        """Serves the prompts together, greedily unless told otherwise, with the top-5 logprobs."""
        from vllm import SamplingParams

        counts = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
        options = {"temperature": 0.0, "ignore_eos": True, "logprobs": 5} | sampling
        params = [SamplingParams(max_tokens=count, **options) for count in counts]
        requests = [{"prompt_token_ids": prompt} for prompt in prompts]
        return list(self.llm.generate(requests, params, use_tqdm=False))

    @property
    def runner(self) -> Any:
        """The engine's model runner."""
        return self.llm.llm_engine.model_executor.driver_worker.worker.model_runner


def start_engine(checkpoint: Path, decode_backend: str, **options: Any) -> Engine:
    """Starts an engine on the checkpoint and puts its model's entry points on record."""
    from vllm import LLM

    from specialized_path.plugin import register

    register()
    options = {"dtype": "float32", "enforce_eager": True} | options
    llm = LLM(str(checkpoint), additional_config={"decode_backend": decode_backend}, **options)
    engine = Engine(llm=llm, model=llm.apply_model(lambda model: model)[0])
    _record_steps(engine)
    return engine


def _keep_kernel_overrides() -> None:
    """Registers the platform's kernels no second time: vLLM 0.32 trips over numba objects when it does."""
    from vllm.platforms import current_platform

    type(current_platform).register_triton_kernel_overrides = classmethod(lambda _: None)


def _record_steps(engine: Engine) -> None:
    model = engine.model
    plain_forward = model.plain_forward

    def recorded_plain_forward(*args: Any) -> torch.Tensor:
        engine.num_plain += 1
        return plain_forward(*args)

    model.plain_forward = recorded_plain_forward
    if model.planner is None:
        return
    plan, run = model.planner.plan, model.executor.run
    kda_layer = model.model.layers[0].self_attn.prefix

    def recorded_plan(attn_metadata: Any, *args: Any) -> Any:
        decided = plan(attn_metadata, *args)
        engine.plans.append(decided)
        if decided.path == "specialized" and attn_metadata[kda_layer].num_spec_decodes:
            accepted = attn_metadata[kda_layer].num_accepted_tokens[: decided.num_reqs]
            engine.accepted.update(accepted.tolist())
        return decided

    def recorded_run(*args: Any) -> torch.Tensor:
        engine.num_executed += 1
        return run(*args)

    model.planner.plan, model.executor.run = recorded_plan, recorded_run


def stop_engine(engine: Engine) -> None:
    """Frees the engine's caches, so that the next one fits."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    engine.llm.llm_engine.engine_core.shutdown()
    del engine.llm, engine.model
    cleanup_dist_env_and_memory()
    gc.collect()


@dataclass
class Oracle:
    """The cache-free recompute of one checkpoint."""

    weights: dict[str, torch.Tensor]
    config: KimiK3NanoConfig

    tolerance: float = 5e-4
    """Float32 sums in another order move a logprob by some 5e-5; a wrong state moves it by more than 0.1."""

    def logprobs(self, token_ids: list[int]) -> torch.Tensor:
        """Log probabilities [T, vocab] of the token after each position."""
        return recompute_logits(self.weights, self.config, token_ids).log_softmax(-1)

    def largest_error(self, prompt: list[int], output: Any) -> float:
        """Largest logprob difference of a served completion; infinite when a greedy token differs."""
        generated = list(output.outputs[0].token_ids)
        rows = self.logprobs(prompt + generated)[len(prompt) - 1 : -1]
        if rows.argmax(-1).tolist() != generated:
            return float("inf")
        return max(
            abs(served.logprob - rows[i, token].item())
            for i, top in enumerate(output.outputs[0].logprobs)
            for token, served in top.items()
        )

    def largest_errors(self, prompts: list[list[int]], outputs: list[Any]) -> float:
        """The largest error over several completions."""
        pairs = zip(prompts, outputs, strict=True)
        return max(self.largest_error(prompt, output) for prompt, output in pairs)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the default sizes, written once."""
    return write_checkpoint(tmp_path_factory.mktemp("nano"), seed=0)


@pytest.fixture(scope="session")
def oracle(checkpoint: Path) -> Oracle:
    """The recompute of that checkpoint."""
    return Oracle(load_file(checkpoint / "model.safetensors"), KimiK3NanoConfig())


@pytest.fixture(scope="session")
def start(checkpoint: Path) -> Iterator[Callable[..., Engine]]:
    """Starts engines that live until the last test."""
    environment = {name: os.environ.get(name) for name in ENGINE_ENVIRONMENT}
    os.environ.update(ENGINE_ENVIRONMENT)
    # Operators this small only lose by threads, which spin while they wait for each other.
    torch.set_num_threads(1)
    engines: list[Engine] = []

    def start_one(decode_backend: str, **options: Any) -> Engine:
        engines.append(start_engine(checkpoint, decode_backend, **options))
        _keep_kernel_overrides()
        return engines[-1]

    yield start_one
    for engine in engines:
        stop_engine(engine)
    for name, value in environment.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="session")
def baseline(start: Callable[..., Engine]) -> Engine:
    """The arm with the switch off; prompts beyond 256 tokens prefill in chunks."""
    return start("auto", max_num_seqs=12, max_num_batched_tokens=256)


@pytest.fixture(scope="session")
def candidate(start: Callable[..., Engine]) -> Engine:
    """The arm with the switch on, otherwise the same engine."""
    return start("latency_specialized", max_num_seqs=12, max_num_batched_tokens=256)


@pytest.fixture(scope="session")
def verifying(start: Callable[..., Engine]) -> Engine:
    """The candidate with up to three drafts a step, looked up in the request's own tokens."""
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    return start(
        "latency_specialized", max_num_seqs=12, enable_prefix_caching=False, speculative_config=ngram
    )


@pytest.fixture
def prompts_of() -> Callable[..., list[list[int]]]:
    """Makes printable random prompts of the given lengths; another seed gives other prompts."""

    def make(lengths: list[int], seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        return [torch.randint(32, 127, (length,), generator=generator).tolist() for length in lengths]

    return make
