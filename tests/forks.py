"""Fresh processes without their slow start: forks of one that has done its imports, and no more.

A fork has imported third-party packages and nothing of ropewalk, and knows nothing of other forks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_SERVER = """
import json, os, runpy, sys, traceback
exec(sys.argv[1])

def work(argv, env, output):
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, path in zip((1, 2), output):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        os.environ.clear(), os.environ.update(env)
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
    assert not any(name.partition(".")[0] == "ropewalk" for name in sys.modules)
    child = os.fork()
    if child == 0:
        work(**json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """Runs Python files, each in a fork of a process that has done these imports."""

    def __init__(self, imports: str, *options: str) -> None:
        self._command = [sys.executable, *options, "-c", _SERVER, imports]
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The file that the first word names, with the others as its arguments."""
        given = dict(os.environ if env is None else env)
        if self._server is None:
            self._server = subprocess.Popen(
                self._command, env=given, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory() as room:
            output = [str(Path(room) / name) for name in ("out", "errors")]
            job = json.dumps({"argv": list(words), "env": given, "output": output})
            print(job, file=self._server.stdin, flush=True)
            status = int(self._server.stdout.readline())
            said = [Path(path).read_text(encoding="utf-8") for path in output]
        return subprocess.CompletedProcess(list(words), status, *said)

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()
