"""The files that a command leaves on disk: a crash at any moment leaves the old state or the new.

A run directory is one computation and all that came of it:

    run.json          the whole configuration, the versions, the arguments; written once
    records.jsonl     scored samples (records.py) as they come, one per line
    events.jsonl      what happened when: the only file that holds times
    lock              held while a process works here

Started again with the same configuration, a command goes on where it was and ends with the same
bytes, `events.jsonl` aside; started with another one it is refused, with the difference shown.

A journal (`*.jsonl`) is only ever appended to. Each line carries a checksum of its own, and the
beginning of the one before, so none is removed, repeated or moved unnoticed; the first one follows
the configuration, so no journal of another run is taken for it. A result that is kept counts the
lines that it was made of. What stands behind the last good line is what a crash tore off: it is
dropped, with a warning. A bad line before a good one is no crash but damage, and is refused. Only a
damaged `events.jsonl`, which holds no number, is put aside as `events.damaged.jsonl`, and the run
goes on; but the results that it sealed are made again.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from ropewalk import __version__
from ropewalk.errors import InputError, InvalidValue, RopewalkError, printable
from ropewalk.options import arguments_of
from ropewalk.outputs import (
    FULL,
    RUN_FILE,
    RUN_FORMAT,
    cannot_write,
    check_place,
    is_left_over,
    locks,
    sync_directory,
    write_atomically,
)
from ropewalk.registered import code_in
from ropewalk.untrusted import Fields, parse_json, read_json
from ropewalk.values import decode

FORMAT = RUN_FORMAT
CONFIGURATION, EVENTS, RECORDS, LOCK = RUN_FILE, "events.jsonl", "records.jsonl", "lock"
RESULTS = "results.json"
"""The result of the verb, once it is done."""
ARGUMENTS = "arguments"
"""The key of the arguments in run.json, from which `--config` repeats the run."""
DAMAGED_EVENTS = "events.damaged.jsonl"
KEPT = "kept"
"""The event of a result, with its checksum."""
# What decides the numbers of a run besides its configuration.
PACKAGES = ("numpy", "safetensors", "tokenizers", "torch", "transformers")

T = TypeVar("T")

MAX_LINE = 16 * 2**20
_CHECKSUM = len(',"sha256":""}\n') + 64
_FOLLOWS = "follows"
"""The member of a line that names the one before."""


class RunDirectory:
    """A run directory, held by this process until `close`."""

    def __init__(
        self,
        path: str | Path,
        command: str,
        configuration: Mapping[str, object],
        *,
        apart_from: Iterable[Path] = (),
    ) -> None:
        try:
            self.path = Path(path)
        except TypeError:
            raise InvalidValue("run", path, "must be a path", "write 'runs/first'") from None
        code = code_in(configuration)
        configuration = {**configuration, **({"code": code} if code else {})}
        self.configuration = configuration
        self._journals: dict[str, Journal] = {}
        check_run_place(self.path, apart_from)
        self._missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
        """The folders that are made here, from the innermost on."""
        locked = (self.path / LOCK).exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _hold(self.path / LOCK)
        except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
            reason = getattr(error, "strerror", None) or error
            kind = RopewalkError if getattr(error, "errno", None) in FULL else InputError
            raise kind(
                f"{path!s}: cannot be a run directory ({reason}); make room, or give another place"
            ) from None
        try:
            self.resumed = self._identify(command, configuration)
            self._sweep()
            facts = {"pid": os.getpid(), "line": _line_of(), "machine": machine()}
            signed = {CONFIGURATION: _digest((self.path / CONFIGURATION).read_bytes())}
            self.event("resumed" if self.resumed else "started", **facts, **signed)
        except BaseException:
            if not locked and not (self.path / CONFIGURATION).exists():
                (self.path / LOCK).unlink(missing_ok=True)  # of a folder that is no run's
            self.close()
            raise

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            reason = None if error is None else type(error).__name__
            self.event("finished" if error is None else "stopped", reason=reason)
        finally:
            if isinstance(error, InputError) and not self.resumed:
                self._abandon()  # while no other process can hold the lock
            self.close()
        if isinstance(error, KeyboardInterrupt):
            error.add_note(f"kept in {self.path}; run the same command to continue")

    def close(self) -> None:
        for journal in self._journals.values():
            journal.close()
        os.close(self._lock)

    def _identify(self, command: str, configuration: Mapping[str, object]) -> bool:
        """Write run.json, or compare with the one that is there: True if it goes on.

        The arguments may differ: another path may lead to the same text.
        """
        content = {
            "format": FORMAT,
            "command": command,
            "configuration": dict(configuration),
            "versions": versions(),
        }
        if (arguments := arguments_of(command)) is not None:
            content[ARGUMENTS] = arguments
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        text = text.encode(errors="replace").decode()  # as it is written
        file = self.path / CONFIGURATION
        if not file.exists():
            # What begins with a dot may be the temporary file of a run killed in its first moment.
            strangers = sorted(
                name
                for name in os.listdir(self.path)
                if name not in (LOCK, EVENTS, DAMAGED_EVENTS) and not name.startswith(".")
            )
            if strangers:
                raise InputError(
                    f"{self.path}: is not empty and not a run directory (it holds {strangers[0]} "
                    f"but no {CONFIGURATION}); give a new directory"
                )
            write_atomically(file, text)
            return False
        try:
            before = read_json(file)
        except InputError as error:
            raise InputError(f"{error}; restore the file, or give another directory") from None
        check_configuration(self.path, self.events)
        present = parse_json(text, source="this run")
        changes = differences(_identifying(before), _identifying(present))
        if changes:
            shown = "; ".join(changes[:8]) + ("; …" if len(changes) > 8 else "")
            raise InputError(
                f"{self.path}: holds a run with a different configuration: {shown}; "
                "give the same settings to resume it, or another directory"
            )
        return True

    def journal(self, name: str) -> Journal:
        """A journal in this directory, opened once."""
        if name not in self._journals:
            self._journals[name] = Journal(self.path / name)
        return self._journals[name]

    def _events(self) -> Journal:
        """The journal of events; a damaged one is put aside."""
        try:
            return self.journal(EVENTS)
        except DamagedJournal as error:
            os.replace(self.path / EVENTS, self.path / DAMAGED_EVENTS)
            warnings.warn(f"{error}; it is kept as {DAMAGED_EVENTS}", stacklevel=2)
            return self.journal(EVENTS)

    def _abandon(self) -> None:
        """Give the directory up, if the input was refused before anything was computed.

        Folders that were there before the run stay, and so do hidden files, which are not its own.
        A file that holds anything keeps all of it; empty ones go.
        """
        kept = [self.path / name for name in (CONFIGURATION, EVENTS, LOCK)]
        inside = [path for path in self.path.rglob("*") if path not in kept]
        inside = [path for path in inside if path.relative_to(self.path).parts[0][0] != "."]
        files = [path for path in inside if not _is_folder(path)]
        if any(path.lstat().st_size for path in files):
            return
        for path in (*files, *kept):
            path.unlink(missing_ok=True)
        for path in (*sorted(filter(_is_folder, inside), reverse=True), *self._missing):
            try:
                path.rmdir()
            except OSError:  # somebody else's file is in it
                return

    def _sweep(self) -> None:
        """Remove files that a killed process was still writing; the lock says that it is dead.

        Folders of that name are exports and checkpoints, whose own code removes them, or puts back
        what it had moved into them.
        """
        for path in filter(is_left_over, list(self.path.iterdir())):
            path.unlink(missing_ok=True)

    @property
    def events(self) -> list[dict[str, object]]:
        """All that was noted, over all runs in this directory."""
        return self._events().records

    def event(self, kind: str, **details: object) -> None:
        """Note what happened, and when."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._events().append([{"time": now, "event": kind, **details}])

    def keep(self, name: str, result: object) -> bool:
        """A result as JSON; True if it is what the run kept last under this name.

        One of the same records that said something else is not replaced.
        """
        content, file = json.dumps(result, indent=2, allow_nan=False) + "\n", self.path / name
        seals = seals_of(self.path).get(name, {})
        # Of scored samples alone: a training also says what it exported.
        if name == RESULTS and RECORDS in self._journals and file.is_file():
            before = file.read_bytes()
            if before != content.encode() and not _agree(_parsed(before), result):
                sealed = seals.get(_digest(before))
                if sealed == self._lines() or _changed(self.path, sealed):
                    raise InputError(
                        f"{file}: does not match the {RECORDS} that it was made from, so one of "
                        f"them was edited; restore it, or remove {name} to have it made again by "
                        "the same command"
                    )
                warnings.warn(f"{file}: was edited or damaged; it is made again", stacklevel=2)
        self.seal(name, content)
        return next(reversed(seals), None) == _digest(content.encode())

    def seal(self, name: str, content: str) -> Path:
        """A file whose checksum an event keeps, so that an edited one is not taken for it."""
        self.event(KEPT, file=name, digest=_digest(content.encode()), lines=self._lines())
        return self.write(name, content)

    def _lines(self) -> dict[str, object]:
        return {name: each.sealed for name, each in self._journals.items() if name != EVENTS}

    def write(self, name: str, content: str | bytes) -> Path:
        """A file of this directory, replaced in one step."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        return path


def seals_of(run: Path) -> dict[str, dict[str, object]]:
    """The checksums that each file had, the latest last, with the lines that it was made of.

    Files that were removed are among them.
    """
    by_file: dict[str, dict[str, object]] = {}
    for event in read_journal(run / EVENTS) if (run / EVENTS).exists() else ():
        if event.get("event") == KEPT:
            seals = by_file.setdefault(str(event.get("file")), {})
            seals.pop(digest := str(event.get("digest")), None)
            seals[digest] = event.get("lines")
    return by_file


def edited_files(run: Path) -> tuple[str, ...]:
    """The files of a run that differ from what it wrote last."""
    return tuple(
        name
        for name, seals in seals_of(run).items()
        if (file := run / name).is_file() and _digest(file.read_bytes()) not in seals
    )


def check_configuration(run: Path, events: Iterable[Mapping[str, object]]) -> None:
    """Refuse a run.json that was edited after the run began: its records have another one's."""
    signed = {str(event[CONFIGURATION]) for event in events if CONFIGURATION in event}
    if signed and _digest((run / CONFIGURATION).read_bytes()) not in signed:
        raise InputError(
            f"{run / CONFIGURATION}: has been edited since the run began, or {EVENTS} is of "
            "another run; restore the one that was changed, or start a new run"
        )


