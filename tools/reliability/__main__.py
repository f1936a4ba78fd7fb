"""Runs rows of faults, and writes their counts into docs/reliability.md."""

from __future__ import annotations

import argparse
import os
import sys

# Before numpy or torch is imported: children compute on one core each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tools.reliability.page import write_page
from tools.reliability.row import all_rows
from tools.reliability.running import run_finds, run_row


def main(words: list[str] | None = None) -> int:
    rows = all_rows()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"all, or some of {', '.join(rows)}")
    parser.add_argument("--count", type=int, help="cases of each row (default: those planned)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="at most, for each row")
    parser.add_argument("--again", action="store_true", help="from the first case on")
    parser.add_argument("--finds", action="store_true", help="those that were not as expected")
    given = parser.parse_args(words)
    for name in given.rows or rows:
        if name not in rows:
            parser.error(f"{name} is not a row; rows are {', '.join(rows)}")
    wrong = 0
    for name in given.rows or rows:
        row = rows[name]
        count = row.planned if given.count is None else given.count
        if given.finds:
            counts = run_finds(row)
        else:
            counts = run_row(row, count, given.seed, given.minutes, again=given.again)
        print(file=sys.stderr)
        wrong += sum(counts.finds.values())
    write_page()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
