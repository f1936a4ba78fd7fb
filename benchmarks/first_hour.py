"""From `pip install` to a longer model that is served and checked, by README's commands, timed.

    python -m benchmarks.first_hour              all of it
    python -m benchmarks.first_hour --sizes      README's two ways to install alone: size and time

A new virtual environment gets the versions of constraints.txt. The model is the bundled one, at
four times its window. It is exported for each runtime, and each export is verified; llama.cpp
serves its own, and README's other servers need a GPU. The times go to results/first_hour.json,
without those of the other runtimes' exports.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.llama_server import serving
from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.outputs import write_atomically

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results") / "first_hour.json"
TARGET = 2048
INSTALL, SERVE = "pip install '.[all]'", "llama-server -m longer.gguf -c 2048"
PLAN = "ropewalk plan bundled --to 2k"
EXTEND = "ropewalk extend bundled --to 2k --run runs/mine"
EXPORT = "ropewalk export bundled --plan runs/mine/plan.json --runtime llama.cpp -o longer.gguf"
WAYS = {
    ".": "what `plan`, `inspect` and `verify` need",
    "'.[all]'": "torch, transformers, llama.cpp and the rest",
}
FOLDERS = ("transformers", "vllm", "sglang")
EXPORT_FOLDER = "ropewalk export bundled --plan runs/mine/plan.json --runtime RUNTIME -o RUNTIME"
VERIFY = "ropewalk verify OUT --plan runs/mine/plan.json"
CHECK = "ropewalk fingerprint bundled --plan runs/mine/plan.json --server URL"


def main() -> None:
    found = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as room:
        if "--sizes" in sys.argv:
            found["sizes"] = sizes(Path(room))
        else:
            found |= {"machine": machine(), "seconds": measured(Path(room))}
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(found)


def installed(folder: Path, extras: str) -> float:
    """Install into a new environment, as README does, and return the seconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    pinned = ["--quiet", "--constraint", str(ROOT / "constraints.txt")]
    pip = str(folder / "venv" / "bin" / "pip")
    subprocess.run([pip, "install", *pinned, f"{ROOT}{extras}"], check=True)
    return time.perf_counter() - began


def processor_seconds() -> float:
    """Those of all children so far, which other work on the machine disturbs little."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sizes(room: Path) -> dict[str, tuple[int, int]]:
    """By what is installed, the megabytes of its environment and its processor seconds."""
    found = {}
    for extras in ("", "[all]"):
        began = processor_seconds()
        installed(room / f"with {extras}", extras)
        seconds = processor_seconds() - began
        files = [each.lstat() for each in (room / f"with {extras}").rglob("*")]
        found[extras] = round(sum(each.st_blocks for each in files) * 512 / 1e6), round(seconds)
    return found


def measured(folder: Path) -> dict[str, float]:
    """The seconds of each step; a step that fails ends the run."""
    programs = folder / "venv" / "bin"
    taken: dict[str, float] = {INSTALL: installed(folder, "[all]")}
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
        "On the bundled model, for 2k and served by llama.cpp, the README's steps take "
        f"{extend:.0f} s for `extend` and {sum(seconds.values()):.0f} s for the others, "
        f"after {install:.0f} s of installation from a local mirror ({where})."
    )


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text("utf-8"))
    rows = ["| | brings | size, processor time |", "|---|---|---|"]
    rows += [
        f"| `pip install {line}` | {what} | {size:,} MB, {seconds} s |"
        for (line, what), (size, seconds) in zip(WAYS.items(), found["sizes"].values(), strict=True)
    ]
    return {"README.md": "\n".join(rows), PAGE: f"{sentence(found)}\n"}


if __name__ == "__main__":
    main()
