"""One worker of a training run: every worker takes its own chats, all of them move the same weights alike."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, distributed
from torch.nn import functional

from nano_training import forward
from nano_training.curriculum import Batch, Phase, batches, load_curriculum
from nano_training.initial import initial_weights, trainable_masks
from nano_training.optimizer import Optimizer
from specialized_path.nano.config import KimiK3NanoConfig

LOG_EVERY = 20
SAVE_EVERY = 100
WARM_UP_STEPS = 40
DECAY_SHARE = 0.4
"""Last share of all steps, in which the step size falls to zero."""

Forward = Callable[[dict[str, Tensor], KimiK3NanoConfig, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the command line says."""

    out_dir: Path
    curriculum: Path
    seed: int
    workers: int
    matrix_lr: float
    vector_lr: float
    compile: bool
    rendezvous: str
    """File through which the workers find each other."""


def run_worker(rank: int, run: Run) -> None:
    """Trains to the end of the curriculum; worker 0 writes results after every `SAVE_EVERY` steps."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    distributed.init_process_group(
        "gloo", init_method=f"file://{run.rendezvous}", rank=rank, world_size=run.workers
    )
    training = Training(run, rank)
    first_step = 0
    for number, phase in enumerate(load_curriculum(run.curriculum)):
        done = training.step - first_step
        if done < phase.steps:
            # A resumed phase reads chats of its own seed: those that were read before do not come again.
            seed = ((run.seed * 100 + number) * 100 + rank) * 10_000 + done
            training.run_phase(phase, phase.steps - done, seed)
        first_step += phase.steps
    training.save()
    distributed.destroy_process_group()


class Training:
    """Weights, optimizer and curve of one worker."""

    def __init__(self, run: Run, rank: int) -> None:
        """Starts from the seed or goes on from what `out_dir` holds."""
        self.run, self.rank = run, rank
        self.config = KimiK3NanoConfig()
        self.total_steps = sum(phase.steps for phase in load_curriculum(run.curriculum))
        self.weights = initial_weights(self.config, run.seed)
        self.masks = trainable_masks(self.config, self.weights)
        self.optimizer = Optimizer({name: self.weights[name] for name in self.masks})
        self.step = 0
        self.seconds = 0.0
        self.curve: list[dict[str, Any]] = []
        self._load()
        for name in self.masks:
            self.weights[name].requires_grad_()
        self.forward: Forward = forward.hidden_states
        if run.compile:
            # Every name of a tensor and every length is compiled for itself.
            torch._dynamo.config.recompile_limit = 256
            self.forward = torch.compile(forward.hidden_states, dynamic=False)

    def run_phase(self, phase: Phase, steps: int, seed: int) -> None:
        """Takes `steps` steps on the chats of `phase`."""
        began = time.monotonic()
        totals = torch.zeros(len(phase.sources), 4)
        for batch, _ in zip(batches(phase, seed), range(steps), strict=False):
            totals += self._take_step(batch, len(phase.sources))
            self.step += 1
            if self.step % LOG_EVERY == 0:
                self.seconds += time.monotonic() - began
                began = time.monotonic()
                self._log(phase, totals)
                totals.zero_()
            if self.step % SAVE_EVERY == 0:
                self.save()

    def _take_step(self, batch: Batch, num_sources: int) -> Tensor:
        """Returns, per source, the sums of tokens, loss, right tokens and sequences without a wrong token."""
        hidden = self.forward(self.weights, self.config, batch.token_ids[:, :-1])
        learned = batch.weights > 0
        targets = batch.token_ids[:, 1:][learned]
        logits = functional.linear(hidden[learned], self.weights["lm_head.weight"])
        losses = functional.cross_entropy(logits, targets, reduction="none")
        ((losses * batch.weights[learned]).sum() / batch.weights.sum().clamp(min=1)).backward()
        self._move(self._averaged_grads())
        with torch.no_grad():
            right = torch.zeros_like(batch.weights)
            right[learned] = (logits.argmax(-1) == targets).float()
            loss = torch.zeros_like(batch.weights)
            loss[learned] = losses
            counted = torch.stack(
                (learned.sum(-1), loss.sum(-1), right.sum(-1), ((right > 0) == learned).all(-1)), dim=-1
            )
            return torch.zeros(num_sources, 4).index_add(0, batch.source, counted.float())

    def _averaged_grads(self) -> dict[str, Tensor]:
        grads: dict[str, Tensor] = {}
        for name, mask in self.masks.items():
            grad = self.weights[name].grad
            assert grad is not None
            grads[name] = grad * mask
            self.weights[name].grad = None
        flat = torch.cat([grad.flatten() for grad in grads.values()])
        distributed.all_reduce(flat)
        flat /= self.run.workers
        flat *= min(1.0, 1.0 / float(flat.norm() + 1e-6))
        parts = flat.split([grad.numel() for grad in grads.values()])
        return {name: part.view_as(grads[name]) for name, part in zip(grads, parts, strict=True)}

    @torch.no_grad()
    def _move(self, grads: dict[str, Tensor]) -> None:
        left = (self.total_steps - self.step) / (DECAY_SHARE * self.total_steps)
        scale = min(1.0, (self.step + 1) / WARM_UP_STEPS, left)
        self.optimizer.step(grads, matrix_lr=scale * self.run.matrix_lr, vector_lr=scale * self.run.vector_lr)

    def _log(self, phase: Phase, totals: Tensor) -> None:
        distributed.all_reduce(totals)
        if self.rank != 0:
            return
        point: dict[str, Any] = {"step": self.step, "length": phase.length, "seconds": round(self.seconds, 1)}
        for source, (tokens, loss, right, _) in zip(phase.sources, totals.tolist(), strict=True):
            if tokens:
                point[source.name] = {
                    "loss": round(loss / tokens, 4),
                    "token_accuracy": round(right / tokens, 4),
                }
        self.curve.append(point)
        print(json.dumps(point), flush=True)

    def _state_path(self) -> Path:
        return self.run.out_dir / "state.pt"

    def _load(self) -> None:
        if not self._state_path().exists():
            return
        state = torch.load(self._state_path(), weights_only=True)
        for name, weight in state["weights"].items():
            self.weights[name].copy_(weight)
        self.optimizer.load_state(state["optimizer"])
        self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]

    def save(self) -> None:
        """Writes weights, curve and everything that a resumed run needs."""
        if self.rank != 0:
            return
        weights = {name: weight.detach() for name, weight in self.weights.items()}
        state = {
            "weights": weights,
            "optimizer": self.optimizer.state(),
            "step": self.step,
            "seconds": self.seconds,
            "curve": self.curve,
        }
        unfinished = self._state_path().with_suffix(".part")
        torch.save(state, unfinished)
        unfinished.replace(self._state_path())
        save_file(weights, self.run.out_dir / "model.safetensors", metadata={"format": "pt"})
        curve = json.dumps(self.curve, indent=0) + "\n"
        (self.run.out_dir / "curve.json").write_text(curve, encoding="utf-8")
