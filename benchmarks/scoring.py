"""What scoring a document takes in memory, and an evaluation in time, on the bundled model.

    python -m benchmarks.scoring            prints the tables and writes results/scoring.json

Memory is the growth of a process's peak while it scores every token of one document: by the scorer,
and by the way that transformers' page on perplexity shows, `model(ids, labels=ids)`. Each length
runs in a process of its own, since a peak never comes down. Then the whole command is timed on four
tasks at eight lengths, its start included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

LENGTHS = [2**n * 1024 for n in range(3, 8)]  # 8k to 128k
TARGET = 60  # seconds, for the evaluation
EVALUATION = [
    *(sys.executable, "-m", "ropewalk", "evaluate", "bundled", "--samples", "20", "--json"),
    *("--tasks", "passkey,needle,lines,kv"),
    *("--lengths", "128,256,512,768,1024,1536,2048,4096"),
]
MEASURED = """
import json, resource, sys, time
import numpy as np, torch
from ropewalk.evaluation.scoring import Scorer
from ropewalk.models.load import load

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

model, way, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = load(model).model
tokens = np.random.default_rng(0).integers(0, model.config.vocab_size, size=length)
scorer = Scorer(model)
scorer.score([tokens[:64]], [1])
before, start = peak(), time.perf_counter()
if way == "scorer":
    [scores] = scorer.score([tokens], [1])
    loss = scores.losses.mean()
else:
    ids = torch.from_numpy(tokens)[None]
    with torch.inference_mode():
        loss = float(model(ids, labels=ids).loss)
seconds = time.perf_counter() - start
print(json.dumps({"bytes": peak() - before, "seconds": seconds, "loss": float(loss)}))
"""


def measure(model: str, way: str, length: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, model, way, str(length)],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", default="bundled")
    arguments.add_argument("--longest", type=int, default=LENGTHS[-1])
    chosen = arguments.parse_args()
    lengths = [length for length in LENGTHS if length <= chosen.longest]

    rows: list[dict[str, Any]] = []
    print(
        f"{'length':>8}{'scorer':>12}{'a token':>10}{'seconds':>10}{'labels=':>12}{'seconds':>10}"
    )
    for length in lengths:
        ours = measure(chosen.model, "scorer", length)
        theirs = measure(chosen.model, "labels", length)
        rows.append({"length": length, "scorer": ours, "labels": theirs})
        print(
            f"{length:8}{ours['bytes'] / 2**20:9.0f} MiB{ours['bytes'] / length:10.0f}"
            f"{ours['seconds']:10.1f}{theirs['bytes'] / 2**20:9.0f} MiB{theirs['seconds']:10.1f}",
            flush=True,
        )
    growth = rows[-1]["scorer"]["bytes"] / rows[0]["scorer"]["bytes"]
    print(f"{lengths[-1] // lengths[0]} times the length takes {growth:.1f} times the memory")

    command = [chosen.model if part == "bundled" else part for part in EVALUATION]
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - start
    print(f"8 lengths × 4 tasks × 20 samples: {seconds:.1f}s; the aim is {TARGET}s")

    path = Path(__file__).parent / "results" / "scoring.json"
    path.parent.mkdir(exist_ok=True)
    result = {"machine": machine(), "memory": rows, "evaluation_seconds": seconds}
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
