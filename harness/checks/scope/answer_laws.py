"""Laws of what comes back: log probabilities, ends, streams, constrained answers, and how requests share the engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from harness.checks.scope.feature_answers import (
    TIE,
    ArmAnswers,
    FeatureAnswer,
    FeatureLaw,
    Tried,
    positions,
)
from harness.checks.scope.grammar import GrammarError, obeys_grammar
from harness.checks.scope.sco002_structured_output import find_violation
from harness.model.evaluation import GIVEN_UP


def _logprobs(arm: ArmAnswers) -> Tried:
    """A greedy token is the most likely of those reported, and as many are reported as asked."""
    tried = Tried()
    for answer in arm.answers:
        item, asked = answer.item, int(answer.options["logprobs"])
        lists = [t for t in item.top_logprobs if len(t.token_ids) >= asked]
        breaches = []
        if len(lists) != len(item.token_ids):
            breaches.append(
                f"{answer.name}: {asked} alternatives at {len(lists)} of {len(item.token_ids)} tokens"
            )
        breaches += [
            f"{answer.name} token {position}: {token} is not the most likely"
            for position, (token, top) in enumerate(positions(answer))
            if top.get(token, float("-inf")) < max(top.values()) - TIE
        ]
        tried += Tried(num=len(item.token_ids), breaches=tuple(breaches))
    return tried


def _prompt_logprobs(arm: ArmAnswers) -> Tried:
    """Finite log probabilities at every token of the prompt but the first."""
    tried = Tried()
    for answer in arm.answers:
        item = answer.item
        sound = [t for t in item.prompt_logprobs if t.token_ids and not t.num_not_finite]
        text = f"{answer.name}: {len(sound)} positions for {item.num_prompt_tokens} prompt tokens"
        wrong = len(sound) != item.num_prompt_tokens - 1
        tried += Tried(num=len(sound), breaches=(text,) if wrong else ())
    return tried


def _stop_strings(arm: ArmAnswers) -> Tried:
    """The string ends the answer, is not in it, and the server says that it did."""
    tried = Tried()
    for answer in arm.answers:
        stops = [str(stop) for stop in answer.options["stop"]]
        text, item = answer.item.text, answer.item
        breaches = [f"{answer.name}: the answer contains {stop!r}" for stop in stops if stop in text]
        has_stopped = item.finish_reason == "stop"
        if has_stopped and item.stop_reason not in stops:
            breaches.append(f"{answer.name}: it says that {item.stop_reason!r} stopped it")
        free = arm.plain.get(answer.prompt)
        says_something = bool(text or (free is not None and free.item.text))
        differences = {}
        if free is not None:
            cut = min((free.item.text.find(s) for s in stops if s in free.item.text), default=-1)
            expected = free.item.text[:cut] if cut >= 0 else free.item.text
            if not breaches and text != expected and not (cut < 0 and has_stopped):
                differences[answer.name] = f"{text!r}, the free answer cut at the string is {expected!r}"
        tried += Tried(
            num=float((has_stopped and says_something) or bool(breaches)),
            breaches=tuple(breaches),
            compared=1,
            differences=differences,
        )
    return tried


def _stop_token_ids(arm: ArmAnswers) -> Tried:
    """The token ends the answer, as its last."""
    tried = Tried()
    for answer in arm.answers:
        stops, item = set(answer.options["stop_token_ids"]), answer.item
        breaches = []
        if stops & set(item.token_ids[:-1]):
            breaches.append(f"{answer.name}: the answer goes on after a stop token")
        ended = bool(item.token_ids) and item.token_ids[-1] in stops
        if ended != (item.finish_reason == "stop") or (ended and item.stop_reason not in map(str, stops)):
            breaches.append(
                f'{answer.name}: ends with "{item.finish_reason}" by {item.stop_reason!r} at {item.token_ids[-1:]}'
            )
        tried += Tried(num=float(ended or bool(breaches)), breaches=tuple(breaches))
    return tried


def _streaming(arm: ArmAnswers) -> Tried:
    """Tokens arrive one after the other, and are those of the answer that is not streamed.

    A server that is busy may hand out a short answer in one piece, so that half of them must come in several.
    """
    tried = Tried()
    whole = []
    for answer in arm.answers:
        times = answer.item.token_times_ms
        if len(times) != len(answer.item.token_ids) or len(set(times)) < 2:
            whole.append(
                f"{answer.name}: {len(answer.item.token_ids)} tokens arrived in {len(set(times))} pieces"
            )
        tried += Tried(num=1) + _same_as(answer, arm.plain.get(answer.prompt))
    return tried + Tried(breaches=tuple(whole) if 2 * len(whole) > len(arm.answers) else ())


def _same_as(answer: FeatureAnswer, other: FeatureAnswer | None) -> Tried:
    """Whether two greedy answers are the same, as far as the shorter goes, where its token limit ended that one."""
    if other is None:
        return Tried()
    shorter, longer = sorted((answer.item, other.item), key=lambda item: len(item.token_ids))
    length = len(shorter.token_ids)
    is_whole = length == len(longer.token_ids) or shorter.finish_reason == "length"
    same = length > 0 and is_whole and shorter.token_ids == longer.token_ids[:length]
    text = f"{answer.item.token_ids} here, {other.item.token_ids} in {other.name}"
    return Tried(compared=1, differences={} if same else {answer.name: text})


def _constrained(kind: str, obeys: Callable[[str, str], bool]) -> Callable[[ArmAnswers], Tried]:
    """Every finished answer obeys its constraint; one that is cut off says nothing."""

    def holds(arm: ArmAnswers) -> Tried:
        tried = Tried()
        for answer in arm.answers:
            constraint = str(answer.options["structured_outputs"][kind])
            if answer.item.finish_reason != "stop":
                continue
            text = answer.item.text
            line = f"{answer.name}: {text!r} does not obey {constraint!r}"
            tried += Tried(num=1, breaches=() if obeys(text, constraint) else (line,))
        return tried

    return holds


def _obeys_regex(text: str, regex: str) -> bool:
    return re.fullmatch(regex, text) is not None


def _obeys(text: str, grammar: str) -> bool:
    try:
        return obeys_grammar(text, grammar)
    except GrammarError:
        return False


def _tool_calls(arm: ArmAnswers) -> Tried:
    """A finished answer calls an offered function, the named one where one is named, with arguments that fit."""
    tried = Tried()
    for answer in arm.answers:
        if answer.item.finish_reason == "length":
            continue
        faults = tuple(f"{answer.name}: {fault}" for fault in find_call_faults(answer))
        tried += Tried(num=1, breaches=faults)
    return tried


def find_call_faults(answer: FeatureAnswer) -> Iterator[str]:
    """What is wrong with the calls of one answer."""
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in answer.options["tools"]}
    choice = answer.options["tool_choice"]
    named = {choice["function"]["name"]} if isinstance(choice, dict) else set(schemas)
    try:
        calls = json.loads(answer.item.tool_calls_text or "[]")
    except (ValueError, RecursionError) as error:
        yield f"calls that are not JSON: {error}"
        return
    if not calls:
        yield f"no call, but {answer.item.text!r}"
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            yield f"{call!r} is no call of a function"
            continue
        name = function.get("name")
        if not isinstance(name, str) or name not in named:
            yield f"calls {name!r}, {sorted(named)} may be called"
            continue
        try:
            violation = find_violation(json.loads(function.get("arguments", "")), schemas[name])
        except (ValueError, TypeError, RecursionError) as error:
            violation = f"not JSON: {error}"
        if violation:
            yield f"arguments {function.get('arguments')!r}: {violation}"


def _chat_template(arm: ArmAnswers) -> Tried:
    """The prompt's own tokens are reported, as many as the usage counts."""
    tried = Tried()
    for answer in arm.answers:
        tokens = prompt_tokens(answer)
        wrong = len(tokens) != answer.item.num_prompt_tokens - 1
        text = f"{answer.name}: {len(tokens)} tokens for a prompt of {answer.item.num_prompt_tokens}"
        tried += Tried(num=1, breaches=(text,) if wrong else ())
    return tried


