"""One arm in its own process: serves a slice, obeys JSON commands from standard input, answers on standard output."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, TextIO

from harness.engine.step_profile import CudaProfiler, Span, covered_ns

_TOP = 50
"""Log probabilities that are reported of each step."""
_ARCHITECTURES = {"auto": "KimiLinearForCausalLM", "latency_specialized": "KimiK3SpecializedForCausalLM"}
"""The baseline is vLLM's own class."""


def serve(
    folder: Path,
    decode_backend: str,
    max_context: int,
    kv_cache_gib: float,
    *,
    switch: Mapping[str, Any] = MappingProxyType({}),
    compilation: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Any:
    """An engine in this process, with FULL graphs of pure decode steps; `decode_backend` chooses the arm.

    `switch` and `compilation` stand beside what is given there anyway, `more` are further engine arguments.
    """
    import vllm

    from examples.slice.weights import LOAD_FORMAT, register_loader
    from specialized_path.plugin import register

    register()
    register_loader()
    return vllm.LLM(
        str(folder),
        load_format=LOAD_FORMAT,
        skip_tokenizer_init=True,
        max_model_len=max_context,
        max_num_seqs=72,
        max_num_batched_tokens=8192,
        max_logprobs=_TOP,
        gpu_memory_utilization=0.2,
        kv_cache_memory_bytes=int(kv_cache_gib * 2**30),
        enable_prefix_caching=False,
        async_scheduling=False,
        hf_overrides={"architectures": [_ARCHITECTURES[decode_backend]]},
        additional_config={"decode_backend": decode_backend, **switch},
        compilation_config={
            # vLLM's choice by its own class's name, which the other arm has not.
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64],
            **compilation,
        },
        **more,
    )


class Arm:
    """The commands."""

    def __init__(self, llm: Any) -> None:
        """Drives the engine step by step."""
        self._llm, self._engine = llm, llm.llm_engine
        self._next_id = self._filled = 0

    def fill(self, batch: int, context: int, steps: int) -> dict[str, Any]:
        """Brings `batch` requests with prompts of `context` tokens to decode steps, of which `steps` more can follow.

        A request decodes while those behind it are prefilled: `tokens` has how many each has by then.
        """
        self.empty()
        warm_up, prefill_steps = 4, batch * context // 4096 + 8
        for row in range(batch):
            self._add(context, 17 * row + 3, steps + warm_up + prefill_steps, logprobs=None)
        generated: dict[str, int] = {}
        while len(generated) < batch or min(generated.values()) < warm_up:
            for output in self._engine.step():
                generated[output.request_id] = len(output.outputs[0].token_ids)
        self._filled = batch
        return {"tokens": [context + count for count in generated.values()]}

    def time(self, steps: int) -> dict[str, Any]:
        """GPU-busy microseconds and kernels of a decode step of the requests that `fill` brought.

        Raises:
            RuntimeError: A request has ended: the steps were of fewer.
        """
        spans, wall = self._profiled(steps)
        if (left := self._engine.get_num_unfinished_requests()) != self._filled:
            raise RuntimeError(f"{left} of {self._filled} requests are left behind the steps that were timed")
        kernels = [span for span in spans if not span[2].startswith(("Memcpy", "Memset"))]
        return {
            "busy_us": covered_ns(spans) / 1e3 / steps,
            "kernels": len(kernels) / steps,
            "wall_us": wall * 1e6 / steps,
            "names": _by_name(kernels, steps),
        }

    def empty(self) -> dict[str, Any]:
        """Lets all requests end."""
        steps = 0
        while self._engine.has_unfinished_requests():
            self._engine.step()
            steps += 1
        return {"steps": steps}

    def prefill(self, tokens: int, times: int) -> dict[str, Any]:
        """GPU-busy microseconds of a step that prefills one prompt of `tokens`, `times` times."""
        busy = []
        for turn in range(times + 1):
            self._add(tokens, 19 * turn + 7, 1, logprobs=None)
            busy.append(covered_ns(self._profiled(1)[0]) / 1e3)
            self.empty()
        return {"busy_us": busy[1:]}

    def _profiled(self, steps: int) -> tuple[Sequence[Span], float]:
        """All GPU work of some engine steps, and their wall seconds."""
        import torch

        profiler = CudaProfiler()
        profiler.start()
        start = time.perf_counter()
        for _ in range(steps):
            self._engine.step()
        torch.cuda.synchronize()
        wall = time.perf_counter() - start
        return profiler.stop(), wall

    def force(self, arrivals: list[list[int]]) -> dict[str, Any]:
        """Log probabilities of a schedule of teacher-forced requests.

        Args:
            arrivals: [step, prompt tokens, token that is forced at every place, number of tokens] of each request.
        """
        waiting, step, texts = sorted(arrivals), 0, {}
        names: dict[str, int] = {}
        while waiting or self._engine.has_unfinished_requests():
            while waiting and waiting[0][0] <= step:
                _, prompt, token, count = waiting.pop(0)
                names[self._add(prompt, token, count, logprobs=_TOP)] = len(names)
            for output in self._engine.step():
                if output.finished:
                    texts[names[output.request_id]] = [
                        {str(token): entry.logprob for token, entry in place.items()}
                        for place in output.outputs[0].logprobs
                    ]
            step += 1
        return {"logprobs": [texts[index] for index in range(len(names))]}

    def soak(self, batch: int, steps: int) -> dict[str, Any]:
        """Free decoding; counts tokens and those whose log probability is not finite."""
        import math

        for row in range(batch):
            self._add(64, 29 * row + 5, steps, logprobs=0)
        tokens = not_finite = engine_steps = 0
        start = time.perf_counter()
        while self._engine.has_unfinished_requests():
            engine_steps += 1
            for output in self._engine.step():
                if output.finished:
                    values = [
                        entry.logprob for place in output.outputs[0].logprobs for entry in place.values()
                    ]
                    tokens += len(output.outputs[0].token_ids)
                    not_finite += sum(not math.isfinite(value) for value in values)
        seconds = time.perf_counter() - start
        return {"tokens": tokens, "not_finite": not_finite, "steps": engine_steps, "seconds": seconds}

    def greedy(self, batch: int, steps: int) -> dict[str, Any]:
        """Tokens of free decoding by request, and at each place how far the next likeliest token lies behind."""
        names = [
            self._add(48 + 5 * row, 23 * row + 9, steps, logprobs=2, forces=False) for row in range(batch)
        ]
        tokens: dict[str, list[int]] = {}
        gaps: dict[str, list[float]] = {}
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                if output.finished:
                    found = output.outputs[0]
                    tokens[output.request_id] = list(found.token_ids)
                    ordered = [sorted(entry.logprob for entry in place.values()) for place in found.logprobs]
                    gaps[output.request_id] = [place[-1] - place[-2] for place in ordered]
        return {"tokens": [tokens[name] for name in names], "gaps": [gaps[name] for name in names]}

    def about(self) -> dict[str, Any]:
        """The path's counts and costs, and the memory of the weights."""
        found: dict[str, Any] = self._llm.apply_model(_about)[0]
        return found

    def _add(
        self, num_prompt: int, token: int, count: int, logprobs: int | None, *, forces: bool = True
    ) -> str:
        from vllm import SamplingParams

        vocabulary = self._llm.model_config.get_vocab_size()
        prompt = prompt_tokens(token, num_prompt, vocabulary)
        params = SamplingParams(
            max_tokens=count,
            ignore_eos=True,
            temperature=0,
            detokenize=False,
            logprobs=logprobs,
            allowed_token_ids=[token % vocabulary] if logprobs and forces else None,
        )
        self._next_id += 1
        name = str(self._next_id)
        self._engine.add_request(name, {"prompt_token_ids": prompt}, params)
        return name


