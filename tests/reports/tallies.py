"""The rules of computed numbers, written a second time over plain JSON: what a page's `data-tally` must come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

Json = Any
Rule = Callable[[list[Json], Mapping[str, str], Mapping[str, Any]], float]
"""(values at the places named, words of the rule, the subject's manifest) to the number."""


def compute(rule: str, values: list[Json], manifest: Mapping[str, Any]) -> float:
    """What a rule makes of the values that the page names."""
    name, *words = rule.split()
    return RULES[name](values, dict(word.split("=", 1) for word in words), manifest)


def _path(row: Json, manifest: Mapping[str, Any]) -> str:
    decided = any(d["specialized"] for d in row["decisions"])
    fast = any(row["ran"].get(t) for t in manifest["dispatch"]["specialized_code"])
    plain = any(row["ran"].get(t) for t in manifest["dispatch"]["baseline_code"])
    if (decided, fast, plain) == (True, True, False):
        return "specialized"
    return "baseline" if (decided, fast, plain) == (False, False, True) else "contradictory"


def _decodes(rows: list[Json], words: Mapping[str, str]) -> list[Json]:
    return [
        row
        for row in rows
        if row["num_reqs"] == int(words["batch"])
        and not any(r["num_prefill_tokens"] for r in row["requests"])
    ]


def _decode_tokens(values: list[Json], words: Mapping[str, str], manifest: Mapping[str, Any]) -> float:
    rows = [row for row in _decodes(values[0], words) if _path(row, manifest) == words["path"]]
    return sum(r["num_emitted_tokens"] for row in rows for r in row["requests"])


def _kind(row: Json) -> str:
    parts = row["requests"]
    if any(r["num_computed_tokens"] is None for r in parts):
        return "not_recorded"
    prompts = [r for r in parts if not r["num_computed_tokens"] or r["num_prefill_tokens"] > 1]
    if prompts:
        return "prefill" if len(prompts) == len(parts) else "mixed"
    if any(r["num_prefill_tokens"] for r in parts):
        return "prompt_end"
    widths = {r["num_scheduled_tokens"] for r in parts}
    return "decode" if widths == {1} else "verify" if len(widths) == 1 else "ragged_verify"


def _steps(values: list[Json], words: Mapping[str, str], manifest: Mapping[str, Any]) -> float:
    rows = [row for row in values[0] if row["num_reqs"]]
    return sum(_kind(row) == words["kind"] and _path(row, manifest) == words["path"] for row in rows)


def _refusals(values: list[Json], words: Mapping[str, str], manifest: Mapping[str, Any]) -> float:
    row, number = map(int, words["like"].split("/"))
    reason = values[0][row]["decisions"][number]["reason"]
    slow = [r for r in values[0] if _path(r, manifest) != "specialized"]
    return sum(d["reason"] == reason for r in slow for d in r["decisions"])


def _lines(values: list[Json], but: str = "") -> set[int]:
    return {
        line
        for file in values
        for suite, ran in file["executed_lines"].items()
        for line in ran
        if suite != but and line in file["executable_lines"]
    }


def _times(blocks: list[Json], words: Mapping[str, str], name: str) -> list[float]:
    times = [item["token_times_ms"] for b in blocks if b["arm"] == words["arm"] for item in b["items"]]
    return _values(times, name)


def _values(times: list[list[float]], name: str) -> list[float]:
    if name == "ttft_ms":
        return sorted(t[0] for t in times if t)
    return sorted((t[-1] - t[0]) / (len(t) - 1) for t in times if len(t) > 1)


def _rank(found: list[float], percent: int) -> float:
    """The smallest value that at least `percent` of all do not exceed."""
    return next(v for v in found if sum(w <= v for w in found) * 100 >= percent * len(found))


def _quantile(name: str) -> Rule:
    def rule(values: list[Json], words: Mapping[str, str], _: Mapping[str, Any]) -> float:
        if "arm" in words:
            found = _times(values[0], words, name)
        else:
            found = _values([item["token_times_ms"] for item in values[0]], name)
        return _rank(found, int(words["percent"]))

    return rule


def _per_user(values: list[Json], words: Mapping[str, str], _: Mapping[str, Any]) -> float:
    return 1000 / _rank(_times(values[0], words, "tpot_ms"), 50)


def _gpu(values: list[Json], words: Mapping[str, str], _: Mapping[str, Any]) -> float:
    blocks = [block for block in values[0] if block["arm"] == words["arm"]]
    states = [block[end] for block in blocks for end in ("gpu_before", "gpu_after") if block[end]]
    told = sorted(state[words["of"]] for state in states if state[words["of"]] is not None)
    number: float = told[0] if words["end"] == "lowest" else told[-1]
    return number


def _like(values: list[Json], words: Mapping[str, str]) -> list[Json]:
    one = values[0][int(words["like"])]
    return [s for s in values[0] if (s["engine"], s["scenario"]) == (one["engine"], one["scenario"])]


def _writes(values: list[Json], words: Mapping[str, str]) -> list[Json]:
    step, number = map(int, words["like"].split("/"))
    one = values[0][step]["writes"][number]
    every = [w for s in values[0] for w in s["writes"]]
    return [w for w in every if (w["buffer"], w["place"]) == (one["buffer"], one["place"])]


def _files(values: list[Json], words: Mapping[str, str]) -> list[Json]:
    def suffix(file: Json) -> str:
        return PurePosixPath(file["path"]).suffix.lower()

    return [f for f in values[0] if suffix(f) == suffix(values[0][int(words["like"])])]


RULES: dict[str, Rule] = {
    "batch": lambda v, w, _: int(w["batch"]) if _decodes(v[0], w) else -1,
    "decode-steps": lambda v, w, _: len(_decodes(v[0], w)),
    "replayed-steps": lambda v, w, _: sum(row["graph_replayed"] for row in _decodes(v[0], w)),
    "decode-tokens": _decode_tokens,
    "steps": _steps,
    "refusals": _refusals,
    "executable-lines": lambda v, *_: len(set(v[0]["executable_lines"])),
    "executed-lines": lambda v, *_: len(_lines(v)),
    "executed-lines-in-suites": lambda v, *_: len(_lines(v, but="start")),
    "timed-requests": lambda v, w, _: len(_times(v[0], w, "tpot_ms")),
    "ttft_ms": _quantile("ttft_ms"),
    "tpot_ms": _quantile("tpot_ms"),
    "gpu": _gpu,
    "tokens-per-s-user": _per_user,
    "tokens-per-s": lambda v, w, m: _per_user(v, w, m) * v[1],
    "script-steps": lambda v, w, _: len(_like(v, w)),
    "script-steps-specialized": lambda v, w, m: sum(
        _path(s["row"], m["models"]["slice"] if w.get("of") == "slice" else m) == "specialized"
        for s in _like(v, w)
    ),
    "script-writes": lambda v, w, _: sum(len(s["writes"]) for s in _like(v, w)),
    "writes": lambda v, w, _: len(_writes(v, w)),
    "bytes-written": lambda v, w, _: sum(write["num_bytes"] for write in _writes(v, w)),
    "compared-steps": lambda v, w, _: sum(s["same_work"] for s in _like(v, w)),
    "continuations": lambda v, w, _: sum(s["num_starts"] for s in _like(v, w) if s["same_work"]),
    "other-tokens": lambda v, w, _: sum(bool(s["other_token"]) for s in _like(v, w) if s["same_work"]),
    "files": lambda v, w, _: len(_files(v, w)),
    "added-lines": lambda v, w, _: sum(f["added_lines"] or 0 for f in _files(v, w)),
    "deleted-lines": lambda v, w, _: sum(f["deleted_lines"] or 0 for f in _files(v, w)),
    "open-results": lambda v, *_: sum(
        r["decision"] in ("shown out of order", "not decidable")
        for kernels in v
        for kernel in kernels
        for r in kernel["results"]
    ),
}
