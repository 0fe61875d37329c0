"""One worker of a training run: every worker takes its own chats, all of them move the same weights alike."""

import itertools
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed
from torch.nn import functional

from nano_training import forward
from nano_training.curriculum import Batch, Phase, batches, load_curriculum
from nano_training.feeder import feed
from nano_training.initial import initial_weights, trainable_masks
from nano_training.optimizer import Optimizer
from specialized_path.nano.config import KimiK3NanoConfig

LOG_EVERY = 20
SAVE_EVERY = 100
WARM_UP_STEPS = 40
DECAY_SHARE = 0.4
"""Last share of the run, in which the step size falls to zero."""

Forward = Callable[..., Tensor]


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
    device: str
    feeders: int
    seconds: float | None
    """How long the run takes; without it, as many steps as the curriculum says."""
    started: float
    """When it began, by the monotonic clock: getting ready counts."""
    start: Path | None
    """Weights to go on from, with a fresh optimizer; without it, those of `initial_weights`."""
    rendezvous: str
    """File through which the workers find each other."""


def run_worker(rank: int, run: Run) -> None:
    """Trains to the end of the curriculum; worker 0 writes results after every `SAVE_EVERY` steps."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if run.workers > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{run.rendezvous}", rank=rank, world_size=run.workers
        )
    training = Training(run, rank)
    for number, phase in enumerate(training.phases):
        if training.progress < training.phase_ends[number]:
            # A resumed phase reads chats of its own seed: those that were read before do not come again.
            done = training.step - sum(phase.steps for phase in training.phases[:number])
            training.run_phase(number, ((run.seed * 100 + number) * 100 + rank) * 10_000 + done)
    training.save()
    if run.workers > 1:
        distributed.destroy_process_group()


class Training:
    """Weights, optimizer and curve of one worker."""

    def __init__(self, run: Run, rank: int) -> None:
        """Starts from the seed or the given weights, or goes on from what `out_dir` holds."""
        self.run, self.rank = run, rank
        self.config = KimiK3NanoConfig()
        self.phases = load_curriculum(run.curriculum)
        self.total_steps = sum(phase.steps for phase in self.phases)
        ends = itertools.accumulate(phase.steps for phase in self.phases)
        self.phase_ends = [end / self.total_steps for end in ends]
        weights = load_file(run.start) if run.start else initial_weights(self.config, run.seed)
        self.weights = {name: weight.to(run.device) for name, weight in weights.items()}
        masks = trainable_masks(self.config, self.weights)
        self.masks = {name: mask.to(run.device) for name, mask in masks.items()}
        self.optimizer = Optimizer({name: self.weights[name] for name in self.masks})
        self.step = 0
        self.seconds = 0.0
        self.progress = 0.0
        """Share of the run that is done, the same for all workers."""
        self.curve: list[dict[str, Any]] = []
        self._load()
        self.began = run.started - self.seconds
        for name in self.masks:
            self.weights[name].requires_grad_()
        self.forward: Forward = forward.hidden_states
        if run.compile:
            # Every name of a tensor and every length is compiled for itself.
            torch._dynamo.config.recompile_limit = 256
            self.forward = torch.compile(forward.hidden_states, dynamic=False)

    def run_phase(self, number: int, seed: int) -> None:
        """Takes steps on the chats of a phase until its share of the run is done."""
        phase = self.phases[number]
        totals = torch.zeros(len(phase.source_names), 3, device=self.run.device)
        feeders = [seed + 100_000_000 * feeder for feeder in range(self.run.feeders)]
        with feed(phase, feeders) if feeders else nullcontext(batches(phase, seed)) as source:
            while self.progress < self.phase_ends[number]:
                totals += self._take_step(next(source), len(totals))
                self.step += 1
                if self.step % LOG_EVERY == 0:
                    self._log(phase, totals)
                    totals.zero_()
                if self.step % SAVE_EVERY == 0:
                    self.save()

    def _take_step(self, batch: Batch, num_sources: int) -> Tensor:
        """Returns, per source, the sums of tokens, loss and right tokens."""
        # Found before anything is on the device, which would have to be waited for.
        learned = (batch.weights > 0).flatten().nonzero().squeeze(1)
        rows = (batch.source[learned // batch.weights.shape[1]]).to(self.run.device)
        weights = batch.weights.flatten()[learned].to(self.run.device)
        targets = batch.token_ids[:, 1:].flatten()[learned].to(self.run.device)
        tokens = batch.token_ids[:, :-1].to(self.run.device)
        hidden = self.forward(self.weights, self.config, tokens, scan=self.run.device != "cpu")
        chosen = hidden.flatten(0, 1).index_select(0, learned.to(self.run.device))
        logits = functional.linear(chosen, self.weights["lm_head.weight"])
        losses = functional.cross_entropy(logits, targets, reduction="none")
        ((losses * weights).sum() / weights.sum().clamp(min=1)).backward()
        self._move(self._averaged_grads())
        with torch.no_grad():
            right = (logits.argmax(-1) == targets).float()
            counted = torch.stack((torch.ones_like(losses), losses, right), dim=-1)
            return torch.zeros(num_sources, 3, device=self.run.device).index_add(0, rows, counted)

    def _averaged_grads(self) -> dict[str, Tensor]:
        """The gradients of all workers, with a common bound on their size; brings the common progress up to date."""
        grads: dict[str, Tensor] = {}
        for name, mask in self.masks.items():
            grad = self.weights[name].grad
            assert grad is not None
            grads[name] = grad * mask
            self.weights[name].grad = None
        flat = torch.cat([grad.flatten() for grad in grads.values()])
        self.progress = self._own_progress()
        if self.run.workers > 1:
            progress = torch.tensor([self.progress], dtype=torch.float64)
            distributed.broadcast(progress, 0)
            self.progress = float(progress)
            distributed.all_reduce(flat)
            flat /= self.run.workers
        flat *= (1.0 / (flat.norm() + 1e-6)).clamp(max=1.0)
        parts = flat.split([grad.numel() for grad in grads.values()])
        return {name: part.view_as(grads[name]) for name, part in zip(grads, parts, strict=True)}

    def _own_progress(self) -> float:
        """Share of the run that is done with this step."""
        if self.run.seconds is None:
            return (self.step + 1) / self.total_steps
        return (time.monotonic() - self.began) / self.run.seconds

    @torch.no_grad()
    def _move(self, grads: dict[str, Tensor]) -> None:
        scale = max(0.0, min(1.0, (self.step + 1) / WARM_UP_STEPS, (1.0 - self.progress) / DECAY_SHARE))
        self.optimizer.step(grads, matrix_lr=scale * self.run.matrix_lr, vector_lr=scale * self.run.vector_lr)

    def _log(self, phase: Phase, totals: Tensor) -> None:
        if self.run.workers > 1:
            distributed.all_reduce(totals)
        self.seconds = time.monotonic() - self.began
        if self.rank != 0:
            return
        point: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds, 1)}
        for name, (tokens, loss, right) in zip(phase.source_names, totals.tolist(), strict=True):
            if tokens:
                point[name] = {
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
        state = torch.load(self._state_path(), weights_only=True, map_location=self.run.device)
        for name, weight in state["weights"].items():
            self.weights[name].copy_(weight)
        self.optimizer.load_state(state["optimizer"])
        self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]
        self.progress = state["progress"]

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
            "progress": self.progress,
            "curve": self.curve,
        }
        unfinished = self._state_path().with_suffix(".part")
        torch.save(state, unfinished)
        unfinished.replace(self._state_path())
        save_file(weights, self.run.out_dir / "model.safetensors", metadata={"format": "pt"})
        curve = json.dumps(self.curve, indent=0) + "\n"
        (self.run.out_dir / "curve.json").write_text(curve, encoding="utf-8")
