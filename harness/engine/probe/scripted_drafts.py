"""Drafts of chosen length and quality, in place of those that the engine looks up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.model.probe import ProbeEvent, ProbeRequest, Scenario


class ScriptedDrafts:
    """Stands in for the `propose` of vLLM's n-gram drafter; while no request has a script the engine drafts by itself.

    A draft's right tokens are those that the same request sampled when it ran without drafts; every token from the
    first wrong one on is another one.
    """

    def __init__(self, propose: Callable[..., list[list[int]]]) -> None:
        self._propose = propose
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._scripts: dict[tuple[int, ...], tuple[tuple[int, int], ...]] = {}
        self._turns: dict[tuple[int, ...], int] = {}

    def script(self, prompt: Sequence[int], drafts: Sequence[tuple[int, int]]) -> None:
        """The request with this prompt gets these drafts, one a step, over and over; none at all if empty."""
        self._scripts[tuple(prompt)] = tuple(drafts)
        self._turns[tuple(prompt)] = 0

    def know(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """What the request with this prompt samples without drafts."""
        self._known[tuple(prompt)] = (*prompt, *output)

    def clear(self) -> None:
        """Every request gets the engine's drafts again."""
        self._scripts.clear()

    def propose(
        self,
        num_drafts: int,
        sampled: Sequence[Sequence[int]],
        num_tokens: Any,
        token_ids: Any,
        **others: Any,
    ) -> list[list[int]]:
        """Drafts for each request of the batch, as vLLM's drafter gives them: at most `num_drafts` tokens each."""
        if not self._scripts:
            return self._propose(num_drafts, sampled, num_tokens, token_ids, **others)
        contexts = [tuple(token_ids[i, : num_tokens[i]].tolist()) for i in range(len(sampled))]
        return [
            self._draft(context)[:num_drafts] if new else []
            for context, new in zip(contexts, sampled, strict=True)
        ]

    def _draft(self, context: tuple[int, ...]) -> list[int]:
        prompt = next((p for p in self._scripts if context[: len(p)] == p), None)
        if prompt is None or not self._scripts[prompt] or prompt not in self._known:
            return []
        turn = self._turns[prompt]
        self._turns[prompt] += 1
        length, right = self._scripts[prompt][turn % len(self._scripts[prompt])]
        following = self._known[prompt][len(context) : len(context) + length]
        return [token if i < right else other_token(token, context[-1]) for i, token in enumerate(following)]


def other_token(token: int, alternative: int) -> int:
    """A token id that exists and is not `token`."""
    if alternative != token:
        return alternative
    return token - 1 if token else 1


def undrafted_scenario(scenarios: Sequence[Scenario]) -> Scenario | None:
    """Every prompt with scripted drafts, once, at its greatest length: without drafts it shows which are right."""
    longest: dict[tuple[object, ...], ProbeRequest] = {}
    for request in (r for s in scenarios for event in s.events for r in event.add if r.drafts):
        key = (request.text, request.num_tokens, request.short_of_block)
        known = longest.get(key)
        if known is None or known.max_tokens < request.max_tokens:
            longest[key] = request
    requests = tuple(r.model_copy(update={"name": f"u{i}"}) for i, r in enumerate(longest.values()))
    return Scenario(name="undrafted", events=(ProbeEvent(before_step=0, add=requests),)) if requests else None
