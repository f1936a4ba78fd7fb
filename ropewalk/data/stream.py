"""The windows of epoch after epoch, as one long list, which a training run reads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from ropewalk.data.windows import Window, Windows
from ropewalk.errors import InputError


class WindowStream(Sequence[Window]):
    """The first `count` windows. The i-th does not depend on how many are read, or by whom."""

    def __init__(self, epoch: Callable[[int], Windows], count: int) -> None:
        self._epoch, self._count = epoch, count
        self._ends: list[int] = []
        """The number of windows up to the end of each epoch seen so far."""
        self._current: Windows | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Window:  # type: ignore[override]
        epoch, place = self.place(range(self._count)[index])
        return self._windows(epoch)[place]

    def place(self, index: int) -> tuple[int, int]:
        """The epoch of a window, and its place there."""
        while not self._ends or self._ends[-1] <= index:
            before = self._ends[-1] if self._ends else 0
            own = len(self._windows(len(self._ends)))
            if own == 0:
                raise InputError(
                    f"epoch {len(self._ends)} has no windows; build a store with more text"
                )
            self._ends.append(before + own)
        epoch = bisect_right(self._ends, index)
        return epoch, index - (self._ends[epoch - 1] if epoch else 0)

    def _windows(self, epoch: int) -> Windows:
        if self._current is None or self._current.epoch != epoch:
            self._current = self._epoch(epoch)
        return self._current

    def __getstate__(self) -> dict[str, Any]:
        """Another process finds out itself which documents go where."""
        return {**self.__dict__, "_current": None}
