"""The `ropewalk` command, and `python -m ropewalk`: every way in which a call can end.

    0    done
    1    the work failed, or a check of ours refuses its result; `verify`: something is wrong
    2    the user's input is wrong
    3    `verify`: not established
    70   a fault of ropewalk, with a report to send
    130  interrupted (Ctrl-C)
    141  whoever read the output stopped reading (`| head -1`)
    143  terminated (SIGTERM)

Nothing slow is imported before the signals are set, so an early Ctrl-C shows no traceback either.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

_OF_PATHS = (
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EISDIR, errno.ENOTDIR),
)
"""The system's errors for a path that the user has to change."""
FAULT, INTERRUPTED, BROKEN_PIPE, TERMINATED = 70, 130, 141, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM: everything that cleans up after Ctrl-C cleans up after this too."""


def main() -> NoReturn:
    """The entry point of the installed command."""
    signal.signal(signal.SIGTERM, _terminate)
    _open_streams()
    status = run(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):  # nothing is left to clean up
        signal.signal(number, signal.SIG_DFL)
    # What is still to be flushed belongs to a reader or a device that failed.
    if status == BROKEN_PIPE or not _flushed():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Do one call and return its exit status; nothing that goes wrong leaves this function."""
    try:
        from ropewalk.errors import RopewalkError

        try:
            from ropewalk.cli import call

            _check_surroundings()
            status = call(arguments)
            sys.stdout.flush()
            return status
        except RopewalkError as error:
            complain(f"error: {error}")
            return error.exit_status
    except KeyboardInterrupt as error:
        return _ended(error)
    except BrokenPipeError:
        return BROKEN_PIPE
    except MemoryError:
        complain("error: the memory is not enough for this; give shorter lengths or less text")
        return 1
    except OSError as error:
        from ropewalk.outputs import FULL

        if not _working_directory():
            complain(f"error: {_GONE}")
            return 2
        if error.errno in _OF_PATHS and error.filename:
            complain(f"error: {error.filename}: {error.strerror}; allow it, or give another path")
            return 2
        if error.errno not in FULL:
            return _fault(error, arguments)
        place = error.filename or "the output"
        complain(f"error: {place}: cannot be written ({error.strerror}); make room and try again")
        return 1
    except Exception as error:
        # Python 3.11 wraps what is raised in `__set_name__`, a signal too.
        if isinstance(error.__cause__, KeyboardInterrupt):
            return _ended(error.__cause__)
        return _fault(error, arguments)


def _ended(error: KeyboardInterrupt) -> int:
    ended = "terminated" if isinstance(error, Terminated) else "interrupted"
    notes = getattr(error, "__notes__", ())  # Python 3.12 adds one of its own in `__set_name__`
    complain("; ".join([ended, *(note for note in notes if "__set_name__" not in note)]))
    return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


_GONE = "the working directory was deleted; change to another one (`cd`), and run the command again"


def _check_surroundings() -> None:
    from ropewalk.errors import InputError

    if not _working_directory():
        raise InputError(_GONE)
    if sys.flags.optimize > 1:
        raise InputError(
            "Python runs without docstrings (-OO, or PYTHONOPTIMIZE=2), and transformers loads no "
            "model then; run it without that option"
        )


def _working_directory() -> bool:
    """True if relative paths lead anywhere."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def complain(text: str) -> None:
    """Write one line to standard error; if that fails, there is nobody to tell.

    A signal that comes now, as a second one does, finds the call ending already.
    """
    from ropewalk.errors import printable

    try:
        print(printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError, KeyboardInterrupt):
        return


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _open_streams() -> None:
    """Every standard stream, open and able to write any character.

    With standard error closed, Python would print errors to standard output, and the next file that
    is opened would take the place of the closed stream.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if name == "stdin" else os.O_WRONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def _flushed() -> bool:
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # full, closed, or replaced by a plugin
        return False
    return True


def _output_is_open() -> bool:
    try:
        os.fstat(1)
        return not (sys.stdout.closed or sys.stderr.closed)
    except (OSError, AttributeError):
        return False


def _fault(error: Exception, arguments: Sequence[str]) -> int:
    """The last resort: one line for the user, and the traceback in a file."""
    if not _output_is_open():
        complain("error: an output was closed meanwhile; a plugin must leave both open")
        return 2
    # Imported here, since every other call would wait for them.
    import platform
    import shlex
    import tempfile
    import traceback

    from ropewalk import __version__
    from ropewalk.extras import broken

    if installation := broken(error):
        complain(f"error: {installation}; `ropewalk doctor` tries all packages")
        return 2

    report = "\n".join(
        [
            f"ropewalk {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"ropewalk {shlex.join(arguments)}",
            *traceback.format_exception(error),
        ]
    )
    where = "no report could be written"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="ropewalk-report-", suffix=".txt", delete=False, encoding="utf-8",
            errors="backslashreplace",
        ) as file:  # fmt: skip
            file.write(report)
        where = f"please report it with {file.name}"
    except OSError:
        pass
    text = f"{type(error).__name__}: {error}"
    complain(f"error: unexpected {text[:200]}; {where}")
    return FAULT


if __name__ == "__main__":
    main()