def prompt_tokens(number: int, num_tokens: int, vocabulary: int) -> list[int]:
    """A prompt by its number, drawn: experts go by the token (`weights.py`), and a formula's tokens leave some out."""
    return Random(number).choices(range(vocabulary), k=num_tokens)


def _about(model: Any) -> dict[str, Any]:
    from dataclasses import asdict

    import torch

    decode = getattr(model, "k3_decode", None)
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    return {
        "model_class": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameter_bytes": sum(storages.values()),
        "allocated_bytes": torch.cuda.memory_allocated(),
        "stock_mlps": None if decode is None else decode.stock_mlps,
        "decisions": None if decode is None else dict(decode.decisions),
        "start_up": None if decode is None else asdict(decode.start_up),
    }


def _by_name(kernels: Sequence[Span], steps: int) -> dict[str, list[float]]:
    """Launches, microseconds, and of them those in which no earlier kernel runs, a step, by 80 letters of the name.

    A kernel that is launched early runs beside those in front of it; the third numbers add up to the busy time.
    """
    found: dict[str, list[float]] = {}
    reached = 0
    for start, end, name in sorted(kernels):
        entry = found.setdefault(name[:80], [0.0, 0.0, 0.0])
        entry[0] += 1 / steps
        entry[1] += (end - start) / 1e3 / steps
        entry[2] += max(0, end - max(start, reached)) / 1e3 / steps
        reached = max(reached, end)
    return found


def main() -> None:
    """`arm.py FOLDER BACKEND MAX_CONTEXT KV_GIB`: starts, answers {"ready": seconds}, then a line for each command."""
    folder, backend, max_context, kv_gib = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start = time.perf_counter()
    llm = serve(Path(folder), backend, int(max_context), float(kv_gib))
    obey(llm, time.perf_counter() - start, answers)


def obey(llm: Any, ready_s: float, answers: TextIO, arm: Arm | None = None) -> None:
    """Answers that it is ready, then each line of standard input; `arm` may know more commands."""
    arm = arm or Arm(llm)
    print(json.dumps({"ready": ready_s}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        action: Callable[..., dict[str, Any]] = getattr(arm, command.pop("do"))
        print(json.dumps(action(**command)), file=answers, flush=True)


if __name__ == "__main__":
    main()
