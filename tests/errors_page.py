"""The examples of docs/errors.md: each command is run in a shell, and its output stands below it.

python -m tests.errors_page docs/errors.md    # writes what they print today
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
_BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)


def with_output(page: str) -> str:
    """The page, with what its commands print; all of them run in one folder, in order."""
    with TemporaryDirectory() as folder:
        return _BLOCK.sub(lambda block: _run(block[0], Path(folder)), page)


def _run(block: str, folder: Path) -> str:
    lines = []
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        lines.append(line)
        done = subprocess.run(
            ["bash", "-c", line.removeprefix("$ ")],
            cwd=folder,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = done.stdout.replace(str(folder.resolve()), "…")
        lines += printed.splitlines()
        if done.returncode:
            lines.append(f"[exit code {done.returncode}]")
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_output(path.read_text(encoding="utf-8")), encoding="utf-8")
