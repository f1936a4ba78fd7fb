"""Calls of the `ropewalk` command in forks of one process that has done all imports.

Each fork has a folder of its own to work in, and may be killed, stopped, run short of room, or find
that its n-th change of a file fails (interposed.c, which needs a C compiler on Linux).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tools.reliability.row import CannotRun
from tools.reliability.running import ELSEWHERE

ROOT = Path(__file__).parents[2]
HOWS = ("count", "kill", "torn", "short", "fail")
"""The kinds of interposed.c, in its order."""


class Interposed(NamedTuple):
    """The n-th change of a file in the call's folder, and what comes of it."""

    number: int
    how: str
    error: int = errno.EIO


class Ended(NamedTuple):
    """A call that is over."""

    status: int
    """Negative for the signal that ended it."""
    output: str
    errors: str
    changes: str
    """A letter for each change of a file in its folder, if they were counted: w for writes, s for
    syncs, o for files that are made, and so on (interposed.c)."""

    @property
    def problem(self) -> str | None:
        """The way in which it failed as no call may; None if it ended as one should."""
        lines = self.errors.strip().splitlines() or ["nothing"]
        if self.status == 70 or "Traceback (most recent call last)" in self.errors:
            return f"ended with {self.status} and says: {lines[-1][:300]}"
        return None

    @property
    def last(self) -> str:
        """The last line that it said."""
        return (self.errors.strip().splitlines() or [""])[-1][:300]


class Call:
    """A call under way."""

    def __init__(self, calls: Calls, job: dict[str, Any]) -> None:
        self._calls, self._room = calls, Path(tempfile.mkdtemp(prefix="ropewalk-call-"))
        self.pid = int(calls.ask({**job, "room": str(self._room)}))
        self._status: int | None = None

    @property
    def is_over(self) -> bool:
        if self._status is None:
            self._status = self._calls.ask(self.pid)
        return self._status is not None

    def send(self, number: signal.Signals) -> None:
        """A signal to the process and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, seconds: float = 900) -> Ended:
        until = time.monotonic() + seconds
        while not self.is_over:
            if time.monotonic() > until:
                self.send(signal.SIGKILL)
            time.sleep(0.005)
        self.send(signal.SIGKILL)  # what it left behind, which may hold a lock until it is gone
        with contextlib.suppress(ProcessLookupError):
            for _ in range(1000):
                os.killpg(self.pid, 0)
                time.sleep(0.005)
        said = [_text(self._room / name) for name in ("out", "errors", "changes")]
        shutil.rmtree(self._room, ignore_errors=True)
        return Ended(self._status or 0, *said)


class Calls:
    """The process that has done all imports; a light one has no torch and forks in milliseconds."""

    def __init__(self, *, light: bool) -> None:
        own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        own |= {"LD_PRELOAD": str(library)} if (library := interposed_library()) else {}
        own |= {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.reliability.calls", *["light"] * light],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **own},
        )
        ELSEWHERE.append(self.seconds)

    def ask(self, what: object) -> Any:
        """One line to the process, one from it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def start(
        self,
        words: Sequence[object],
        folder: Path,
        *,
        interposed: Interposed | None = None,
        env: Mapping[str, str] | None = None,
        changed: Mapping[str, object] | None = None,
        largest_file: int | None = None,
    ) -> Call:
        """Begin a call in a folder. `changed` are attributes of modules, by their full names; words
        that begin with `module:function` call that function instead of the command."""
        folder.mkdir(parents=True, exist_ok=True)
        job = {
            "words": [str(word) for word in words],
            "folder": str(folder),
            "interposed": interposed,
            "env": dict(env or {}),
            "changed": dict(changed or {}),
            "largest_file": largest_file,
        }
        return Call(self, job)

    def run(self, words: Sequence[object], folder: Path, **more: Any) -> Ended:
        return self.start(words, folder, **more).wait()

    def seconds(self) -> float:
        """The time that all its forks took so far, and its own."""
        return float(self.ask("seconds"))

    def close(self) -> None:
        ELSEWHERE.remove(self.seconds)
        self._process.communicate()


@cache
def calls(*, light: bool) -> Calls:
    """The process, one for all rows: its imports take longer than most cases."""
    started = Calls(light=light)
    atexit.register(started.close)
    return started


@cache
def interposed_library() -> Path | None:
    """The library of interposed.c, compiled; None where that cannot be done."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    library = Path(tempfile.mkdtemp(prefix="ropewalk-interposed-")) / "interposed.so"
    source = Path(__file__).with_name("interposed.c")
    words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(words, capture_output=True, check=False)
    return library if done.returncode == 0 else None


def check_interposed() -> None:
    """Refuse a machine on which no change of a file can be made to fail."""
    if interposed_library() is None:
        raise CannotRun("no C compiler, or not Linux")


def content(folder: Path, but: Sequence[str] = ("events.jsonl", "lock")) -> dict[str, bytes]:
    """The files of a folder and their bytes, without those that hold times."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in but
    }


