"""What single stages decide and say, on values that are made for the purpose."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.evaluation import samples, tasks
from ropewalk.evaluation.conclusion import concluded
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.statistics import t_interval
from ropewalk.exporting.exported import Exported
from ropewalk.models.config import present_plan
from ropewalk.models.load import LoadedModel
from ropewalk.pipeline.extend import Extended
from ropewalk.pipeline.results import (
    Difference,
    EvaluatedExtension,
    Exports,
    ShortText,
    Training,
    Verified,
    VerifiedFile,
)
from ropewalk.pipeline.settings import parted, settings_for
from ropewalk.pipeline.stage import Start
from ropewalk.pipeline.stages.evaluate import Evaluate
from ropewalk.pipeline.stages.search import Search
from ropewalk.records import EvalRecord
from ropewalk.run_directory import Journal
from ropewalk.searching.model.planted import text_of
from ropewalk.searching.model.results import Leg
from ropewalk.training.journal import Step
from ropewalk.training.results import TrainedStage
from tests.evaluation import tiny


def records(method: str, right: int, loss: float, *, length: int = 256) -> list[EvalRecord]:
    """Ten answers of which so many are right, and the loss of two windows."""
    answers = [
        EvalRecord(
            method=method, plan_id=method, weights="0" * 16, task="needle", mode="teacher_forced",
            metric="exact_match", length=length, sample=f"{length}-{i}", layout=f"{i}",
            score=float(i < right),
        )
        for i in range(10)
    ]  # fmt: skip
    windows = [
        replace(answers[i], task="perplexity", metric="nll", sample=f"w{length}-{i}", score=loss)
        for i in range(2)
    ]
    return answers + windows


def concluded_by(stage: Evaluate, records: list[EvalRecord], leg: Leg) -> EvaluatedExtension:
    answerer = InProcess(tiny.loaded(), ())
    conclusion = concluded(answerer, stage.settings, records)
    return stage.evaluated(conclusion, records, leg, leg.chosen)


def test_the_evaluation_reports_on_what_the_search_stage_chose(done: Extended) -> None:
    """It decides nothing: here another method has more answers and a lower perplexity."""
    [leg] = done.result(Search).legs
    leg = replace(leg, chosen="yarn", best_hand_designed="yarn", best=leg.baselines["yarn"])
    measured = {"none": (0, 9.0), "ntk": (10, 3.2), "yarn": (9, 3.5)}
    found = [r for name, (right, loss) in measured.items() for r in records(name, right, loss)]
    found += [r for name in measured for r in records(name, 10, 2.0, length=128)]
    evaluated = concluded_by(Evaluate(256, (128, 256), 10), found, leg)
    assert (evaluated.chosen, evaluated.best_hand_designed) == ("yarn", "yarn")
    assert evaluated.before.retrieval == 0.0
    assert evaluated.after.retrieval == 0.9
    assert evaluated.after.perplexity == pytest.approx(math.exp(3.5))
    assert str(evaluated.after) == (
        "retrieval 90% (60 to 98%), perplexity 33.1 (too few samples for an interval)"
    )
    tested = {
        (c.first.method, c.second.method)
        for c in evaluated.comparisons
        if c.metric == "exact_match"
    }
    names = list(measured)
    assert tested == {(a, b) for a, b in product(names, names) if names.index(a) < names.index(b)}


def test_what_was_not_measured_at_the_target_is_not_said_to_be_zero(done: Extended) -> None:
    [leg] = done.result(Search).legs
    leg = replace(leg, chosen="yarn", best_hand_designed="yarn", best=leg.baselines["yarn"])
    found = [r for name in ("none", "yarn") for r in records(name, 5, 3.0, length=128)]
    at_target = [r for name in ("none", "yarn") for r in records(name, 5, 3.0)]
    for kept, told in (
        ("perplexity", "retrieval not measured, perplexity 20.1"),
        ("needle", "retrieval 50% (24 to 76%), perplexity not measured"),
    ):
        some = [*found, *(r for r in at_target if r.task == kept)]
        evaluated = concluded_by(Evaluate(256, (128, 256), 10), some, leg)
        assert str(evaluated.after).startswith(told)
        assert "0%" not in str(evaluated.after).replace("50%", "")
        assert type(evaluated).from_json(evaluated.to_json()) == evaluated


def test_no_sample_both_decides_and_reports(done: Extended, run: Path) -> None:
    """From the records: at every length, search, selection and report read different text."""
    documents = tiny.documents(8)
    to_search, to_report = parted(documents)
    [leg] = done.result(Search).legs
    sets = [set(leg.sources[place]) for place in ("search", "selection", "reporting")]
    assert all(sets)
    assert len(set.union(*sets)) == sum(map(len, sets))
    searched = {text_of(source) for source in set.union(*sets)}
    assert searched <= {document.name for document in to_search}

    haystack, encoder = Haystack(to_report), Encoder(tiny.tokenizer())
    kept = Journal(run / "records.jsonl")
    scored = [EvalRecord.from_json(record, "record") for record in kept.records]
    kept.close()
    asked = {(r.task, r.length) for r in scored if r.depth is not None}
    for task, length in asked:
        own = {r.sample for r in scored if (r.task, r.length) == (task, length)}
        drawn = samples.generate(tasks.named(task), encoder, haystack, length, 2, 0)
        assert own == {sample.id for sample in drawn}
    windows = [r for r in scored if r.task == "perplexity"]
    assert {r.length for r in windows} == {r.length for r in scored}
    reported = {re.split(r"@", r.layout)[0] for r in windows}
    assert reported <= {document.name for document in to_report}

    # And the two texts share nothing: a document that was cut has two names.
    names = [{document.name for document in part} for part in (to_search, to_report)]
    assert names[0].isdisjoint(names[1])
    assert "".join(d.text for d in [*to_search, *to_report]) == "".join(d.text for d in documents)


def test_an_export_that_nothing_here_can_run_is_told_too() -> None:
    unproven = Exported("llama.cpp", Path("model.gguf"), None)
    assert "not tested here" in Exports((unproven,), {}, {}).summary()


@pytest.mark.parametrize(
    ("metric", "difference", "p", "said"),
    [
        ("nll", 0.1, 0.01, "perplexity of needle at 512 +10.5% (+8.3% to +12.7%)"),
        ("nll", -0.1, 0.01, "no significant loss"),
        ("nll", 0.1, 0.2, "no significant loss"),
        ("exact_match", -0.2, 0.01, "needle at 512 -20 points (-22 points to -18 points)"),
        ("exact_match", 0.2, 0.01, "no significant loss"),
    ],
)
def test_a_cost_at_short_lengths_is_told_where_it_is_significant(
    metric: str, difference: float, p: float, said: str
) -> None:
    low, high = difference - 0.02, difference + 0.02
    row = Difference("needle", metric, 512, difference, low, high, p)
    assert said in ShortText("yarn", (row,)).summary()


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (("OK",), "model was read back from disk and follows the plan."),
        (("OK", "OK"), "model and model.gguf were read back from disk and follow the plan."),
        (
            ("OK", "not established"),
            "model was read back from disk and follows the plan. "
            "Whether model.gguf follows the plan was not established. Not established: no runtime.",
        ),
    ],
)
def test_what_was_read_back_from_disk_is_told_in_sentences(
    verdicts: tuple[Any, ...], said: str
) -> None:
    names = [Path("run/model"), Path("run/model.gguf")]
    files = tuple(
        VerifiedFile(path, verdict, (), () if verdict == "OK" else ("no runtime",))
        for path, verdict in zip(names, verdicts, strict=False)
    )
    assert Verified(files).summary() == said


def test_a_mean_loss_has_the_interval_of_its_steps() -> None:
    steps = tuple(Step(i, 3 - i / 100, 1.0, 1e-4, 64 * i) for i in range(1, 31))
    stage = TrainedStage(512, 64, "yarn", "p", 1.0, steps)
    losses = [step.loss for step in steps[-10:]]
    low, high = t_interval(losses)  # type: ignore[misc]
    told = f"{sum(losses) / 10:.3f} ({low:.3f} to {high:.3f}) in the last 10"
    assert told in Training(Path("model"), stage, 0).summary()
    few = TrainedStage(512, 64, "yarn", "p", 1.0, steps[:3])
    assert "2.980 (too few steps for an interval)" in Training(Path("model"), few, 0).summary()


def test_the_lengths_are_the_window_its_doublings_and_the_target() -> None:
    present = present_plan(tiny.model().config)
    assert settings_for(present, 1000).lengths == (128, 256, 512, 1000)
    assert settings_for(present, 512, lengths=[64]).lengths == (64, 512)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"target_length": 128}, "must be above 128, the length that the model already serves"),
        ({"target_length": 256, "lengths": [512]}, "the model is extended to 256 tokens"),
        ({"target_length": 256, "samples": 0}, "samples = 0"),
        ({"target_length": 256, "evaluations": -1}, "evaluations = -1"),
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
    with pytest.raises(Unsupported, match=r"192 of 256 .* rest .* use plan --method ntk"):
        Search(2**19, 8).check(Start(str(gemma), loaded, 2**19, (), ()))
