"""What single stages decide and say, on values that are made for the purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.errors import InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.statistics import t_interval
from ropewalk.exporting.exported import Exported
from ropewalk.models.config import present_plan
from ropewalk.models.load import LoadedModel
from ropewalk.pipeline.charts import by_documents
from ropewalk.pipeline.results import (
    DocumentRead,
    Exports,
    Judged,
    TrainingResult,
    Verified,
    VerifiedFile,
    _perplexity,
)
from ropewalk.pipeline.settings import settings_for
from ropewalk.pipeline.stage import Start
from ropewalk.pipeline.stages.judge import JudgeFirst, _Reader
from ropewalk.progress import silent
from ropewalk.records import AS_IT_IS
from ropewalk.reports.commands import extend as extend_page
from ropewalk.reports.figures import save
from ropewalk.training.journal import Step
from ropewalk.training.results import TrainedStage
from tests.api.conformance import check_result
from tests.evaluation import tiny

NONE, FAR = 128, 256


def judged_by(
    within: float, at_target: Sequence[float], paid: float = 0.0, documents: int = 48
) -> Judged:
    """The unmodified model within its window, and a schedule at the target."""
    plan = present_plan(tiny.model().config)
    readings = [
        *(DocumentRead("none", NONE, f"{i}@0", 3.0, 1.0, within, 8) for i in range(documents)),
        *(
            DocumentRead("yarn", NONE, f"{i}@0", 3.0 + paid, 1.0, within, 8)
            for i in range(documents)
        ),
        *(
            DocumentRead("yarn", FAR, f"{i}@9", 3.0, 1.0, each, 8)
            for i, each in enumerate(at_target)
        ),
    ]
    return Judged("yarn", plan, NONE, FAR, tuple(readings), None)


@pytest.mark.parametrize(
    ("within", "at_target", "verdict", "told"),
    [
        (1.0, [1.0] * 32, "works", "retrieves 100% (99 to 100%) of the facts in 32 documents, +0"),
        (1.0, [0.25, 0.5] * 3, "does not work", "6 documents"),
        # Not the absolute rate: this model finds seven of ten facts anywhere.
        (0.7, [0.75] * 64, "works", "points against the unmodified model within 128"),
        (1.0, [0.875] * 8, "undecided", "more documents would decide"),
        (1.0, [0.9] * 64, "undecided", "no reachable number of documents would decide"),
        (0.25, [0.25] * 6, "cannot be judged", "`evaluate` with `tasks` passkey,perplexity"),
        (1.0, [], "undecided", "not measured"),
    ],
)
def test_the_verdict_in_words(
    within: float, at_target: list[float], verdict: str, told: str
) -> None:
    judged = check_result(judged_by(within, at_target))
    assert judged.verdict == verdict
    assert f"yarn: {verdict} at 256" in judged.summary()
    assert told in judged.summary()


def test_the_looks_are_those_that_were_planned_and_the_last_at_all_documents() -> None:
    judged = judged_by(1.0, [0.875] * 10)
    assert [each.documents for each in judged.looks] == [6, 10]
    assert judged.so_far == (
        "10 documents: 88% retrieved, -12.5 (-25.0 to -5.6) points against the unmodified model "
        "within 128; stopping now would mean: undecided"
    )
    # What would be said after 64 documents is not said between two looks: looking often would err.
    between = judged_by(1.0, [1.0] * 40)
    assert between.verdict == "works"
    assert between.so_far.endswith("stopping now would mean: undecided")


def test_the_chart_of_a_verdict_ends_in_the_interval_that_decides() -> None:
    judged = judged_by(1.0, [1.0] * 32)
    chart = by_documents(judged.looks, "yarn", judged.window, judged.length)
    [limit] = chart.horizontals
    *before, last = chart.series[0].marks
    assert judged.verdict == "works"
    assert last.low is not None
    assert last.low > limit.at
    assert all(mark.x < chart.verticals[0].at for mark in before), "too few to work"
    assert [mark.name for mark in (*before, last)] == ["not yet", "not yet", "passes"]
    [*_, failed] = by_documents(judged_by(1.0, [0.5] * 6).looks, "yarn", NONE, FAR).series[0].marks
    assert failed.name == "fails"


def test_the_picture_names_the_exported_schedule(tmp_path: Path) -> None:
    save(judged_by(1.0, [0.5] * 8).figure(), tmp_path / "extend.svg")
    assert "extended (yarn)" in (tmp_path / "extend.svg").read_text()


def test_facts_are_shown_by_depth_and_length_with_their_number_in_every_cell() -> None:
    judged = judged_by(1.0, [0.5] * 6, documents=6)
    early, late = (0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7)
    readings = [
        replace(
            each, found=(*early, *late)[: round(7 * each.retrieved)], missed=(*early, *late)[4:]
        )
        if each.length == FAR
        else replace(each, found=(*early, *late))
        for each in judged.readings
    ]
    before, after = replace(judged, readings=tuple(readings)).by_depth()
    assert after.columns == ("128", "256")
    assert after.rows == ("0–23%", "23–47%", "47–70%")
    assert before.caption == after.caption
    assert [tile and tile.value for tile in before.tiles[0]] == [1.0, None], "not read there"
    assert [row[1].text for row in after.tiles if row[1]] == [
        "12 of 12 (100%)",
        "12 of 12 (100%)",
        "0 of 18 (0%)",
    ]
    assert after.tiles[2][1] is not None
    assert after.tiles[2][1].words == "256, 50% to 70% into a document: 0 of 18"
    assert after.tiles[2][1].is_vague, "of few facts"
    assert "None is deeper than 70%" in after.caption
    assert judged.by_depth() == [], "a run of before depths were kept"


def test_a_model_whose_price_is_above_the_limit_works_at_a_price(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    judged = judged_by(1.0, [1.0] * 48)
    readings = [
        replace(each, text=each.text + (0.05, 0.07)[i % 2]) if each.method == "yarn" else each
        for i, each in enumerate(judged.readings)
    ]
    between = [DocumentRead("yarn", 192, f"{i}@9", 3.0, 1.0, 1.0, 8) for i in range(5)]
    known = {("first", ".json"): replace(judged, readings=(*readings, *between))}
    monkeypatch.setattr(
        extend_page, "stage_of", lambda run, name, kind, ending=".json": known.get((name, ending))
    )
    for limit, word, told in (
        (0.02, "works, at a price", "more than the limit (the default of"),
        (0.1, "works", ""),
    ):
        run: Any = SimpleNamespace(
            path=tmp_path,
            command="extend",
            configuration={"short_limit": limit},
            sealed={"first.json": None},
        )
        page = extend_page.page(run)
        assert page.word == word
        assert told in page.verdict
        assert page.to_do is not None
        assert ("the original for shorter ones" in page.to_do.title) == bool(told)
        assert "judged at 256; spot-checked with 40 facts at 192" in page.to_do.title
        assert "facts retrieved there do not change. Lower" in page.verdict
        [tested] = [each for each in page.sections if each.title == "What was tested"]
        assert "48 documents of 256 tokens, cut from 48 texts" in str(tested.blocks)
        assert ("rises by" in page.verdict and "6.2%" in page.verdict) == (not told), "told once"
        assert ("--train-steps" in dict(page.remarks).get("To lower the price", "")) == bool(told)
        assert [each.value for each in page.figures] == ["100%", "100% → 100%", "+6.2%"]
        assert page.figures[1].ends.startswith("of 384; 95% intervals 99 to 100%, 99 to 100%")


def test_a_change_of_perplexity_is_measured_on_the_texts_that_both_read() -> None:
    """The chosen schedule reads more at the target, and those are harder."""
    judged = judged_by(1.0, [1.0] * 32, paid=0.1)
    readings = [
        replace(each, text=3.0 + i / 100) if each.length == FAR else each
        for i, each in enumerate(judged.readings)
    ]
    more = [
        replace(each, method="none", text=each.text + 0.5)
        for each in readings
        if each.length == FAR
    ]
    both = replace(judged, readings=(*readings, *more[:5]))
    within, at_target = both.perplexities().rows
    assert (within[3].text, at_target[3].text) == ("+10.5%", "-39.3%")
    assert (within[0].quiet, at_target[0].quiet) == ("48 documents", "5 documents, a spot check")
    assert float(at_target[2].text) < 0.62 * float(at_target[1].text), "on the same texts"
    rough = {s.subject: [mark.is_rough for mark in s.marks] for s in both.charts()[0].series}
    assert rough == {"none": [False, True], "yarn": [False, False]}
    assert "At 256, the unmodified model reads 5 of the 32 documents" in both.charts()[0].caption
    assert "to save time" not in judged.charts()[0].caption


def test_documents_of_few_texts_tell_less_of_perplexity_than_as_many_texts_would() -> None:
    def width(texts: int) -> float:
        readings = [
            replace(each, source=f"{i % texts}@{i}", text=3.0 + i % 6 / 10)
            for i, each in enumerate(judged_by(1.0, [1.0] * 48).of("yarn", FAR))
        ]
        own = _perplexity(readings)
        assert own.ends is not None
        return own.ends[1] - own.ends[0]

    assert width(6) > 2 * width(48), "which differ from text to text"
    assert width(4) == width(48), "too few texts: the interval speaks of these alone"


def test_a_schedule_that_fails_says_up_to_where_it_would_do() -> None:
    judged = judged_by(1.0, [0.25] * 6)
    assert extend_page._reach(judged) == ""
    between = [DocumentRead("yarn", 192, f"{i}@9", 3.0, 1.0, 0.95, 8) for i in range(5)]
    assert extend_page._reach(judged.with_more(between)).startswith(": at 192 it retrieves 95% (")
    lost = [replace(each, retrieved=0.5) for each in between]
    assert extend_page._reach(judged.with_more(lost)) == ""


@pytest.mark.parametrize(
    ("paid", "told"),
    [
        ((0.05, 0.07), "perplexity within 128 rises by 6.2% ("),
        ((-0.05, -0.07), "perplexity within 128 falls by 5.8% ("),
        ((-0.05, 0.07), "perplexity within 128 rises by at most "),
    ],
)
def test_the_price_in_words(paid: tuple[float, float], told: str) -> None:
    judged = judged_by(1.0, [1.0] * 8, documents=24)
    readings = [
        replace(each, text=each.text + paid[i % 2]) if each.method == "yarn" else each
        for i, each in enumerate(judged.readings)
    ]
    priced = replace(judged, readings=tuple(readings))
    assert priced.price_in_words.startswith(told)
    assert priced.costs_more_than(0.02) == told.endswith("6.2% (")


@pytest.mark.parametrize(("after", "told"), [(0.75, True), (1.0, False)])
def test_facts_that_are_no_longer_found_within_the_window_are_part_of_the_price(
    after: float, told: bool
) -> None:
    """As a training may forget what it does not repeat."""
    judged = judged_by(1.0, [1.0] * 8, documents=24)
    readings = [
        replace(each, retrieved=after if i % 2 else 1.0)
        if (each.method, each.length) == ("yarn", NONE)
        else each
        for i, each in enumerate(judged.readings)
    ]
    lost = replace(judged, readings=tuple(readings)).price_in_words
    assert lost.endswith("; retrieval within 128 falls from 100% to 88%") == told


def test_an_export_that_nothing_here_can_run_is_told_too() -> None:
    unproven = Exported("llama.cpp", Path("model.gguf"), None)
    assert "not tested here" in Exports((unproven,), {}, {}).summary()


def test_what_was_read_back_from_disk_is_told_in_sentences() -> None:
    def told(*verdicts: Any) -> str:
        paths = Path("run/model"), Path("run/model.gguf")
        lacking = {"OK": (), "not established": ("no runtime",)}
        read = [(p, v, (), lacking[v]) for p, v in zip(paths, verdicts, strict=False)]
        return Verified(tuple(VerifiedFile(*each) for each in read)).summary()

    holds = "read back from disk and hold{} the schedule that was judged."
    assert told("OK") == f"model was {holds.format('s')}"
    assert told("OK", "OK") == f"model and model.gguf were {holds.format('')}"
    left = (
        "Whether model.gguf holds that schedule was not established. Not established: no runtime."
    )
    assert told("OK", "not established") == f"model was {holds.format('s')} {left}"


def test_a_mean_loss_has_the_interval_of_its_steps() -> None:
    steps = tuple(Step(i, 3 - i / 100, 1.0, 1e-4, 64 * i) for i in range(1, 31))
    stage = TrainedStage(512, 64, "yarn", "p", 1.0, steps)
    losses = [step.loss for step in steps[-10:]]
    low, high = t_interval(losses)  # type: ignore[misc]
    told = f"{sum(losses) / 10:.3f} ({low:.3f} to {high:.3f}) in the last 10"
    assert told in TrainingResult(Path("model"), stage, 0).summary()
    few = TrainedStage(512, 64, "yarn", "p", 1.0, steps[:3])
    assert (
        "2.980 (too few steps for an interval)" in TrainingResult(Path("model"), few, 0).summary()
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"target_length": 128}, "must be above 128, the length that the model already serves"),
        ({"target_length": 256, "documents": 0}, "documents = 0"),
        ({"target_length": 256, "documents": 3}, "budget = 3: is too small for any decision"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    arguments: dict[str, object], complaint: str
) -> None:
    present = present_plan(tiny.model().config)
    with pytest.raises(InvalidValue, match=complaint):
        settings_for(present, **arguments)  # type: ignore[arg-type]


def test_a_model_whose_finding_no_stock_runtime_could_load_is_refused() -> None:
    gemma = Path(__file__).parents[1] / "golden" / "configs" / "gemma-4-26b-a4b.json"
    loaded = LoadedModel("gemma", None, None, present_plan(gemma))
    with pytest.raises(Unsupported, match=r"192 of 256 .* do not rotate .*plan --method ntk"):
        JudgeFirst(2**19, 8).check(Start(str(gemma), loaded, 2**19, (), ()))


def test_a_model_that_overflows_within_its_own_window_is_refused() -> None:
    nothing = SimpleNamespace(measured=lambda schedule, numbers, tell: np.full((6, 3), np.nan))
    documents: Any = (SimpleNamespace(tokens=range(128)),) * 6
    reader = _Reader(nothing, documents, "first", silent, 6 * 128)  # type: ignore[arg-type]
    schedule = present_plan(tiny.model().config).longest(FULL_ATTENTION)
    with pytest.raises(RopewalkError, match="no finite scores at 128 tokens under none"):
        reader.read(AS_IT_IS, schedule, NONE, range(6))
    # At the target it may: that is why it is extended.
    assert reader.read(AS_IT_IS, schedule, FAR, range(6), may_fail=True) == []
