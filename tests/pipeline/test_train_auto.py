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
from ropewalk.pipeline.cost import tokens_of
from ropewalk.pipeline.planned import least, planned, untrained
from ropewalk.pipeline.results import TRAINED
from ropewalk.pipeline.settings import STEPS, settings_for
from ropewalk.pipeline.stages.judge import JudgeFirst
from ropewalk.pipeline.stages.train import Train
from tests.evaluation import tiny
from tests.pipeline.conftest import extended
from tests.pipeline.test_stages import judged_by

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
    ("rate", "if_needed", "needed"),
    [(0.0, True, True), (1.0, True, False), (0.9, True, False), (1.0, False, True)],
)
def test_it_trains_where_the_schedule_alone_does_not_work(
    rate: float, if_needed: bool, needed: bool
) -> None:
    """Not where more documents would have to tell."""
    judged = judged_by(1.0, [rate] * 20)
    work = SimpleNamespace(results={"first": judged})
    training = Train(512, 10, 1e-3, 1, if_needed=if_needed)
    assert training.needed(work) == needed  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("works", [False, True])
def test_auto_trains_only_where_the_schedule_does_not_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """The model's weights are random: what it retrieves is nothing, which is made to decide."""
    monkeypatch.setattr(verdict, "JUDGED_FROM", -1.0)
    monkeypatch.setattr(verdict, "MARGIN", 1.0 if works else -1.0)
    run = tmp_path / "run"
    done = extended(folder, run, train_steps="auto", batch=1, search=False)
    assert done.result(JudgeFirst).verdict == ("works" if works else "does not work")
    assert (Train.name in done.results) == (not works)
    assert (done.method == TRAINED) == (not works)
    assert ("without training" in done.told) == (not works)
    assert rw.report(run, out=tmp_path / "page.html").missing == ()
