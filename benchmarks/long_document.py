"""The memory that one document takes as it is tokenised: `python -m benchmarks.long_document`.

Each size is built by `data build` in a process of its own, whose peak is read when it ends.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

from benchmarks.machine import machine
from ropewalk.data.corpora import standard_library

MEGABYTES = (1, 9, 100)


def document(megabytes: int, place: Path) -> None:
    """The modules of the standard library one behind another, as often as it takes."""
    wanted = megabytes * 10**6
    with place.open("w", encoding="utf-8") as file:
        for own in cycle(list(standard_library())):
            if file.tell() >= wanted:
                return
            file.write(own.text[: wanted - file.tell()])


def peak(megabytes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        document(megabytes, place / "text.txt")
        command = [sys.executable, "-m", "benchmarks.long_document", "--build", name]
        begun = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        taken = json.loads(done.stdout.splitlines()[-1])
        return {
            "megabytes": megabytes,
            "tokens": taken["tokens"],
            "peak_mib": round(taken["peak"] / 1024),
            "before_mib": round(taken["before"] / 1024),
            "seconds": round(time.perf_counter() - begun),
        }


def build(place: Path) -> None:
    import ropewalk as rw
    from ropewalk.evaluation.encoding import Encoder
    from ropewalk.models.load import load_tokenizer
    from ropewalk.models.source import resolve

    Encoder(load_tokenizer(resolve("bundled").folder)).batch(["warm"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    built = rw.build_data("bundled", place / "text.txt", place / "tokens")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"tokens": built.tokens, "before": before, "peak": after}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="*", default=MEGABYTES)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.build:
        build(asked.build)
        return
    result = {"machine": machine(), "documents": [peak(size) for size in asked.megabytes]}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
