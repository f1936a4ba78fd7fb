from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InputError, RopewalkError
from ropewalk.outputs import TEMPORARY, write_atomically
from ropewalk.run_directory import (
    RESULTS,
    Journal,
    RunDirectory,
    differences,
    read_configuration,
    read_journal,
)
from ropewalk.run_on_disk import RunOnDisk

RECORDS: list[dict[str, Any]] = [
    {"name": "a", "value": 1.5},
    {"name": 'ü\n"', "value": None},
    {"name": "c", "list": []},
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "records.jsonl"
    _append(path, *RECORDS)
    return path


def _append(path: Path, *records: dict[str, Any]) -> None:
    opened = Journal(path)
    opened.append(records)
    opened.close()


def test_a_journal_gives_back_what_was_appended(journal: Path) -> None:
    _append(journal, {"name": "d"})
    assert read_journal(journal) == [*RECORDS, {"name": "d"}]


def test_every_line_is_json_with_its_checksum(journal: Path) -> None:
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    seals = [line.pop("sha256")[:16] for line in lines]
    assert [line.pop("follows") for line in lines] == ["", *seals[:-1]]
    assert lines == RECORDS


def test_a_line_that_is_removed_moved_or_repeated_is_noticed(journal: Path) -> None:
    """Also where the line has a right checksum, as one that was edited and signed again."""
    first, second, third = journal.read_bytes().splitlines(keepends=True)
    edited = second[:-1].replace(b"null", b"1")
    body = edited[: -len(',"sha256":""}') - 64] + b"}"
    signed = body[:-1] + f',"sha256":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
    for lines, number in (
        ((second, third), 1),
        ((first, third), 2),
        ((first, third, second), 2),
        ((first, second, second, third), 3),
        ((first, second, third, second), 4),
        ((first, signed, third), 3),
    ):
        journal.write_bytes(b"".join(lines))
        for read in (read_journal, Journal):
            with pytest.raises(InputError, match=f"line {number} does not follow the line before"):
                read(journal)


def test_a_journal_with_other_line_ends_says_so_and_loses_nothing(journal: Path) -> None:
    content = journal.read_bytes().replace(b"\n", b"\r\n")
    journal.write_bytes(content)
    for opened in (Journal, read_journal):
        with pytest.raises(InputError, match="line 1 ends in CR and LF"):
            opened(journal)
    assert journal.read_bytes() == content


def test_a_plan_that_was_edited_is_named_at_the_end_of_the_page(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", "search", {}) as directory:
        directory.seal("plan.json", "{}")
    assert not any("Edited" in note for note in RunOnDisk.read(tmp_path / "run").notes())
    (tmp_path / "run" / "plan.json").write_text('{"edited": 1}')
    assert "Edited since the run wrote it: plan.json" in RunOnDisk.read(tmp_path / "run").notes()


@pytest.mark.parametrize(
    ("seed", "name"), [(1, "search.jsonl"), (0, "other.jsonl"), (None, "search.jsonl")]
)
def test_the_journal_of_another_run_or_name_or_of_no_run_is_refused(
    tmp_path: Path, seed: int | None, name: str
) -> None:
    for run, own, file in (("run", 0, "search.jsonl"), ("other", seed, name)):
        if own is None:  # as before a journal followed its run's configuration
            (tmp_path / run).mkdir()
            _append(tmp_path / run / file, {"loss": 1})
            continue
        with RunDirectory(tmp_path / run, "search", {"seed": own}) as directory:
            directory.journal(file).append([{"loss": own}])
    shutil.copy(tmp_path / "other" / name, tmp_path / "run" / "search.jsonl")
    for read in (read_journal, Journal):
        with pytest.raises(InputError, match=r"line 1 .* are of another run or an earlier"):
            read(tmp_path / "run" / "search.jsonl")


def test_a_folder_in_the_place_of_results_is_named_and_an_endless_file_is_not_read(
    tmp_path: Path,
) -> None:
    results = tmp_path / "run" / RESULTS
    with RunDirectory(tmp_path / "run", "evaluate", {}) as directory:
        directory.journal("records.jsonl")
        results.mkdir()
        with pytest.raises(InputError, match=r"results\.json: cannot be written"):
            directory.keep(RESULTS, {})
        results.rmdir()
        results.symlink_to("/dev/zero")
        directory.keep(RESULTS, {})
    assert json.loads(results.read_text()) == {}


def test_the_configuration_of_another_run_is_refused(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", "search", {"seed": 0}):
        pass
    file = tmp_path / "run" / "run.json"
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 7'))
    with pytest.raises(InputError, match=r"edited since the run began, or events\.jsonl is of"):
        RunOnDisk.read(tmp_path / "run")
    with pytest.raises(InputError, match="has been edited since the run began"):
        RunDirectory(tmp_path / "run", "search", {"seed": 7})
    _append(tmp_path / "run" / "events.jsonl", {"run.json": []})
    with pytest.raises(InputError, match="has been edited since the run began"):
        RunOnDisk.read(tmp_path / "run")


def test_a_journal_whose_lines_name_no_line_before_them_is_refused(journal: Path) -> None:
    bodies = [json.dumps(record, separators=(",", ":")).encode() for record in RECORDS]
    signed = (
        body[:-1] + f',"sha256":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
        for body in bodies
    )
    journal.write_bytes(b"".join(signed))
    with pytest.raises(InputError, match="line 1 does not follow the line before it"):
        read_journal(journal)


def test_a_journal_cut_anywhere_keeps_its_whole_lines(journal: Path) -> None:
    content = journal.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content)):
        journal.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends)
        if cut in (0, *ends):
            assert read_journal(journal) == RECORDS[:whole]
            continue
        with pytest.warns(UserWarning, match="torn off"):
            _append(journal, {"name": "after"})
        assert read_journal(journal) == [*RECORDS[:whole], {"name": "after"}]


