"""Scenarios at every edge of a declared scope: each goes from the fast path to the standard one and back."""

from __future__ import annotations

from collections.abc import Sequence

from eval_suites.prompts import long_prompt, select_prompts
from harness.model.manifest import ScopeSection
from harness.model.probe import ProbeEvent, ProbeRequest, Scenario

PREFILL_BUDGET = 256
"""Tokens of one engine step in these scenarios: a longer prompt is computed in chunks, between the others' decodes."""
NUM_DECODES = 12
_LONG_BYTES = 4 * PREFILL_BUDGET


def plain_scenarios(scope: ScopeSection, *, max_model_len: int, seed: int) -> tuple[Scenario, ...]:
    """Edges that occur without speculation.

    Args:
        scope: What the change declares.
        max_model_len: Tokens that the served model takes; where it takes no more than the scope, the step beyond the
            declared context cannot occur, and a prompt of that length is sent all the same.
        seed: The same seed gives the same prompts.
    """
    return (
        _batch_limit(scope.max_batch, seed),
        _joined_by_a_prefill(seed + 1),
        _aborted(seed + 2),
        _preempted(seed + 3),
        _prefix_hit(seed + 4),
        _context_limit(scope.max_context, max_model_len, seed + 5),
        _one_token_prompts(scope.max_batch, seed + 6),
    )


