"""How long the quick verbs take, beside what they would cost if they imported a model library.

    python -m benchmarks.startup            prints the table and writes results/startup.json

Each command runs as a process of its own, in turn, so that a slow moment of the machine hits all of
them; the figures are medians.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import machine

ROUNDS = 11
TARGET = 0.3  # seconds, for each verb
ROPEWALK = [sys.executable, "-m", "ropewalk"]
COMMANDS = {
    "ropewalk --help": [*ROPEWALK, "--help"],
    "ropewalk methods": [*ROPEWALK, "methods"],
    "ropewalk inspect": [*ROPEWALK, "inspect", "llama-3.1-8b"],
    "ropewalk plan": [*ROPEWALK, "plan", "llama-2-7b", "--to", "16k", "--method", "yarn"],
    "python, nothing": [sys.executable, "-c", "pass"],
    "import numpy": [sys.executable, "-c", "import numpy"],
    "transformers, a config": [
        sys.executable,
        "-c",
        "from transformers import LlamaConfig; LlamaConfig()",
    ],
}


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        seconds(command)  # fills the caches of bytecode and of the disk
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    reference = medians["transformers, a config"]
    print(f"{'command':26}{'median':>9}{'of transformers':>17}")
    for name, median in medians.items():
        print(f"{name:26}{median:8.3f}s{median / reference:16.0%}")
    slowest = max(median for name, median in medians.items() if name.startswith("ropewalk"))
    print(f"slowest verb {slowest:.3f}s; the aim is {TARGET}s")
    result = {"machine": machine(), "rounds": ROUNDS, "median_seconds": medians}
    path = Path(__file__).parent / "results" / "startup.json"
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
