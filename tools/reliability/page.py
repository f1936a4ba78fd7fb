"""The table of docs/reliability.md, from the counts that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs import figures
from tools.reliability.row import all_rows
from tools.reliability.running import recorded

ROOT = Path(__file__).parents[2]
PAGE = "docs/reliability.md"


def blocks() -> dict[str, str]:
    return {PAGE: "\n".join(_lines())}


def _lines() -> Iterator[str]:
    rows = all_rows()
    kept = {name: recorded(name) for name in rows}
    yield "| row | fault | expected | planned | ran | not as expected | core seconds | commit |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, row in rows.items():
        counts = kept[name]
        numbers = (row.planned, counts.done, sum(counts.finds.values()), round(counts.cpu_seconds))
        told = " | ".join(f"{number:,}" for number in numbers)
        yield f"| {name} | {row.how} | {row.expected} | {told} | {counts.commit or 'none'} |"
    yield ""
    where = sorted({(counts.machine, counts.date) for counts in kept.values() if counts.machine})
    if where:
        yield figures.paragraph(
            "Measured on " + "; ".join(f"{machine}, {date}" for machine, date in where) + "."
        )
    for title, told_of in (
        ("Not as expected in the last run:", {n: c.finds for n, c in kept.items()}),
        ("Not run, and why:", {n: c.not_run for n, c in kept.items()}),
    ):
        lines = [
            f"- {name}: {_plain(said)} ({number:,})"
            for name, all_said in told_of.items()
            for said, number in list(all_said.items())[:20]
        ]
        if lines:
            yield from ("", title, "", *lines)
    mended = [f"- {name}: {each}" for name, row in rows.items() for each in row.mended]
    if mended:
        title = "Found by these runs or while they were written, and mended with a test each:"
        yield from ("", title, "", *mended)


def _plain(said: str) -> str:
    """One line of text without markup."""
    return " ".join(said.split()).replace("<", "(").replace(">", ")").replace("|", "/")[:300]


def write_page() -> None:
    """The table of the page, in place."""
    path = ROOT / PAGE
    source = figures.Source("tools.reliability.page", blocks(), [], {})
    text = {PAGE: path.read_text(encoding="utf-8")}
    path.write_text(figures.with_figures(text, [source], print)[PAGE], encoding="utf-8")
