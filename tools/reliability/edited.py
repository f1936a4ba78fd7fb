"""Records and results of a finished run, doubled, moved, swapped or edited by hand."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ropewalk.run_directory import EVENTS, Journal, read_journal
from tools.reliability.calls import Ended, calls, content, difference
from tools.reliability.row import Case, Row
from tools.reliability.subjects import SUBJECTS, Stage, Subject

Lines = list[bytes]
Record = dict[str, object]
Edit = Callable[[Path, random.Random], None]


def _lines(change: Callable[[Lines, random.Random], Lines]) -> Edit:
    def edit(file: Path, chosen: random.Random) -> None:
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(change(lines, chosen)))

    return edit


def _doubled(lines: Lines, chosen: random.Random) -> Lines:
    at = chosen.randrange(len(lines))
    return [*lines[: at + 1], *lines[at:]]


def _moved(lines: Lines, chosen: random.Random) -> Lines:
    at = chosen.randrange(max(1, len(lines) - 1))
    return [*lines[:at], *lines[at + 1 :], lines[at]]


def _swapped(lines: Lines, chosen: random.Random) -> Lines:
    at = chosen.randrange(max(1, len(lines) - 1))
    return [*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]]


def _removed(lines: Lines, chosen: random.Random) -> Lines:
    at = chosen.randrange(max(1, len(lines) - 1))
    return [*lines[:at], *lines[at + 1 :]]


def _digit(file: Path, chosen: random.Random) -> None:
    """Another digit in the place of one."""
    text = file.read_bytes()
    at = chosen.choice([found.start() for found in re.finditer(rb"(?<=[0-9.:, ])[0-9]", text)])
    other = b"%d" % ((int(text[at : at + 1]) + chosen.randint(1, 9)) % 10)
    file.write_bytes(text[:at] + other + text[at + 1 :])


def _resealed(change: Callable[[Record, random.Random], list[Record]]) -> Edit:
    """A record replaced by others, with the checksums made anew, as a program could."""

    def edit(file: Path, chosen: random.Random) -> None:
        records = read_journal(file)
        at = chosen.randrange(len(records))
        file.unlink()
        journal = Journal(file)
        journal.append([*records[:at], *change(records[at], chosen), *records[at + 1 :]])
        journal.close()

    return edit


def _without_a_member(record: Record, chosen: random.Random) -> list[Record]:
    lost = chosen.choice(sorted(record))
    return [{key: value for key, value in record.items() if key != lost}]


def _with_another_kind(record: Record, chosen: random.Random) -> list[Record]:
    """A member that is a list where it was none, and else a text."""
    key = chosen.choice(sorted(record))
    return [{**record, key: "it" if isinstance(record[key], list) else []}]


RESEALED: dict[str, Edit] = {
    "resealed with one record twice": _resealed(lambda record, _: [record, record]),
    "resealed without a member": _resealed(_without_a_member),
    "resealed with a member of another kind": _resealed(_with_another_kind),
}
OF_JOURNALS: dict[str, Edit] = {
    "doubled": _lines(_doubled),
    "swapped": _lines(_swapped),
    "edited": _digit,
    "moved": _lines(_moved),
    "removed": _lines(_removed),
    **RESEALED,
}
OF_RESULTS: dict[str, Edit] = {"edited": _digit}
LIGHT = 12
"""Cases without a model; all others are of the verbs."""


def edited(made: Stage, subject: Subject, name: str, how: str, seed: int) -> str | None:
    """The run is called again, and its page made: each refuses it by name or gives the same."""
    whole, run = made.undisturbed(subject), made.room / "edited"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(whole.folder, run)
    file = run / "run" / name
    edit = (OF_JOURNALS if name in subject.journals else OF_RESULTS)[how]
    edit(file, random.Random(f"{subject.name} {name} {seed}"))
    if file.read_bytes() == (whole.folder / "run" / name).read_bytes():
        return None  # equal lines were exchanged
    if not subject.light and subject.name != "data":
        (run / "run" / "report.html").unlink(missing_ok=True)
        ended = calls(light=True).run(["report", "run", "-o", "other.html"], run)
        page = run / "other.html"
        is_named = page.exists() and f"run wrote it: {name}" in page.read_text()
        if not is_named and (problem := _silent(ended, name, "its page")):
            return problem
        page.unlink(missing_ok=True)
    again = made.run(subject, run)
    if again.status != whole.status:
        return _silent(again, name, "called again, it")
    # A record that stands twice and counts once, or lacks what is not read, does no harm.
    but = ("events.jsonl", "events.damaged.jsonl", "lock", *[name] * (how in RESEALED))
    expected = {path: held for path, held in whole.content.items() if Path(path).name not in but}
    changed = difference(content(run, but), expected)
    return f"called again, it ends well, and {changed}" if changed else again.problem


def _silent(ended: Ended, name: str, what: str) -> str | None:
    if ended.problem:
        return f"{what} {ended.problem}"
    if name not in ended.errors and name != EVENTS:
        return f"{what} says nothing of it: {ended.status}, {ended.last}"
    return None


def cases(room: Path, seed: int) -> Iterator[Case]:
    made = Stage(room)
    everything = [
        (subject, name, how)
        for subject in SUBJECTS.values()
        for names, edits in ((subject.journals, OF_JOURNALS), (subject.results, OF_RESULTS))
        for name in names
        for how in edits
    ]
    random.Random(seed).shuffle(everything)
    light = [each for each in everything if each[0].light][:LIGHT]
    heavy = [each for each in everything if not each[0].light]
    for number, (subject, name, how) in enumerate(light + heavy):
        told = f"{name} of {subject.name}, {how}"
        yield Case(told, partial(edited, made, subject, name, how, seed * 1000 + number))


ROWS = (
    Row(
        "edited-records",
        "records of the journals of `evaluate`, `search`, `train`, `extend`, `data build`, "
        "`howlong` and `precision` doubled, moved, swapped, removed, edited, or sealed anew with a "
        "record twice, a member less or one of another kind; results edited",
        "named or made again, and nothing is counted twice",
        60,
        cases,
        together=0,
        sample=4,
        mended=(
            "A shard that stood twice in a token store's journal was taken for changed texts.",
            "A record that was sealed anew without a member, or with one of another kind, ended a "
            "search and a measurement of precision with status 70.",
        ),
    ),
)
