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

from benchmarks.machine import machine, measured_on
from ropewalk.data.corpora import standard_library

MEGABYTES = (1, 9, 100)
RESULTS = Path(__file__).parent / "results" / "long_document.json"


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


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = [
        "| document | tokens | peak of `data build` | of which before it |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {own['megabytes']} MB | {own['tokens']:,} | {own['peak_mib']:,} MiB | "
        f"{own['before_mib']:,} MiB |"
        for own in found["documents"]
    ]
    measured = measured_on(found["machine"], "python -m benchmarks.long_document")
    return {"docs/training.md": "\n".join(lines) + f"\n\n{measured}."}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.build:
        build(asked.build)
        return 0
    result = {"machine": machine(), "documents": [peak(size) for size in MEGABYTES]}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
