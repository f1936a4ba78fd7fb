"""Benchmarks of cells: each is kept when it is done, so a run that ended early goes on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch

from ropewalk.outputs import write_atomically

C = TypeVar("C", bound=tuple[Any, ...])


def lines(file: Path) -> list[dict[str, Any]]:
    """The finished cells of a file, a line each."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def run_missing(
    about: str,
    file: Path,
    cells: Iterable[C],
    work: Callable[[C], dict[str, Any]],
    shown: Callable[[], dict[str, str]],
) -> None:
    """Run the cells that a file lacks, on one thread, and print the block of a page."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    if not parser.parse_args().report:
        torch.set_num_threads(1)
        done = [tuple(line["cell"]) for line in lines(file)]
        for cell in cells:
            if tuple(cell) not in done:
                kept = file.read_text(encoding="utf-8") if file.exists() else ""
                line = json.dumps(work(cell), separators=(",", ":"))
                write_atomically(file, f"{kept}{line}\n")
                print(cell, flush=True)
    print(next(iter(shown().values())))
