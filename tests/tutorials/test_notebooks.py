"""The notebooks run as they are, and give results of the shape that is committed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tools.site import text_of

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("place", NOTEBOOKS, ids=lambda place: place.stem)


def cells(place: Path) -> list[dict[str, Any]]:
    """The cells of code."""
    found = json.loads(place.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def shape(place: Path) -> list[list[list[str]]]:
    """The kinds of what each cell shows, without notices and bars, which depend on the machine."""
    shown = [
        [
            out
            for out in each["outputs"]
            if out.get("name") != "stderr" and any(out.get("data", {"text": True}).values())
        ]
        for each in cells(place)
    ]
    return [[[out["output_type"], *sorted(out.get("data", ()))] for out in outs] for outs in shown]


@each_notebook
def test_a_notebook_is_short_and_shows_its_results(place: Path) -> None:
    for number, cell in enumerate(cells(place), start=1):
        assert len("".join(cell["source"]).splitlines()) <= 10
        assert (cell["execution_count"], cell["metadata"]) == (number, {})
    kinds = {kind for outs in shape(place) for kind, *_ in outs}
    assert "execute_result" in kinds
    assert "error" not in kinds
    text = place.read_text(encoding="utf-8")
    assert "data:image/png;base64," in text
    assert "site-packages" not in text
    shown = sum(len(cell["outputs"]) for cell in cells(place))
    assert text_of(place).count('<div class="output">') == shown  # as a page of the site


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nbconvert") is None, reason="needs nbconvert (`make test-slow`)")
@each_notebook
def test_a_notebook_runs(place: Path, tmp_path: Path) -> None:
    run = Path(shutil.copy(place, tmp_path))
    execute = ["-m", "nbconvert", "--to", "notebook", "--execute", "--inplace"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}"}
    subprocess.run([sys.executable, *execute, run], cwd=tmp_path, env=environment, check=True)
    assert shape(run) == shape(place)
