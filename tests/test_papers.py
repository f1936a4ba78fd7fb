"""The page of the papers names only what is there."""

import importlib.util
import re
from pathlib import Path

from ropewalk import scaling

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "studies" / "papers.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_modules_files_and_methods_of_the_page_exist() -> None:
    for module in re.findall(r"python -m ([\w.]+)", TEXT):
        assert importlib.util.find_spec(module), module
    for study in re.findall(r"make study NAME=(\w+)", TEXT):
        assert (ROOT / "studies" / study / "measure.py").exists(), study
    for path in re.findall(r"`(ropewalk/[\w/.]+)`", TEXT):
        assert (ROOT / path).exists(), path
    rows = [row for row in TEXT.splitlines() if "`ntk_old`" in row or "`linear`, `ntk`" in row]
    for name in re.findall(r"`([a-z]+(?:_[a-z]+)*)`", " ".join(rows)):
        assert name in scaling.names(), name
