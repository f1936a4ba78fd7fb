"""The times of stages are those of the run that computed them."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.cost_estimate import taken
from ropewalk.run_directory import RunDirectory


def test_a_run_that_is_opened_again_later_took_no_longer(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", "extend", {}) as run:
        run.event("stage", name="inspect")
        run.event("stage", name="verify")
    before = taken(tmp_path / "run")
    time.sleep(0.2)
    with RunDirectory(tmp_path / "run", "extend", {}):
        pass
    assert taken(tmp_path / "run") == before
    assert before.keys() == {"inspect", "verify"}
    assert max(before.values()) < 0.2
