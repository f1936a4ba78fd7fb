"""The examples of docs/errors.md: each command is run, and its output stands below it.

The lines run in a shell, but for `ropewalk` itself, which runs here through its entry point: what
it imports takes longer than what it does.

python -m tests.errors_page docs/errors.md    # writes what they print today
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from ropewalk.__main__ import run

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
        command = line.removeprefix("$ ")
        runs = _here if command.startswith("ropewalk ") else _in_shell
        with chdir(folder):
            printed, status = runs(command)
        lines += printed.replace(str(folder.resolve()), "…").splitlines()
        if status:
            lines.append(f"[exit code {status}]")
    return "".join(f"{line}\n" for line in lines)


def _here(command: str) -> tuple[str, int]:
    words, printed = shlex.split(command), StringIO()
    shown = words[-2:] != [">", "/dev/null"]
    with redirect_stdout(printed if shown else StringIO()), redirect_stderr(printed):
        status = run(words[1:] if shown else words[1:-2])
    return printed.getvalue(), status


def _in_shell(command: str) -> tuple[str, int]:
    both = subprocess.STDOUT
    done = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=both, text=True, check=False
    )
    return done.stdout, done.returncode


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_output(path.read_text(encoding="utf-8")), encoding="utf-8")
