"""The files of ropewalk whose functions a command enters: how much a reader of it must know.

    python -m tools.entered plan llama-3-8b --to 32k --method yarn

Prints the number, and with -v the files. Importing a module does not count; calling into it does.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FrameType

import ropewalk

ROOT = Path(ropewalk.__file__).parent


def entered(arguments: Sequence[str]) -> list[str]:
    """The files that a call of the command enters, by their paths in the package."""
    codes: set[CodeType] = set()

    def seen(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in codes and not _is_imported(frame):
            codes.add(code)

    from ropewalk.cli import call

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            call(list(arguments))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = {code.co_filename for code in codes}
    return sorted(str(Path(f).relative_to(ROOT)) for f in files if f.startswith(str(ROOT)))


def _is_imported(frame: FrameType | None) -> bool:
    """True if it runs because a module is imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "-v"]
    found = entered(words)
    print(len(found), "files")
    if "-v" in sys.argv:
        print("\n".join(found))
