"""From `pip install` to a longer model that is served and checked, by README's commands, timed.

    python -m benchmarks.first_hour

A new virtual environment gets the versions of constraints.txt. The model is the bundled one, at
four times its window. It is exported for each runtime, and each export is verified; llama.cpp
serves its own, and README's other servers need a GPU. The times go to results/first_hour.json,
without those of the other runtimes' exports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.llama_server import serving
from benchmarks.machine import machine, measured_on
from docs.figures import paragraph
from ropewalk.outputs import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results") / "first_hour.json"
TARGET = 2048
INSTALL, SERVE = "pip install '.[all]'", "llama-server -m longer.gguf -c 2048"
PLAN = "ropewalk plan bundled --to 2k"
EXTEND = "ropewalk extend bundled --to 2k --run runs/mine"
EXPORT = "ropewalk export bundled --plan runs/mine/plan.json --runtime llama.cpp -o longer.gguf"
FOLDERS = ("transformers", "vllm", "sglang")
EXPORT_FOLDER = "ropewalk export bundled --plan runs/mine/plan.json --runtime RUNTIME -o RUNTIME"
VERIFY = "ropewalk verify OUT --plan runs/mine/plan.json"
CHECK = "ropewalk fingerprint bundled --plan runs/mine/plan.json --server URL"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        seconds = measured(Path(folder))
    found = {"machine": machine(), "seconds": seconds}
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(sentence(found))


def measured(folder: Path) -> dict[str, float]:
    """The seconds of each step; a step that fails ends the run."""
    taken: dict[str, float] = {}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    programs = folder / "venv" / "bin"
    pinned = ["--quiet", "--constraint", str(ROOT / "constraints.txt")]
    install = [str(programs / "pip"), "install", *pinned, f"{ROOT}[all]"]
    subprocess.run(install, check=True)
    taken[INSTALL] = time.perf_counter() - began
    for command in (PLAN, EXTEND, EXPORT):
        taken[command] = _timed(command, programs, folder)
    for runtime in FOLDERS:
        _timed(EXPORT_FOLDER.replace("RUNTIME", runtime), programs, folder)
    for out in (*FOLDERS, "longer.gguf"):
        _timed(VERIFY.replace("OUT", out), programs, folder)
    began = time.perf_counter()
    with serving(folder / "longer.gguf", programs / "python", n_ctx=TARGET) as url:
        taken[SERVE] = time.perf_counter() - began
        taken[CHECK] = _timed(CHECK.replace("URL", url), programs, folder)
    return {step: round(each, 1) for step, each in taken.items()}


def _timed(command: str, programs: Path, folder: Path) -> float:
    began = time.perf_counter()
    # Without the clone's own package on the path.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(programs / "ropewalk"), *command.split()[1:]]
    subprocess.run(words, cwd=folder, env=environment, check=True)
    return time.perf_counter() - began


def sentence(found: dict[str, Any]) -> str:
    seconds = dict(found["seconds"])
    install, extend = seconds.pop(INSTALL), seconds.pop(EXTEND)
    where = measured_on(found["machine"], "python -m benchmarks.first_hour")
    return paragraph(
        f"On the bundled model, for 2k and served by llama.cpp, these steps take {extend:.0f} s "
        f"for `extend` and {sum(seconds.values()):.0f} s for the others, after {install:.0f} s of "
        f"installation from a local mirror ({where})."
    )


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    return {"README.md": f"{sentence(json.loads(RESULTS.read_text('utf-8')))}\n"}


if __name__ == "__main__":
    main()
