"""A made engine that serves every feature of the features suite, and can be told to break each."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from eval_suites.feature_cases import FeaturePrompt
from eval_suites.feature_suite import feature_suite
from eval_suites.suite import Suite, run_suite
from harness.model.completion import CompletionRequest
from harness.model.evaluation import GIVEN_UP, Choice, SuiteItem, TokenLogprobs
from harness.model.evidence import AnyEvidence, EvidenceSet, LedgerEvidence, SuiteEvidence, evidence_set
from harness.model.ledger import LedgerRow, StepDecision, StepRequest
from harness.model.words import Arm, Tier
from tests.harness.checks.evidence_builder import DECISION, EXECUTOR, MAX_BATCH, PLAIN

VOCABULARY = 96
FIRST = 32
"""Token n is the character FIRST + n."""
SAMPLES = {
    "[a-f]": ("abc-1234", "fed-0000"),
    "(yes|no)": ("yes, 1999", "no, 2010"),
    r"\([0-9]": ("(123; xyz)!", "(9; z)!"),
    'root ::= term ("+"': ("1+(2*3)", "4+5+6"),
    'root ::= "set "': ("set ad = on;", "set b3f = 123;"),
}
"""Answers that obey the suite's constraints, by how these begin."""
CALL = {"set_lamp": '{"room": "hall", "lit": true}', "open_valve": '{"number": 2}'}


@cache
def logits_of(history: tuple[int, ...]) -> tuple[float, ...]:
    rng = np.random.default_rng(zlib.crc32(repr(history[-3:]).encode()))
    common = 3.0 * (np.arange(VOCABULARY) % 12 == 9)
    return tuple((1.5 * rng.standard_normal(VOCABULARY) + common).tolist())


