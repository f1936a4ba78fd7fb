"""The page of a search, from its legs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ropewalk.agreement import Agreement
from ropewalk.blocks import Details, Table
from ropewalk.chart import Chart
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.evaluation.select import Paired
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.manifest import Manifest
from ropewalk.interval import Interval
from ropewalk.reports.commands.extend import PART, _from, _others
from ropewalk.reports.parts import schedules
from ropewalk.reports.parts.schedules import loading, of_search
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
    scores = {row[0].text: row[3].text for row in table.rows}
    told = [("search (chosen)", "2.500"), ("yarn", "3.500"), ("linear", "4.500")]
    assert [*scores.items()] == told, "the best first"
    lines = [chart.horizontals for chart in blocks if isinstance(chart, Chart)]
    [line] = [own for each in lines for own in each]
    assert (line.label, line.at) == ("best hand-designed: yarn", 3.0)


def less(value: float, low: float, high: float) -> Paired:
    return Paired(16, 16, Interval(value, low, high, "difference in nats"))


def test_methods_have_intervals_a_mark_of_ties_and_the_price_while_choosing() -> None:
    own = ScoredSchedule(PLAIN, None, Score(3.0, 20.0, 0.9, 16, (18.0, 22.5), (0.85, 0.94)), None)
    race = replace(
        leg(),
        chosen="yarn",
        best=own,
        baselines={"yarn": own, "llama3": own, "linear": own},
        remaining=("yarn", "llama3"),
        history=(),
        behind={"llama3": less(0.06, -0.02, 0.16), "linear": less(4.7, 4.1, 5.3)},
        short_costs={"yarn": less(0.026, 0.006, 0.05)},
    )
    table, details = race.tables()
    assert isinstance(table, Table)
    assert isinstance(details, Details)
    few, rows = (
        {row[0].text: [f"{cell.text} {cell.quiet}".strip() for cell in row] for row in own.rows}
        for own in (table, *details.blocks)
        if isinstance(own, Table)
    )
    assert few["yarn (chosen)"][1:] == ["90% (85 to 94%)", "best"]
    assert few["llama3"][1:] == ["90% (85 to 94%)", "tied, +0.060 (-0.020 to +0.160)"]
    assert few["linear"][2].startswith("worse, +4.700")
    assert rows["yarn (chosen)"][1:] == [
        *("90% (85 to 94%)", "20 (18 to 22.5)", "3.000", "best", "+2.6% (+0.6 to +5.1%)", "16"),
    ]
    assert rows["llama3"][5:] == ["–", "16"]
    assert len(table.caption.split()) < 50
    assert "alone" not in table.caption
    both = replace(race, short_behind={"llama3": less(0.019, -0.002, 0.045)})
    plan = ContextPlan("m", {FULL_ATTENTION: (PlanStep(2048, yarn.schedule(PLAIN, 2048)),)})
    said = _others(SearchResult(plan, (both,)))
    assert "against the unmodified model: yarn +2.6% (+0.6 to +5.1%)." in said
    assert "the same 16 documents of 16 texts: +1.9% (-0.2 to +4.6%)" in said
    lost = own._replace(selection=own.selection._replace(retrieval=0.0))
    fluent = next(replace(race, baselines={**race.baselines, "ntk_mixed": lost}).tables())
    assert isinstance(fluent, Table)
    said = "Perplexity alone (that of yarn is 20) does not show the failure of ntk_mixed (20, with"
    assert said in fluent.caption


def test_the_settings_that_lines_load_stand_once_and_a_list_on_one_line(tmp_path: Path) -> None:
    rope = {"rope_type": "longrope", "long_factor": [1.0, 2.5, 4.0]}
    shown = {"max_position_embeddings": 2048, "rope_parameters": rope}
    (tmp_path / "config.json").write_text(json.dumps({**shown, "model_type": "llama"}))
    Manifest.of(tmp_path).write(tmp_path)
    made = Exported("transformers", tmp_path, None, load="AutoModel.from_pretrained('x')")
    for at_the_top in ("", schedules.pasted(made)):
        texts = [getattr(b, "text", "") for b in loading([made], tmp_path, at_the_top).blocks]
        found = [text for text in texts if "rope_type" in text]
        assert [json.loads(text) for text in found] == [shown] * (not at_the_top)
    assert "[ 1.0, 2.5, 4.0 ]" in getattr(schedules.settings(tmp_path)[0], "text", "")
    assert schedules.settings(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("reach", "told"),
    [
        (1012, "beyond the original window of 512; longer texts, up to 2k, were not compared"),
        (512, "no farther than the original window of 512; longer texts, up to 2k, were not"),
        (2047, "This is beyond the original window of 512."),
        (0, "tolerance"),
    ],
)
def test_a_proof_says_how_far_beyond_the_window_it_reaches(reach: int, told: str) -> None:
    proof = Agreement("llama.cpp", "log-probabilities", 1e-4, 1e-3, 512, length=reach)
    made = Exported("llama.cpp", Path("model.gguf"), proof, load="llama-cli")
    lines = [getattr(each, "text", "") for each in loading([made], None, "", 512, 2048).blocks]
    assert any(told in line for line in lines) == bool(reach)
    assert any("up to position" in line for line in lines) == bool(reach)


def test_the_part_of_a_text_is_named_in_words() -> None:
    assert PART.sub(_from, "datetime.txt from 24383") == "datetime.txt, from character 24,383"
    assert PART.sub(_from, "notes from home.txt") == "notes from home.txt"


def test_a_search_that_scored_nothing_says_so() -> None:
    tried = tried_in_words(leg())
    assert tried == "no searched schedule was as good on both text and answers"
    ended = tried_in_words(replace(leg(), history=()))
    assert ended == "the budget ended before a schedule was scored"
