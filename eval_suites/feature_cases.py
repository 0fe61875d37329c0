"""Requests that use one served feature each, for every prompt alone and many at once.

An answer is judged by what its request says of itself, so that every field of the API that a case is about stands in
`options_text`. An item is named `feature/variant/prompt@cN`; the feature "plain" is the same prompt without any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from eval_suites.token_level import TOP_LOGPROBS, TokenIds
from harness.model.completion import CompletionRequest
from harness.model.evaluation import ChatMessage
from harness.model.features import Feature

MIN_BEFORE_STOP = 2
"""Tokens, or characters, before a stop: an answer that ends at once shows little."""
NUM_CHOICES = 4
GIVE_UP_AFTER = 3
"""Tokens after which a client closes its connection."""
_SEEDS_A_PROMPT = 100
"""Seeds are apart for every prompt and load: two prompts with one seed are drawn with the same noise."""
_OTHER_SEED = 40
_NUM_PENALISED_TOKENS = 20
"""Tokens of an answer whose repetitions are penalised: enough that a free one would repeat itself."""
_PENALISED_ALPHABET = range(32, 96)
"""Token ids that exist in any vocabulary."""
_NUM_ABANDONED_TOKENS = 300
"""Tokens of a request that is given up: far more than an engine makes before it hears of the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePrompt:
    """A prompt with what the baseline greedily continues it with."""

    token_ids: TokenIds
    text: str
    continuation: TokenIds
    continuation_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one case asks beyond the prompt."""

    variant: str
    options: dict[str, Any] = field(default_factory=dict)
    temperature: float = 0.0
    seed: int | None = None
    num_tokens: int = 0
    """0: as many as the suite says."""
    stream: bool = False
    chat: bool = False
    give_up_after: int = 0


Case = Callable[[FeaturePrompt, int], Iterator[Ask]]
"""From a prompt and a seed to the requests of one feature."""


def _sampling(_prompt: FeaturePrompt, seed: int) -> Iterator[Ask]:
    for temperature in (0.5, 2.0):
        for repeat in (0, 1):
            yield Ask(variant=f"t{temperature}/r{repeat}", temperature=temperature, seed=seed)
    yield Ask(variant="t2.0/other_seed", temperature=2.0, seed=seed + _OTHER_SEED)
    yield Ask(variant="t2.0/unseeded", temperature=2.0)


def _restricted(name: str, *values: float, temperature: float, num_seeds: int = 1) -> Case:
    """A high temperature gives the tokens that must not be drawn a fair chance."""

    def case(_prompt: FeaturePrompt, seed: int) -> Iterator[Ask]:
        for value in values:
            for more in range(num_seeds):
                yield Ask(
                    variant=f"{value:g}/s{more}",
                    options={name: value},
                    temperature=temperature,
                    seed=seed + _OTHER_SEED * more,
                )

    return case


def _penalty(name: str, *values: float) -> Case:
    def case(_prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
        for value in values:
            yield Ask(variant=f"{value:g}", options={name: value}, num_tokens=_NUM_PENALISED_TOKENS)

    return case


def _repetition_penalty(prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    """A bias lifts some tokens above zero, where a penalty divides; then the largest one leaves none a second time."""
    unseen = [token for token in _PENALISED_ALPHABET if token not in prompt.token_ids]
    bias = {"logit_bias": {str(token): 100 for token in unseen}}
    for value in (1e6, 1.0):
        options = bias | {"repetition_penalty": value}
        yield Ask(variant=f"{value:g}", options=options, num_tokens=_NUM_PENALISED_TOKENS)


def _logit_bias(prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    """Bans what the baseline would say, and forces what it would not."""
    banned = {str(token): -100 for token in sorted(set(prompt.continuation))}
    yield Ask(variant="banned", options={"logit_bias": banned})
    others = [token for token in prompt.token_ids if str(token) not in banned]
    if others:
        yield Ask(variant="forced", options={"logit_bias": {str(others[0]): 100}})


def _several_choices(_prompt: FeaturePrompt, seed: int) -> Iterator[Ask]:
    for repeat in (0, 1):
        yield Ask(variant=f"r{repeat}", options={"n": NUM_CHOICES}, temperature=1.0, seed=seed)


def _logprobs(_prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    yield Ask(variant="5", options={"logprobs": 5})


def _prompt_logprobs(_prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    yield Ask(variant="3", options={"prompt_logprobs": 3})


def _stop_strings(prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    """A string of the baseline's own continuation that occurs nowhere before, where it has one."""
    text = prompt.continuation_text
    for length in (2, 1):
        for start in range(MIN_BEFORE_STOP, len(text) - length - MIN_BEFORE_STOP):
            stop = text[start : start + length]
            if stop.isprintable() and "\N{REPLACEMENT CHARACTER}" not in stop and text.find(stop) == start:
                yield Ask(variant="own", options={"stop": [stop]})
                return


