"""One process of an engine of several ranks, which obeys commands.

A rank by vLLM's external launcher, or an engine that starts its ranks itself, as a server's does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from examples.peers.environment import refuse_multicast
from examples.slice.arm import Arm, obey, serve
from examples.slice.weights import register_loader
from specialized_path.plugin import register

_UNDER_WAY = 100
"""Decode steps after which an engine that is about to lose a rank says so."""


class LosingArm(Arm):
    """An arm that can be asked to decode until it loses a rank."""

    def __init__(self, llm: Any, answers: TextIO) -> None:
        """Writes to `answers` while it decodes."""
        super().__init__(llm)
        self._answers = answers

    def workers(self) -> dict[str, Any]:
        """The processes of its ranks, in their order."""
        return {"pids": [pid for _, pid in sorted(self._llm.collective_rpc("own_place"))]}

    def decode_until_lost(self, batch: int) -> dict[str, Any]:
        """Decodes on and on; answers once when it is under way, and once with the error that ended it."""
        tokens, steps = 4000, 0
        try:
            while True:
                if not self._engine.has_unfinished_requests():
                    for row in range(batch):
                        self._add(64, 31 * row + 5, tokens, logprobs=None)
                self._engine.step()
                steps += 1
                if steps == _UNDER_WAY:
                    print(json.dumps({"running": steps}), file=self._answers, flush=True)
        except Exception as error:
            causes, cause = [], error.__cause__ or error.__context__
            while cause is not None and len(causes) < 4:
                causes.append(f"{type(cause).__name__}: {cause}"[:500])
                cause = cause.__cause__ or cause.__context__
            return {"lost": f"{type(error).__name__}: {error}"[:1000], "causes": causes, "steps": steps}


def main() -> None:
    """`slice_rank.py FOLDER BACKEND MAX_CONTEXT KV_GIB EXECUTOR`; rank and meeting place stand in the environment."""
    folder, backend, max_context, kv_gib, executor = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start = time.perf_counter()
    more: dict[str, Any] = {}
    if executor == "mp":
        more["worker_extension_cls"] = "examples.peers.worker_place.WorkerPlace"
    try:
        refuse_multicast()
        llm = serve(
            Path(folder),
            backend,
            int(max_context),
            float(kv_gib),
            tensor_parallel_size=int(os.environ["WORLD_SIZE"]),
            distributed_executor_backend=executor,
            # Among several ranks this package serves by nobody's proof.
            switch={"decode_provider": "cute-experimental"} if backend != "auto" else {},
            # FlashInfer's fused all-reduce may make a multicast object.
            compilation={"pass_config": {"fuse_allreduce_rms": False}},
            **more,
        )
    except Exception as error:
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"[:2000]}), file=answers, flush=True)
        raise
    obey(llm, time.perf_counter() - start, answers, LosingArm(llm, answers))


if __name__ == "__mp_main__":
    # Processes that vLLM spawns have to know model and weights, too.
    register()
    register_loader()
if __name__ == "__main__":
    main()
