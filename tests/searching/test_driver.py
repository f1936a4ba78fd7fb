"""What is known is never asked again, what is too dear never at all, and what failed is worst."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.errors import InputError
from ropewalk.run_directory import Journal, read_journal
from ropewalk.schedule import FloatArray
from ropewalk.searching.driver import Outcome, Progress, Requests, ScoreRequest, Strategy, search
from ropewalk.searching.space import Candidate, Space
from tests.searching.problems import Bowl, Scored, ramp, small_space

SPACE = small_space()
OPTIMUM = ramp(SPACE)
ONE, TWO, THREE = SPACE.seeds()


def asking(*requests: ScoreRequest, heard: list[FloatArray] | None = None) -> Strategy:
    """A strategy of given requests."""

    def strategy(
        space: Space, documents: int, rng: np.random.Generator, evaluations: float | None
    ) -> Requests:
        for request in requests:
            losses = yield request
            rng.random()
            if heard is not None:
                heard.append(losses)

    return strategy


def run(*requests: ScoreRequest, **settings: Any) -> tuple[Outcome, list[FloatArray], Bowl]:
    heard: list[FloatArray] = []
    bowl = Bowl(SPACE, OPTIMUM)
    found = search(SPACE, bowl, asking(*requests, heard=heard), seed=0, **settings)
    return found, heard, bowl


ALL = tuple(range(Bowl.documents))


def test_only_what_is_not_known_is_scored() -> None:
    found, heard, bowl = run(ScoreRequest((ONE, TWO), (0, 3)), ScoreRequest((TWO, ONE, TWO), ALL))
    assert len(bowl.asked) == 2 * Bowl.documents
    assert heard[1].shape == (3, Bowl.documents)
    assert (heard[1][0] == heard[1][2]).all()
    assert (heard[1][0][[0, 3]] == heard[0][1]).all()
    assert found.evaluations == 2


def test_a_candidate_without_all_documents_has_no_score() -> None:
    found, _, _ = run(ScoreRequest((THREE,), (0, 1, 2)), ScoreRequest((ONE,), ALL))
    assert [finalist.candidate for finalist in found.finalists] == [ONE]
    assert len(found.history) == 1


def test_finalists_are_the_best_first() -> None:
    found, _, bowl = run(ScoreRequest((ONE, TWO, THREE, OPTIMUM), ALL), finalists=3)
    scores = [bowl.score(SPACE.schedule(finalist.candidate)) for finalist in found.finalists]
    assert scores == sorted(scores)
    assert len(scores) == 3
    assert found.finalists[0].candidate == OPTIMUM


@pytest.mark.parametrize(
    "budget",
    [{"evaluations": 2}, {"tokens": 2 * 8 * 512 + 511}, {"evaluations": 9, "tokens": 8192}],
)
def test_what_cannot_be_afforded_is_not_scored(budget: dict[str, int]) -> None:
    found, heard, bowl = run(
        ScoreRequest((ONE, TWO, THREE), ALL), ScoreRequest((OPTIMUM,), ALL), **budget
    )
    assert heard == []
    assert len(bowl.asked) == 16
    assert (found.evaluations, found.tokens) == (2, 8192)


def test_progress_is_told_of_every_score() -> None:
    seen: list[Progress] = []
    found, _, _ = run(
        ScoreRequest((ONE, TWO), ALL), ScoreRequest((OPTIMUM,), ALL), progress=seen.append
    )
    assert [(step.tokens, step.score) for step in seen] == [*found.history]
    assert [step.evaluations for step in seen] == [1, 2, 3]
    assert seen[-1].best == OPTIMUM


def test_a_search_in_which_all_fail_has_no_best() -> None:
    nothing = Scored(lambda schedule: float("nan"))
    found = search(SPACE, nothing, asking(ScoreRequest((ONE, TWO), (0,))), seed=0)
    assert (found.finalists, found.history, found.evaluations) == ((), (), 2)


def journalled(
    path: Path, *requests: ScoreRequest, **settings: Any
) -> tuple[Outcome, list[FloatArray], Bowl]:
    journal = Journal(path)
    try:
        return run(*requests, journal=journal, **settings)
    finally:
        journal.close()


def test_a_journal_answers_for_the_objective(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    requests = (ScoreRequest((ONE, TWO), (0, 3)), ScoreRequest((TWO, THREE), ALL))
    first, heard, _ = journalled(path, *requests)
    content = path.read_bytes()
    again, heard_again, bowl = journalled(path, *requests)
    assert again == first
    assert all((one == other).all() for one, other in zip(heard, heard_again, strict=True))
    assert bowl.asked == []
    assert path.read_bytes() == content


@pytest.mark.parametrize("losses", [[1.0, "2"], [1.0], None])
def test_losses_that_were_edited_and_sealed_again_are_refused(
    tmp_path: Path, losses: list[object] | None
) -> None:
    request = ScoreRequest((ONE,), (0, 3))
    path = tmp_path / "search.jsonl"
    journalled(path, request)
    [record] = read_journal(path)
    path.unlink()
    journal = Journal(path)
    journal.append([{**record, "losses": losses}])
    journal.close()
    with pytest.raises(InputError, match=r"losses|another search"):
        journalled(path, request)


def test_a_failure_is_a_failure_in_the_journal_too(tmp_path: Path) -> None:
    def score_with(value: float) -> list[FloatArray]:
        heard: list[FloatArray] = []
        journal = Journal(tmp_path / "search.jsonl")
        search(
            SPACE,
            Scored(lambda schedule: 1.0 if schedule == SPACE.schedule(ONE) else value),
            asking(ScoreRequest((ONE, TWO), (0,)), heard=heard),
            seed=0,
            journal=journal,
        )
        journal.close()
        return heard

    assert score_with(np.nan)[0].tolist() == [[1.0], [np.inf]]
    assert score_with(0.0)[0].tolist() == [[1.0], [np.inf]]  # from the journal


@pytest.mark.parametrize(
    ("requests", "settings"),
    [
        ([ScoreRequest((TWO, ONE), ALL)], {}),
        ([ScoreRequest((ONE, TWO), ALL[:3])], {}),
        ([ScoreRequest((ONE,), ALL)], {}),
        ([ScoreRequest((Candidate(ONE.factors, 1), TWO), ALL)], {}),
        ([ScoreRequest((ONE, TWO), ALL)], {"evaluations": 1}),
        (
            [ScoreRequest((), ALL), ScoreRequest((ONE, TWO), ALL)],
            {},
        ),  # the random state has moved on
    ],
)
def test_the_journal_of_another_search_is_refused(
    requests: list[ScoreRequest], settings: dict[str, int], tmp_path: Path
) -> None:
    journalled(tmp_path / "search.jsonl", ScoreRequest((ONE, TWO), ALL))
    with pytest.raises(InputError, match="journal of another search"):
        journalled(tmp_path / "search.jsonl", *requests, **settings)
