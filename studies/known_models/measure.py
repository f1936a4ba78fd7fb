"""The bound against the effective lengths that RULER's authors publish, on known models.

make study NAME=known_models        seconds; nothing is run but formulas
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from docs.figures import paragraph
from ropewalk.interval import Ends
from ropewalk.models.source import resolve
from ropewalk.scaling import named
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.theory.decay import decay
from studies.claims import Verdict

FILE = Path(__file__).with_name("models.json")
PAGE = "studies/known_models/README.md"
LONGEST = 2**20
CLAIM, SOURCE = "L_θ ranks known models as RULER does", "Men et al. 2024, Eq. 17"
RESERVATION = "models of many kinds of training; configs partly from knowledge"
HOPED, STUDIES = 0.7, 20_000
"""The correlation that the power is simulated for: the paper says that the bound approximates the
real length, and small models gave 0.96 over the bases of one model."""


class Known(NamedTuple):
    name: str
    vendor: str
    claimed: int
    effective: int
    """RULER's; a power of two, of which only the order counts."""
    reach: int
    """L_θ (Eq. 17) under the model's own schedule, at most a million."""


@cache
def models() -> list[Known]:
    stated = json.loads(FILE.read_text("utf-8"))["models"]
    return [
        Known(
            own["name"],
            own["vendor"],
            own["claimed"],
            own["effective"],
            decay(schedule_of(own), LONGEST).effective_length or LONGEST,
        )
        for own in stated
    ]


def schedule_of(own: dict[str, Any]) -> RotarySchedule:
    if "catalogue" in own:
        return resolve(own["catalogue"]).present_plan.longest()
    geometry = RotaryGeometry(own["head_dim"], own["rotary_dim"], own["base"], own["original"])
    plain = RotarySchedule.plain(geometry)
    if "method" not in own:
        return plain
    return named(own["method"])(plain, own["claimed"], factor=float(own["factor"]))


def correlation(of: str) -> tuple[float, Ends, int]:
    """Spearman's over vendors, each the mean of its models' ranks, with Fisher's interval."""
    ranks = {key: _ranks([getattr(own, key) for own in models()]) for key in ("effective", of)}
    vendors = [own.vendor for own in models()]
    means = [
        [np.mean([rank for rank, own in zip(each, vendors, strict=True) if own == vendor])
         for vendor in dict.fromkeys(vendors)]
        for each in ranks.values()
    ]  # fmt: skip
    count = len(means[0])
    first, second = map(_ranks, means)
    found = float(np.corrcoef(first, second)[0, 1])
    half = 1.96 / math.sqrt(count - 3)
    low, high = (math.tanh(math.atanh(min(found, 1 - 1e-12)) + sign * half) for sign in (-1, 1))
    return found, (low, high), count


def verdict() -> Verdict:
    _, (low, high), _ = correlation("reach")
    if low > 0:
        return "seen"
    return "contradicted" if high < 0 else "undecided"


def power(vendors: int, true: float) -> float:
    """The share of simulated sets of vendors whose interval lies above zero."""
    random = np.random.default_rng(0)
    one = random.normal(size=(STUDIES, vendors))
    other = true * one + math.sqrt(1 - true**2) * random.normal(size=(STUDIES, vendors))
    ranked = [each.argsort(axis=1).argsort(axis=1).astype(float) for each in (one, other)]
    centred = [each - each.mean(axis=1, keepdims=True) for each in ranked]
    found = (centred[0] * centred[1]).sum(axis=1) / (centred[0] ** 2).sum(axis=1)
    return float((np.arctanh(found.clip(-0.999, 0.999)) > 1.96 / math.sqrt(vendors - 3)).mean())


def told_power() -> str:
    vendors = len({own["vendor"] for own in json.loads(FILE.read_text("utf-8"))["models"]})
    return paragraph(
        f"With {vendors} vendors, {STUDIES:,} simulated studies see a correlation of {HOPED} in "
        f"{power(vendors, HOPED):.0%} of cases, and none in {power(vendors, 0.0):.1%}."
    )


def blocks() -> dict[str, str]:
    rows = ["| model | RULER | L_θ | claimed |", "|---|---|---|---|"]
    rows += [
        f"| {own.name} | {_shown(own.effective)} | {_shown(own.reach)} | {own.claimed // 1024:,}k |"
        for own in sorted(models(), key=lambda own: (-own.effective, -own.reach))
    ]
    told = []
    for key, words in (("reach", "L_θ"), ("claimed", "the claimed length")):
        found, (low, high), count = correlation(key)
        told.append(f"with {words} {found:+.2f} ({low:+.2f} to {high:+.2f})")
    said = paragraph(
        f"Rank correlation of RULER's effective length over {count} vendors: {', '.join(told)}. "
        f"Verdict: {verdict()}."
    )
    return {PAGE: f"{told_power()}\n\n{said}\n\n" + "\n".join(rows)}


def row() -> str:
    count = len({own.vendor for own in models()})
    return f"| [{CLAIM}](known_models/README.md) | {SOURCE} | {count} vendors | **{verdict()}** |"


def _ranks(values: Any) -> np.ndarray:
    """Ranks, where equal values share the mean of theirs."""
    array = np.asarray(values, dtype=float)
    return np.array([(array < own).sum() + (array == own).sum() / 2 for own in array])


def _shown(length: int) -> str:
    if length >= LONGEST:
        return "no end below 1M"
    return f"{length / 1024:,.0f}k" if length >= 1024 else str(length)


if __name__ == "__main__":
    print(blocks()[PAGE])
