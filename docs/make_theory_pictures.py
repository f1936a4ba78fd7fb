"""The pictures of docs/theory.md, from the code and from the bounds in benchmarks/results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.theory import results
from docs import theory_charts
from docs.figures import Picture, Sentence
from ropewalk.models import catalogue
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend
from ropewalk.reports.figures import figure
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.theory.coverage import TURN, coverage
from ropewalk.theory.decay import decay, score_bound, similarity_advantage
from ropewalk.theory.table import safe_base

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET = 32768


def llama_2() -> RotarySchedule:
    return present_plan(catalogue.find("llama-2-7b").config).longest()


def advantages() -> Figure:
    """B(m) of six schedules for Llama 2 at 32k."""
    start = llama_2()
    base = safe_base(128, TARGET).value
    shown = {
        "as it is": start,
        "ntk": extend(start, TARGET, "ntk"),
        "yarn": extend(start, TARGET, "yarn"),
        "llama3": extend(start, TARGET, "llama3"),
        "linear": extend(start, TARGET, "linear"),
        f"base_change to the safe base, {base:,.0f}": extend(
            start, TARGET, "base_change", {"base": base}
        ),
    }
    distances = np.arange(TARGET)
    strips = []
    for label, schedule in shown.items():
        shares = similarity_advantage(schedule, distances) / schedule.geometry.pairs
        first = decay(schedule, TARGET).first_violation
        strips.append(theory_charts.advantage(label, distances, shares, first))
    title = "Llama 2 (base 10,000, 4k) at 32k"
    return figure(strips, title, size=(8.5, 1.3), strips=True)


def score_bounds() -> Figure:
    """Eq. 14 at three bases, smoothed: single distances jump up and down."""
    distances = np.arange(0, 8192)
    curves = {}
    for base in (500.0, 1e4, 1e6):
        schedule = RotarySchedule.plain(RotaryGeometry(128, 128, base, 4096))
        values = score_bound(schedule, distances)
        means = (values / values[0]).reshape(-1, 32).mean(axis=1)
        curves[f"base {base:,.0f}"] = distances[::32], means
    title = "Upper bound of the attention score, means of 32"
    return figure([theory_charts.score_bounds(curves, title)], size=(8, 4))


def angles() -> Figure:
    """The slowest pair from 4k to 32k in three ways."""
    start = llama_2()
    small = RotarySchedule.plain(replace(start.geometry, base=500.0))
    shown = [
        ("base 10,000 as it is", start, start),
        ("base 500, trained so", small, small),
        ("base 10,000 extended by ntk", extend(start, TARGET, "ntk"), start),
    ]
    distances = np.arange(TARGET)
    strips = []
    for label, schedule, trained in shown:
        turned = distances * schedule.inverse_frequencies[-1]
        seen = coverage(schedule, TARGET, trained=trained).seen[-1]
        new = turned % TURN > seen * (1 + 1e-9)
        strips.append(theory_charts.angles(label, distances, np.cos(turned), 4096, new))
    title = "The slowest pair of Llama 2, trained at 4k, at 32k"
    return figure(strips, title, size=(8, 1.5), strips=True)


def pictures() -> dict[str, Picture]:
    bounds = results()
    drawn = {
        "bound": bounds["bounds"].figure(),
        "islands": bounds["islands"].figure(),
        "advantage": advantages(),
        "score_bound": score_bounds(),
        "angles": angles(),
    }
    return {f"docs/images/{name}.png": Picture(figure) for name, figure in drawn.items()}


def sentences() -> list[Sentence]:
    start = llama_2()
    length = start.geometry.original_length
    below = int((similarity_advantage(start, np.arange(length)) < 0).sum())
    return [
        Sentence(
            "docs/theory.md",
            "random keys beat similar ones at {} of its {} distances",
            (str(below), str(length)),
        )
    ]