def difference(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> str | None:
    """The first difference between the contents of two folders."""
    for name in sorted({*found, *expected}):
        if name not in expected:
            return f"{name} is left over"
        if name not in found:
            return f"{name} is missing"
        if found[name] != expected[name]:
            return f"{name} has other bytes"
    return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


# From here on: the process itself.


PROGRAMS = ("__main__", "confined_work", "stock_run")
"""Modules that are programs."""
LIGHT = (
    *("cli", "exporting.staging", "data.store", "searching.driver", "searching.strategies"),
    *("planning", "scaling", "runtimes", "models.config", "reports"),
)
"""Packages and modules that need no torch."""


def _import_all() -> None:
    """All that a call may import, so that its fork need not."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer  # noqa: F401
        from transformers.models.llama import modeling_llama  # noqa: F401
    _import_below("ropewalk")
    importlib.import_module("tests.evaluation.tiny")


def _import_below(name: str) -> None:
    """A module and all below it."""
    if name.endswith(PROGRAMS) or (".trials" in name and "torch" not in sys.modules):
        return
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        module = importlib.import_module(name)
        for below in pkgutil.iter_modules(getattr(module, "__path__", ())):
            _import_below(f"{name}.{below.name}")


def _forked_script(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Stands for the fresh process of an export: a fork, which need not import transformers."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            _library().faults_disarm()
            os.dup2(out.fileno(), 1), os.dup2(errors.fileno(), 2)
            _leave(lambda: runpy.run_path(words[0], run_name="__main__"), words)
        _, status = os.waitpid(child, 0)
        said = []
        for stream in (out, errors):
            stream.seek(0)
            said.append(stream.read().decode(errors="replace"))
    return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(status), *said)


class _NoLibrary:
    """Stands for interposed.c where there is none."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 0


@cache
def _library() -> Any:
    return ctypes.CDLL(None) if "LD_PRELOAD" in os.environ else _NoLibrary()


def _leave(work: Callable[[], object], words: Sequence[str]) -> None:
    """Do the work of a fork, and end it."""
    sys.argv[:] = list(words)
    try:
        found = work()
        status = found if isinstance(found, int) else 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)


def _work(job: dict[str, Any]) -> None:
    """One call, in the fork."""
    from ropewalk.__main__ import run

    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, name in zip((1, 2), ("out", "errors"), strict=True):
        os.dup2(os.open(f"{job['room']}/{name}", os.O_WRONLY | os.O_CREAT), stream)
    os.environ.update(job["env"])
    os.environ.pop("LD_PRELOAD", None)
    os.chdir(job["folder"])
    for name, value in job["changed"].items():
        module, _, attribute = name.rpartition(".")
        own = tuple(value) if isinstance(value, list) else value  # JSON has no tuples
        setattr(importlib.import_module(module), attribute, own)
    if job["largest_file"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"],) * 2)
    words = job["words"]
    module, _, function = words[0].partition(":")

    def done() -> object:
        if function:
            return getattr(importlib.import_module(module), function)(*words[1:])
        return run(words)

    def counted() -> object:
        status = done()
        if job["interposed"]:
            _library().faults_disarm()
            Path(job["room"], "changes").write_bytes(_library().faults_kinds() or b"")
        return status

    if job["interposed"]:
        number, how, code = job["interposed"]
        _library().faults_arm(os.getcwd().encode(), number, HOWS.index(how), code)
    _leave(counted, ["ropewalk", *words])


def _serve() -> None:
    """Start a call for each object that is read; tell of each number whether the process ended."""
    import gc

    from ropewalk.exporting import fresh_process

    if "LD_PRELOAD" in os.environ:
        _library().faults_kinds.restype = ctypes.c_char_p
        _library().faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_long] + [ctypes.c_int] * 2
    fresh_process.run_script = _forked_script
    for module in list(sys.modules.values()):
        if hasattr(module, "keep_figures"):  # drawing takes longer than all else
            setattr(module, "keep_figures", lambda *_: None)  # noqa: B010
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, dict):
            child = os.fork()
            if child == 0:
                _work(asked)
            print(child, flush=True)
        elif asked == "seconds":
            both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            print(sum(each.ru_utime + each.ru_stime for each in both), flush=True)
        else:
            found, status = os.waitpid(asked, os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if found else None), flush=True)


if __name__ == "__main__":
    if "light" in sys.argv:
        for each in LIGHT:
            _import_below(f"ropewalk.{each}")
    else:
        _import_all()
    _serve()
