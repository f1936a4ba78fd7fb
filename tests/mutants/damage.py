"""Damaged copies of a file, from one seed: what a bad disk, a careless editor or a foe would do."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A damaged content, and what was done to it."""

    content: bytes
    done: str


Mutate = Callable[[bytes, random.Random], Mutant]


def flip(path: Path, at: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def flipped(content: bytes, rng: random.Random) -> Mutant:
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    byte = bytes([content[place] ^ (1 << bit)])
    return Mutant(content[:place] + byte + content[place + 1 :], f"bit {bit} of byte {place}")


def cut(content: bytes, rng: random.Random) -> Mutant:
    length = rng.choice([0, 1, len(content) // 2, len(content) - 1, rng.randrange(len(content))])
    return Mutant(content[:length], f"cut to {length} bytes")


def zeroed(content: bytes, rng: random.Random) -> Mutant:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice([1, 8, 512]))
    return Mutant(content[:start] + bytes(end - start) + content[end:], f"zeros {start} to {end}")


def swollen(content: bytes, rng: random.Random) -> Mutant:
    place = rng.randrange(len(content) + 1)
    added = rng.choice([b"\x00" * 100, b"[" * 20_000, b'{"a":' * 5_000, rng.randbytes(64), b"\n\n"])
    return Mutant(content[:place] + added + content[place:], f"{len(added)} bytes more at {place}")


def repeated(content: bytes, rng: random.Random) -> Mutant:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randrange(1, 200))
    return Mutant(content[:end] + content[start:], f"bytes {start} to {end} twice")


BYTES: tuple[Mutate, ...] = (flipped, flipped, cut, zeroed, swollen, repeated)

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2.5, -0.0, 1e308, 5e-324, 10**30, -(10**30), "", "no", "128k",
    "\x1b[31m\x00\u202e", "[/nope]", "../../etc/passwd", "x" * 5_000, [], {}, [[]], [None],
    {"rope_type": "evil"}, {"factor": 1e308}, list(range(200)), "evil",
)  # fmt: skip


def edited(content: bytes, rng: random.Random) -> Mutant:
    """Another value in one place of a JSON file, one key less, or one more."""
    value = json.loads(content)
    places = list(_places(value))
    holder, key, path = rng.choice(places)
    kind = rng.choice(["value", "value", "value", "dropped", "added", "scaled"])
    if kind == "dropped":
        del holder[key]
    elif kind == "added" and isinstance(holder, dict):
        holder[rng.choice(["rope_theta", "rope_scaling", "factor", "\x1b[31m", "a" * 5_000])] = (
            rng.choice(HOSTILE)
        )
    elif kind == "scaled" and isinstance(holder[key], int | float):
        holder[key] *= rng.choice([-1, 0, 2, 7, 1e3, 1e30])
    else:
        kind = "value"
        holder[key] = rng.choice(HOSTILE)
    return Mutant(json.dumps(value).encode(), f"{kind} at {path}")


def doubled_key(content: bytes, rng: random.Random) -> Mutant:
    """A JSON object that says one thing twice: parsers disagree on which counts."""
    value = json.loads(content)
    if not isinstance(value, dict) or not value:
        return cut(content, rng)
    key = rng.choice(sorted(value))
    again = f"{json.dumps(key)}: {json.dumps(rng.choice(HOSTILE))}"
    return Mutant(b"{" + again.encode() + b"," + content.strip()[1:], f"{key[:40]} twice")


JSON: tuple[Mutate, ...] = (edited, edited, edited, edited, doubled_key, flipped, cut, swollen)


def _places(value: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Each member of a JSON value, with what holds it; of a long list, the first few."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value[:3])
    for key, item in members:
        place = f"{path}.{str(key)[:40]}"
        yield value, key, place
        yield from _places(item, place)


def header(content: bytes, rng: random.Random) -> Mutant:
    """A safetensors file whose header lies."""
    (length,) = struct.unpack("<Q", content[:8])
    if rng.random() < 0.25:
        lie = rng.choice([0, 1, length - 8, length + 8, 2**40, 2**63])
        return Mutant(struct.pack("<Q", lie) + content[8:], f"header of {lie} bytes")
    changed, done = edited(content[8 : 8 + length], rng)
    return Mutant(struct.pack("<Q", len(changed)) + changed + content[8 + length :], done)


def line(content: bytes, rng: random.Random) -> Mutant:
    """A journal with one line less, twice, elsewhere, or torn."""
    lines = content.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    kind = rng.choice(["dropped", "twice", "torn", "moved"])
    taken = lines.pop(place)
    if kind == "twice":
        lines[place:place] = [taken, taken]
    elif kind == "torn":
        lines.insert(place, taken[: rng.randrange(len(taken))])
    elif kind == "moved":
        lines.insert(rng.randrange(len(lines) + 1), taken)
    return Mutant(b"".join(lines), f"line {place} {kind}")


def mutants(content: bytes, ways: tuple[Mutate, ...], count: int, seed: int) -> Iterator[Mutant]:
    """So many damaged copies, none of them equal to the original."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        mutant = ways[made % len(ways)](content, rng)
        if mutant.content != content:
            made += 1
            yield mutant
