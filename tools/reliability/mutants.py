"""Mutants of every kind of file that ropewalk reads, through the command's entry point.

Bytes, JSON values, headers, numbers and lines are damaged at random (tests/mutants/damage.py). A
mutant whose outcome is new, that is, a status with a message that no mutant before had once names
and numbers are taken out, becomes a base of later ones, as in coverage-guided fuzzing: each refusal
of ropewalk has a sentence of its own, so the messages tell which check was reached, at none of the
cost of tracing lines in Python 3.11.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ropewalk import errors
from ropewalk.__main__ import complain, run
from tests.mutants.damage import BYTES, JSON, Mutant, Mutate, header, line
from tools.reliability import originals
from tools.reliability.row import FOLDER, Case, Row

SECONDS, MEMORY = 2.0, 500 * 2**20
KEPT = FOLDER.parents[1] / "tests" / "mutants" / "corpus"
"""Mutants that once were finds: a file each, named by the file that it was a mutant of."""
LARGEST_KEPT = 100_000
MOST_BASES = 200
# From the best judgement to the worst: OK, not established, wrong, cannot be read.
RANK = {0: 3, 3: 2, 1: 1, 2: 0}
TOGETHER = 200

Call = Callable[[Path], Sequence[str] | Callable[[], object]]
"""The command's words for a folder, or something of the library to call."""


@dataclass(frozen=True)
class Target:
    """A file of a folder, the ways of damaging it, and what is then done with the folder."""

    name: str
    folder: str
    file: str
    ways: tuple[Mutate, ...]
    calls: tuple[Call, ...]
    share: int
    judges: bool = False
    """The calls give a verdict, which no mutant may improve."""
    notices: bool = False
    """No mutant may be found well: the folder carries its checksums."""
    same: bool = False
    """A mutant that is accepted must give the same output: its lines or results are sealed."""


def interesting(content: bytes, rng: random.Random) -> Mutant:
    """A binary number of the first part of a file, replaced by one at an edge of its range."""
    width = rng.choice([1, 4, 4, 8, 8])
    place = rng.randrange(max(1, min(len(content), rng.choice([64, 512, 8192])) - width + 1))
    value = rng.choice([0, 1, 2, 2**7, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1])
    raw = struct.pack("<Q", value)[:width]
    return Mutant(content[:place] + raw + content[place + width :], f"{value} at byte {place}")


def swapped(content: bytes, rng: random.Random) -> Mutant:
    """Two parts exchanged, as blocks of a disk."""
    size = rng.choice([1, 16, 64, 512])
    one, two = sorted(rng.randrange(len(content)) for _ in range(2))
    parts = content[:one], content[two : two + size], content[one + size : two]
    return Mutant(b"".join((*parts, content[one : one + size], content[two + size :])), "swapped")


BINARY = (*BYTES, interesting, interesting, interesting, swapped)
LINES = (line, line, *BYTES, swapped)
TEXT = (*JSON, *BYTES, swapped)


def targets() -> Iterator[Target]:
    """Config and plan alone, whose folders are made in no time; then all others."""
    folder = originals.words
    for name in originals.CONFIGS:
        to = "1M" if name == "phi-3-mini-128k" else "512k"
        plan = folder("plan", "config.json", "--to", to, "--method", "linear")
        judge = folder("verify", "config.json", *originals.BY_RULES)
        yield Target(
            f"{name} read", name, "config.json", JSON, (folder("inspect", "config.json"),), 3
        )
        yield Target(f"{name} planned", name, "config.json", JSON, (plan,), 1)
        # What vLLM does with Phi-3's own setting is wrong, so a mutant without it is better.
        yield Target(f"{name} judged", name, "config.json", JSON, (judge,), 3,
                     judges=name != "phi-3-mini-128k")  # fmt: skip
    judge = folder("verify", "config.json", *originals.BY_RULES, "--plan", "plan.json")
    yield Target("plan judged", "planned", "plan.json", TEXT, (judge,), 4, judges=True)
    export = folder("export", "", "--plan", "plan.json", "--dry-run")
    yield Target("plan exported", "planned", "plan.json", TEXT, (export,), 4)


