"""The times of stages are those of the run that computed them."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.cost_estimate import taken
from ropewalk.run_directory import RunDirectory


def test_a_run_that_is_opened_again_later_took_no_longer(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", "extend", {}) as run:
        for stage, seconds in (("inspect", 0.1), ("verify", 2.5)):
            run.event("stage", name=stage)
            run.event("kept", file="plan.json", digest="")
            run.event("used", stage=stage, tokens=0, seconds=seconds)
    before = taken(tmp_path / "run")
    time.sleep(0.2)
    with RunDirectory(tmp_path / "run", "extend", {}):
        pass
    assert taken(tmp_path / "run") == before
    assert before == {"inspect": 0.1, "verify": 2.5}