def _stop_token_ids(prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    tokens = prompt.continuation
    for position in range(MIN_BEFORE_STOP, len(tokens) - MIN_BEFORE_STOP):
        if tokens[position] not in tokens[:position]:
            yield Ask(variant="own", options={"stop_token_ids": [tokens[position]]})
            return


def _streaming(_prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    yield Ask(variant="free", stream=True)


REGEXES = (r"[a-f]{3}-[0-9]{4}", r"(yes|no), (19|20)[0-9]{2}", r"\([0-9]{1,3}; [x-z]+\)!")
GRAMMARS = (
    'root ::= term ("+" term){1,2}\nterm ::= [0-9] | "(" term "*" [0-9] ")"\n',
    'root ::= "set " name " = " value ";"\nname ::= [a-c] [a-c0-3]? [d-f]\nvalue ::= "on" | "off" | [0-9]{2,3}\n',
)
_NUM_CONSTRAINED_TOKENS = 48


def _turn(seed: int, count: int) -> int:
    """Which of several constraints is a prompt's turn."""
    return seed // _SEEDS_A_PROMPT % count


def _structured(kind: str, *constraints: str) -> Case:
    def case(_prompt: FeaturePrompt, seed: int) -> Iterator[Ask]:
        yield Ask(
            variant="seeded",
            options={
                "structured_outputs": {kind: constraints[_turn(seed, len(constraints))]},
                "ignore_eos": False,
            },
            temperature=1.0,
            seed=seed,
            num_tokens=_NUM_CONSTRAINED_TOKENS,
        )

    return case


def _tool(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool that takes one of a few whole objects: what is listed whole leaves no room for endless white space."""
    # Without "strict" vLLM (0.32) lets the arguments be any JSON.
    return {
        "type": "function",
        "function": {"name": name, "strict": True, "parameters": {"enum": list(arguments)}},
    }


TOOLS = (
    _tool("set_lamp", {"room": "hall", "lit": True}, {"room": "attic", "lit": False}),
    _tool("open_valve", {"number": 1}, {"number": 2}, {"number": 3}),
)


def _tool_calls(_prompt: FeaturePrompt, seed: int) -> Iterator[Ask]:
    named = TOOLS[_turn(seed, len(TOOLS))]["function"]["name"]
    choices = {"named": {"type": "function", "function": {"name": named}}, "required": "required"}
    for variant, choice in choices.items():
        yield Ask(
            variant=variant,
            options={"tools": TOOLS, "tool_choice": choice, "ignore_eos": False},
            temperature=1.0,
            seed=seed,
            num_tokens=2 * _NUM_CONSTRAINED_TOKENS,
            chat=True,
        )


def _chat_template(_prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    """With no alternatives reported, the log probabilities of the prompt name its own tokens."""
    yield Ask(variant="turns", options={"prompt_logprobs": 0}, chat=True)


def _abort(_prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    yield Ask(
        variant="closed",
        options={"max_tokens": _NUM_ABANDONED_TOKENS},
        num_tokens=_NUM_ABANDONED_TOKENS,
        stream=True,
        give_up_after=GIVE_UP_AFTER,
    )


def _plain(_prompt: FeaturePrompt, _seed: int) -> Iterator[Ask]:
    yield Ask(variant="free")


PLAIN = "plain"
CASES: dict[Feature, Case] = {
    "temperature_sampling": _sampling,
    "top_k": _restricted("top_k", 1, 3, temperature=2.0),
    "top_p": _restricted("top_p", 0.3, temperature=1.0, num_seeds=2),
    "min_p": _restricted("min_p", 1.0, 0.3, temperature=2.0),
    "presence_penalty": _penalty("presence_penalty", 2.0, -2.0),
    "frequency_penalty": _penalty("frequency_penalty", 2.0, 1.0, -1.0),
    "repetition_penalty": _repetition_penalty,
    "logit_bias": _logit_bias,
    "several_choices": _several_choices,
    "logprobs": _logprobs,
    "prompt_logprobs": _prompt_logprobs,
    "stop_strings": _stop_strings,
    "stop_token_ids": _stop_token_ids,
    "streaming": _streaming,
    "regex": _structured("regex", *REGEXES),
    "grammar": _structured("grammar", *GRAMMARS),
    "tool_calls": _tool_calls,
    "chat_template": _chat_template,
    "abort": _abort,
}
"""Cases of short prompts; those of long ones are in `eval_suites.features`."""


def requests_of(
    feature: str, index: int, prompt: FeaturePrompt, *, seed: int, num_tokens: int, level: int
) -> Iterator[CompletionRequest]:
    """The requests of one feature, or of "plain", for one prompt."""
    case = _plain if feature == PLAIN else CASES[feature]  # type: ignore[index]
    own_seed = _SEEDS_A_PROMPT * (seed + index) + level
    for ask in case(prompt, own_seed):
        messages = (
            ChatMessage(role="system", content="Be brief."),
            ChatMessage(role="user", content=prompt.text),
        )
        yield CompletionRequest(
            item=f"{feature}/{ask.variant}/p{index}@c{level}",
            prompt_token_ids=() if ask.chat else prompt.token_ids,
            messages=messages if ask.chat else (),
            max_tokens=ask.num_tokens or num_tokens,
            temperature=ask.temperature,
            seed=ask.seed,
            logprobs=0 if ask.chat else TOP_LOGPROBS,
            options_text=json.dumps(ask.options, sort_keys=True) if ask.options else "",
            ignore_eos=True,
            stream=ask.stream,
            give_up_after=ask.give_up_after,
        )