def check_kept(file: Path, run: Path) -> None:
    """Refuse a result in a run that has been edited since, or whose journals were cut."""
    seals = seals_of(run).get(str(file.relative_to(run)), {})
    digest = _digest(file.read_bytes())
    remake = f"remove {file.name} to have it made again by the same command"
    if not seals:
        raise InputError(
            f"{file}: {EVENTS} does not name it, so nothing shows that it was not edited; restore "
            f"{run / EVENTS}, or {remake}"
        )
    if digest not in seals:
        raise InputError(f"{file}: has been edited since it was written; restore it, or {remake}")
    if changed := _changed(run, seals[digest]):
        name, how, is_forged = changed
        again = f"{file.name} and {name}" if is_forged else file.name
        raise InputError(
            f"{run / name}: {how} that {file.name} was made from; restore it, or remove {again} to "
            "have both made again by the same command"
        )


def _changed(run: Path, journals: object) -> tuple[str, str, bool] | None:
    """The first journal that lacks lines, or has others, than when a result was sealed; and how."""
    for name, sealed in journals.items() if isinstance(journals, dict) else ():
        journal = run / Path(name).name
        match sealed:
            case [int(count), _] if (there := _lines_in(journal)) < count:
                return journal.name, f"has {there} lines of the {count}", False
            case [int(count), str(last)] if count > 0 and _seal_in(journal, count) != last:
                return journal.name, "has other lines than those", True
    return None


