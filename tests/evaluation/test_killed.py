"""An evaluation killed for real, again and again, ends as if nothing had been."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
from tests.evaluation.test_runner import _evaluation
from ropewalk.run_directory import RECORDS, RunDirectory

evaluation = _evaluation()
with RunDirectory(sys.argv[1], "evaluate", evaluation.configuration) as run:
    print("running", flush=True)
    evaluation.run(run.journal(RECORDS))
"""


@pytest.mark.slow
def test_a_run_killed_many_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    def run(name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / name)], stdout=subprocess.PIPE, text=True
        )

    with run("whole") as process:
        process.wait(timeout=120)
    whole = (tmp_path / "whole" / "records.jsonl").read_bytes()
    assert whole
    delays = random.Random(0)
    kills = 0
    while kills < 12:
        with run("killed") as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delays.uniform(0, 0.6))
            if process.poll() is not None:
                break
            process.kill()
            kills += 1
    with run("killed") as process:
        assert process.wait(timeout=120) == 0
    assert kills
    assert (tmp_path / "killed" / "records.jsonl").read_bytes() == whole
