"""A folder of tasks in lm-evaluation-harness gives the scores that ropewalk gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk as rw
from tests.api.conformance import check_result

pytest.importorskip("lm_eval", reason="make test-lm-eval has it")
TASKS = ("niah-multikey-1-syn", "niah-multivalue-syn", "vt-syn", "qa-1-syn")


def test_the_harness_gives_the_scores_of_ropewalk(tmp_path: Path) -> None:
    """Run by the harness's own command line, in a process that never imports ropewalk."""
    import json
    import subprocess
    import sys

    from ropewalk.models.config import BUNDLED_FOLDER

    folder = tmp_path / "tasks"
    done = check_result(rw.export_tasks(folder, "bundled", tasks=TASKS, lengths=[512], samples=6))
    assert done.tasks == tuple(f"ropewalk-{name}-512" for name in TASKS)
    output = tmp_path / "out"
    harness = subprocess.run(
        [
            *(sys.executable, "-I", "-m", "lm_eval", "run", "--model", "hf"),
            *("--model_args", f"pretrained={BUNDLED_FOLDER},max_length=1024"),
            *("--tasks", "ropewalk", "--include_path", str(folder), "--device", "cpu"),
            *("--batch_size", "1", "--output_path", str(output), "--log_samples"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert harness.returncode == 0, harness.stderr[-3000:]
    [file] = output.rglob("results*.json")
    found = json.loads(file.read_text())["results"]
    own = rw.evaluate(
        "bundled", tasks=TASKS, lengths=[512], samples=6, mode="generate", methods=["none"]
    )
    values = {r.task: r.value for r in own.results if r.metric.startswith("string_match")}
    assert set(values) == set(TASKS)
    assert len(set(values.values())) > 1, "else the test says little"
    for name, value in values.items():
        assert found[f"ropewalk-{name}-512"]["score,none"] == pytest.approx(value), name
