"""One of four ranks is killed, stopped, or sees another setting or version than the others."""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tools.reliability.calls import Call, content, difference
from tools.reliability.row import Case, Row
from tools.reliability.subjects import SUBJECTS, Stage, Subject

RANKS = 4
WITHIN = 60.0
"""Seconds in which all ranks end once one is lost."""
TRAIN = Subject("train over ranks", SUBJECTS["train"].line.replace("--batch 2", "--batch 4"))
FAULTS = ("killed", "stopped", "another seed", "another version")


def lost(made: Stage, subject: Subject, fault: str, seed: int) -> str | None:
    """Ranks of which one is lost; then one process goes on."""
    whole, folder = made.undisturbed(subject), made.room / "ranks"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = random.Random(f"{subject.name} {fault} {seed}")
    victim = chosen.randrange(1, RANKS) if fault.startswith("another") else chosen.randrange(RANKS)
    ranks = _started(made, subject, folder, victim, fault)
    if fault in ("killed", "stopped") and (early := _disturb(ranks, victim, fault, folder)):
        return early
    began = time.monotonic()
    ends = [rank.wait(WITHIN + 20) for number, rank in enumerate(ranks) if number != victim]
    took = time.monotonic() - began
    ranks[victim].send(signal.SIGKILL)
    ranks[victim].wait()
    if fault in ("killed", "stopped") and took > WITHIN:
        return f"the others ended after {took:.0f} s"
    if problem := next((end.problem for end in ends if end.problem), None):
        return problem
    if any(end.status == 0 for end in ends):
        return "a rank ended well"
    if not any(f"rank {victim}" in end.errors for end in ends):
        return f"none names rank {victim}: {ends[0].last}"
    again = made.run(subject, folder)
    if again.problem or again.status != whole.status:
        return again.problem or f"called again, it ends with {again.status}: {again.last}"
    return _same(folder, whole.folder, whole.content)


def _started(made: Stage, subject: Subject, folder: Path, victim: int, fault: str) -> list[Call]:
    """The ranks, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    ranks = []
    for rank in range(RANKS):
        more = ["--seed", "1"] if rank == victim and fault == "another seed" else []
        other = {"ropewalk.run_directory.__version__": "0.0"}
        changed = other if rank == victim and fault == "another version" else {}
        env = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        ranks.append(made.start(subject, folder, *more, env=env, changed=changed))
    return ranks


def _disturb(ranks: list[Call], victim: int, fault: str, folder: Path) -> str | None:
    """Lose a rank once the work has begun: its journal has a line."""
    until = time.monotonic() + 900
    while not any(path.stat().st_size for path in folder.glob("run/[rst]*.jsonl")):
        if time.monotonic() > until or any(rank.is_over for rank in ranks):
            ends = [rank.wait(0) for rank in ranks]
            told = "; ".join(f"{end.status} {end.last}" for end in ends)
            return f"the ranks do not begin: {told}"
        time.sleep(0.02)
    ranks[victim].send(signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
    return None


def _same(folder: Path, whole: Path, expected: dict[str, bytes]) -> str | None:
    """The same bytes; a training, whose sums depend on the number of ranks, the same steps."""
    if not (whole / "run" / "training.jsonl").exists():
        return difference(content(folder), expected)
    steps = [
        [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (folder / "run" / "training.jsonl", whole / "run" / "training.jsonl")
    ]
    return None if steps[0] == steps[1] else f"steps {steps[0]} instead of {steps[1]}"


def cases(room: Path, seed: int) -> Iterator[Case]:
    made = Stage(room)
    subjects = (SUBJECTS["evaluate"], TRAIN, SUBJECTS["search"])
    for number in range(100):
        for fault in FAULTS:
            own = subjects[(number + FAULTS.index(fault)) % len(subjects)]
            told = f"{own.name}: a rank {fault}, {number}"
            yield Case(told, partial(lost, made, own, fault, seed * 1000 + number))


ROWS = (
    Row(
        "lost-ranks",
        "one of four gloo ranks killed, stopped (SIGSTOP), or with another seed or version",
        "all others end within 60 s and one names it; one process then ends the run",
        20,
        cases,
        together=0,
        mended=(
            "Ranks with other versions of ropewalk or torch worked together.",
            "A search did not compare the settings, weights and text of its ranks.",
            "A rank that was stopped could be named only after 66 seconds.",
        ),
    ),
)
