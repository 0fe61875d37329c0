"""Starts vLLM engines one after the other in a process of the harness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REFUSALS = (ValueError, TypeError, NotImplementedError, RuntimeError, AssertionError)
"""What an engine raises for a deployment that it does not take."""


def is_lack_of_memory(error: BaseException | None) -> bool:
    """Whether the GPU had no room for the engine, which says nothing of what the engine takes."""
    import torch

    while error is not None:
        told = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError) or any(words in told for words in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


_NO_ROOM = ("out of memory", "free memory on device")
"""As CUDA tells it, and vLLM before it loads anything."""


def start_engine(args: Sequence[str]) -> Any:
    """A vLLM engine in this process."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.llm_engine import LLMEngine

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    return LLMEngine.from_engine_args(EngineArgs.from_cli_args(parser.parse_args(list(args))))


def start_replaying(args: Sequence[str]) -> Any:
    """An engine whose requests may be given their tokens; one that samples freely where vLLM cannot do that."""
    from vllm.engine.arg_utils import EngineArgs

    if "enable_trace_replay" in EngineArgs.__dataclass_fields__:
        try:
            return start_engine([*args, "--enable-trace-replay"])
        except ValueError as error:
            # So says the first model runner, before anything is loaded.
            if "trace replay requires" not in str(error):
                raise
    return start_engine(args)


def inspect_models_here() -> None:
    """Lets vLLM look at a model's class in this process, not in one more that imports all of vLLM first."""
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda look: look()


def keep_kernel_overrides() -> None:
    """Lets a second engine start in this process: vLLM 0.32 fails when it registers its CPU kernels again."""
    from vllm.platforms import current_platform

    type(current_platform).register_triton_kernel_overrides = classmethod(lambda _: None)
