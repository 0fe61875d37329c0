"""A program in the place of the timed arms' driver: it speaks as the driver does and sleeps instead of computing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from harness.app import gpu_timing
from harness.engine.block_server import BlockServer

PROGRAM = r"""
import json, os, socket, sys, time
plan = json.load(open(sys.argv[1]))
folder = os.path.dirname(sys.argv[1])
settings = json.load(open(folder + "/trace.json"))
nonce, is_on = settings["nonce"], "latency_specialized" in json.dumps(plan["args"])
is_again = '"auto"' in " ".join(plan["args"])
who = "candidate" if is_on else "baseline_again" if is_again else "baseline"
behaviour = BEHAVIOUR.get(who, "")
asked_ranks = plan["args"][plan["args"].index("--tensor-parallel-size") + 1] if plan["has_workers"] else 1
num_ledgers = 1 if behaviour == "loses a rank" else int(asked_ranks)
ledgers = [open(f"{folder}/{os.getpid()}{rank}.jsonl", "a", buffering=1) for rank in range(num_ledgers)]
def write(**fields):
    for rank, ledger in enumerate(ledgers):
        if fields["kind"] == "proof":
            fields["rank"] = rank
        if fields["kind"] == "row" and rank and fields["step"] % 5 == 4:
            if behaviour == "has a rank that decides otherwise":
                fields = fields | {"decisions": [d | {"specialized": False} for d in fields["decisions"]]}
            if behaviour == "has a rank that skips a step":
                continue
        ledger.write(json.dumps(fields) + "\n")
write(kind="header", nonce=nonce, pid=os.getpid())
targets = [*settings["code_targets"], *(d["target"] for d in settings["decisions"])]
off = settings["code_targets"][-1:]
write(kind="proof", nonce=nonce, marker_seen=True, wrapped=targets if is_on else off, missing={},
      step_hooks=["GPUModelRunner.execute_model"])
if is_on:
    for module, path, sha in IMPORTED:
        write(kind="imported", module=module, path=path, sha256=sha)
if behaviour == "does not start":
    sys.exit("RuntimeError: no CUDA device")
connection = socket.create_connection(("127.0.0.1", plan["port"]))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
asked, answers = connection.makefile("r"), connection.makefile("w")
def say(**fields):
    print(json.dumps(fields), file=answers, flush=True)
if behaviour == "refuses":
    say(nonce=nonce, refused="ValueError: no drafts")
    sys.exit(1)
say(nonce=nonce, ready_s=1.0, gives_tokens=behaviour != "cannot be given tokens" and plan["gives_tokens"])
step = 0
def compute(requests, is_prefill, seconds):
    global step
    started = time.monotonic_ns()
    time.sleep(seconds)
    decisions = [{"target": d["target"], "specialized": not is_prefill, "reason": ""}
                 for d in settings["decisions"]] if is_on else []
    ran = {settings["code_targets"][0 if is_on and not is_prefill else -1]: 1}
    parts = [{"request_id": r["id"] + "-0", "num_scheduled_tokens": len(r["prompt"]) if is_prefill else 1,
              "num_prefill_tokens": len(r["prompt"]) if is_prefill else 0, "num_emitted_tokens": 1}
             for r in requests]
    write(kind="row", step=step, started_ns=started, duration_ns=time.monotonic_ns() - started,
          num_reqs=len(requests), requests=parts, decisions=decisions, ran=ran)
    step += 1
served = 0
for line in asked:
    command = json.loads(line)
    if command["do"] == "end":
        break
    if command["do"] == "tokenize":
        say(tokens=list(command["text"].encode()))
        continue
    if command["do"] == "rpc":
        busy_us = STEP_S * (6e5 if behaviour == "is busy" else 3e5)
        seen = {"num_steps": 8, "num_kernels": 0 if behaviour == "hides kernels" else 90, "busy_us": busy_us}
        seen = {"num_steps": 0} if behaviour == "sees no GPU" else seen
        if behaviour == "has no profiler":
            print("CUPTI initialization failed", file=sys.stderr, flush=True)
            seen = {"num_steps": 0, "problem": "RuntimeError: made"}
        say(answers=[seen if command["args"] == ["stop"] else {}] * int(asked_ranks))
        continue
    if command["do"] == "forget":
        say(forgot=behaviour != "remembers")
        continue
    requests = command["requests"]
    served += 1
    if behaviour == "dies":
        os._exit(3)
    if behaviour == "answers nothing":
        say(counts={}, refused={r["id"]: "ValueError: refused" for r in requests})
        continue
    if behaviour == "babbles":
        say(tokens=["no", "names"])
        continue
    sent = 0
    for position in range(requests[0]["max_tokens"]):
        compute(requests, position == 0, STEP_S * (2 if behaviour == "is slow" else 1))
        if behaviour == "loses a token" and position == 1:
            continue
        sent += 1
        obeys = behaviour != "follows nothing"
        tokens = {r["id"]: r["given"][position] if obeys and "given" in r else 7 for r in requests}
        held = {}
        for place, r in enumerate(requests):
            if "logprobs" in r:
                computed = 0 if behaviour == "computes nothing" else tokens[r["id"]] * 31 + position * 17 + place
                held[r["id"]] = [{str(tokens[r["id"]]): -1.0 - computed % 11}]
        say(tokens={name: [token] for name, token in tokens.items()}, **({"logprobs": held} if held else {}))
    say(counts={r["id"]: sent for r in requests}, refused={})
"""


def programs(
    monkeypatch: pytest.MonkeyPatch,
    behaviour: Mapping[str, str],
    *,
    imported: tuple[tuple[str, str, str], ...] = (),
    step_s: float = 0.002,
    user: ModuleType = gpu_timing,
) -> None:
    """Puts the program in the driver's place where `user` starts it; `behaviour` says by arm what is wrong with it."""
    program = PROGRAM.replace("BEHAVIOUR", repr(dict(behaviour)))
    program = program.replace("IMPORTED", repr(imported)).replace("STEP_S", repr(step_s))

    def made(spec: Any, args: Any, **more: Any) -> BlockServer:
        command = (sys.executable, "-S", "-c", program)
        return BlockServer(spec, args, program=command, ready_timeout_s=60, answer_timeout_s=20, **more)

    monkeypatch.setattr(user, "BlockServer", made)
