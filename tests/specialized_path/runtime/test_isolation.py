"""The switch off means that the specialised path is not there."""

import json
import os
import subprocess
import sys

import pytest

SERVE_AND_LIST = """
import json, sys
from vllm import LLM, SamplingParams
options = json.loads(sys.argv[2])
llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, **options)
output = llm.generate([{"prompt_token_ids": [65, 66]}], SamplingParams(max_tokens=3), use_tqdm=False)
packages = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("specialized_path.")}
print("RESULT", json.dumps([len(output[0].outputs[0].token_ids), sorted(packages)]))
"""


@pytest.mark.engine
@pytest.mark.parametrize(
    "additional_config", [None, {"decode_backend": "auto"}], ids=["unset", "auto"]
)
def test_the_baseline_serves_without_importing_the_path(checkpoint, additional_config):
    assert _served_packages(checkpoint, additional_config) == [
        "specialized_path.nano",
        "specialized_path.plugin",
    ]


@pytest.mark.engine
def test_the_same_probe_sees_the_path_when_it_is_on(checkpoint):
    packages = _served_packages(checkpoint, {"decode_backend": "latency_specialized"})
    assert {"specialized_path.runtime", "specialized_path.reference"} <= set(packages)


def _served_packages(checkpoint, additional_config):
    """Serves in a fresh process that is its own worker and returns the packages it imported."""
    options = {} if additional_config is None else {"additional_config": additional_config}
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_PLUGINS": "kimi_k3_specialized",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-c", SERVE_AND_LIST, str(checkpoint), json.dumps(options)]
    finished = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    num_tokens, packages = json.loads(line.removeprefix("RESULT "))
    assert num_tokens == 3
    return packages
