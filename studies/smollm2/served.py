"""From a downloaded GGUF file to a server with four times its window, step by step, with the cost.

    make real                              the model, once
    python -m studies.smollm2.served       runs what is missing: about two hours of one core
    python -m studies.smollm2.served --report

Each step is a command as a user would type it. Finished steps are kept in served.json; a step that
is deleted there runs again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import machine
from ropewalk.errors import RopewalkError
from ropewalk.evaluation.tasks import QUESTIONS
from ropewalk.gguf import llama_cpp_run
from ropewalk.records import is_main_answer
from ropewalk.run_on_disk import RunOnDisk
from studies.smollm2.model import FILE, FOLDER, PLACE, ready

RESULTS = Path(__file__).with_name("served.json")
PAGE = "studies/smollm2/README.md"
WORK = PLACE / "served"
PLAN, EXTENDED = WORK / "plan.json", WORK / "yarn-32k.gguf"
PRINT, ANSWERS = WORK / "fingerprint.json", WORK / "answers"
LENGTH = 32768


class Step(NamedTuple):
    """One command, and its purpose."""

    told: str
    words: str
    answer: str
    """Words in the line of its output that tells its outcome."""
    served: bool = False
    """With a server of the extended file, whose address is the last word."""


STEPS = {
    "plan": Step("a plan", f"plan {FILE} --to 32k --method yarn -o {PLAN}", "wrote"),
    "export": Step(
        "the file, compared in llama.cpp with its plan over 8,192 tokens",
        f"export {FILE} --plan {PLAN} --runtime llama.cpp -o {EXTENDED} --overwrite",
        "computes what the plan says",
    ),
    "fingerprint": Step(
        "how the planned model answers, up to 1,024 tokens",
        f"fingerprint {FOLDER} --plan {PLAN} --length 1k -o {PRINT} --overwrite",
        "probes of up to",
    ),
    "check": Step(
        "the server beside that",
        f"fingerprint {PRINT} --tokenizer {FOLDER} --timeout 7200 --server",
        "answers like",
        served=True,
    ),
    "evaluate": Step(
        f"{QUESTIONS} questions on one text of 32k, which the server reads once",
        f"evaluate --tokenizer {FOLDER} --tasks niah-multikey-1-syn --lengths 32k "
        f"--mode shared_context --samples {QUESTIONS} --concurrency 1 --timeout 86400 "
        f"--run {ANSWERS} --server",
        "niah",
        served=True,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        run()
    print(blocks()[PAGE])


def run() -> None:
    ready()
    WORK.mkdir(parents=True, exist_ok=True)
    found = kept()
    for name, step in STEPS.items():
        if name in found["steps"]:
            continue
        found["steps"][name] = measured(step)
        if name == "evaluate":
            found["steps"][name]["scores"] = answered()
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def kept() -> dict[str, Any]:
    if RESULTS.exists():
        own: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
        return own
    return {"machine": machine(), "runtime": llama_cpp_run.runtime(), "steps": {}}


def measured(step: Step) -> dict[str, Any]:
    """Run one step; its output, and the CPU time and peak memory of it and of its server."""
    print(f"ropewalk {step.words}", flush=True)
    command = [sys.executable, "-m", "ropewalk", *shlex.split(step.words)]
    found: dict[str, Any] = {}
    began = time.perf_counter()
    if not step.served:
        found["of the command"] = _run(command, step.answer)
    else:
        with llama_cpp_run.serving(EXTENDED, length=LENGTH, exact=False) as server:
            found["of the command"] = _run([*command, server.address], step.answer)
            found["of the server"] = _usage(server.process.pid)
    found["wall minutes"] = round((time.perf_counter() - began) / 60, 1)
    return found


def _run(command: list[str], answer: str) -> dict[str, Any]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    print(said, flush=True)
    if process.returncode:
        told = f"ended with {process.returncode}; what it said is above"
        raise RopewalkError(f"{shlex.join(command)} {told}")
    # The processes that it started itself are counted: `used` holds those that have ended.
    return {
        "CPU minutes": round((used.ru_utime + used.ru_stime) / 60, 1),
        "peak GiB": round(used.ru_maxrss / 2**20, 2),
        "said": next((line.strip() for line in said.splitlines() if answer in line), ""),
    }


def _usage(process: int) -> dict[str, float]:
    """The CPU time and the peak memory of a running process, from Linux."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    # Behind the name, which may hold blanks: user and system time are fields 14 and 15.
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return {
        "CPU minutes": round(ticks / os.sysconf("SC_CLK_TCK") / 60, 1),
        "peak GiB": round(int(peak) / 2**20, 2),
    }


def answered() -> list[float]:
    """The score of each question, from the run's records."""
    return [own.score for own in RunOnDisk.read(ANSWERS).records if is_main_answer(own)]


def blocks() -> dict[str, str]:
    found = kept()["steps"]
    rows = ["| step | what it makes | CPU minutes | peak memory | what it said |"]
    rows.append("|---|---|---|---|---|")
    for name, own in found.items():
        parts = [own[part] for part in ("of the command", "of the server") if part in own]
        minutes = " + ".join(f"{part['CPU minutes']}" for part in parts)
        memory = " + ".join(f"{part['peak GiB']} GiB" for part in parts)
        told = own["of the command"]["said"].strip()
        said = told if STEPS[name].answer in told else "done"
        if "scores" in own:
            said = f"{sum(own['scores']):g} of {len(own['scores'])} right"
        rows.append(f"| `{name}` | {STEPS[name].told} | {minutes} | {memory} | {said} |")
    missing = len(STEPS) - len(found)
    told = f"{missing} of {len(STEPS)} steps have not been run.\n\n" if missing else ""
    return {PAGE: told + "\n".join(rows) + "\n"}


if __name__ == "__main__":
    main()