@dataclass(slots=True)
class FeatureServer:
    """One arm. `faults` names features that it breaks; "falls back" serves by the other path."""

    arm: Arm
    faults: frozenset[str] = frozenset()
    rows: list[LedgerRow] = field(default_factory=list)
    _serial: int = 0
    _known: set[tuple[int, ...]] = field(default_factory=set)

    def complete_many(
        self, requests: Sequence[CompletionRequest], *, concurrency: int, suite: str, together: bool = False
    ) -> tuple[SuiteItem, ...]:
        level = max(1, min(concurrency, len(requests)))
        return tuple(self._answer(r, level, suite) for r in requests)

    def _answer(self, request: CompletionRequest, level: int, suite: str) -> SuiteItem:
        self._serial += 1
        request_id = f"{suite}-{self.arm}-{self._serial}r"
        options: dict[str, Any] = json.loads(request.options_text or "{}")
        prompt = request.prompt_token_ids or tuple(
            ord(c) - FIRST for m in request.messages for c in m.content
        )
        if "refused" in self.faults and "logit_bias" in options:
            return self._item(request, request_id, level, len(prompt), (), error="HTTP 400: no logit_bias")
        choices = [self._generate(request, options, prompt, n) for n in range(options.get("n", 1))]
        if "several_choices" in self.faults:
            choices = choices[:1]
        self._write_rows(request, request_id, len(prompt), [tokens for tokens, _ in choices], prompt)
        tokens, top = choices[0]
        fields = self._ending(request, options, tokens)
        return self._item(
            request,
            request_id,
            level,
            len(prompt),
            tokens,
            top_logprobs=tuple(top) if request.logprobs else (),
            prompt_logprobs=self._prompt_logprobs(options, prompt),
            choices=tuple(
                Choice(token_ids=t, text=text_of(t), finish_reason="length") for t, _ in choices[1:]
            ),
            token_times_ms=tuple(self._times(len(tokens))) if request.stream else (),
            **fields,
        )

    def _item(
        self, request: CompletionRequest, request_id: str, level: int, prompt: int, tokens: Any, **fields: Any
    ) -> SuiteItem:
        values = {
            "item": request.item,
            "request_id": request_id,
            "concurrency": level,
            "num_prompt_tokens": prompt,
            "token_ids": tokens,
            "text": text_of(tokens),
            "finish_reason": "length",
            "num_completion_tokens": len(tokens) + sum(len(c.token_ids) for c in fields.get("choices", ())),
            "temperature": request.temperature,
            "seed": request.seed,
            "options_text": request.options_text,
        }
        return SuiteItem.model_validate(values | fields)

    def _times(self, count: int) -> list[float]:
        return [1.0] * count if "streaming" in self.faults else [float(i) for i in range(count)]

    def _prompt_logprobs(self, options: dict[str, Any], prompt: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
        if "prompt_logprobs" not in options:
            return ()
        shown = prompt[1:-1] if "prompt_logprobs" in self.faults else prompt[1:]
        if "chat_template" in self.faults and options["prompt_logprobs"] == 0:
            shown = (0, *shown[1:])
        return tuple(TokenLogprobs(token_ids=(t,), logprobs=(-1.0,)) for t in shown)

    def _generate(
        self, request: CompletionRequest, options: dict[str, Any], prompt: tuple[int, ...], child: int
    ) -> tuple[tuple[int, ...], list[TokenLogprobs]]:
        """The tokens of one choice with what is reported at each."""
        seed = None if request.seed is None or "seed" in self.faults else request.seed + child
        rng = np.random.default_rng(
            (zlib.crc32(repr(prompt).encode()), self._serial if seed is None else seed)
        )
        tokens: list[int] = []
        top: list[TokenLogprobs] = []
        goes_astray = "streaming tokens" in self.faults and request.stream
        while len(tokens) < request.max_tokens:
            logits = np.asarray(logits_of((*prompt, *tokens)))
            logprobs = logits - np.log(np.exp(logits).sum())
            token = self._choose(request, options, logprobs, (*prompt, *tokens), tokens, rng)
            token = (token + 1) % VOCABULARY if goes_astray and len(tokens) == 2 else token
            tokens.append(token)
            count = options.get("logprobs", 20) - ("logprobs" in self.faults and "logprobs" in options)
            listed = [int(t) for t in np.argsort(-logprobs, kind="stable")[:count]]
            listed += [token] if token not in listed else []
            num_bad = int("nan" in self.faults and len(tokens) == 2)
            values = tuple(float(logprobs[t]) for t in listed)
            top.append(TokenLogprobs(token_ids=tuple(listed), logprobs=values, num_not_finite=num_bad))
            if token in options.get("stop_token_ids", ()) and "stop_token_ids" not in self.faults:
                break
            if (
                any(s in text_of(tokens) for s in options.get("stop", ()))
                and "stop_strings" not in self.faults
            ):
                break
            if request.give_up_after and len(tokens) >= request.give_up_after:
                break
        return tuple(tokens), top

    def _choose(
        self,
        request: CompletionRequest,
        options: dict[str, Any],
        logprobs: Any,
        history: Sequence[int],
        tokens: Sequence[int],
        rng: np.random.Generator,
    ) -> int:
        scores = logprobs.copy()
        counts = np.bincount(np.asarray(tokens, dtype=np.int64), minlength=VOCABULARY)
        if "presence_penalty" not in self.faults:
            scores -= options.get("presence_penalty", 0.0) * (counts > 0)
        if "frequency_penalty" not in self.faults:
            scores -= options.get("frequency_penalty", 0.0) * counts
        if "logit_bias" not in self.faults:
            for token, bias in options.get("logit_bias", {}).items():
                scores[int(token)] += bias
        if "repetition_penalty" in options and "repetition_penalty" not in self.faults:
            seen, penalty = list({*history}), options["repetition_penalty"]
            scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
        if request.temperature == 0:
            return int(scores.argmax())
        temperature = 1.0 if "temperature" in self.faults else request.temperature
        p = np.exp(scores / temperature)
        p /= p.sum()
        p *= self._kept(options, p)
        return int(rng.choice(VOCABULARY, p=p / p.sum()))

    def _kept(self, options: dict[str, Any], p: Any) -> Any:
        order = np.argsort(-p, kind="stable")
        kept = np.ones(VOCABULARY, dtype=bool)
        if "top_k" in options and "top_k" not in self.faults:
            kept[order[options["top_k"] :]] = False
        if "min_p" in options and "min_p" not in self.faults:
            kept &= p >= options["min_p"] * p.max() * (1 - 1e-9)
        if "top_p" in options and "top_p" not in self.faults:
            before = np.concatenate(([0.0], np.cumsum(p[order])[:-1]))
            kept[order[before >= options["top_p"]]] = False
        return kept

    def _ending(
        self, request: CompletionRequest, options: dict[str, Any], tokens: Sequence[int]
    ) -> dict[str, Any]:
        """Text and end of the first choice, where they are not those of plain tokens."""
        if request.give_up_after:
            return {"finish_reason": GIVEN_UP}
        if tokens[-1] in options.get("stop_token_ids", ()):
            return {"finish_reason": "stop", "stop_reason": str(tokens[-1])}
        for stop in options.get("stop", ()):
            if stop in text_of(tokens) and "stop_strings" not in self.faults:
                return {"finish_reason": "stop", "stop_reason": stop, "text": text_of(tokens).split(stop)[0]}
        if "structured_outputs" in options:
            ((kind, constraint),) = options["structured_outputs"].items()
            samples = next(v for k, v in SAMPLES.items() if constraint.startswith(k))
            text = samples[(request.seed or 0) % 2]
            return {"finish_reason": "stop", "text": text[1:] + text[0] if kind in self.faults else text}
        if "tools" in options:
            choice = options["tool_choice"]
            name = choice["function"]["name"] if isinstance(choice, dict) else "set_lamp"
            arguments = CALL[name][1:] if "tool_calls" in self.faults else CALL[name]
            calls = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
            return {"finish_reason": "tool_calls", "text": "", "tool_calls_text": json.dumps(calls)}
        return {}

    def _write_rows(
        self,
        request: CompletionRequest,
        request_id: str,
        num_prompt: int,
        choices: Sequence[Sequence[int]],
        prompt: tuple[int, ...],
    ) -> None:
        """The prompt, in two steps where it is long and new, then one step a token."""
        is_hit = prompt in self._known and "prefix_cache" not in self.faults
        self._known.add(prompt)
        cached = num_prompt // 2 if is_hit and num_prompt > 64 else 0
        pieces = [num_prompt - cached]
        if request.item.startswith("chunked") and "chunked_prefill" not in self.faults:
            pieces = [num_prompt - 8, 8]
        for child, tokens in enumerate(choices):
            engine_id = f"cmpl-{request_id}-0-5f"
            engine_id = f"{child}_{engine_id}" if len(choices) > 1 else engine_id
            done = cached
            for index, piece in enumerate(pieces):
                emitted = int(index == len(pieces) - 1)
                self._row(engine_id, done, piece, prefill=piece, emitted=emitted)
                done += piece
            more = request.max_tokens if "abort" in self.faults and request.give_up_after else len(tokens)
            for position in range(more - 1):
                self._row(engine_id, done + position, 1, prefill=0, emitted=1)

    def _row(self, engine_id: str, computed: int, scheduled: int, *, prefill: int, emitted: int) -> None:
        is_fast = self.arm is Arm.CANDIDATE and not prefill and "falls back" not in self.faults
        decisions = (StepDecision(target=DECISION, specialized=is_fast, reason="made"),)
        self.rows.append(
            LedgerRow(
                step=len(self.rows),
                started_ns=len(self.rows),
                duration_ns=1,
                num_reqs=1,
                requests=(
                    StepRequest(
                        request_id=engine_id,
                        num_scheduled_tokens=scheduled,
                        num_prefill_tokens=prefill,
                        num_emitted_tokens=emitted,
                        num_computed_tokens=computed,
                    ),
                ),
                decisions=decisions if self.arm is Arm.CANDIDATE else (),
                ran={EXECUTOR: 1} if is_fast else {PLAIN: 1},
            )
        )


def text_of(tokens: Sequence[int]) -> str:
    return "".join(chr(FIRST + token) for token in tokens)


@cache
def made_suite(seed: int = 0) -> Suite:
    """The features suite over prompts of the made model."""
    prompts = []
    for index in range(6):
        tokens = tuple(10 + (7 * index + 3 * i) % 80 for i in range(5 + index))
        request = CompletionRequest(item="p", prompt_token_ids=tokens, max_tokens=12)
        continuation, _ = FeatureServer(Arm.BASELINE)._generate(request, {}, tokens, 0)
        prompts.append(
            FeaturePrompt(
                token_ids=tokens,
                text=text_of(tokens),
                continuation=continuation,
                continuation_text=text_of(continuation),
            )
        )
    long_prompts = [tuple((i * i + index) % VOCABULARY for i in range(100)) for index in range(MAX_BATCH)]
    return feature_suite(prompts, long_prompts, max_batch=MAX_BATCH, num_alone=3, num_tokens=8, seed=seed)


@cache
def serve(arm: Arm, faults: frozenset[str], seed: int) -> tuple[SuiteEvidence, LedgerEvidence]:
    server = FeatureServer(arm, faults)
    items = run_suite(made_suite(seed), server)
    fields: dict[str, Any] = {"tier": Tier.CPU, "recorded_at": "2026-01-01T00:00:00Z", "arm": arm}
    return (
        SuiteEvidence(suite="features", items=items, **fields),
        LedgerEvidence(rows=tuple(server.rows), **fields),
    )


def feature_evidence(
    candidate: frozenset[str] = frozenset(), off: frozenset[str] = frozenset(), *, seed: int = 0
) -> EvidenceSet:
    """The suite on all arms; `candidate` and `off` name what the arms break."""
    records: list[AnyEvidence] = []
    for arm in Arm:
        records += serve(arm, candidate if arm is Arm.CANDIDATE else off, seed)
    return evidence_set(records)
