"""The errors of exp, cos and sin in compiled loops: the assumption under the certified bounds.

    python -m benchmarks.libm          prints the margins and writes results/libm.json

The rounding bounds of `ropewalk/theory/kernels.py` allow exp a relative error of 2u, and cos and
sin an absolute one of 2u, with u = 2⁻⁵³. The arguments are those that occur: −sβ with the exponents
of a head of 256 and 0 ≤ β ≤ 30, and the angles m·exp(−sβ) of positions up to 2²⁴, those nearest to
a multiple of π among them. The true values come from mpmath with 50 digits.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import cast

import mpmath  # type: ignore[import-untyped]
import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.machine import machine
from docs.figures import Sentence
from ropewalk.outputs import write_atomically
from ropewalk.theory.bound import MAX_BOUND_LENGTH
from ropewalk.theory.kernels import UNIT_ROUNDOFF

RESULT = Path(__file__).parent / "results" / "libm.json"
ALLOWED = 2.0
"""In units of u = 2⁻⁵³."""
ARGUMENTS = 200_000
Floats = NDArray[np.float64]


def _computed(exponents: Floats, positions: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """The powers exp(−sβ), the angles, their cos and sin, computed as in `kernels.evaluate`."""
    powers, angles = np.empty_like(exponents), np.empty_like(exponents)
    cosines, sines = np.empty_like(exponents), np.empty_like(exponents)
    for i in range(len(exponents)):
        powers[i] = math.exp(-exponents[i])
        angles[i] = positions[i] * powers[i]
        cosines[i] = math.cos(angles[i])
        sines[i] = math.sin(angles[i])
    return powers, angles, cosines, sines


computed = cast(
    "Callable[[Floats, Floats], tuple[Floats, Floats, Floats, Floats]]", njit(_computed)
)


def largest_errors(arguments: int, seed: int = 0) -> dict[str, float]:
    """The largest error of each function in units of u: relative for exp, absolute otherwise."""
    random = np.random.default_rng(seed)
    exponents = random.integers(0, 128, arguments) / 128 * random.uniform(0, 30, arguments)
    # Positions up to 2²⁴, small ones as often as large ones, and those nearest to multiples of π.
    positions = np.floor(np.exp(random.uniform(0, np.log(MAX_BOUND_LENGTH), arguments)))
    near = [3, 22, 333, 355, 103993, 104348, 208341, 312689, 833719, 1146408, 4272943, 5419351]
    positions[: len(near)], exponents[: len(near)] = near, 0
    powers, angles, cosines, sines = computed(exponents, positions)
    largest = {"exp": 0.0, "cos": 0.0, "sin": 0.0}
    with mpmath.workdps(50):
        for i in range(arguments):
            power = mpmath.exp(-mpmath.mpf(exponents[i]))
            cosine, sine = mpmath.cos_sin(mpmath.mpf(angles[i]))
            for name, error in (
                ("exp", (powers[i] - power) / power),
                ("cos", cosines[i] - cosine),
                ("sin", sines[i] - sine),
            ):
                largest[name] = max(largest[name], float(abs(error)) / UNIT_ROUNDOFF)
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arguments", type=int, default=ARGUMENTS)
    parser.add_argument("--output", type=Path, default=RESULT)
    chosen = parser.parse_args()
    largest = largest_errors(chosen.arguments)
    for name, error in largest.items():
        print(f"{name}: {error:.4f} u of {ALLOWED:g} u allowed, {chosen.arguments:,} arguments")
    result = {
        "command": "python -m benchmarks.libm",
        "machine": machine(),
        "arguments": chosen.arguments,
        "allowed_in_u": ALLOWED,
        "largest_error_in_u": largest,
    }
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(chosen.output, json.dumps(result, indent=2) + "\n")


def sentences() -> list[Sentence]:
    results = json.loads(RESULT.read_text())
    worst = results["largest_error_in_u"]
    figures = (f"{worst['exp']:.2f}", f"{worst['cos']:.3f}", f"{worst['sin']:.3f}")
    return [
        Sentence(
            "docs/theory.md",
            "against mpmath on {} arguments of the kind that occurs: at most {} u for exp, {} u "
            "for cos and {} u for sin",
            (f"{results['arguments']:,}", *figures),
            holds=max(worst.values()) < ALLOWED,
        )
    ]


if __name__ == "__main__":
    main()
