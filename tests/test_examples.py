"""The scripts of examples/ run, as they are, and print what they promise.

`serve.py` is run by the tutorial (tests/tutorials), and waits until it is ended.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAIN = ROOT / "examples" / "train.py"
PRINTS = {
    "evaluate_methods": "bundled at 2k tokens: unmodified: ",
    "export_and_verify": "(transformers folder, for 1k): OK",
    "lost_setting": "kept and lost differ by one key",
    "own_method": "llama-3-8b: 8k to 32k by slow_half",
    "own_objective": "'objective': 'answers_twice'",
    "own_task": "unmodified: colour ",
    "plan_a_model": "exact vllm serve meta-llama/Meta-Llama-3-8B",
}
QUICK = ("lost_setting", "own_method", "plan_a_model")
ELSEWHERE = ("serve", "train")
EXAMPLES = sorted(each for each in TRAIN.parent.glob("*.py") if each.stem not in ELSEWHERE)


@pytest.mark.parametrize(
    "script",
    [pytest.param(e, marks=() if e.stem in QUICK else pytest.mark.slow) for e in EXAMPLES],
    ids=lambda script: script.stem,
)
def test_an_example_runs(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # some write there
    runpy.run_path(str(script), run_name="__main__")
    assert PRINTS[script.stem] in capsys.readouterr().out


def test_the_example_of_a_training_needs_two_modules_of_ropewalk() -> None:
    tree = ast.walk(ast.parse(TRAIN.read_text("utf-8")))
    named = {each.module or "" for each in tree if isinstance(each, ast.ImportFrom)}
    assert {name for name in named if name.startswith("ropewalk")} == {"ropewalk.training"}


@pytest.mark.slow
def test_the_example_of_a_training_goes_on_where_it_was(tmp_path: Path) -> None:
    """The last logged steps are the same again, and the result follows its plan."""
    whole = trained(tmp_path)
    losses = re.findall(r"'loss': '([\d.]+)'", whole)
    assert len(losses) == 4
    for name in ("checkpoint-20", "model"):
        shutil.rmtree(tmp_path / "runs" / "trained" / name)
    again = trained(tmp_path)
    assert re.findall(r"'loss': '([\d.]+)'", again) == losses[2:]
    for printed in (whole, again):
        assert "runs/trained/model (transformers folder, for 1k): OK" in printed


def trained(room: Path) -> str:
    """The output of the script with its defaults."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, TRAIN], cwd=room, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