@given(data=st.data())
def test_a_changed_byte_is_never_accepted(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "records.jsonl"
    _append(path, *RECORDS)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    last_begins = bytes(content).rstrip(b"\n").rfind(b"\n") + 1
    if place < last_begins - 1:
        with pytest.raises(InputError, match="is damaged"):
            read_journal(path)
    else:
        with pytest.warns(UserWarning, match="torn off"):
            kept = read_journal(path)
        assert kept == RECORDS[: len(kept)]
        assert len(kept) < len(RECORDS)


def test_a_line_that_is_sealed_but_is_no_json_is_refused_when_it_is_read(tmp_path: Path) -> None:
    """Opening compares checksums alone: to parse a million lines takes ten times as long."""
    journal = tmp_path / "records.jsonl"
    body = b'{"a":1,"a":2,"follows":""}'
    journal.write_bytes(
        body[:-1] + b',"sha256":"%b"}\n' % hashlib.sha256(body).hexdigest().encode()
    )
    opened = Journal(journal)
    for read in (
        lambda: opened.records,
        lambda: opened.append(RECORDS),
        lambda: read_journal(journal),
    ):
        with pytest.raises(InputError, match=r"line 1: a .*stands twice"):
            read()
    opened.close()


def test_zeros_at_the_end_are_a_torn_tail(journal: Path) -> None:
    """What some file systems leave of a write that was cut off by a power failure."""
    with journal.open("ab") as file:
        file.write(bytes(300))
    with pytest.warns(UserWarning, match="300 bytes"):
        assert read_journal(journal) == RECORDS


def test_a_full_disk_leaves_the_journal_as_it_was(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Journal(journal)
    before = journal.read_bytes()
    write = os.pwrite

    def half_then_full(descriptor: int, data: bytes, offset: int) -> int:
        if offset > len(before):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: len(data) // 2], offset)

    monkeypatch.setattr(os, "pwrite", half_then_full)
    with pytest.raises(RopewalkError, match="No space left on device"):
        opened.append([{"name": "d"}])
    assert journal.read_bytes() == before
    monkeypatch.undo()
    opened.append([{"name": "e"}])
    opened.close()
    assert read_journal(journal) == [*RECORDS, {"name": "e"}]


def test_a_full_disk_that_cannot_hold_the_lock_is_no_mistake_of_the_user(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(RopewalkError, match=r"File too large.*make room") as caught:
            RunDirectory(tmp_path / "run", "test", {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.exit_status == 1
    RunDirectory(tmp_path / "run", "test", {}).close()  # nobody holds it


def test_nan_is_not_written(journal: Path) -> None:
    before = journal.read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        _append(journal, {"name": "d"}, {"value": float("nan")})
    assert journal.read_bytes() == before


def test_a_run_goes_on_with_the_same_configuration(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", "test", {"seed": 1}) as run:
        assert not run.resumed
        run.journal("records.jsonl").append([{"a": 1}])
        before = (run.path / "run.json").read_bytes()
    with RunDirectory(tmp_path / "run", "test", {"seed": 1}) as run:
        assert run.resumed
        assert run.journal("records.jsonl").records == [{"a": 1}]
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert read_configuration(tmp_path / "run") == ("test", {"seed": 1})
    events = [record["event"] for record in read_journal(tmp_path / "run" / "events.jsonl")]
    assert events == ["started", "finished", "resumed", "finished"]


def test_only_the_events_hold_times(tmp_path: Path) -> None:
    def bytes_of(name: str) -> dict[str, bytes]:
        with RunDirectory(tmp_path / name, "test", {"seed": 1}) as run:
            run.journal("records.jsonl").append([{"a": 1}])
        files = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        del files["events.jsonl"]
        return files

    assert bytes_of("first") == bytes_of("second")


def test_another_configuration_is_refused_with_the_difference(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, "test", {"seed": 1, "lengths": [128, 256], "old": True}):
        pass
    with pytest.raises(InputError) as refusal:
        RunDirectory(tmp_path, "test", {"seed": 2, "lengths": [128, 256], "new": "x"})
    assert "configuration.seed was 1, now 2" in str(refusal.value)
    assert "configuration.old was true, now not there" in str(refusal.value)
    assert 'configuration.new was not there, now "x"' in str(refusal.value)
    assert "lengths" not in str(refusal.value)
    # The refusal let go of the directory.
    with RunDirectory(tmp_path, "test", {"seed": 1, "lengths": [128, 256], "old": True}):
        pass


def test_a_refused_run_leaves_nothing_unless_something_was_computed(tmp_path: Path) -> None:
    def refused(path: Path, *records: dict[str, object]) -> None:
        with RunDirectory(path, "test", {"a": 1}) as run:
            run.journal("records.jsonl").append(records)
            raise InputError("too short")

    with pytest.raises(InputError, match="too short"):
        refused(tmp_path / "first")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="too short"):
        refused(tmp_path / "second", {"score": 1})
    with RunDirectory(tmp_path / "second", "test", {"a": 1}) as run:
        assert run.resumed
        assert run.journal("records.jsonl").records == [{"score": 1}]


def test_a_refused_run_takes_its_empty_folders_with_it_and_no_other(tmp_path: Path) -> None:
    def begun(path: Path, made: str, content: bytes) -> None:
        with RunDirectory(path, "test", {}) as run:
            (run.path / made).parent.mkdir(parents=True, exist_ok=True)
            (run.path / made).write_bytes(content)
            raise InputError("too late")

    def refused(path: Path, made: str, content: bytes = b"") -> None:
        with pytest.raises(InputError, match="too late"):
            begun(path, made, content)

    refused(tmp_path / "runs" / "deep" / "run", "stage-1/evaluate/nothing")
    assert list(tmp_path.iterdir()) == []
    (mine := tmp_path / "runs").mkdir()
    refused(mine / "run", "nothing")
    assert list(mine.iterdir()) == []
    (mine / ".keep").touch()
    refused(mine, "stage-1/nothing")
    assert list(mine.iterdir()) == [mine / ".keep"]
    refused(mine / "run", "stage-1/plan.json", b"{}")
    assert (mine / "run" / "stage-1" / "plan.json").exists()
    with RunDirectory(mine / "run", "test", {}) as run:
        assert run.resumed


def test_files_of_a_killed_process_are_swept_and_links_are_refused(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", "test", {}):
        pass
    (tmp_path / "run" / f".plan.json.abc{TEMPORARY}").write_text("half")
    (tmp_path / "run" / ".mine").write_text("kept")
    with RunDirectory(tmp_path / "run", "test", {}) as run:
        assert {path.name for path in run.path.iterdir() if path.name[0] == "."} == {".mine"}
        (run.path / "records.jsonl").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="is a link"):
            run.journal("records.jsonl")
    assert not (tmp_path / "elsewhere").exists()


def test_folders_of_killed_exports_and_checkpoints_are_left_to_their_own_code(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    RunDirectory(run, "train", {"steps": 3}).close()
    parts = [run / f".{name}{TEMPORARY}" for name in ("ropewalk-0123456789ab-x", "checkpoint-1")]
    for part in parts:
        part.mkdir()
        (part / "model.safetensors").write_text("half")
    RunDirectory(run, "train", {"steps": 3}).close()
    assert all((part / "model.safetensors").exists() for part in parts)


def test_a_place_that_cannot_be_a_run_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name, complaint in [
        ("file", "is a file, not a folder"),
        ("link", "is a link to nothing, not a folder"),
        ("file/run", "cannot be created in"),
    ]:
        with pytest.raises(InputError, match=complaint):
            RunDirectory(tmp_path / name, "test", {})
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_ones_own_in_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder that a container is given."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    (tmp_path / "own").mkdir()
    RunDirectory(tmp_path / "own", "test", {}).close()


def test_a_run_is_not_kept_in_its_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="never written to"):
        RunDirectory(tmp_path / "model" / "run", "test", {}, apart_from=[tmp_path / "model"])
    assert list((tmp_path / "model").iterdir()) == []


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        RunDirectory(tmp_path, "test", {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_killed_before_it_had_a_configuration_can_start(tmp_path: Path) -> None:
    (tmp_path / ".run.json.x8k2").write_text("{")
    (tmp_path / "lock").write_text("process 1 on nowhere\n")
    with RunDirectory(tmp_path, "test", {}) as run:
        assert not run.resumed


HOLDER = """
import sys, time
from ropewalk.run_directory import RunDirectory
with RunDirectory(sys.argv[1], "test", {}):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_that_was_removed_while_it_was_opened_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a run that is refused and gives its directory up at this very moment."""
    lock, flock = tmp_path / "lock", fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with (
        RunDirectory(tmp_path, "trial", {}),
        pytest.raises(RopewalkError, match=f"is in use by process {os.getpid()}"),
    ):
        RunDirectory(tmp_path, "trial", {})


def test_a_second_process_is_refused_naming_the_holder_and_a_dead_holder_is_not_one(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RopewalkError, match=f"in use by process {holder.pid} on"):
            RunDirectory(tmp_path, "test", {})
        holder.send_signal(signal.SIGKILL)
    with RunDirectory(tmp_path, "test", {}) as run:
        assert run.resumed


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_differences_are_found_exactly_where_values_differ(first: Any, second: Any) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (differences(first, second) == []) == same


class Killed(BaseException):
    """A process does not survive this."""


def _calls_of(monkeypatch: pytest.MonkeyPatch, names: list[str], at: int) -> Callable[[], int]:
    """Let the at-th call to any of the os functions die instead of being made."""
    made = 0

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            if made == at:
                raise Killed
            return function(*args, **kwargs)

        return call

    for name in names:
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
    return lambda: made


def test_a_file_replaced_atomically_is_old_or_new_at_every_call(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    calls = ["open", "fsync", "chmod", "replace", "close", "fdopen"]
    seen = set()
    for at in range(1, 20):
        path.write_text("old")
        with pytest.MonkeyPatch.context() as patch:
            made = _calls_of(patch, calls, at)
            try:
                write_atomically(path, "new")
            except Killed:
                seen.add(path.read_text())
                continue
        assert made() < at
        break
    assert path.read_text() == "new"
    assert seen == {"old", "new"}
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_a_journal_survives_death_at_every_call(tmp_path: Path) -> None:
    """What an append returned from is there afterwards; of the rest, nothing or whole records."""
    batches = [[{"batch": b, "record": r} for r in range(3)] for b in range(3)]
    for at in range(1, 40):
        path = tmp_path / f"{at}.jsonl"
        returned: list[dict[str, int]] = []
        with pytest.MonkeyPatch.context() as patch:
            _calls_of(patch, ["open", "pwrite", "fsync", "ftruncate"], at)
            try:
                journal = Journal(path)
                for batch in batches:
                    journal.append(batch)
                    returned += batch
            except Killed:
                kept = read_journal(path) if path.exists() else []
                assert kept[: len(returned)] == returned
                assert kept == [r for batch in batches for r in batch][: len(kept)]
                _append(path, {"after": at})
                assert read_journal(path) == [*kept, {"after": at}]
                continue
        break
    assert at > 6
    assert returned == [record for batch in batches for record in batch]


@pytest.mark.parametrize("place", ["missing/plan.json", "."])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path / place, "new")
