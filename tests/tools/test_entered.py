from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ropewalk.models.config import BUNDLED
from ropewalk.models.source import resolve


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("methods", 19),
        ("bound 8k", 38),
        ("inspect llama-3-8b", 33),
        ("plan llama-3-8b --to 32k --method yarn", 62),
        ("plan llama-3-8b --to 32k", 84),
        ("verify {bundled} --no-run", 62),
    ],
)
def test_a_command_enters_no_more_files_than_before(line: str, most: int) -> None:
    """What a reader of a command must know. Another number is a decision, to be argued for."""
    words = line.format(bundled=resolve(BUNDLED).path).split()
    call = [sys.executable, "-m", "tools.entered", *words]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    [count] = re.findall(r"^(\d+) files$", done.stdout, re.MULTILINE)
    assert 10 < int(count) <= most
