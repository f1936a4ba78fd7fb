"""Search by gradient: a few dozen backward passes move all factors and the scaling at once.

It starts at the last of the space's seeds (YaRN; in recovery, half way between the plain schedule
and the present one) and takes Adam's steps in

    w_i = max(1, 4·turns_i) · change of log λ_i,      z = change of log m

where turns_i is how often pair i turns within the target. A step in w so moves every pair by about
the same phase at the far end of the context. In log λ itself, one step of the size that the slow
pairs need would turn the fast ones out of step with all that was learnt, and the model breaks.

Slopes of single documents are mostly noise, so each step takes some that no step before it has
seen, and what is returned is the mean over the second half of the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ropewalk.errors import InputError
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.driver import Finalist, Progress, Result
from ropewalk.searching.space import Candidate, Space, monotone

PASSES = 96
DOCUMENTS_A_STEP = 4
FACTOR_RATE, SCALING_RATE = 0.1, 0.01
MEAN_DECAY, SQUARE_DECAY = 0.8, 0.95
TURNS = 4.0
FORWARDS_A_PASS = 3
"""What a pass costs: a forward, and a backward of twice that. One more where layers are computed
again."""

Slopes = Callable[[RotarySchedule, Sequence[int]], FloatArray]
"""[documents, 2 + pairs]: the loss, and its slopes by the log λ of each pair that turns and by
log m. A row that is not finite is a pass that failed."""


class _Walk(NamedTuple):
    """Where the walk is, and Adam's two means."""

    place: FloatArray
    """w of every pair, then z."""
    mean: FloatArray
    square: FloatArray
    steps: int

    @classmethod
    def begin(cls, numbers: int) -> _Walk:
        still = np.zeros(numbers)
        return cls(still, still, still, 0)


def descend(
    space: Space,
    slopes: Slopes,
    documents: int,
    tokens_per_document: int,
    *,
    seed: int,
    passes: int = PASSES,
    forwards_a_pass: int = FORWARDS_A_PASS,
    journal: Journal | None = None,
    progress: Callable[[Progress], None] | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> Result:
    """The candidate that the second half of a walk lies around; none for less than a step."""
    steps = passes // DOCUMENTS_A_STEP
    order = order_of(documents, steps * DOCUMENTS_A_STEP, seed)
    if len(set(order)) < len(order):
        notice(
            f"{documents} documents are too few to show each once in {len(order)} passes, and are "
            "repeated; give more text (`corpus`) or more `documents`"
        )
    told = iter(list(journal.records) if journal else [])
    axes, walk = _Axes(space), _Walk.begin(space.pairs + 1)
    places: list[FloatArray] = []
    losses: list[float] = []
    spent = failed = 0

    def ended() -> Candidate:
        return axes.rounded(axes.candidate(np.mean(places or [walk.place], axis=0)))

    for step in range(steps):
        shown = order[step * DOCUMENTS_A_STEP :][:DOCUMENTS_A_STEP]
        candidate = axes.candidate(walk.place)
        line = {"step": step, "documents": shown, "seed": seed, **candidate.to_json()}
        found = _retold(next(told, None), line, journal)
        if found is None:
            found = slopes(space.schedule(candidate), shown)
            if journal:
                rows = [[x if math.isfinite(x) else None for x in row] for row in found.tolist()]
                journal.append([line | {"found": rows}])
        good = found[np.isfinite(found).all(axis=1)]
        failed += len(found) - len(good)
        spent += len(found) * forwards_a_pass
        if len(good):
            walk = axes.step(walk, good[:, 1:].mean(axis=0))
            losses.append(float(good[:, 0].mean()))
        if step >= steps // 2:
            places.append(walk.place)
        if progress and losses:
            tokens = spent * tokens_per_document
            progress(Progress(spent / documents, tokens, losses[-1], ended()))
    if next(told, None) is not None:
        raise _of_another_search(journal)
    if failed:
        notice(f"{failed} of {len(order)} passes gave no finite slopes, and were skipped")
    finalists: tuple[Finalist, ...] = ()
    if losses:
        finalists = (Finalist(ended(), float(np.mean(losses[len(losses) // 2 :]))),)
    # No history: the steps saw different documents, so their losses tell of no progress.
    return Result(finalists, (), spent / documents, spent * tokens_per_document)


class _Axes:
    """Between places of a walk and candidates of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        start = space.seeds()[-1]
        self._start = np.array([*np.log(start.factors), math.log(start.attention_scaling)])
        turns = space.target_length / space.schedule(start).wavelengths[: space.pairs]
        self._scale = np.array([*np.maximum(1.0, TURNS * turns), 1.0])
        ends = space.scalings
        self._low = np.array([*np.log(space.lowest), math.log(ends[0])])
        self._high = np.array([*np.full(space.pairs, math.log(space.highest)), math.log(ends[-1])])
        self._rate = np.array([*np.full(space.pairs, FACTOR_RATE), SCALING_RATE])

    def candidate(self, place: FloatArray) -> Candidate:
        """As it is, off the grid."""
        *factors, scaling = np.exp(self._start + place / self._scale).tolist()
        return Candidate(tuple(factors), 0, scaling)

    def rounded(self, candidate: Candidate) -> Candidate:
        """In the space: never falling by the nearest sequence in log λ, and on the grid."""
        factors = np.exp(monotone(np.log(candidate.factors)))
        return self._space.nearest(factors, candidate.attention_scaling)

    def step(self, walk: _Walk, slopes: FloatArray) -> _Walk:
        """One of Adam's, within the bounds of the space."""
        gradient = slopes / self._scale
        steps = walk.steps + 1
        mean = MEAN_DECAY * walk.mean + (1 - MEAN_DECAY) * gradient
        square = SQUARE_DECAY * walk.square + (1 - SQUARE_DECAY) * gradient**2
        size = np.sqrt(square / (1 - SQUARE_DECAY**steps)) + 1e-12
        place = walk.place - self._rate * mean / (1 - MEAN_DECAY**steps) / size
        low, high = (self._scale * (end - self._start) for end in (self._low, self._high))
        return _Walk(np.clip(place, low, high), mean, square, steps)


def order_of(documents: int, wanted: int, seed: int) -> list[int]:
    """So many documents, each once before any comes again."""
    rng = np.random.default_rng(seed)
    rounds = [rng.permutation(documents).tolist() for _ in range(-(-wanted // documents))]
    return [document for each in rounds for document in each][:wanted]


def _retold(
    record: dict[str, object] | None, line: dict[str, object], journal: Journal | None
) -> FloatArray | None:
    """What the journal has of a step."""
    if record is None:
        return None
    if record | line != record or not isinstance(record.get("found"), list):
        raise _of_another_search(journal)
    return np.array(record["found"], dtype=np.float64)  # null becomes NaN


def _of_another_search(journal: Journal | None) -> InputError:
    assert journal
    return InputError(
        f"{journal.path}: is the journal of another search (its steps are not those that these "
        "settings lead to); give the same settings, or a new directory"
    )
