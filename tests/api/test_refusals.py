"""What is wrong with the arguments alone is refused before torch is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
import ropewalk as rw

plan = rw.plan("bundled", "1k", "linear")
refused = [
    lambda: rw.evaluate("bundled", device="gpu"),
    lambda: rw.evaluate("bundled", dtype="int8"),
    lambda: rw.evaluate("bundled", tasks=["juggling"]),
    lambda: rw.evaluate("bundled", samples=0),
    lambda: rw.evaluate("bundled", lengths=[10**9]),
    lambda: rw.evaluate("bundled", to=10**9, methods=["linear"]),
    lambda: rw.evaluate("nowhere/at/all"),
    lambda: rw.search("bundled", "4k", device="gpu"),
    lambda: rw.search("bundled", "4k", dtype="int8"),
    lambda: rw.search("bundled", 10**9),
    lambda: rw.search("bundled", 64),
    lambda: rw.search("llama-3-8b", "32k"),
    lambda: rw.extend("bundled", device="gpu"),
    lambda: rw.extend("bundled", dtype="int8"),
    lambda: rw.extend("bundled", 10**9),
    lambda: rw.extend.preview("bundled", budget=0),
    lambda: rw.precision("bundled", device="gpu"),
    lambda: rw.precision("bundled", dtype="int8"),
    lambda: rw.precision("bundled", sequences=0),
    lambda: rw.precision("bundled", length=10**9),
    lambda: rw.search.preview("bundled", "4k", recover="no"),
    lambda: rw.precision("bundled", quick=0),
    lambda: rw.export("bundled", plan, "out", "vllm", dtype="int8"),
    lambda: rw.export("bundled", plan, "out", "llama.cpp", dtype="float32"),
]
said = []
for call in refused:
    try:
        call()
    except rw.RopewalkError as error:
        said.append(str(error))
    assert "torch" not in sys.modules, said
print(json.dumps(said))
"""


def test_wrong_arguments_are_refused_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said) == PROGRAM.count("    lambda: ")
    assert said[0] == "device = 'gpu': is not a device; give auto, cpu, cuda, cuda:1, … or mps"
    assert said[1] == ("unknown dtype 'int8'; valid: auto, float32, bfloat16, float16, float64")
    assert "lengths = 1000000000: must be at most 16777216" in said[4]
