"""Random draws that depend on a name and on nothing else.

Every sample has a stream of its own, keyed by what it is, so that sample 7 is the same whether it
is one of fifty or one of five hundred. Only the raw words of Philox are used, which numpy keeps
stable across versions; its distributions are not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
GOLDEN, SILVER = (5**0.5 - 1) / 2, 2**0.5 - 1


class Stream:
    """Draws keyed by the values of a name."""

    def __init__(self, *name: object) -> None:
        self._bits = np.random.Philox(key=int.from_bytes(_digest(name)[:16], "little"))

    def below(self, count: int) -> int:
        """A whole number from 0 to count − 1."""
        return (int(self._bits.random_raw()) * count) >> 64

    def choice(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def sample(self, count: int, size: int) -> list[int]:
        """`size` different numbers below `count`; fewer of them are a prefix of more."""
        assert size <= count
        moved: dict[int, int] = {}  # of a shuffled range(count), the places that changed
        drawn = []
        for i in range(size):
            j = i + self.below(count - i)
            drawn.append(moved.get(j, j))
            moved[j] = moved.get(i, i)
        return drawn

    def rows(self, count: int, columns: int) -> list[list[int]]:
        """Whole numbers below 2**64 at once; fewer rows are a prefix of more."""
        return self._bits.random_raw(count * columns).reshape(count, columns).tolist()

    def shuffled(self, items: Sequence[T]) -> list[T]:
        order = np.argsort(self._bits.random_raw(len(items)), kind="stable")
        return [items[i] for i in order.tolist()]

    def word(self, letters: str, size: int) -> str:
        return "".join(self.choice(letters) for _ in range(size))


def spread(index: int, *name: object, step: float = GOLDEN) -> float:
    """The index-th of a sequence in [0, 1) of which every beginning is evenly spread.

    Two sequences for the same samples take different steps, or they would go together.
    """
    offset = Stream(*name).below(2**32) / 2**32
    return (offset + index * step) % 1.0


def identity(*name: object) -> str:
    """A SHA-256 that identifies what something was made from."""
    return _digest(name).hex()


def _digest(name: Sequence[object]) -> bytes:
    return hashlib.sha256(json.dumps(name, sort_keys=True, allow_nan=False).encode()).digest()
