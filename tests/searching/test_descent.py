from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ropewalk.errors import InputError
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule
from ropewalk.searching.descent import DOCUMENTS_A_STEP, PASSES, descend
from ropewalk.searching.driver import Progress, Result
from ropewalk.searching.space import Candidate, Space
from tests.searching.problems import small_space

DOCUMENTS = 96
STEPS = PASSES // DOCUMENTS_A_STEP


class Valley:
    """Squared distances in the coordinates of a schedule, with noise that a mean removes."""

    def __init__(self, space: Space, optimum: Candidate, noise: float = 0.0) -> None:
        schedule = space.schedule(optimum)
        self.goal = np.append(np.log(schedule.rescale_factors), np.log(schedule.attention_scaling))
        rng = np.random.default_rng(0)
        self._noise = rng.normal(0, noise, (DOCUMENTS, len(self.goal)))
        self.asked: list[int] = []
        self.schedules: list[RotarySchedule] = []
        self.broken: set[int] = set()

    def __call__(self, schedule: RotarySchedule, documents: Sequence[int]) -> FloatArray:
        self.asked += documents
        self.schedules.append(schedule)
        here = np.append(np.log(schedule.rescale_factors), np.log(schedule.attention_scaling))
        rows = []
        for document in documents:
            away = here - self.goal - self._noise[document]
            row = np.array([(away**2).sum(), *(2 * away)])
            rows.append(np.full_like(row, np.nan) if document in self.broken else row)
        return np.stack(rows)


def walked(space: Space, valley: Valley, **how: object) -> Result:
    return descend(space, valley, DOCUMENTS, 512, **{"seed": 0, **how})  # type: ignore[arg-type]


def test_pairs_that_rest_take_no_steps() -> None:
    geometry = RotaryGeometry(16, 16, 1e4, 128, resting_pairs=3)
    space = Space(RotarySchedule.plain(geometry), 512, stock_runtimes=True)
    other = Space(RotarySchedule.plain(geometry.without_resting_pairs), 512, stock_runtimes=True)

    def slopes(schedule: RotarySchedule, documents: Sequence[int]) -> FloatArray:
        """Upwards for all."""
        return np.ones((len(documents), 2 + 5))

    found, same = (descend(each, slopes, 8, 512, seed=0, passes=16).best for each in (space, other))
    assert found.attention_scaling == same.attention_scaling
    # Both rotate alike, so they are searched alike; only the seeds differ, for NTK sees the head.
    assert len(found.factors) == 5
    assert space.schedule(found).inverse_frequencies[5:].tolist() == [0.0] * 3


def optimum_of(space: Space) -> Candidate:
    """YaRN with slow pairs stretched further, and a larger m."""
    start = space.seeds()[-1]
    factors = np.array(start.factors)
    factors[-3:] *= 1.3
    return space.nearest(factors, start.attention_scaling + 0.05)


def test_it_walks_towards_the_optimum_and_ends_in_the_space() -> None:
    space = small_space(4, stock_runtimes=True)
    valley = Valley(space, optimum_of(space), noise=0.05)
    found = walked(space, valley)
    assert list(space.violations(found.best)) == []

    def away(candidate: Candidate) -> float:
        schedule = space.schedule(candidate)
        place = np.append(np.log(schedule.rescale_factors), np.log(schedule.attention_scaling))
        return float(np.linalg.norm(place - valley.goal))

    assert away(found.best) < 0.5 * away(space.seeds()[-1])
    assert found.best.factors[:2] == space.seeds()[-1].factors[:2], "fast pairs hardly move"


def test_no_step_turns_a_pair_by_more_than_others_at_the_far_end() -> None:
    space = small_space(4, stock_runtimes=True)
    start = space.seeds()[-1]
    far = space.nearest(1.5 * np.array(start.factors), 1.0)
    valley = Valley(space, far)
    walked(space, valley)
    before = space.schedule(start)
    turns = space.target_length / before.wavelengths
    assert turns[0] > 50
    moved = np.log(valley.schedules[-1].rescale_factors / before.rescale_factors)
    assert (moved > 0).all(), "the loss asks all pairs to be slower"
    assert (moved * np.maximum(1, 4 * turns) < 0.15 * len(valley.schedules)).all()


def test_each_document_is_seen_once_where_they_suffice() -> None:
    space = small_space(4, stock_runtimes=True)
    said: list[str] = []
    valley = Valley(space, optimum_of(space))
    found = walked(space, valley, notice=said.append)
    assert sorted(valley.asked) == list(range(DOCUMENTS))
    assert not said
    assert found.evaluations == 3 * PASSES / DOCUMENTS
    assert found.tokens == 3 * PASSES * 512
    walked(space, Valley(space, optimum_of(space)), passes=2 * PASSES, notice=said.append)
    assert "96 documents are too few" in said[0]


def test_passes_without_finite_slopes_are_skipped_and_counted() -> None:
    space = small_space(4, stock_runtimes=True)
    said: list[str] = []
    valley = Valley(space, optimum_of(space))
    valley.broken = set(range(10))
    found = walked(space, valley, notice=said.append)
    assert np.isfinite(found.score)
    assert said == ["10 of 96 passes gave no finite slopes, and were skipped"]
    valley.broken = set(range(DOCUMENTS))
    assert walked(space, valley).finalists == ()


@pytest.mark.parametrize("kept", [0, 1, 5, STEPS])
def test_it_goes_on_from_its_journal_with_the_same_bytes(tmp_path: Path, kept: int) -> None:
    space = small_space(4, stock_runtimes=True)
    journal = Journal(tmp_path / "whole.jsonl")
    whole = walked(space, Valley(space, optimum_of(space), noise=0.1), journal=journal)
    journal.close()
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:kept]))
    again, valley = Journal(tmp_path / "cut.jsonl"), Valley(space, optimum_of(space), noise=0.1)
    assert walked(space, valley, journal=again) == whole
    again.close()
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert len(valley.asked) == (STEPS - kept) * DOCUMENTS_A_STEP


def test_the_journal_of_another_walk_is_refused(tmp_path: Path) -> None:
    space = small_space(4, stock_runtimes=True)
    journal = Journal(tmp_path / "a.jsonl")
    walked(space, Valley(space, optimum_of(space)), journal=journal)
    journal.close()
    with pytest.raises(InputError, match="journal of another search"):
        walked(space, Valley(space, optimum_of(space)), journal=Journal(journal.path), seed=1)
    short = Journal(journal.path)
    with pytest.raises(InputError, match="journal of another search"):
        walked(space, Valley(space, optimum_of(space)), journal=short, passes=PASSES // 2)


def test_progress_shows_a_candidate_of_the_space() -> None:
    space = small_space(4, stock_runtimes=True)
    seen: list[Progress] = []
    walked(space, Valley(space, optimum_of(space)), progress=seen.append)
    assert len(seen) == STEPS
    assert all(list(space.violations(each.best)) == [] for each in seen)
    assert [each.tokens for each in seen] == sorted(each.tokens for each in seen)
