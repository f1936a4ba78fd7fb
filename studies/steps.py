"""The way from a downloaded file to a checked server, step by step, with the cost of each.

Each step is a command as a user would type it. Finished steps are kept in a JSON file; a step that
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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import machine
from ropewalk.errors import RopewalkError
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.llama_cpp_run import LlamaServer
from ropewalk.records import is_main_answer
from ropewalk.run_on_disk import RunOnDisk


class Step(NamedTuple):
    """One command, and its purpose."""

    told: str
    words: str
    answer: str
    """Words in the line of its output that tells its outcome."""
    served: bool = False
    """With a server of the extended file, whose address is the last word."""
    answers: Path | None = None
    """The run that keeps its answers."""


class Journey(NamedTuple):
    """The steps of one model, and the server that some of them ask."""

    results: Path
    page: str
    work: Path
    """The folder that the steps write to."""
    steps: Mapping[str, Step]
    serve: Callable[[], AbstractContextManager[LlamaServer]]
    ready: Callable[[], object]
    """Refuses to begin without the model."""

    def main(self, about: str) -> None:
        parser = argparse.ArgumentParser(description=about.splitlines()[0])
        parser.add_argument("--report", action="store_true", help="run nothing")
        if not parser.parse_args().report:
            self.run()
        print(self.blocks()[self.page])

    def run(self) -> None:
        self.ready()
        self.work.mkdir(parents=True, exist_ok=True)
        found = self.kept()
        for name, step in self.steps.items():
            if name in found["steps"]:
                continue
            found["steps"][name] = self.measured(step)
            self.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def kept(self) -> dict[str, Any]:
        if self.results.exists():
            own: dict[str, Any] = json.loads(self.results.read_text("utf-8"))
            return own
        return {"machine": machine(), "runtime": llama_cpp_run.runtime(), "steps": {}}

    def measured(self, step: Step) -> dict[str, Any]:
        """Run a step; its output, and the CPU time and peak memory of it and of its server."""
        print(f"ropewalk {step.words}", flush=True)
        command = [sys.executable, "-m", "ropewalk", *shlex.split(step.words)]
        found: dict[str, Any] = {}
        began = time.perf_counter()
        if not step.served:
            found["of the command"] = _run(command, step.answer)
        else:
            with self.serve() as server:
                found["of the command"] = _run([*command, server.address], step.answer)
                found["of the server"] = usage(server.process.pid)
        found["wall minutes"] = round((time.perf_counter() - began) / 60, 1)
        if step.answers is not None:
            records = RunOnDisk.read(step.answers).records
            found["scores"] = [own.score for own in records if is_main_answer(own)]
        return found

    def blocks(self) -> dict[str, str]:
        found = self.kept()["steps"]
        rows = ["| step | what it makes | CPU minutes | peak memory | what it said |"]
        rows.append("|---|---|---|---|---|")
        for name, own in found.items():
            parts = [own[part] for part in ("of the command", "of the server") if part in own]
            minutes = " + ".join(f"{part['CPU minutes']}" for part in parts)
            memory = " + ".join(f"{part['peak GiB']} GiB" for part in parts)
            told = own["of the command"]["said"].strip()
            said = told if self.steps[name].answer in told else "done"
            if "scores" in own:
                said = f"{sum(own['scores']):g} of {len(own['scores'])} right"
            rows.append(f"| `{name}` | {self.steps[name].told} | {minutes} | {memory} | {said} |")
        missing = len(self.steps) - len(found)
        told = f"{missing} of {len(self.steps)} steps have not been run.\n\n" if missing else ""
        return {self.page: told + "\n".join(rows) + "\n"}


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


def usage(process: int) -> dict[str, float]:
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