def heavy_targets() -> Iterator[Target]:
    """Models, runs, fingerprints and stores."""
    folder, rules = originals.words, originals.BY_RULES
    judge = folder("verify", "", *rules)
    for name, file, ways, share in (
        ("config", "config.json", TEXT, 4),
        ("tokenizer", "tokenizer.json", TEXT, 5),
        ("tokenizer's config", "tokenizer_config.json", TEXT, 2),
        ("weights", "model.safetensors", BINARY, 3),
        ("header", "model.safetensors", (header, header, interesting), 5),
        ("manifest", "ropewalk.manifest.json", TEXT, 3),
    ):
        noticed = "manifest" not in name
        yield Target(f"{name} of a whole model", "whole", file, ways, (judge,), share,
                     judges=True, notices=noticed)  # fmt: skip
        for state in originals.SPOILED:
            if file != originals.SPOILED[state]:
                yield Target(f"{name} of a model with {state}", state, file, ways, (judge,), 1,
                             judges=True)  # fmt: skip
    yield Target("tokenizer used", "plain", "tokenizer.json", TEXT, (originals.build,), 1)
    card = folder("card", "", "--overwrite", "--base-model", "a/b")
    for file in ("config.json", "plan.json", "ropewalk.manifest.json"):
        follow = folder("verify", "", "--no-run", "--runtime", "vllm")
        yield Target(f"{file} of an export", "exported", file, TEXT, (follow,), 2, judges=True)
        yield Target(f"{file} for a card", "exported", file, TEXT, (card,), 1)
    look = folder("inspect", "model.gguf")
    judge = folder("verify", "model.gguf", "--no-run")
    for ways, name in ((BINARY, "bytes"), ((interesting,), "numbers")):
        yield Target(f"GGUF {name} read", "gguf", "model.gguf", ways, (look,), 4)
        yield Target(f"GGUF {name} judged", "gguf", "model.gguf", ways, (judge,), 4,
                     judges=True, notices=name == "bytes")  # fmt: skip
    report, compared = folder("report", ""), folder("compare", "", "../evaluated", "--json")
    for file, ways in (
        ("records.jsonl", LINES), ("events.jsonl", LINES), ("results.json", TEXT),
        ("run.json", TEXT),
    ):  # fmt: skip
        yield Target(f"{file} of an evaluation", "evaluated", file, ways, (report,), 3)
        yield Target(f"{file} compared", "evaluated", file, ways, (compared,), 3, same=True)
    for file, ways in (
        ("search.jsonl", LINES), ("search-measured.jsonl", LINES), ("events.jsonl", LINES),
        ("results.json", TEXT), ("plan.json", TEXT), ("run.json", TEXT),
    ):  # fmt: skip
        yield Target(f"{file} of a search", "searched", file, ways, (report,), 2)
    read = Target("fingerprint", "prints", "fingerprint.json", TEXT, (originals.fingerprint,), 5)
    yield read
    described = folder("data", "describe", "", "--length", "64", "--check")
    for file, ways in (
        ("manifest.json", TEXT), ("documents-00000.bin", BINARY), ("tokens-00000.bin", BINARY)
    ):  # fmt: skip
        yield Target(f"{file} of a store", "stored", file, ways, (described,), 3,
                     notices=file.endswith(".bin"))  # fmt: skip


