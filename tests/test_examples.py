"""The scripts of examples/ run, as they are, and print what they promise."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
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
