"""Makes the tensors that the specialised code returns wrong on purpose, so that an evaluation can show that it notices.

Imports torch only once it is switched on: the tracer must not import it before the engine does.
"""

from __future__ import annotations

from typing import Any


class Perturber:
    """Adds seeded Gaussian noise to what chosen functions return; off, it hands every result on untouched.

    The noise is relative: in each row (last dimension) its standard deviation is `amplitude` times the row's root mean
    square. The result is a new tensor; the function's own, which it may keep, stays as it is.
    """

    def __init__(self) -> None:
        self.amplitude = 0.0
        self.num_calls = 0
        """Calls whose result was changed since it was switched on."""
        self._targets: frozenset[str] = frozenset()
        self._seed = 0
        self._generators: dict[str, Any] = {}

    def switch(self, amplitude: float, seed: int, targets: tuple[str, ...]) -> None:
        """Starts afresh with this noise on the results of these functions; amplitude 0 switches it off."""
        if not 0 <= amplitude < float("inf"):
            raise ValueError(f"amplitude is {amplitude}, expected a finite number from 0")
        self.amplitude, self._seed, self._targets = amplitude, seed, frozenset(targets)
        self.num_calls = 0
        self._generators = {}

    def result_of(self, target: str, result: Any) -> Any:
        """What the caller of `target` gets instead of `result`."""
        if not self.amplitude or target not in self._targets:
            return result
        changed = self._changed(result)
        self.num_calls += changed is not result
        return changed

    def _changed(self, value: Any) -> Any:
        """The value with noise on every floating-point tensor; itself when it holds none."""
        import torch

        if isinstance(value, torch.Tensor):
            return self._noisy(value) if value.is_floating_point() and value.numel() else value
        if isinstance(value, dict):
            changed = {key: self._changed(item) for key, item in value.items()}
            return changed if any(changed[key] is not value[key] for key in value) else value
        if type(value) in (tuple, list):
            items = [self._changed(item) for item in value]
            is_same = all(new is old for new, old in zip(items, value, strict=True))
            return value if is_same else type(value)(items)
        return value

    def _noisy(self, tensor: Any) -> Any:
        """Drawn in float32 from a generator of its own, so that the engine's random numbers stay as they were."""
        import torch

        device = str(tensor.device)
        if device not in self._generators:
            self._generators[device] = torch.Generator(device=tensor.device).manual_seed(self._seed)
        noise = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
        noise.normal_(generator=self._generators[device])
        scale = tensor.float().square().mean(dim=-1, keepdim=True).sqrt()
        return (tensor.float() + self.amplitude * scale * noise).to(tensor.dtype)
