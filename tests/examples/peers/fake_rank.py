"""A rank without a GPU: writes answers that were prepared for it, and misbehaves where it is told to.

Arguments: a folder of prepared answers, one for process ids, its lines, its process, what it does wrong ("die", "hang",
"raise", "stumble" for raising the first time, or "-"), in which part, then its parts. It imports nothing of the
project, so that it starts at once.
"""

import json
import os
import sys
import time
from pathlib import Path

folder, pids, lines, process, fault, where, *parts = sys.argv[1:]


def say(event, **content):
    with Path(lines).open("a") as out:
        out.write(json.dumps({"event": event, "at": time.monotonic(), **content}) + "\n")


def misbehave():
    if fault == "die":
        os.abort()
    if fault == "stumble":
        stumbled = Path(pids, "stumbled")
        if stumbled.exists():
            return
        stumbled.touch()
    if fault in ("raise", "stumble"):
        say("raised", why="ValueError: of this rank")
        sys.exit(1)
    time.sleep(60)


def is_running(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZT"


if where == "start":
    misbehave()
say("ready", sources={"a file": "its digest"})
sys.stdin.readline()
for part in parts:
    facts = json.loads(Path(folder, f"{part}-{process}.json").read_text())
    mine = Path(pids, f"{process}.pid")
    mine.with_suffix(".new").write_text(str(os.getpid()))
    mine.with_suffix(".new").rename(mine)
    if where == part:
        misbehave()
    if part not in ("killed", "stalled"):
        for fact in facts:
            say("facts", part=part, facts=fact)
        continue
    # As kernels that wait for each other: the first process notices when the last one does not go on.
    say("running")
    other = Path(pids, "1.pid")
    bound = time.monotonic() + 60
    while process == "1" or not other.exists() or is_running(other.read_text()):
        time.sleep(0.01)
        assert time.monotonic() < bound
    say("lost", facts={k: v for k, v in facts[0].items() if k not in ("kind", "case", "stopped_s")})
