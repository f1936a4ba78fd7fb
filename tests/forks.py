"""Fresh processes without their slow start: forks of one that has done its imports, and no more.

A fork has imported third-party packages and nothing of ropewalk, and knows nothing of other forks.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

_SERVER = """
import json, os, runpy, sys, traceback
exec(sys.argv[1])

def work(argv, env, path, output):
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, name in zip((1, 2), output):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
        os.environ.clear(), os.environ.update(env)
        sys.path[:0] = path
        if argv[0] == "-m":
            sys.argv[:] = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        elif argv[0] == "-c":
            sys.argv[:] = ["-c", *argv[2:]]
            exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv[:] = argv
            runpy.run_path(argv[0], run_name="__main__")
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)

for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, dict):
        assert not any(name.partition(".")[0] == "ropewalk" for name in sys.modules)
        child = os.fork()
        if child == 0:
            work(**asked)
        print(child, flush=True)
    else:
        found, status = os.waitpid(asked, os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if found else None), flush=True)
"""


class Fork:
    """A process that runs, with what it writes in files."""

    def __init__(
        self, forks: Forks, words: Sequence[str], env: Mapping[str, str], path: Sequence[Path]
    ) -> None:
        self._forks, self._words = forks, list(words)
        self._room = tempfile.mkdtemp()
        self._output = [str(Path(self._room) / name) for name in ("out", "errors")]
        where = [str(folder) for folder in path]
        job = {"argv": self._words, "env": dict(env), "path": where, "output": self._output}
        self.pid = int(forks.ask(job))
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            self._status = self._forks.ask(self.pid)
        return self._status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float = 240) -> subprocess.CompletedProcess[str]:
        end = time.monotonic() + seconds
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                self.kill()
            time.sleep(0.01)
        said = [Path(path).read_text(encoding="utf-8") for path in self._output]
        shutil.rmtree(self._room)
        return subprocess.CompletedProcess(self._words, status, *said)


class Forks:
    """Runs Python's words, each time in a fork of a process that has done these imports.

    The words are those of Python's own command line: a file, `-c` and a text, or `-m` and a module.
    """

    def __init__(self, imports: str, *options: str) -> None:
        self._command = [sys.executable, *options, "-c", _SERVER, imports]
        self._server: subprocess.Popen[str] | None = None

    def ask(self, what: object) -> Any:
        """One line to the server, one from it."""
        if self._server is None:
            self._server = subprocess.Popen(
                self._command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(what), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def start(
        self,
        words: Sequence[object],
        env: Mapping[str, str] | None = None,
        path: Sequence[Path] = (ROOT,),
    ) -> Fork:
        """Begin; `path` comes before the installed packages."""
        return Fork(self, [str(word) for word in words], os.environ if env is None else env, path)

    def run(
        self,
        words: Sequence[object],
        env: Mapping[str, str] | None = None,
        path: Sequence[Path] = (ROOT,),
    ) -> subprocess.CompletedProcess[str]:
        return self.start(words, env, path).wait()

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()
