"""The bounds that docs/theory.md shows, as `ropewalk bound --json` gives them.

    python -m benchmarks.theory        about two minutes; writes results/theory.json

The page's table, its figures and two of its pictures are made from this file (`make figures`).
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import ropewalk as rw
from benchmarks.machine import machine
from docs.figures import Sentence
from ropewalk.api.bound import Bound, Bounds
from ropewalk.lengths import format_length
from ropewalk.outputs import write_atomically
from ropewalk.theory.published import MEN_2024, SU_2024

RESULTS = Path(__file__).with_name("results") / "theory.json"
PAGE = "docs/theory.md"
WITH_ISLANDS = tuple(1024 << i for i in range(7))
PARTIAL = (4096, 96)


def main() -> None:
    length, rotating = PARTIAL
    found = {
        "bounds": rw.bound(),
        "islands": rw.bound(WITH_ISLANDS, islands=True),
        "partial": rw.bound(length, rotary_dim=rotating),
        "half": rw.bound(length, rotary_dim=64),
    }
    content = {
        "command": "python -m benchmarks.theory",
        "machine": machine(),
        **{name: value.to_json() for name, value in found.items()},
    }
    write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")


def results() -> dict[str, Bounds]:
    content = json.loads(RESULTS.read_text())
    return {
        name: Bounds.from_json(value)
        for name, value in content.items()
        if name not in ("command", "machine")
    }


def blocks() -> dict[str, str]:
    return {PAGE: "\n".join(_table(results()["bounds"].rows))}


def _table(rows: tuple[Bound, ...]) -> list[str]:
    lines = [
        "| length | Men et al. | Su | infimum | safe base | L/x₀ |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        shown = [
            *(f"{row.published[name] or 0:.1e}".replace("e+0", "e") for name in row.published),
            *(f"{value:#,.10g}".rstrip(".") for value in (row.infimum or 0, row.safe or 0)),
            f"{row.asymptotic or 0:,.0f}",
        ]
        lines.append(f"| {format_length(row.length)} | {' | '.join(shown)} |")
    return lines


def sentences() -> list[Sentence]:
    found = results()
    widest = found["islands"].rows[-1]
    (partial,), (half,) = (found[name].rows for name in ("partial", "half"))
    full = next(row for row in found["bounds"].rows if row.length == partial.length)
    infima = {row.length: _known(row.infimum) for row in found["bounds"].rows}
    below = [n for n, value in infima.items() if _two_digits(value) < MEN_2024[n]]
    rows = found["bounds"].rows
    times = [_known(row.infimum) / _known(row.asymptotic) for row in (rows[0], rows[-1])]
    return [
        Sentence(
            PAGE,
            "For L = 65,536 and d = 128 there are {} islands, from the infimum at {} million "
            "to {} million; they cover {} % of that range",
            (
                str(len(widest.islands or ())),
                f"{_known(widest.infimum) / 1e6:.2f}",
                f"{_known(widest.safe) / 1e6:.1f}",
                f"{100 * _covered(widest):.0f}",
            ),
        ),
        Sentence(
            PAGE,
            "the infimum is {} and the safe base {}, instead of {} and {}; with 64 rotating",
            (
                f"{_known(partial.infimum):.4g}",
                *(f"{_known(value):,.0f}" for value in (partial.safe, full.infimum, full.safe)),
            ),
            holds=half.infimum == 1.0,
        ),
        Sentence(
            PAGE,
            "To two digits the certified infimum is the article's value at all eleven lengths",
            holds=all(_two_digits(value) == SU_2024[n] for n, value in infima.items()),
        ),
        Sentence(
            PAGE,
            "it lies below the paper's in seven of them ({})",
            (", ".join(map(format_length, below)),),
            holds=len(below) == 7,
        ),
        Sentence(
            PAGE,
            "base {} times (at 1k) to {} times (at 1M) as large as L/x₀",
            (f"{times[0]:.1f}", f"{times[1]:.0f}"),
        ),
    ]


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _two_digits(value: float) -> float:
    return float(f"{value:.1e}")


def _covered(row: Bound) -> float:
    """The islands' share of the logarithmic range between infimum and safe base."""
    covered = math.fsum(math.log(high / low) for low, high in row.islands or ())
    return covered / math.log(_known(row.safe) / _known(row.infimum))


if __name__ == "__main__":
    main()
