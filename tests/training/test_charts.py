"""The charts of a training, from its steps."""

from __future__ import annotations

import pytest

from ropewalk.chart import Chart
from ropewalk.training.journal import MOST, Step, curves
from ropewalk.training.results import TrainedStage


def steps(count: int, tokens: int, loss: float = 4.0) -> list[Step]:
    return [Step(i, loss - 0.01 * i, 0.5 + i, 1e-3, i * tokens) for i in range(1, count + 1)]


def test_a_short_stage_has_one_curve_of_its_loss_and_a_falling_rate_has_its_own() -> None:
    falling = [step._replace(learning_rate=1e-3 / step.step) for step in steps(6, 100)]
    loss, _, rate = curves([("a", falling)])
    assert [series.label for series in loss.series] == ["a"]
    assert rate.title == "learning rate"


def test_a_later_stage_goes_on_behind_the_tokens_of_the_one_before() -> None:
    charts = curves([("256, linear", steps(5, 100)), ("512, linear", steps(4, 1000, 3.0))])
    titles = ["loss in nats per token", "norm of the gradient"]
    assert [chart.title for chart in charts] == titles, "a constant learning rate is no curve"
    expected = [[100, 200, 300, 400, 500], [1500, 2500, 3500, 4500]]
    for chart in charts:
        plain = [series for series in chart.series if not series.main]
        assert [[mark.x for mark in series.marks] for series in plain] == expected
    assert drawn(charts[0], "512, linear") == pytest.approx([2.99, 2.98, 2.97, 2.96])
    assert drawn(charts[1], "512, linear") == [1.5, 2.5, 3.5, 4.5]


@pytest.mark.parametrize(("losses", "told"), [((7.0, 900.0), True), ((3.0, 3.9), False)])
def test_a_training_that_diverged_is_told(losses: tuple[float, float], told: bool) -> None:
    first, last = (steps(10, 100, loss) for loss in losses)
    stage = TrainedStage(256, 256, "linear", "id", 1.0, (*first, *last))
    assert ("it diverged" in stage.loss_in_words()) is told


def test_a_mean_stands_at_the_last_of_its_steps() -> None:
    (loss, *_) = curves([("stage 1", steps(10, 100))])
    (mean,) = [series for series in loss.series if series.main]
    assert mean.label == "stage 1, mean of 2 steps"
    assert [mark.x for mark in mean.marks] == list(range(200, 1001, 100))
    assert [mark.y for mark in mean.marks][:2] == pytest.approx([3.985, 3.975])


def test_of_many_steps_each_mark_is_a_mean_with_its_range() -> None:
    (loss, *_) = curves([("stage 1", steps(2 * MOST, 100))])
    marks = loss.series[0].marks
    assert len(marks) == MOST
    assert (marks[0].x, marks[-1].x) == (200, 2 * MOST * 100)
    for mark in marks:
        assert mark.low is not None
        assert mark.high is not None
        assert mark.low < mark.y < mark.high
    assert "the mean of a stretch of steps" in loss.caption


def drawn(chart: Chart, label: str) -> list[float]:
    (own,) = [series for series in chart.series if series.label == label]
    return [mark.y for mark in own.marks]