def prompt_tokens(answer: FeatureAnswer) -> tuple[int, ...]:
    """The rendered prompt's tokens but the first; a position that reports several tokens, or none, is left out."""
    return tuple(t.token_ids[0] for t in answer.item.prompt_logprobs if len(t.token_ids) == 1)


def _chunked(arm: ArmAnswers) -> Tried:
    """A prompt that is computed in several steps; its answer is judged by the prefix cache's."""
    chunked = [
        a
        for a in arm.answers
        if sum(r.num_prefill_tokens > 0 for r in arm.parts.get(a.item.request_id, ())) > 1
    ]
    tried = Tried(num=4.0 * len(chunked))
    for answer in chunked:
        tried += _same_as(answer, arm.plain.get(answer.prompt))
    return tried


def _prefix_cache(arm: ArmAnswers) -> Tried:
    """A prompt that was computed before starts from the cache, and its answer is the same."""
    tried = Tried()
    for answer in arm.answers:
        first = next(iter(arm.parts.get(answer.item.request_id, ())), None)
        if first is not None and first.num_computed_tokens:
            tried += Tried(num=1) + _same_as(answer, arm.plain.get(answer.prompt))
    return tried


def _abort(arm: ArmAnswers) -> Tried:
    """A request whose client has gone leaves the engine before its end."""
    tried = Tried()
    for answer in arm.answers:
        if answer.item.finish_reason != GIVEN_UP:
            continue
        made = sum(r.num_emitted_tokens for r in arm.parts.get(answer.item.request_id, ()))
        asked = int(answer.options["max_tokens"])
        line = f"{answer.name}: {made} of {asked} tokens were made though its client left after a few"
        tried += Tried(num=1, breaches=(line,) if made >= asked else ())
    return tried