class Mutants:
    """The mutants of one run: where the originals are, what they give, and what is new so far."""

    def __init__(self, room: Path, seed: int) -> None:
        self.room, self.seed = room, seed
        self.bases = room / "bases"
        self.bases.mkdir(exist_ok=True)
        self._known: dict[str, tuple[tuple[int, str], ...]] = {}

    def case(self, target: Target, number: int) -> Case:
        return Case(target.name, partial(self._judge, target, number))

    def original(self, target: Target) -> tuple[tuple[int, str], ...]:
        """The status and the output of each call on the original; made once, in the parent."""
        if target.name not in self._known:
            done = [self._outcome(call, target) for call in target.calls]
            self._known[target.name] = tuple((status, out) for status, out, _ in done)
        return self._known[target.name]

    def _outcome(self, call: Call, target: Target) -> tuple[int, str, str]:
        out, told = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
            words = call(self.room / target.folder)
            status = _called(words) if callable(words) else run(words)
        return status, out.getvalue(), told.getvalue()

    def _judge(self, target: Target, number: int) -> str | None:
        path = self.room / target.folder / target.file
        content = path.read_bytes()
        originals.remember(path)
        rng = random.Random(f"{self.seed} {target.name} {number}")
        mutant = _mutant(self._base(target, content, rng), target.ways, rng)
        if mutant.content == content:
            return None
        try:
            path.write_bytes(mutant.content)
            for call, known in zip(target.calls, self.original(target), strict=True):
                said = self._one(target, call, known, mutant)
                if said:
                    _keep(path, mutant.content)
                    return said
        finally:
            originals.restore(path.parent)
        return None

    def _one(
        self, target: Target, call: Call, known: tuple[int, str], mutant: Mutant
    ) -> str | None:
        before, _ = _memory(anew=True)
        began = _seconds()
        status, out, told = self._outcome(call, target)
        spent = _seconds() - began
        _, peak = _memory()
        self._learn(target, mutant, status, out + told)
        about = f"({mutant.done}; {' '.join(told.split())[-300:]})"
        if status not in RANK:
            return f"status {status} {about}"
        if "Traceback" in out + told:
            return f"a traceback {about}"
        if any(not (c.isprintable() or c == "\n") for c in out + told):
            return f"raw control characters {about}"
        if status == 2 and not told.splitlines()[-1].startswith("error: "):
            return f"status 2 without an error {about}"
        if spent > SECONDS:
            return f"took {spent:.1f} s {about}"
        if peak - before > MEMORY:
            return f"took {(peak - before) >> 20} MiB {about}"
        if target.judges and RANK[status] > RANK[known[0]]:
            return f"milder: {known[0]} became {status} {about}"
        if target.notices and status == 0:
            return f"nobody noticed {about}"
        if target.same and status == 0 and out != known[1]:
            return f"accepted, with another output {about}"
        return None

    def _base(self, target: Target, content: bytes, rng: random.Random) -> bytes:
        """The original, or a mutant of it that reached something new."""
        kept = sorted(self.bases.glob(f"{_slug(target.name)} *"))
        return rng.choice(kept).read_bytes() if kept and rng.random() < 0.4 else content

    def _learn(self, target: Target, mutant: Mutant, status: int, told: str) -> None:
        seen = zlib.crc32(f"{status} {_template(told)}".encode())
        path = self.bases / f"{_slug(target.name)} {seen:08x}"
        if len(mutant.content) > LARGEST_KEPT or path.exists():
            return
        if len(list(self.bases.glob(f"{_slug(target.name)} *"))) < MOST_BASES:
            path.write_bytes(mutant.content)


def _called(call: Callable[[], object]) -> int:
    """A call of the library, ended as the command ends."""
    try:
        call()
    except errors.RopewalkError as error:
        complain(f"error: {error}")
        return error.exit_status
    return 0


def _mutant(content: bytes, ways: Sequence[Mutate], rng: random.Random) -> Mutant:
    """One damage, or now and then some more; ways that need JSON fall back to those that do not."""
    mutant = Mutant(content, "")
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        way = rng.choice(ways)
        try:
            changed, done = way(mutant.content, rng)
        except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError):
            changed, done = rng.choice(BYTES)(mutant.content or b" ", rng)
        mutant = Mutant(changed, f"{mutant.done}; {done}".removeprefix("; "))
    return mutant


def _template(text: str) -> str:
    """A message without what differs from mutant to mutant."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "Q", text[:4_000])
    return re.sub(r"\S*\d\S*|\S*/\S*", "N", text)


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _keep(path: Path, content: bytes) -> None:
    if len(content) <= LARGEST_KEPT:
        KEPT.mkdir(exist_ok=True)
        (KEPT / f"{zlib.crc32(content):08x}-{path.name}").write_bytes(content)


def _memory(*, anew: bool = False) -> tuple[int, int]:
    """Bytes that this process has now, and the most that it had since this was asked `anew`."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    text = Path("/proc/self/status").read_text()
    now, peak = (
        int(re.findall(rf"{name}:\s+(\d+) kB", text)[0]) * 1024 for name in ("VmRSS", "VmHWM")
    )
    return now, peak


def _seconds() -> float:
    """Of this process and its children that have ended."""
    return sum(os.times()[:4])


def cases(room: Path, seed: int) -> Iterator[Case]:
    mutants = Mutants(room, seed)
    originals.make_light(room)
    yield from _rounds(mutants, list(targets()), range(4))
    originals.make_heavy(room)
    yield from _rounds(mutants, [*targets(), *heavy_targets()], range(4, 10**9))


def _rounds(mutants: Mutants, all_of: Sequence[Target], numbers: range) -> Iterator[Case]:
    for number in numbers:
        for target in all_of:
            mutants.original(target)
            for own in range(target.share):
                yield mutants.case(target, number * target.share + own)


ROWS = (
    Row(
        "mutants",
        "configs, plans, GGUF and safetensors headers, tokenizers, manifests, journals, results, "
        "fingerprints and stores, damaged at random, guided by new outcomes",
        "no traceback, no status 70, under 2 s and 500 MB more; no milder verdict of `verify`; "
        "nothing that is sealed changes unnoticed",
        50_000,
        cases,
        seconds=60,
        together=TOGETHER,
        sample=100,
    ),
)
