"""One rank of an engine of several, by vLLM's external launcher: a process that obeys commands itself."""

import json
import os
import sys
import time
from pathlib import Path

from examples.slice.arm import obey, serve

NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "VLLM_USE_NCCL_SYMM_MEM": "0",
}
"""vLLM's own switches beside those of the libraries: some hosts do not bear multicast objects."""


def main() -> None:
    """`slice_rank.py FOLDER BACKEND MAX_CONTEXT KV_GIB`; the rank and how to meet stand in the environment."""
    folder, backend, max_context, kv_gib = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start = time.perf_counter()
    try:
        llm = serve(
            Path(folder),
            backend,
            int(max_context),
            float(kv_gib),
            tensor_parallel_size=int(os.environ["WORLD_SIZE"]),
            distributed_executor_backend="external_launcher",
            # Among several ranks this package serves by nobody's proof.
            switch={"decode_provider": "cute-experimental"} if backend != "auto" else {},
            # FlashInfer's fused all-reduce may make a multicast object.
            compilation={"pass_config": {"fuse_allreduce_rms": False}},
        )
    except Exception as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"[:2000]}), file=answers, flush=True)
        raise
    obey(llm, time.perf_counter() - start, answers)


if __name__ == "__main__":
    main()
