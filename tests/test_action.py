"""The action for other people's workflows: its shell steps, run here as a runner would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

import ropewalk as rw

ROOT = Path(__file__).parents[1]
ACTION = ROOT / ".github" / "actions" / "verify"


def ran(tmp_path: Path, **inputs: object) -> tuple[int, str, str]:
    """The exit status, the verdict and the summary of the step."""
    out, summary = tmp_path / "output", tmp_path / "summary"
    names = {key.upper(): str(value) for key, value in inputs.items()}
    found = {"GITHUB_OUTPUT": str(out), "GITHUB_STEP_SUMMARY": str(summary)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [ACTION / "verify.sh"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **found, **names},
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    verdict = out.read_text(encoding="utf-8").strip().removeprefix("verdict=")
    return done.returncode, verdict, summary.read_text(encoding="utf-8")


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A folder that should reach 2k and lost its scaling, with a name that a shell would obey."""
    folder = tmp_path / "$(touch hacked) `x` -"
    shutil.copytree(ROOT / "ropewalk" / "models" / "bundled", folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["max_position_embeddings"] = 2048
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_a_lost_setting_fails_the_step(lost: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(rw.plan("bundled", "2k", "yarn").plan.dumps(), encoding="utf-8")
    status, verdict, summary = ran(tmp_path, model=lost, plan=plan, runtime="vllm")
    assert (status, verdict) == (1, "wrong")
    assert summary.startswith("## ropewalk verify: wrong\n")
    assert "vllm: wrong" in summary
    assert not (tmp_path / "hacked").exists()


def test_a_step_may_pass_where_not_all_is_established(tmp_path: Path) -> None:
    config = ROOT / "ropewalk" / "models" / "bundled" / "config.json"
    status, verdict, summary = ran(tmp_path, model=config, not_established="pass")
    assert (status, verdict) == (0, "not established")
    assert "only a config was given" in summary


def test_a_mistake_of_the_user_is_shown(tmp_path: Path) -> None:
    status, verdict, summary = ran(tmp_path, model="-no such folder")
    assert (status, verdict) == (2, "error")
    assert "no such folder" in summary


def test_no_input_is_part_of_a_command() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    read = (ACTION / "verify.sh").read_text(encoding="utf-8")
    given: dict[str, str] = {}
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
        given |= step["env"]
        for name in step["env"]:
            assert f"${name}" in step["run"] or re.search(rf"\${{?{name}\b", read)
    taken = {re.sub(r".*inputs\.([\w-]+).*", r"\1", value) for value in given.values()}
    assert taken == set(action["inputs"])
