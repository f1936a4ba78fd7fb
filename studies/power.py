"""The power of a comparison, simulated before its first run.

    python -m studies.power EFFECT SPREAD UNITS

A study draws so many units (seeds of one shape, or texts), each with a difference that has the
paper's effect as its mean and the spread that earlier cells show. The power is the share of such
studies that end in *seen*: the 95% interval of the mean lies above zero. Without the effect, at
most one in forty may.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from docs.figures import paragraph
from ropewalk.evaluation.statistics import t_quantile

STUDIES = 20_000
ENOUGH = 0.8
"""The least power that a study is run with."""


class Effect(NamedTuple):
    """A difference that a claim rests on, in the claim's unit."""

    words: str
    mean: float
    """With the sign that the claim gives it; a margin is already added."""
    spread: float
    """The standard deviation between units."""


class Power(NamedTuple):
    """All effects of a claim, which must show together."""

    effects: Sequence[Effect]
    units: int
    of: str
    """The name of the units."""
    source: str
    """Of means and spreads."""

    @property
    def seen(self) -> float:
        return self._share([each.mean for each in self.effects])

    @property
    def false(self) -> float:
        """The share of studies that see the first effect where there is none."""
        return self._share([0.0], self.effects[:1])

    def _share(self, means: Sequence[float], effects: Sequence[Effect] | None = None) -> float:
        random = np.random.default_rng(0)
        shown = np.ones(STUDIES, dtype=bool)
        for mean, effect in zip(means, effects or self.effects, strict=True):
            drawn = random.normal(mean, effect.spread, (STUDIES, self.units))
            error = drawn.std(axis=1, ddof=1) / self.units**0.5
            shown &= drawn.mean(axis=1) > t_quantile(self.units - 1) * error
        return float(shown.mean())

    def shown(self) -> str:
        effects = "; ".join(
            f"{each.words}: {each.mean:+.3f}, spread {each.spread:.3f}" for each in self.effects
        )
        return paragraph(
            f"{effects} ({self.source}). With {self.units} {self.of}, {STUDIES:,} simulated "
            f"studies see this in {self.seen:.0%} of cases, and the first part without an effect "
            f"in {self.false:.1%}."
        )


if __name__ == "__main__":
    mean, spread, units = sys.argv[1:]
    effects = [Effect("the effect", float(mean), float(spread))]
    print(Power(effects, int(units), "units", "as given").shown())
