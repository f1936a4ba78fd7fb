"""How a call can end, as real processes: statuses, streams, signals, and never a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.__main__ import run
from ropewalk.errors import InvalidValue
from ropewalk.run_directory import RunDirectory
from tests.forks import Forks

COMMAND = [sys.executable, "-m", "ropewalk"]
PLAN = ["plan", "llama-3-8b", "--to", "32k", "--method", "yarn"]


def called(
    *arguments: str, shell: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A call; `shell` redirects its streams."""
    line = f'exec "$@" {shell}' if "|" not in shell else f'"$@" {shell}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", line, "bash", *COMMAND, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})},
    )  # fmt: skip


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("arguments", [["methods"], PLAN, [*PLAN, "--json"]])
def test_any_encoding_can_be_printed_to(encoding: str, arguments: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert "yarn" in done.stdout.decode(encoding)


def test_a_full_device_is_one_line() -> None:
    done = called(*PLAN, shell="> /dev/full")
    assert done.returncode == 1
    assert done.stderr == (
        "error: the output: cannot be written (No space left on device); make room and try again\n"
    )


def test_a_broken_pipe_ends_as_other_tools_do() -> None:
    for arguments in (["methods"], [*PLAN, "--json"]):
        done = called(*arguments, shell="| true")
        assert (done.returncode, done.stderr) == (141, "")


def test_with_standard_error_closed_errors_do_not_go_to_standard_output(tmp_path: Path) -> None:
    done = called("inspect", "nowhere/config.json", shell="2>&-")
    assert (done.returncode, done.stdout) == (2, "")
    # Nor does a file take the place of the stream that is missing.
    path = tmp_path / "plan.json"
    done = called(*PLAN, "-o", str(path), shell="2>&- >&-")
    assert done.returncode == 0
    assert json.loads(path.read_text())["format"] == "ropewalk-plan-1"


@pytest.mark.parametrize(
    ("number", "status", "told"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.slow),
    ],
)
def test_a_signal_keeps_the_run_and_says_where(
    tmp_path: Path, number: signal.Signals, status: int, told: str, fresh: Forks
) -> None:
    path = tmp_path / "run"
    child = fresh.start(["-m", "ropewalk", "search", "bundled", "--to", "1k", "--run", path])
    deadline = time.monotonic() + 120
    while not list(path.glob("search*.jsonl")) and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.05)
    os.kill(child.pid, number)
    done = child.wait()
    assert done.returncode == status
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]  # a slow machine may have told its progress before
    assert last == f"{told}; kept in {path}; run the same command to continue"
    assert [file.name for file in path.iterdir() if file.name.startswith(".")] == []


def catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    [mask] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks the Linux kernel")
@pytest.mark.parametrize("milliseconds", [0, 30, 90])
def test_an_early_interrupt_shows_no_traceback(milliseconds: int) -> None:
    """From the entry point's first line on; before that, Python itself is starting."""
    with subprocess.Popen(
        [*COMMAND, "methods"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        while not catches(child.pid, signal.SIGTERM):
            time.sleep(0.001)
        time.sleep(milliseconds / 1000)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    # Python dies of SIGINT itself as it leaves, or where the interrupt met an `exec`.
    ended = [
        (130, "interrupted\n"),
        (0, ""),
        (-signal.SIGINT, ""),
        (-signal.SIGINT, "interrupted\n"),
    ]
    # What Python's own import lock catches, it prints itself and goes on.
    errors = re.sub(
        r"Exception ignored in: <function _get_module_lock(.*\n)+?KeyboardInterrupt: \n", "", errors
    )
    assert (child.returncode, errors) in ended


def test_a_fault_of_ours_is_one_line_and_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(arguments: object) -> int:
        raise ZeroDivisionError("by\x1b[31m nothing")

    monkeypatch.setattr("ropewalk.cli.call", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["plan", "a b"]) == 70
    [report] = tmp_path.iterdir()
    line = capsys.readouterr().err
    assert line == (
        "error: unexpected ZeroDivisionError: by\\x1b[31m nothing; "
        f"please report it with {report}\n"
    )
    text = report.read_text()
    assert "ropewalk plan 'a b'" in text
    assert "Traceback" in text


def test_an_interrupt_while_a_class_is_made_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupts:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def broken(arguments: object) -> int:
        type("Made", (), {"name": Interrupts()})
        raise AssertionError

    monkeypatch.setattr("ropewalk.cli.call", broken)
    assert run([]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    monkeypatch.setattr("ropewalk.errors.printable", lambda _: signal.raise_signal(signal.SIGINT))
    assert run([]) == 130, "a second one, while the first is told"


def test_too_little_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(arguments: object) -> int:
        raise MemoryError

    monkeypatch.setattr("ropewalk.cli.call", broken)
    assert run([]) == 1
    assert capsys.readouterr().err.startswith("error: the memory is not enough")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EISDIR])
def test_a_folder_that_may_not_be_entered_or_is_no_file_is_no_fault(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`is_file()` raises for what is in such a folder. Root, who may be testing, enters any."""

    def broken(arguments: object) -> int:
        raise OSError(number, os.strerror(number), "m/config.json")

    monkeypatch.setattr("ropewalk.cli.call", broken)
    assert run(["inspect", "m"]) == 2
    assert capsys.readouterr().err == (
        f"error: m/config.json: {os.strerror(number)}; allow it, or give another path\n"
    )


def test_a_terminal_of_no_columns_loses_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert run(["bound", "32k"]) == 0
    assert "base" in capsys.readouterr().out


def test_a_path_that_is_too_long_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["methods", "--plugin", "x" * 5000]) == 2
    told = capsys.readouterr().err
    assert "File name too long" in told or "there is no such file" in told  # from Python 3.14 on


@pytest.mark.parametrize("path", ["loop", "loop/x", "x" * 5000, "a/" * 1000])
def test_a_path_that_leads_nowhere_is_no_fault(path: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidValue, match="leads nowhere"):
        rw.card(tmp_path / path)


HOSTILE = "a\x1b[31mred\x9b2J\u202e[/nope][bold]:smile:"


@pytest.mark.parametrize("as_json", [False, True])
def test_names_reach_the_terminal_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    config = json.loads(
        (Path(__file__).parent / "golden" / "configs" / "gemma-3-4b.json").read_text()
    )
    (tmp_path / "model [/nope][bold]:smile:").mkdir(parents=True)
    path = tmp_path / "model [/nope][bold]:smile:" / "config.json"
    path.write_text(json.dumps({**config, HOSTILE: 1, "_name_or_path": HOSTILE}))
    more = ["--json"] if as_json else []
    for arguments in (["inspect"], ["plan", "--to", "256k", "--method", "linear"], ["verify"]):
        status = run([arguments[0], str(path), *arguments[1:], *more])
        shown = capsys.readouterr()
        assert status != 70, shown.err
        for text in (shown.out, shown.err):
            assert all(c.isprintable() or c == "\n" for c in text)
        assert "[/nope][bold]:smile:" in shown.out


def test_damage_to_what_decides_nothing_does_not_stop_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        with RunDirectory(tmp_path / "run", "test", {}):
            pass
    events = tmp_path / "run" / "events.jsonl"
    content = events.read_bytes()
    events.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    with pytest.warns(UserWarning, match=r"damaged .* kept as events\.damaged\.jsonl"):
        run_directory = RunDirectory(tmp_path / "run", "test", {})
    assert run_directory.resumed
    run_directory.close()
    assert (tmp_path / "run" / "events.damaged.jsonl").read_bytes()[:20] == content[:20]


def test_python_without_docstrings_is_named() -> None:
    """No model loads then, so a good one would be called wrong."""
    command = [sys.executable, "-OO", *COMMAND[1:], "methods"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "PYTHONOPTIMIZE=2" in done.stderr


@pytest.mark.parametrize("arguments", [["methods"], ["extend"], ["report", "run"]])
def test_a_deleted_working_directory_is_named(tmp_path: Path, arguments: list[str]) -> None:
    (gone := tmp_path / "gone").mkdir()
    leave = f'cd {gone} && rmdir {gone} && exec "$@"'
    done = subprocess.run(
        ["bash", "-c", leave, "bash", *COMMAND, *arguments],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: the working directory was deleted")
