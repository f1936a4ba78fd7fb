"""Journals that end at any byte: the whole records before it are kept, and a torn one is named."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ropewalk.run_directory import Journal, read_journal
from tools.reliability.row import Case, Row
from tools.reliability.subjects import SUBJECTS, Stage

LONGEST = 3_000
"""Bytes of a journal up to which it is cut at every one; of a longer one, the end."""


def cut(journal: Path, room: Path, size: int) -> str | None:
    """A journal that lost all beyond its first bytes, read and then gone on with."""
    whole, torn = journal.read_bytes(), room / "torn.jsonl"
    kept = whole[:size].count(b"\n")
    torn.write_bytes(whole[:size])
    expected = read_journal(journal)[:kept]
    for reads in ("read", "opened"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if reads == "read":
                found = read_journal(torn)
            else:
                opened = Journal(torn)
                found = list(opened.records)
                opened.append([{"behind": "it"}])
                opened.close()
        if found != expected:
            return f"{reads}, {len(found)} records of {kept} are found"
        is_torn = whole[:size][-1:] not in (b"", b"\n")
        if is_torn != any("no whole record" in str(each.message) for each in said):
            return f"{reads}, " + ("nothing is said of the torn one" if is_torn else "it complains")
    if read_journal(torn) != [*expected, {"behind": "it"}]:
        return "a record behind the cut is lost"
    return None


def cases(room: Path, seed: int) -> Iterator[Case]:
    plain = room / "plain.jsonl"
    journal = Journal(plain)
    journal.append(
        [{"number": n, "text": "ü ropewalk " * (n % 3), "score": n / 7} for n in range(4)]
    )
    journal.close()
    yield from _cuts("a journal", plain, room)
    made = Stage(room)
    for name, subject in sorted(SUBJECTS.items(), key=lambda each: not each[1].light):
        for held in subject.journals:
            path = made.undisturbed(subject).folder / "run" / held
            yield from _cuts(f"{held} of {name}", path, room)


def _cuts(name: str, journal: Path, room: Path) -> Iterator[Case]:
    size = journal.stat().st_size
    for place in range(max(0, size - LONGEST), size):
        yield Case(f"{name}, cut at byte {place}", partial(cut, journal, room, place))


ROWS = (
    Row(
        "torn-tails",
        "every journal cut at every byte (of a long one, its last 3,000 bytes)",
        "all whole records are kept, and a torn one is dropped and named",
        25_000,
        cases,
        together=0,
        sample=300,
    ),
)
