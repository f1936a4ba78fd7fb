"""The time of the quick verbs, compared with `import numpy` and with importing a model library.

    python -m benchmarks.startup            prints the table and writes results/startup.json

Each command runs as a process of its own, in turn, so that a slow moment of the machine hits all of
them; the figures are medians of wall time. On a loaded machine, the ratio to `import numpy` says
more than the seconds. "numpy, typer, rich" is what a verb that prints a table imports of others.

Python may keep compiled code, as it does by default, whatever PYTHONDONTWRITEBYTECODE says here:
else every call would compile ropewalk anew, but not the packages that pip compiled.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import machine
from docs.figures import Sentence
from ropewalk.models.config import BUNDLED_FOLDER

RESULTS = Path(__file__).with_name("results") / "startup.json"
VERBS = ("--help", "methods", "plan", "inspect", "verify")
ROUNDS = 11
TARGET = 0.3  # seconds, for each verb
ROPEWALK = [sys.executable, "-m", "ropewalk"]
COMMANDS = {
    "ropewalk --help": [*ROPEWALK, "--help"],
    "ropewalk methods": [*ROPEWALK, "methods"],
    "ropewalk inspect": [*ROPEWALK, "inspect", "llama-3.1-8b"],
    "ropewalk plan": [*ROPEWALK, "plan", "llama-2-7b", "--to", "16k", "--method", "yarn"],
    "ropewalk verify": [*ROPEWALK, "verify", str(BUNDLED_FOLDER), *("--runtime", "vllm")],
    "python, nothing": [sys.executable, "-c", "pass"],
    "import numpy": [sys.executable, "-c", "import numpy"],
    "numpy, typer, rich": [
        sys.executable,
        "-c",
        "import numpy, typer.main, rich.console, rich.table",
    ],
    "transformers, a config": [
        sys.executable,
        "-c",
        "from transformers import LlamaConfig; LlamaConfig()",
    ],
}


ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> float:
    nowhere = subprocess.DEVNULL
    start = time.perf_counter()
    subprocess.run(command, stdout=nowhere, stderr=nowhere, env=ENVIRONMENT, check=True)
    return time.perf_counter() - start


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        seconds(command)  # fills the caches of bytecode and of the disk
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {name: median / medians["import numpy"] for name, median in medians.items()}
    print(f"{'command':26}{'median':>9}{'of import numpy':>17}")
    for name, median in medians.items():
        print(f"{name:26}{median:8.3f}s{ratios[name]:16.1f}x")
    slowest = max(median for name, median in medians.items() if name.startswith("ropewalk"))
    print(f"slowest verb {slowest:.3f}s; the aim is {TARGET}s")
    result = {
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "rounds": ROUNDS,
        "median_seconds": medians,
        "of_import_numpy": {name: round(ratio, 2) for name, ratio in ratios.items()},
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


def sentences() -> list[Sentence]:
    results = json.loads(RESULTS.read_text())
    seconds = results["median_seconds"]
    shown = ("import numpy", *(f"ropewalk {verb}" for verb in VERBS), "numpy, typer, rich")
    return [
        Sentence(
            "docs/log.md",
            "On a machine on which `import numpy` alone takes {} s, `--help` takes {} s, `methods` "
            "{} s, `plan` {} s, `inspect` {} s and `verify` {} s (`python -m benchmarks.startup`, "
            "`benchmarks/results/startup.json`). The packages numpy, "
            "typer and rich together take {} s of that.",
            tuple(f"{seconds[name]:.2f}" for name in shown),
        )
    ]


if __name__ == "__main__":
    main()