def verify_scenarios(scope: ScopeSection, *, seed: int) -> tuple[Scenario, ...]:
    """Edges that occur with up to the declared number of draft tokens; none where the scope declares no drafts."""
    most = scope.max_draft_tokens
    if not most:
        return ()
    every = tuple((length, right) for length in range(most + 1) for right in range(length + 1))
    return (
        _alone("every_draft", every, 4 * len(every), seed),
        _uniform_batch(most, seed),
        _ragged_batch(most, seed),
        _batch_limit(scope.max_batch, seed, drafts=((most, most), (most, 0), (most, most // 2))),
        _joined_by_a_prefill(seed, drafts=((most, most), (most, most // 2))),
        _aborted(seed, drafts=((most, most // 2), (most, most))),
        _preempted(seed, drafts=((most, most), (most, 0))),
        _looked_up(seed + 1),
    )


def _requests(
    count: int,
    seed: int,
    *,
    max_tokens: Sequence[int],
    drafts: Sequence[tuple[int, int]] = (),
    first: int = 0,
    **others: int,
) -> tuple[ProbeRequest, ...]:
    texts = select_prompts(count, seed=seed, min_bytes=6, max_bytes=60)
    return tuple(
        ProbeRequest(
            name=f"r{first + index}",
            text=text,
            max_tokens=max_tokens[index % len(max_tokens)],
            drafts=_turned(drafts, index),
            **others,
        )
        for index, text in enumerate(texts)
    )


def _turned(drafts: Sequence[tuple[int, int]], by: int) -> tuple[tuple[int, int], ...]:
    """The same drafts in another order for each request, so that accepted counts differ inside a batch."""
    turn = by % len(drafts) if drafts else 0
    return (*drafts[turn:], *drafts[:turn])


def _batch_limit(max_batch: int, seed: int, *, drafts: Sequence[tuple[int, int]] = ()) -> Scenario:
    """As many requests as declared, one more, and as many again."""
    long, short = NUM_DECODES * (3 if drafts else 2), NUM_DECODES // 2
    full = _requests(max_batch, seed, max_tokens=[long], drafts=drafts)
    more = _requests(1, seed + 100, max_tokens=[short], drafts=drafts, first=max_batch)
    return Scenario(
        name="batch_limit_verify" if drafts else "batch_limit",
        events=(ProbeEvent(before_step=0, add=full), ProbeEvent(before_step=5, add=more)),
    )


def _joined_by_a_prefill(seed: int, *, drafts: Sequence[tuple[int, int]] = ()) -> Scenario:
    """Two requests decode; a prompt of several chunks joins them half-way."""
    two = _requests(2, seed, max_tokens=[NUM_DECODES * 2], drafts=drafts)
    newcomer = ProbeRequest(
        name="r2",
        text=long_prompt(_LONG_BYTES, seed=seed),
        num_tokens=2 * PREFILL_BUDGET + 40,
        max_tokens=NUM_DECODES,
        drafts=tuple(drafts),
    )
    return Scenario(
        name="joined_by_a_prefill_verify" if drafts else "joined_by_a_prefill",
        events=(ProbeEvent(before_step=0, add=two), ProbeEvent(before_step=4, add=(newcomer,))),
    )


def _aborted(seed: int, *, drafts: Sequence[tuple[int, int]] = ()) -> Scenario:
    """One of three requests is given up half-way, and another one takes its place and its slots."""
    three = _requests(3, seed, max_tokens=[NUM_DECODES * 2], drafts=drafts)
    next_one = _requests(1, seed + 100, max_tokens=[NUM_DECODES], drafts=drafts, first=3)
    return Scenario(
        name="aborted_verify" if drafts else "aborted",
        events=(
            ProbeEvent(before_step=0, add=three),
            ProbeEvent(before_step=5, abort=("r1",)),
            ProbeEvent(before_step=8, add=next_one),
        ),
    )


def _preempted(seed: int, *, drafts: Sequence[tuple[int, int]] = ()) -> Scenario:
    """Three requests reach the end of a cache block while none is free: one is preempted, and resumed later."""
    three = tuple(
        ProbeRequest(
            name=f"r{index}",
            text=long_prompt(_LONG_BYTES, seed=seed + index),
            short_of_block=(3 if drafts else 1) * NUM_DECODES + index,
            max_tokens=(4 if drafts else 2) * NUM_DECODES,
            drafts=_turned(drafts, index),
        )
        for index in range(3)
    )
    return Scenario(
        name="preempted_verify" if drafts else "preempted",
        events=(
            ProbeEvent(before_step=0, add=three),
            ProbeEvent(before_step=9, hold_free_blocks=True),
            ProbeEvent(before_step=36, release_blocks=True),
        ),
    )


def _prefix_hit(seed: int) -> Scenario:
    """The same long prompt again: its beginning comes from the cache beside a decode, then all of it but one token."""
    first, second = (
        ProbeRequest(
            name=f"r{index}",
            text=long_prompt(_LONG_BYTES, seed=seed),
            num_tokens=PREFILL_BUDGET + 44,
            max_tokens=NUM_DECODES,
        )
        for index in range(2)
    )
    all_but_one = second.model_copy(update={"name": "r2", "num_tokens": None, "short_of_block": -1})
    return Scenario(
        name="prefix_hit",
        events=(
            ProbeEvent(before_step=0, add=(first,)),
            ProbeEvent(before_step=6, add=(second,)),
            ProbeEvent(before_step=9, add=(all_but_one,)),
        ),
    )


def _context_limit(max_context: int, max_model_len: int, seed: int) -> Scenario:
    """Requests that end at the declared context and, where the model takes it, some tokens beyond."""
    beyond = min(max_model_len, max_context + NUM_DECODES // 2)
    text = long_prompt(8 * beyond, seed=seed)
    start = max(1, max_context - NUM_DECODES // 2)
    to_the_end = ProbeRequest(name="r0", text=text, num_tokens=start, max_tokens=beyond - start)
    too_long = ProbeRequest(name="r1", text=text, num_tokens=max_context + 1, max_tokens=1)
    return Scenario(name="context_limit", events=(ProbeEvent(before_step=0, add=(to_the_end, too_long)),))


def _one_token_prompts(max_batch: int, seed: int) -> Scenario:
    """Prompts of one token on recycled slots: nothing of what the slots held may show."""
    count = min(4, max_batch)
    requests = _requests(count, seed, max_tokens=[3, 4, 5, 6], num_tokens=1)
    return Scenario(name="one_token_prompts", events=(ProbeEvent(before_step=0, add=requests),))


def _alone(name: str, drafts: Sequence[tuple[int, int]], num_tokens: int, seed: int) -> Scenario:
    request = _requests(1, seed, max_tokens=[num_tokens], drafts=drafts)
    return Scenario(name=name, events=(ProbeEvent(before_step=0, add=request),))


def _uniform_batch(most: int, seed: int) -> Scenario:
    """Four requests with equally many drafts of unequal worth, then none for a step, and again."""
    cycle = tuple((most, right) for right in range(most + 1))
    requests = tuple(
        r.model_copy(update={"drafts": (*_turned(cycle, index), (0, 0))})
        for index, r in enumerate(_requests(4, seed, max_tokens=[NUM_DECODES * 3], drafts=cycle))
    )
    return Scenario(name="uniform_drafts", events=(ProbeEvent(before_step=0, add=requests),))


def _ragged_batch(most: int, seed: int) -> Scenario:
    """Unequal numbers of drafts every other step."""
    uneven = tuple(range(most + 1))
    requests = tuple(
        r.model_copy(
            update={
                "drafts": ((most, most), (uneven[index], uneven[index]), (most, 0), (uneven[-1 - index], 0))
            }
        )
        for index, r in enumerate(
            _requests(min(4, most + 1), seed, max_tokens=[NUM_DECODES * 3], drafts=((most, most),))
        )
    )
    return Scenario(name="ragged_drafts", events=(ProbeEvent(before_step=0, add=requests),))


def _looked_up(seed: int) -> Scenario:
    """Drafts that the engine itself looks up in prompts that repeat themselves."""
    pieces = select_prompts(3, seed=seed, min_bytes=6, max_bytes=14)
    requests = tuple(
        ProbeRequest(name=f"r{index}", text=piece * 6, max_tokens=NUM_DECODES * 3)
        for index, piece in enumerate(pieces)
    )
    return Scenario(name="looked_up_drafts", events=(ProbeEvent(before_step=0, add=requests),))