def _lines_in(journal: Path) -> int:
    return len(_whole_lines(journal)) if journal.exists() else 0


def _seal_in(journal: Path, count: int) -> str:
    """The seal of a line, by its number: it stands for all lines before it, too."""
    return _seal(journal.read_bytes().split(b"\n")[count - 1])


def _parsed(content: bytes) -> object:
    try:
        return parse_json(content.decode(errors="replace"), source=RESULTS)
    except InputError:
        return None


def _agree(was: object, now: object) -> bool:
    """True if two JSON values are equal up to rounding, which machines differ in."""
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(_agree(was[key], now[key]) for key in was)
    if isinstance(was, list | tuple) and isinstance(now, list | tuple):
        return len(was) == len(now) and all(map(_agree, was, now))
    if isinstance(was, float) and isinstance(now, float):
        return math.isclose(was, now, rel_tol=1e-9, abs_tol=1e-12)
    return was == now


def _digest(content: bytes) -> str:
    import hashlib  # slow, and `--help` signs nothing

    return hashlib.sha256(content).hexdigest()


def _identifying(content: object) -> object:
    """The part of a run.json that makes two runs the same."""
    if isinstance(content, dict):
        return {key: value for key, value in content.items() if key != ARGUMENTS}
    return content


def check_run_place(path: Path, apart_from: Iterable[Path] = ()) -> None:
    """Refuse a path that cannot be a run directory; nothing is written yet.

    A link to a folder on another disk is welcome; one that leads into the model is not.
    """
    place = path.resolve()
    if os.path.lexists(path) and not path.is_dir():
        what = "a link to nothing" if path.is_symlink() else "a file"
        raise InvalidValue("run", str(path), f"is {what}, not a folder", "give a folder's name")
    nearest = next(each for each in (place, *place.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise InvalidValue(
            "run", str(path), f"files cannot be created in {nearest}", "choose another place"
        )
    check_place(place, key="run", sources=apart_from)


def machine() -> str:
    """The processor that a run is on, and how many cores of it."""
    import platform

    named = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")  # where Linux alone names the model
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        named = next((line for line in lines if line.startswith("model name")), named)
    return f"{os.cpu_count()} cores of {named.partition(':')[2].strip() or named}"


def versions() -> dict[str, str]:
    """The versions that a run's numbers come from; what is not installed is left out."""
    import platform
    from importlib import metadata  # slow, and the quick verbs only want to write a file

    result = {"ropewalk": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            result[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return result


def differences(was: object, now: object, path: str = "") -> list[str]:
    """The changes between two JSON values, one line a place."""
    if isinstance(was, dict) and isinstance(now, dict):
        changes = []
        for key in dict.fromkeys([*was, *now]):
            place = f"{path}.{key}" if path else key
            if key not in now:
                changes.append(f"{place} was {_short(was[key])}, now not there")
            elif key not in was:
                changes.append(f"{place} was not there, now {_short(now[key])}")
            else:
                changes += differences(was[key], now[key], place)
        return changes
    # Compared as text: to Python, 1 and true are equal.
    same = json.dumps(was, sort_keys=True) == json.dumps(now, sort_keys=True)
    return [] if same else [f"{path or 'it'} was {_short(was)}, now {_short(now)}"]


def _short(value: object, limit: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _hold(path: Path) -> int:
    """Take the lock, or name who has it. The kernel frees it when its holder dies."""
    fcntl = locks()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        import socket  # not needed to refuse a place, which quick verbs do

        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as error:
        holder = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise RopewalkError(
            f"{path.parent}: is in use by {holder or 'another process'}; "
            "wait for it, or give another directory"
        ) from None
    if os.fstat(descriptor).st_nlink > 0:
        return descriptor
    os.close(descriptor)  # a run that gave the directory up has removed it meanwhile
    return _hold(path)


def _line_of() -> str | None:
    """The command line of this process, if it is ropewalk's."""
    program = Path(sys.argv[0])
    if "ropewalk" not in (program.stem, program.parent.name):
        return None
    return printable(shlex.join(["ropewalk", *sys.argv[1:]]))


class DamagedJournal(InputError):
    """A bad line before a good one, or one that does not follow the line before."""


class Journal:
    """An append-only file of JSON objects, one a line. What `append` returned from is on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        check_place(self.path, key="journal")
        try:
            lines = _lines_of(self.path) if self.path.exists() else []
            self._read, self._size, self._last = _good_lines(lines, self.path)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if torn := sum(map(len, lines)) - self._size:
                _warn_of_torn_tail(self.path, torn)
                os.ftruncate(self._descriptor, self._size)
                os.fsync(self._descriptor)
            sync_directory(self.path.parent)
        except OSError as error:
            raise cannot_write(path, error) from None

    @cached_property
    def records(self) -> list[dict[str, object]]:
        """All records. They are parsed when somebody asks: of a million, that takes a while."""
        records = _records(self._read, self.path)
        self._read = []
        return records

    def append(self, records: Iterable[Mapping[str, object]]) -> None:
        """Add records. If the disk is full, the file stays as it was and the error says so."""
        kept, added = self.records, [dict(record) for record in records]
        data, last = b"", self._last
        for record in added:
            line = _line(record, last)
            data += line
            last = _seal(line[:-1])
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self._size + written)
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise RopewalkError(
                f"{self.path}: cannot be written ({error.strerror}); all before it is kept: make "
                "room and start again to resume"
            ) from None
        self._size, self._last = self._size + len(data), last
        kept += added

    def read(self, kind: type[T]) -> list[T]:
        """The records as values: whoever can edit a line can also compute its checksum."""
        return [
            decode(kind, record, f"{self.path}: line {number}: ")
            for number, record in enumerate(self.records, start=1)
        ]

    @property
    def sealed(self) -> list[object]:
        """The number of lines, and the seal of the last, which stands for all of them."""
        return [len(self.records), self._last]

    def close(self) -> None:
        os.close(self._descriptor)


def read_journal(path: str | Path) -> list[dict[str, object]]:
    """The records of a journal, without opening it for writing."""
    return _records(_whole_lines(Path(path)), path)


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a journal, without a torn tail."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise InputError(f"{path}: is not a file; restore it")
    try:
        lines = _lines_of(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    good, size, _ = _good_lines(lines, path)
    if torn := sum(map(len, lines)) - size:
        _warn_of_torn_tail(path, torn)
    return good


def _lines_of(path: Path) -> list[bytes]:
    """The lines of a file with their ends: faster than all of it, split, if there are a million."""
    with path.open("rb", buffering=2**20) as file:
        return file.readlines()


def _records(lines: Iterable[bytes], path: object) -> list[dict[str, object]]:
    records = []
    for number, line in enumerate(lines, start=1):
        body = line[:-_CHECKSUM].decode(errors="replace") + "}"
        record = parse_json(body, source=f"{path}: line {number}")
        assert isinstance(record, dict), "it ends with a member"
        del record[_FOLLOWS]
        records.append(record)
    return records


def read_configuration(path: str | Path) -> tuple[str, dict[str, object]]:
    """The command and the configuration of a run directory."""
    file = Path(path) / CONFIGURATION
    fields = Fields(read_json(file), f"{file}: ")
    if (form := fields.text("format")) != FORMAT:
        raise InputError(f"{file}: is of format {form!r}, not {FORMAT!r}")
    return fields.text("command"), fields.mapping("configuration")


def read_arguments(file: Path, command: str) -> dict[str, object]:
    """The arguments that a run of a command was started with, from its run.json."""
    file = file / CONFIGURATION if file.is_dir() else file
    verb, _ = read_configuration(file.parent) if file.name == CONFIGURATION else ("", None)
    if not verb:
        raise InputError(f"{file}: is not the {CONFIGURATION} of a run; give RUN/{CONFIGURATION}")
    if verb != command:
        raise InputError(
            f"{file}: belongs to a run of `ropewalk {verb}`; give the {CONFIGURATION} of a run of "
            f"{command}"
        )
    fields = Fields(read_json(file), f"{file}: ")
    if ARGUMENTS not in fields:
        raise InputError(
            f"{file}: holds no arguments, since an earlier version of ropewalk wrote it; give the "
            "arguments themselves"
        )
    return fields.mapping(ARGUMENTS)


def read_versions(path: str | Path) -> dict[str, str]:
    """The versions that the numbers of a run directory come from."""
    file = Path(path) / CONFIGURATION
    return Fields(read_json(file), f"{file}: ").texts("versions")


def _line(record: Mapping[str, object], last: str) -> bytes:
    """A record as a line behind the `last` seal, its checksum as the last member of the object."""
    # ASCII: a name with terminal codes in it must be harmless to whoever looks at the file.
    assert record, "a record has at least one member"
    assert not {"sha256", _FOLLOWS} & record.keys(), "the journal adds them"
    body = json.dumps({**record, _FOLLOWS: last}, allow_nan=False, separators=(",", ":")).encode()
    return body[:-1] + _checksum(body)


def _checksum(body: bytes) -> bytes:
    """The end of the line whose record is this object."""
    return f',"sha256":"{_digest(body)}"}}\n'.encode()


def _seal(line: bytes) -> str:
    """The beginning of a line's checksum, by which the next one names it."""
    return line[-64 - len('"}') :][:16].decode()


def _is_sealed(line: bytes) -> bool:
    """True if the checksum of a line holds."""
    return line.endswith(_checksum(line[:-_CHECKSUM] + b"}"))


def _begins(journal: Path) -> str:
    """The seal before the first line: that of the journal's name and the run's configuration.

    Events need none, for they name the file of the configuration by its checksum.
    """
    file = journal.parent / CONFIGURATION
    if journal.name == EVENTS or not file.is_file():
        return ""
    identity = [journal.name, _identifying(read_json(file))]
    return _digest(json.dumps(identity, sort_keys=True).encode())[:16]


def _good_lines(lines: Sequence[bytes], path: Path) -> tuple[list[bytes], int, str]:
    """The lines up to the torn tail, how many bytes they take, and the seal of the last."""
    from hashlib import sha256

    good: list[bytes] = []
    last = _begins(path)
    bad: int | None = None
    # A line without its end was still being written, whatever its checksum says.
    for number, line in enumerate(lines, start=1):
        digest = sha256(line[:-_CHECKSUM] + b"}").hexdigest()
        is_next = line.endswith(f',"{_FOLLOWS}":"{last}","sha256":"{digest}"}}\n'.encode())
        if len(line) > MAX_LINE or not (is_next or _is_sealed(line)):
            if line.endswith(b"\r\n") and _is_sealed(line[:-2] + b"\n"):
                raise DamagedJournal(
                    f"{path}: line {number} ends in CR and LF, as a copy in text mode leaves it; "
                    "restore the file, or remove the CRs (dos2unix)"
                )
            bad = bad or number
            continue
        if bad is not None:
            raise DamagedJournal(
                f"{path}: line {bad} is damaged and line {number} is not, so this is no "
                "interrupted write; restore the file, or start a new run"
            )
        if not is_next:
            raise DamagedJournal(
                f"{path}: line {number} does not follow the line before it, so lines were removed, "
                "repeated or moved, or are of another run or an earlier version of ropewalk; "
                "restore the file, or start a new run"
            )
        last = digest[:16]
        good.append(line)
    return good, sum(map(len, good)), last


def _warn_of_torn_tail(path: Path, size: int) -> None:
    warnings.warn(
        f"{path}: the last {size} bytes are no whole record, as if torn off by an interruption; "
        "they are dropped",
        stacklevel=3,
    )
