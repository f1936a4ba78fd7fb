"""The tutorial runs as the page has it: its blocks of commands, in order, print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
STEPS = re.findall(
    r"^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", PAGE, re.MULTILINE | re.DOTALL
)
"""The commands of each step, and what the page shows of their output."""


def test_the_tutorial_is_short_and_shows_what_its_commands_print() -> None:
    assert len(PAGE.split()) <= 1200
    assert [commands for commands, shown in STEPS if not shown] == [STEPS[4][0], "kill %1\n"]
    assert PAGE.count("\n```\n") == len(STEPS) + sum(bool(shown) for _, shown in STEPS)


@pytest.mark.slow
def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    """One shell runs all steps in a folder, so a server that one starts serves the next.

    The folder has what the README's first example wrote.
    """
    shutil.copytree(ROOT / "examples", tmp_path / "room" / "examples")
    first = [sys.executable, str(ROOT / "examples" / "lost_setting.py")]
    subprocess.run(first, cwd=tmp_path / "room", env={"PYTHONPATH": str(ROOT)}, check=True)
    blocks = (f"{{\n{text}}} > ../{i} 2>&1\n" for i, (text, _) in enumerate(STEPS))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-e", "-c", f"trap 'kill $(jobs -p) || true' EXIT\n{''.join(blocks)}"],
        cwd=tmp_path / "room",
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
    )
    for i, (_, shown) in enumerate(STEPS):
        written = (tmp_path / f"{i}").read_text(encoding="utf-8")
        check_in_order(shown, written)
    assert ended.returncode == 0


def check_in_order(shown: str, written: str) -> None:
    """Each line is there, after the one before; … stands for anything, and widths do not count."""
    rest = " ".join(written.split())
    for piece in filter(None, (" ".join(each.split()) for each in re.split("[…\n]", shown))):
        _, found, rest = rest.partition(piece)
        assert found, f"{piece!r} is not in, or not at this place of:\n{written}"
