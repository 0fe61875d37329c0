"""`vllm bench serve`, kept ready: a process that imports it once and runs it for each line of arguments.

Importing it takes seconds, a visit of a small cell a fraction of one. What is run is vLLM's own `main`; an argument
that it does not know, or an error inside it, ends the process, and its log says why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

READY, DONE = "ready", "done"


def main() -> None:
    """Answers `ready`, then `done` to each line of standard input: a JSON list of arguments. Ends with its input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # What vLLM prints goes where its warnings go.
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    from vllm.benchmarks import serve

    print(READY, file=answers)
    for line in sys.stdin:
        parser = argparse.ArgumentParser()
        serve.add_cli_args(parser)
        serve.main(parser.parse_args(json.loads(line)))
        print(DONE, file=answers)


if __name__ == "__main__":
    main()
