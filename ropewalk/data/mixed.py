"""Windows of two kinds, by turns: long documents for a step of a training, then short ones."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.data.windows import Window


class MixedWindows(Sequence[Window]):
    """So many steps, each of `batch` windows of one kind. The first are long.

    Steps and not windows take turns, because which ones make a step must not depend on the number
    of ranks or on how many windows fit at once, and the windows of a batch follow one schedule.
    """

    def __init__(
        self, long: Sequence[Window], short: Sequence[Window], batch: int, steps: int
    ) -> None:
        self._by_turns, self._batch, self._steps = (long, short), batch, steps

    def __len__(self) -> int:
        return self._steps * self._batch

    def __getitem__(self, index: int) -> Window:  # type: ignore[override]
        step, place = divmod(range(len(self))[index], self._batch)
        turn, own = step % 2, step // 2
        return self._by_turns[turn][own * self._batch + place]


def long_steps(steps: int) -> int:
    """The number of steps, of the first `steps`, with long windows."""
    return (steps + 1) // 2
