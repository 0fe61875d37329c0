"""A stand-in for vLLM's API server: `fake_server.py MODE PORT MODEL_NAME`. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE, PORT, NAME = sys.argv[1], int(sys.argv[2]), sys.argv[3]


class State:
    """What the handlers share."""

    is_healthy = True
    in_flight = 0
    most_in_flight = 0
    lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """Answers as vLLM does, with made-up tokens."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""

    def do_GET(self) -> None:
        """Health and model list."""
        if self.path == "/health":
            self.answer(200 if State.is_healthy else 503, {})
        else:
            self.answer(200, {"data": [{"id": NAME}]})

    def do_POST(self) -> None:
        """Completions, and RPC that echoes what it was asked."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/collective_rpc":
            self.answer(200, {"results": [body]})
            return
        if self.path == "/tokenize":
            self.answer(200, {"tokens": list(body["prompt"].encode())} if MODE == "serves" else {})
            return
        if MODE == "dies-on-request":
            print("fatal: the worker was killed", flush=True)
            os._exit(1)
        if MODE == "unhealthy-on-request":
            State.is_healthy = False
            self.answer(500, {"error": {"message": "EngineDeadError"}})
            return
        if body["max_tokens"] > 100:
            self.answer(400, {"error": {"message": "max_tokens is too large"}})
            return
        self.complete(body)

    def complete(self, body: dict) -> None:
        """`max_tokens` tokens, once `top_k` requests have been seen in flight together."""
        with State.lock:
            State.in_flight += 1
            State.most_in_flight = max(State.most_in_flight, State.in_flight)
        deadline = time.monotonic() + 10
        while State.most_in_flight < body["top_k"] and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        token_ids = list(range(body["max_tokens"]))
        if "vllm_xargs" in body and MODE != "forgets-to-force":
            token_ids = json.loads(body["vllm_xargs"]["force_token_ids"])
        top = [{f"token_id:{t}": -0.5, "token_id:500": -9999.0, "token_id:501": None} for t in token_ids]
        choice = {
            "text": f"{self.headers['X-Request-Id']} {State.most_in_flight}",
            "token_ids": token_ids,
            "finish_reason": "length",
            "logprobs": {"top_logprobs": top} if body.get("logprobs") else None,
        }
        usage = {"completion_tokens": len(token_ids) + (MODE == "miscounts")}
        with State.lock:
            State.in_flight -= 1
        if body["stream"]:
            self.stream(choice, usage)
        else:
            self.answer(200, {"choices": [choice], "usage": usage})

    def stream(self, choice: dict, usage: dict) -> None:
        """One event a token, 100 ms apart."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for token_id in choice["token_ids"]:
            time.sleep(0.1)
            self.event({"choices": [{"text": ".", "token_ids": [token_id], "finish_reason": None}]})
        if MODE == "cuts-streams":
            return
        self.event({"choices": [{"text": "", "token_ids": [], "finish_reason": "length"}]})
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value: dict) -> None:
        """One server-sent event."""
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def answer(self, status: int, value: dict) -> None:
        """A JSON answer."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Does what the mode says."""
    secret = os.environ.get("ENGINE_TOKEN", "absent")
    print(f"secret {secret} in {os.environ['TMPDIR']}, key {'hf_' + 'A' * 20}", flush=True)
    if MODE == "dies-at-start":
        print("\x1b[31mValueError\x1b[0m: no such model", flush=True)
        sys.exit(3)
    if MODE == "never-ready":
        time.sleep(1000)
    if MODE == "ignores-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A worker that left the server's process group, and one whose parent is gone.
    worker = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(1000)"], start_new_session=True
    )
    orphan = subprocess.run(
        ["sh", "-c", "setsid sleep 1000 > /dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, check=True
    )
    print(f"pids {os.getpid()} {worker.pid} {int(orphan.stdout)}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()


main()
