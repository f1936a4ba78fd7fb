"""The certified infimum of eleven lengths against Su's brute force: `python -m benchmarks.bound`.

Su's procedure, from its description: start with b = 1000 L; for k = 1 … 5 divide (0, b] into 10ᵏ
equal parts, compute min f_b(m) over m < L at every one of the points, and let the smallest that is
not negative be the new b. That is 111,110 passes over L positions for each length, so its cost is
proportional to L. It is run here at 1k to 8k, on all cores and in float32 like the published code,
and its cost at the longer lengths is taken from that law. Ours computes all eleven on one core, in
a fresh process, first with nothing compiled. The ratio is that of processor seconds, which a busy
machine changes little; seconds by the clock stand beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.lengths import format_length
from ropewalk.outputs import write_atomically
from ropewalk.theory.published import LENGTHS, SU_2024

HEAD_DIM = 128
RUN_LENGTHS = (1024, 2048, 4096, 8192)
CHUNK = 2048
"""Positions at once: 64 pairs × 2048 angles stay in the second cache."""
RESULT = Path(__file__).parent / "results" / "bound.json"

OURS = """
import json, resource, sys, time
start = time.perf_counter()
from ropewalk.theory.bound import infima
found = infima({head_dim}, {lengths})
seconds = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
rows = [[row.length, row.low, row.high] for row in found]
print(json.dumps(dict(
    seconds=seconds,
    processor_seconds=usage.ru_utime + usage.ru_stime,
    memory_mb=usage.ru_maxrss / 1024,
    rows=rows,
)))
"""


def least_sum(base: float, length: int) -> float:
    """min f_b(m) over m < length."""
    frequencies = (base ** (-2.0 * np.arange(HEAD_DIM // 2) / HEAD_DIM)).astype(np.float32)
    least = np.inf
    for start in range(0, length, CHUNK):
        positions = np.arange(start, min(length, start + CHUNK), dtype=np.float32)
        angles = np.multiply.outer(frequencies, positions)
        np.cos(angles, out=angles)
        least = min(least, float(angles.sum(axis=0).min()))
    return least


def brute_force(length: int, pool: ThreadPoolExecutor) -> float:
    """Su's procedure."""
    base = 1000.0 * length
    for k in range(1, 6):
        grid: NDArray[np.float64] = np.linspace(0, 1, 10**k + 1)[1:] * base
        pieces = np.array_split(grid, 8 * (os.cpu_count() or 1))
        sums = pool.map(lambda bases: [least_sum(b, length) for b in bases], pieces)
        works = np.concatenate([np.array(piece) for piece in sums]) >= 0
        base = float(grid[int(np.argmax(works))])
    return base


def ours(cache: str) -> dict[str, Any]:
    """The eleven infima in a fresh process, its import and compilation included."""
    code = OURS.format(head_dim=HEAD_DIM, lengths=list(LENGTHS))
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(shown.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULT)
    output = parser.parse_args().output

    with tempfile.TemporaryDirectory() as cache:
        first = ours(cache)
        again = ours(cache)
    brute = []
    with ThreadPoolExecutor() as pool:
        for length in RUN_LENGTHS:
            clock, processor = time.perf_counter(), time.process_time()
            base = brute_force(length, pool)
            row = {
                "length": length,
                "base": base,
                "seconds": time.perf_counter() - clock,
                "processor_seconds": time.process_time() - processor,
            }
            brute.append(row)
            print(
                f"brute force at {length}: {base:.6g} in {row['seconds']:.0f} s, "
                f"{row['processor_seconds']:.0f} s of processors (printed: {SU_2024[length]:.1e})",
                flush=True,
            )
    law = sum(row["processor_seconds"] for row in brute) / sum(RUN_LENGTHS)
    extrapolated = law * sum(LENGTHS)
    ratio = extrapolated / first["processor_seconds"]
    result = {
        "command": "python -m benchmarks.bound",
        "machine": machine(),
        "head_dim": HEAD_DIM,
        "certified_first_run": first,
        "certified_second_run": again,
        "brute_force": brute,
        "brute_force_processor_seconds_extrapolated": extrapolated,
        "ratio_of_processor_seconds": ratio,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, json.dumps(result, indent=2) + "\n")
    print(
        f"eleven lengths, certified: {first['processor_seconds']:.1f} s of one processor with "
        f"compilation, {again['processor_seconds']:.1f} s after"
    )
    print(f"eleven lengths, brute force: {extrapolated:.0f} s of processors, by its cost law")
    print(f"ratio: {ratio:.0f}, on {machine()['cpu']}")


def blocks() -> dict[str, str]:
    results = json.loads(RESULT.read_text())
    first, again = (results[f"certified_{name}_run"] for name in ("first", "second"))
    certified = {length: (low, high) for length, low, high in first["rows"]}
    worst = max(
        abs(row["base"] / certified[row["length"]][0] - 1) for row in results["brute_force"]
    )
    lengths = [format_length(row["length"]) for row in results["brute_force"]]
    extrapolated = results["brute_force_processor_seconds_extrapolated"]
    return {
        PAGE: paragraph(
            f"The certified {len(first['rows'])} lengths took "
            f"{first['processor_seconds']:.1f} processor seconds with compilation and "
            f"{again['processor_seconds']:.1f} after. The article's procedure was run at "
            f"{lengths[0]} to {lengths[-1]}, and ended within {_up(worst)} of the certified "
            f"values. By its cost law, all lengths would take {extrapolated:,.0f} seconds ("
            f"{measured_on(results['machine'], results['command'])}; "
            "[results](../benchmarks/results/bound.json))."
        )
    }


def _up(value: float) -> str:
    """The next power of ten."""
    return f"1e{math.ceil(math.log10(value))}"


if __name__ == "__main__":
    main()
