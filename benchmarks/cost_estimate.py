"""The predictions of `extend --dry-run`, compared with the stages of the demo.

    python -m benchmarks.cost_estimate [--runs N]

The times of the stages are those of the run's own events.jsonl. Each run makes its estimate first,
on the same machine in the same minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ropewalk as rw
from ropewalk.pipeline.cost import Estimate
from ropewalk.pipeline.extend import USED
from ropewalk.run_directory import EVENTS, read_journal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    runs = [_run() for _ in range(arguments.runs)]
    for run in runs:
        for row in run["stages"]:
            inside = row["low"] <= row["took"] <= row["high"]
            print(
                f"{row['stage']:>9}  {row['low']:6.1f} to {row['high']:6.1f} s promised, "
                f"{row['took']:6.1f} s taken, {row['ratio']:.2f} of the middle"
                f"{'' if inside else '  outside'}"
            )
        print(f"{'all':>9}  {run['promised']:6.1f} s promised, {run['took']:6.1f} s taken\n")


def _run() -> dict[str, Any]:
    estimate = rw.extend.preview()
    assert isinstance(estimate, Estimate)
    with TemporaryDirectory() as folder:
        rw.extend(run=folder)
        took = taken(Path(folder))
    rows = [
        {
            "stage": row.stage,
            "low": row.seconds_low,
            "middle": row.seconds,
            "high": row.seconds_high,
            "took": took[row.stage],
            "ratio": took[row.stage] / row.seconds,
        }
        for row in estimate.stages
        if row.seconds > 0
    ]
    return {
        "stages": rows,
        "promised": estimate.total.middle,
        "took": sum(took.values()),
    }


def taken(run: Path) -> dict[str, float]:
    """The seconds that each stage took."""
    return {
        str(event["stage"]): float(str(event["seconds"]))
        for event in read_journal(run / EVENTS)
        if event["event"] == USED
    }


if __name__ == "__main__":
    main()
