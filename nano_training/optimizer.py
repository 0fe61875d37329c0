"""Muon for the matrices, Adam for everything else."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

_MATRIX_MOMENTUM = 0.95
_ADAM_BETAS = (0.9, 0.95)
_ADAM_EPS = 1e-8
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NOT_HIDDEN = ("embed_tokens", "lm_head", "conv1d")


class Optimizer:
    """Moves weights in place; its state is a plain dictionary.

    A matrix moves along its momentum with all singular values set to about one (Muon: K. Jordan et al., 2024;
    coefficients of the Newton-Schulz iteration from there); embeddings, the output head, convolutions and vectors
    move by Adam.
    """

    def __init__(self, weights: dict[str, Tensor]) -> None:
        """Keeps the given tensors."""
        self.weights = weights
        self.step_count = 0
        self.first = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.second = {n: torch.zeros_like(w) for n, w in weights.items() if not _is_hidden_matrix(n, w)}

    def step(self, grads: dict[str, Tensor], *, matrix_lr: float, vector_lr: float) -> None:
        """Applies one update of the given sizes."""
        self.step_count += 1
        self._move_vectors(grads, vector_lr)
        by_shape: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name in self.weights:
            if name not in self.second:
                by_shape[tuple(self.weights[name].shape[-2:])].append(name)
        for shape, names in by_shape.items():
            self._move_matrices(shape, names, grads, matrix_lr)

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {"step_count": self.step_count, "first": self.first, "second": self.second}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes what `state` gave."""
        self.step_count, self.first, self.second = state["step_count"], state["first"], state["second"]

    def _move_vectors(self, grads: dict[str, Tensor], lr: float) -> None:
        for name, second in self.second.items():
            grad, first = grads[name], self.first[name]
            first.lerp_(grad, 1 - _ADAM_BETAS[0])
            second.lerp_(grad.square(), 1 - _ADAM_BETAS[1])
            scale = (second / (1 - _ADAM_BETAS[1] ** self.step_count)).sqrt_().add_(_ADAM_EPS)
            self.weights[name] -= lr / (1 - _ADAM_BETAS[0] ** self.step_count) * first / scale

    def _move_matrices(
        self, shape: tuple[int, ...], names: list[str], grads: dict[str, Tensor], lr: float
    ) -> None:
        for name in names:
            self.first[name].lerp_(grads[name], 1 - _MATRIX_MOMENTUM)
        moved = [grads[name].lerp(self.first[name], _MATRIX_MOMENTUM).reshape(-1, *shape) for name in names]
        directions = orthogonalized(torch.cat(moved)) * max(1.0, shape[0] / shape[1]) ** 0.5
        for name, direction in zip(names, directions.split([len(m) for m in moved]), strict=True):
            self.weights[name] -= lr * direction.view_as(self.weights[name])


def orthogonalized(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Returns [n, rows, columns] with the same singular vectors and singular values between about 0.7 and 1.2."""
    a, b, c = _NEWTON_SCHULZ
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.transpose(-1, -2) if is_tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-12)
    for _ in range(iterations):
        gram = x @ x.transpose(-1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(-1, -2) if is_tall else x


def _is_hidden_matrix(name: str, weight: Tensor) -> bool:
    return weight.dim() >= 2 and not any(part in name for part in _NOT_HIDDEN)
