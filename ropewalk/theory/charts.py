"""Charts of the theory: the bound against length, islands of bases.

Their values are computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ropewalk.chart import Axis, Chart, Mark, Series
from ropewalk.lengths import format_length

BLUE, ORANGE, GREEN, RED, GREY = 0, 1, 2, 3, 7


def bounds(
    curves: Sequence[Series], models: Iterable[tuple[str, int, float]], title: str = ""
) -> Chart:
    """Bases against lengths, both logarithmic, with models (name, length, base) as points."""
    at: dict[tuple[int, float], list[str]] = {}
    for name, *place in models:
        at.setdefault((int(place[0]), float(place[1])), []).append(name)
    marks = tuple(Mark(*place, name=", ".join(names)) for place, names in at.items())
    points = (Series("models", marks, True, 5, "points"),) if marks else ()
    x, y = Axis("context length", "log2", "length"), Axis("base", "log10")
    return Chart(title, x, y, (*curves, *points))


def islands(
    strips: Sequence[tuple[int, Sequence[tuple[float, float]], float]], title: str = ""
) -> Chart:
    """A bar a length, coloured where bases work: islands, then everything from the safe base on."""
    end = 3 * max(safe for _, _, safe in strips)
    series = tuple(
        Series("", tuple(Mark(base, row, row - 0.3, row + 0.3) for base in edge), look=look,
               drawn="band")
        for row, (_, edges, safe) in enumerate(strips)
        for look, edge in (*((BLUE, edge) for edge in edges), (GREEN, (safe, end)))
    )  # fmt: skip
    names = tuple(format_length(length) for length, _, _ in strips)
    return Chart(title, Axis("base", "log10"), Axis("context length", names=names), series)