ANSWER_LAWS: tuple[FeatureLaw, ...] = (
    FeatureLaw(
        feature="logprobs",
        claim="as many log probabilities come back as asked, and a greedy token is the most likely",
        holds=_logprobs,
        variants=("5",),
    ),
    FeatureLaw(
        feature="prompt_logprobs",
        claim="the prompt's own log probabilities come back",
        holds=_prompt_logprobs,
        variants=("3",),
    ),
    FeatureLaw(
        feature="stop_strings",
        claim="a stop string ends the answer and is not in it",
        holds=_stop_strings,
        variants=("own",),
    ),
    FeatureLaw(
        feature="stop_token_ids",
        claim="a stop token ends the answer",
        holds=_stop_token_ids,
        variants=("own",),
    ),
    FeatureLaw(
        feature="streaming",
        claim="a streamed answer has the same tokens, one after the other, and its usage",
        holds=_streaming,
        variants=("free",),
    ),
    FeatureLaw(
        feature="regex",
        claim="a finished answer matches its regular expression",
        holds=_constrained("regex", _obeys_regex),
        variants=(),
    ),
    FeatureLaw(
        feature="grammar",
        claim="a finished answer derives from its grammar",
        holds=_constrained("grammar", _obeys),
        variants=(),
    ),
    FeatureLaw(
        feature="tool_calls",
        claim="a named or required tool is called with arguments that fit",
        holds=_tool_calls,
        variants=("named", "required"),
    ),
    FeatureLaw(
        feature="chat_template",
        claim="a conversation becomes the same prompt",
        holds=_chat_template,
        variants=("turns",),
        same_on_every_arm=prompt_tokens,
    ),
    FeatureLaw(
        feature="chunked_prefill",
        claim="a prompt that is computed in several steps is answered like a cached one",
        holds=_chunked,
        variants=("first",),
        reference="prefix_cache",
        together_only=True,
    ),
    FeatureLaw(
        feature="prefix_cache",
        claim="a prompt that was computed before starts from the cache and is answered the same",
        holds=_prefix_cache,
        variants=("again",),
        reference="chunked_prefill",
    ),
    FeatureLaw(
        feature="abort",
        claim="a request whose client has gone leaves the engine",
        holds=_abort,
        variants=("closed",),
    ),
)
