"""The page of a search, from its legs."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.blocks import Table
from ropewalk.chart import Chart
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.reports.parts.schedules import of_search
from ropewalk.scaling import linear, yarn
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.searching.driver import Point
from ropewalk.searching.model.results import (
    Leg,
    Score,
    ScoredSchedule,
    SearchResult,
    tried_in_words,
)

PLAIN = RotarySchedule.plain(RotaryGeometry(32, 32, 10_000.0, 512))


def arm(schedule: RotarySchedule, score: float) -> ScoredSchedule:
    own = [Score(score + more, 8.0, 0.5, 4) for more in (0.0, 0.25, 0.5)]
    return ScoredSchedule(schedule, *own)


def leg() -> Leg:
    return Leg(
        length=2048,
        chosen="search",
        best_hand_designed="yarn",
        best=arm(yarn.schedule(PLAIN, 2048), 2.0),
        baselines={
            "linear": arm(linear.schedule(PLAIN, 2048), 4.0),
            "yarn": arm(yarn.schedule(PLAIN, 2048), 3.0),
        },
        selection=None,
        held_out=None,
        sources={},
        remaining=("yarn",),
        history=(Point(100, 2.5), Point(200, 2.0)),
        evaluations=2.0,
        tokens=200,
        by_objective={"linear": 4.0, "yarn": 3.0},
    )


def test_standings_are_those_on_documents_that_decided_nothing() -> None:
    plan = ContextPlan("m", {FULL_ATTENTION: (PlanStep(2048, yarn.schedule(PLAIN, 2048)),)})
    blocks = of_search(SearchResult(plan, (leg(),))).blocks
    [table] = [block for block in blocks if isinstance(block, Table)]
    scores = {row[0].text: row[1].text for row in table.rows}
    told = [("search (chosen)", "2.500"), ("yarn", "3.500"), ("linear", "4.500")]
    assert [*scores.items()] == told, "the best first"
    lines = [chart.horizontals for chart in blocks if isinstance(chart, Chart)]
    [line] = [own for each in lines for own in each]
    assert (line.label, line.at) == ("best hand-designed: yarn", 3.0)


def test_a_search_that_scored_nothing_says_so() -> None:
    tried = tried_in_words(leg())
    assert tried == "each searched schedule failed, or is clearly worse in the text or the answers"
    ended = tried_in_words(replace(leg(), history=()))
    assert ended == "the budget ended before a schedule was scored"
