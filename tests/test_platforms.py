"""What needs no run on disk works where Python lacks what POSIX alone has, as on Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.errors import Unsupported
from ropewalk.models.config import BUNDLED_FOLDER
from ropewalk.run_directory import RunDirectory

ROOT = Path(__file__).parents[1]
ABSENT = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
"""Modules that Python has on POSIX systems alone."""
NAMES = {
    "os": (
        *("fork", "register_at_fork", "pwrite", "pread", "killpg", "setsid", "getuid", "geteuid"),
        *("O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "statvfs"),
        *("waitid", "fchmod", "chown", "getpgid", "mkfifo", "sched_getaffinity"),
    ),
    "signal": ("SIGALRM", "SIGXCPU", "SIGHUP", "SIGUSR1", "SIGPIPE", "alarm"),
}
"""Names of modules that Windows has too, which are missing there."""
PROGRAM = f"""
import sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent)
import asyncio, multiprocessing.connection, subprocess, tempfile, threading  # Windows has its own

for module, names in {NAMES!r}.items():
    for name in names:
        if hasattr(__import__(module), name):
            delattr(__import__(module), name)
for name in {ABSENT!r}:
    sys.modules.pop(name, None)
import os

opened = os.open

def open_no_folder(path, *rest, **more):
    if not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return opened(path, *rest, **more)

os.open = open_no_folder
from ropewalk.__main__ import run

for words in sys.argv[1:]:
    status = run(words.split("|"))
    print("ended with", status, file=sys.stderr)
"""


def test_no_module_of_posix_alone_is_needed(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(rw.plan("bundled", "2k", "yarn").plan.dumps(), encoding="utf-8")
    model, rules = str(BUNDLED_FOLDER), "--no-run|--runtime|vllm"
    calls = {
        "bound|8k": 0,
        "methods": 0,
        f"inspect|{model}": 0,
        f"plan|{model}|--to|2k": 0,
        f"plan|{model}|--to|2k|--method|yarn|-o|{tmp_path / 'out.json'}": 0,
        f"cost|{model}/config.json|--to|2k": 0,
        f"verify|{model}|{rules}": 0,
        f"verify|{model}|{rules}|--plan|{plan}": 1,
        f"verify|{model}/config.json|{rules}": 3,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *calls], cwd=ROOT, capture_output=True, text=True
    )
    ended = [line for line in done.stderr.splitlines() if line.startswith("ended with ")]
    assert ended == [f"ended with {status}" for status in calls.values()], done.stderr


def test_a_run_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(Unsupported, match=r"POSIX file locks.*use Linux"):
        RunDirectory(tmp_path / "run", "test", {})
