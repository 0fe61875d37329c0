"""The switch off means that the specialised path is not there."""

import json
import os
import subprocess
import sys

import pytest

SERVE_AND_LIST = """
import json, sys
from vllm import LLM, SamplingParams
found, engines = [], []
for additional_config in ({}, {"decode_backend": "auto"}, {"decode_backend": "latency_specialized"}):
    llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, additional_config=additional_config)
    engines.append(llm)
    output = llm.generate([{"prompt_token_ids": [65, 66]}], SamplingParams(max_tokens=3), use_tqdm=False)
    packages = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("specialized_path.")}
    found.append([len(output[0].outputs[0].token_ids), sorted(packages)])
print("RESULT", json.dumps(found))
"""


@pytest.mark.engine
def test_nothing_of_the_path_is_imported_until_an_engine_switches_it_on(checkpoint):
    unset, auto, specialized = _served_packages(checkpoint)
    assert unset == auto == ["specialized_path.nano", "specialized_path.plugin"]
    assert {"specialized_path.runtime", "specialized_path.reference"} <= set(specialized)


def _served_packages(checkpoint):
    """Serves three times in a fresh process that is its own worker; returns the packages imported by then."""
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_PLUGINS": "kimi_k3_specialized",
        "HF_HUB_OFFLINE": "1",
    }
    finished = subprocess.run(
        [sys.executable, "-c", SERVE_AND_LIST, str(checkpoint)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    served = json.loads(line.removeprefix("RESULT "))
    assert [num_tokens for num_tokens, _ in served] == [3, 3, 3]
    return [packages for _, packages in served]
