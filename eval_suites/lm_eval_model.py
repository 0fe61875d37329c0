"""An lm-eval model that asks one arm, so that every document of a task has request ids, and with them its own proof.

Needs the extra `lm-eval`; nothing else in this package imports it. A continuation is scored while the engine decodes
it, token by token: forced tokens exercise a decode path, which the logprobs of a prompt do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from harness.model.completion import Completer, CompletionRequest
from harness.model.errors import ConfigurationError, EngineError
from harness.model.evaluation import ChatMessage, SuiteItem

DEFAULT_MAX_TOKENS = 256
_TOP_LOGPROBS = 20
_PASSED_ON = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
"""Options of a task's generation that the API spells the same way."""


class ConversationText(str):
    """Messages as JSON; a text of its own kind, so that it is never sent as a plain prompt."""

    __slots__ = ()


@register_model("fasttrack")
class CompleterLM(LM):
    """Answers lm-eval's requests through a `Completer` and keeps what was served."""

    def __init__(
        self,
        completer: Completer,
        *,
        suite: str,
        tokenize: Callable[[str], tuple[int, ...]],
        concurrency: int,
    ) -> None:
        super().__init__()
        self._completer = completer
        self._suite = suite
        self._tokenize = tokenize
        self._concurrency = concurrency
        self.items: list[SuiteItem] = []
        """Every answer, in the order of the requests; `SuiteItem.row` is the document's number."""

    @property
    def tokenizer_name(self) -> str:
        """Of the cache key that lm-eval gives requests."""
        return "served"

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The conversation itself: the server applies the template."""
        if not add_generation_prompt:
            raise ConfigurationError(
                "lm-eval-prefix",
                "A task that begins the model's answer for it (gen_prefix) cannot be served.",
            )
        return ConversationText(json.dumps(chat_history))

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """The text of each answer; raises `EngineError` for one that the server refused."""
        asked = [
            self._request(instance, index, **_generation(instance.args[1]))
            for index, instance in enumerate(requests)
        ]
        return [item.text for item in self._send(asked)]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """The natural-log probability of each continuation, and whether each of its tokens was the most likely."""
        asked = []
        for index, instance in enumerate(requests):
            context, continuation = _split(*instance.args)
            forced = self._tokenize(continuation)
            if not forced:
                raise ConfigurationError("lm-eval-empty", "A task scores an empty continuation.")
            asked.append(
                self._request(
                    instance,
                    index,
                    text=context,
                    max_tokens=len(forced),
                    force_token_ids=forced,
                    logprobs=_TOP_LOGPROBS,
                    ignore_eos=True,
                )
            )
        return [_likelihood(item) for item in self._send(asked)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:  # noqa: ARG002
        """Not served: whole documents are scored in prefill, which shows nothing about a decode path."""
        raise ConfigurationError(
            "lm-eval-rolling",
            f"{self._suite}: whole documents (loglikelihood_rolling) are not scored.",
        )

    def _request(
        self, instance: Instance, index: int, *, text: str | None = None, **fields: Any
    ) -> CompletionRequest:
        context = instance.args[0] if text is None else text
        if isinstance(context, ConversationText):
            fields["messages"] = tuple(ChatMessage.model_validate(m) for m in json.loads(context))
        else:
            fields["prompt_token_ids"] = self._tokenize(context)
            if not fields["prompt_token_ids"]:
                raise ConfigurationError("lm-eval-empty", "A task asks with an empty context.")
        return CompletionRequest(item=f"d{instance.doc_id}/{index}", row=str(instance.doc_id), **fields)

    def _send(self, asked: Sequence[CompletionRequest]) -> tuple[SuiteItem, ...]:
        items = self._completer.complete_many(asked, concurrency=self._concurrency, suite=self._suite)
        self.items += items
        for item in items:
            if item.error:
                raise EngineError("lm-eval-request", f"{self._suite}, {item.item}: {item.error}")
        return items


def _split(context: str, continuation: str) -> tuple[str, str]:
    """Moves a context's trailing spaces to the continuation, as lm-eval's own models do."""
    if isinstance(context, ConversationText):
        return context, continuation
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def _generation(options: Mapping[str, Any]) -> dict[str, Any]:
    """A task's generation options as request fields; raises `ConfigurationError` for one that has no meaning here."""
    left = dict(options)
    until = left.pop("until", None) or ()
    max_tokens = left.pop("max_gen_toks", left.pop("max_tokens", DEFAULT_MAX_TOKENS))
    is_sampled = left.pop("do_sample", None)
    temperature = float(left.pop("temperature", 0.0))
    others: dict[str, Any] = {name: left.pop(name) for name in _PASSED_ON if name in left}
    if left:
        names = ", ".join(sorted(left))
        raise ConfigurationError("lm-eval-options", f"Generation options without a meaning here: {names}.")
    stop = [until] if isinstance(until, str) else list(until)
    if stop:
        others["stop"] = stop
    return {
        "max_tokens": int(max_tokens),
        "temperature": 0.0 if is_sampled is False else temperature,
        "options_text": json.dumps(others, sort_keys=True) if others else "",
    }


def _likelihood(item: SuiteItem) -> tuple[float, bool]:
    """Of the forced tokens; raises `EngineError` where the server reports none for one of them."""
    total, is_greedy = 0.0, True
    for token_id, top in zip(item.token_ids, item.top_logprobs, strict=True):
        if token_id not in top.token_ids:
            raise EngineError("lm-eval-logprob", f"{item.item}: no logprob of token {token_id} came back")
        total += top.logprobs[top.token_ids.index(token_id)]
        is_greedy = is_greedy and top.token_ids[0] == token_id
    return total, is_greedy
