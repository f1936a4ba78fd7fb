"""Records that tests make up, and what they assert of numbers that may be missing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from ropewalk.interval import Ends
from ropewalk.records import EvalRecord
from ropewalk.run_directory import EVENTS, KEPT, RECORDS, RESULTS, Journal

T = TypeVar("T")
SEALS = ("follows", "sha256")
"""Keys that a journal adds to a record."""


def record(method: str, sample: str, score: float, **changes: Any) -> EvalRecord:
    """An answer to a sample that reads a text of its own."""
    return EvalRecord(
        **{
            "method": method,
            "plan_id": f"plan of {method}",
            "weights": "0f" * 8,
            "task": "needle",
            "mode": "teacher_forced",
            "metric": "exact_match",
            "length": 512,
            "sample": sample,
            "layout": sample,
            "score": score,
            **changes,
        }
    )


def known(value: T | None) -> T:
    """The value, which must be there."""
    assert value is not None
    return value


def width(interval: Ends | None) -> float:
    low, high = known(interval)
    return high - low


def resealed(run: Path, *names: str) -> None:
    """A run whose events vouch for its files as they are now."""
    (run / EVENTS).unlink()
    journal = Journal(run / EVENTS)
    digests = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}
    journal.append({"event": KEPT, "file": n, "digest": d} for n, d in digests.items())
    journal.close()


def rebound(run: Path) -> None:
    """A run whose records are those of its configuration as it is now."""
    rewritten(run / RECORDS)
    resealed(run, RESULTS)


def rewritten(journal: Path) -> None:
    """A journal whose lines are those of the run that it lies in."""
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    journal.unlink()
    again = Journal(journal)
    again.append({k: v for k, v in line.items() if k not in SEALS} for line in lines)
    again.close()
