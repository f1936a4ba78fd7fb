"""`extend --train-steps auto`: a training only where the schedule alone does not work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import ropewalk as rw
from ropewalk.budget import Budget
from ropewalk.errors import InvalidValue
from ropewalk.evaluation import verdict
from ropewalk.evaluation.verdict import look
from ropewalk.pipeline.cost import tokens_of
from ropewalk.pipeline.planned import least, planned, untrained
from ropewalk.pipeline.results import Judged
from ropewalk.pipeline.settings import STEPS, settings_for
from ropewalk.pipeline.stages.evaluate import TRAINED, Evaluate, Untrained
from ropewalk.pipeline.stages.train import Train
from ropewalk.pipeline.stages.verdict import Judge, JudgePlanned
from ropewalk.run_directory import read_journal
from tests.api.conformance import check_result
from tests.evaluation import tiny
from tests.pipeline.conftest import extended

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
AUTO = settings_for(tiny.loaded().present_plan, 4 * tiny.WINDOW, train_steps="auto")


def tokens(settings: object) -> int:
    return tokens_of(settings, tiny.WINDOW)  # type: ignore[arg-type]


def test_it_is_a_training_of_the_steps_that_were_studied() -> None:
    assert (AUTO.train_steps, AUTO.train_if_needed) == (STEPS, True)
    given = settings_for(tiny.loaded().present_plan, 4 * tiny.WINDOW, train_steps="50")
    assert (given.train_steps, given.train_if_needed) == (50, False)
    with pytest.raises(
        InvalidValue, match=r"train_steps = 'always': must be a number of steps, or 'auto'"
    ):
        settings_for(tiny.loaded().present_plan, 4 * tiny.WINDOW, train_steps="always")


def test_a_budget_without_room_for_it_gives_the_training_up_last() -> None:
    def within(amount: float) -> object:
        return planned(AUTO, Budget(amount, "tokens"), tokens)

    smallest = tokens(least(AUTO))
    assert within(smallest) == replace(least(AUTO), train_if_needed=True)
    assert within(smallest - 1) == untrained(AUTO)


@pytest.mark.parametrize(
    ("right", "if_needed", "needed"),
    [(0, True, True), (20, True, False), (17, True, False), (20, False, True)],
)
def test_it_trains_where_the_schedule_alone_does_not_work(
    right: int, if_needed: bool, needed: bool
) -> None:
    """Not where more samples would have to tell."""
    scores = [float(i < right) for i in range(20)]
    judged = Judged("yarn", 512, (look([(scores, [*range(20)])]),))
    work = SimpleNamespace(result=lambda stage: {JudgePlanned: judged}[stage])
    training = Train(512, 10, 1e-3, 1, if_needed=if_needed)
    assert training.needed(work) == needed  # type: ignore[arg-type]


@pytest.mark.slow
def test_where_nothing_works_it_trains_and_tells_before_planned_and_trained(
    folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = extended(folder, run, train_steps="auto", batch=1, samples=8)
    check_result(done)
    assert done.result(JudgePlanned).verdict == "does not work"
    assert done.method == TRAINED
    assert done.result(Judge).chosen == TRAINED
    planned_as = done.result(Untrained).chosen
    assert f"; without training, {planned_as}: does not work at" in done.verdict
    assert "; as it came: retrieval 0%" in done.verdict
    # What was asked of the schedule alone and of the trained model is kept apart.
    for name, method in (("planned", planned_as), ("verdict", TRAINED)):
        file = run / f"{name}.jsonl"
        assert {record["method"] for record in read_journal(file)} <= {method}


@pytest.mark.slow
def test_where_the_schedule_works_nothing_is_trained(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "THRESHOLD", -1.0)
    run = tmp_path / "run"
    done = extended(folder, run, train_steps="auto", samples=8)
    check_result(done)
    assert done.result(JudgePlanned).verdict == "works"
    assert Train.name not in done.results
    assert done.method == done.result(Evaluate).chosen == done.result(Untrained).chosen
    assert "without training" not in done.verdict
    # The second verdict reads the samples of the first.
    assert done.result(Judge).looks == done.result(JudgePlanned).looks
    assert not read_journal(run / "verdict.jsonl")
    assert rw.report(run, out=tmp_path / "page.html").missing == ()
