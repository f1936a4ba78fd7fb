"""Up to which length a model works: pass, fail or undecided at each. No torch.

A score passes where its whole 95% interval reaches the threshold, fails where all of it lies below,
and is undecided otherwise, also where there are too few samples for an interval. There are two
thresholds, and the effective length is the longest up to which all measured lengths pass:

    ruler   85.6%, the score of Llama-2-7B-chat at 4k by which RULER calls a length effective
            (Hsieh et al. 2024); for the mean of its thirteen tasks
    own     85% of what the model without any plan scores at its original length. The interval is
            that of the score less 85% of the other, paired where both answered the same samples
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, NamedTuple

from ropewalk.evaluation.results import grouped, rates_of
from ropewalk.evaluation.statistics import difference_interval, mean_rate, mean_rate_interval
from ropewalk.interval import Interval
from ropewalk.lengths import format_length
from ropewalk.records import EvalRecord, Mode, OfSubject, Subject

RULER, RULER_GROUP = 0.856, "ruler-syn"
OWN = 0.85

Criterion = Literal["ruler", "own"]
Verdict = Literal["pass", "fail", "undecided"]


class Standing(NamedTuple):
    """A score at one length, minus the threshold."""

    length: int
    margin: Interval

    @property
    def verdict(self) -> Verdict:
        if self.margin.low is not None and self.margin.low >= 0:
            return "pass"
        return "fail" if self.margin.is_below(0) else "undecided"


@dataclass(frozen=True, eq=False)
class EffectiveLength(OfSubject):
    """The length up to which one subject works, by the mean of a group of tasks and a threshold."""

    group: str
    mode: Mode
    criterion: Criterion
    threshold: float
    """The mean score to reach, from 0 to 1."""
    standings: tuple[Standing, ...]
    """In rising order of lengths."""

    @property
    def passed(self) -> int | None:
        """The longest length up to which every measured one passes."""
        return self._last(lambda verdict: verdict == "pass")

    @property
    def possible(self) -> int | None:
        """The longest length up to which no measured one fails: the effective length is not beyond
        it, as far as was measured."""
        return self._last(lambda verdict: verdict != "fail")

    def _last(self, holds: Callable[[Verdict], bool]) -> int | None:
        """The longest length that holds, with all below it."""
        held = takewhile(lambda standing: holds(standing.verdict), self.standings)
        return max((standing.length for standing in held), default=None)

    def derived(self) -> dict[str, object]:
        verdicts = {str(s.length): s.verdict for s in self.standings}
        return {"passed": self.passed, "possible": self.possible, "verdicts": verdicts}

    def __str__(self) -> str:
        by_verdict: dict[str, list[str]] = {}
        for s in self.standings:
            by_verdict.setdefault(s.verdict, []).append(format_length(s.length))
        verdicts = "; ".join(f"{verdict} at {', '.join(at)}" for verdict, at in by_verdict.items())
        return f"{self._bounds()} ({verdicts})"

    def _bounds(self) -> str:
        passed, possible = self.passed, self.possible
        longest = self.standings[-1].length
        if possible is None:
            return f"below {format_length(self.standings[0].length)}"
        if passed is None:
            return f"undecided up to {format_length(possible)}"
        if passed == longest:
            return f"{format_length(passed)} or more"
        if passed == possible:
            return format_length(passed)
        return f"{format_length(passed)} or more, undecided up to {format_length(possible)}"


def effective_lengths(
    records: Iterable[EvalRecord],
    groups: Mapping[str, Sequence[str]],
    base: Subject | None,
    original_length: int,
) -> list[EffectiveLength]:
    """The effective lengths by subject and group, for both thresholds if they apply.

    `base` is the model without any plan; its own threshold needs its scores at `original_length`.
    """
    cells = grouped(records, lambda r: (r.subject, r.mode, r.length))
    results = []
    for name, members in groups.items():
        rates = {key: each for key, cell in cells.items() if (each := rates_of(cell, members))}
        for subject, mode in dict.fromkeys((subject, mode) for subject, mode, _ in rates):
            by_length = {
                length: rates[subject, mode, length]
                for length in sorted(n for s, m, n in rates if (s, m) == (subject, mode))
            }
            # RULER's fixed threshold is for the mean of its thirteen tasks alone.
            if name == RULER_GROUP:
                standings = []
                for length, tasks in by_length.items():
                    score = Interval.of(mean_rate(tasks), mean_rate_interval(tasks), "share")
                    margin = score.mapped(lambda value: value - RULER, "difference")
                    standings.append(Standing(length, margin))
                results.append(
                    EffectiveLength.of(subject, name, mode, "ruler", RULER, tuple(standings))
                )
            # The model's own threshold: a share of the unmodified model's score within its window.
            reference = None if base is None else rates.get((base, mode, original_length))
            if reference is not None:
                standings = [
                    Standing(
                        length,
                        Interval.of(
                            mean_rate(tasks) - OWN * mean_rate(reference),
                            difference_interval(tasks, reference, OWN),
                            "difference",
                        ),
                    )
                    for length, tasks in by_length.items()
                ]
                fields = (name, mode, "own", OWN * mean_rate(reference), tuple(standings))
                results.append(EffectiveLength.of(subject, *fields))
    return results
