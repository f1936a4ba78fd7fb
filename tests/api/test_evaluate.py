"""`rw.evaluate`, on a model that is built here."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, RopewalkError
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.evaluation.conditions import Condition, conditions_of, default_lengths
from ropewalk.evaluation.identity import digest_of_weights, run_identity
from ropewalk.evaluation.results import summarise
from ropewalk.evaluation.statistics import wilson
from ropewalk.models.config import BUNDLED, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.progress import Status
from ropewalk.records import EvalRecord
from ropewalk.run_directory import RECORDS, read_configuration, read_journal
from tests.api.conformance import check_command, check_result
from tests.evaluation import tiny

PRESENT = present_plan(tiny.model().config, "tiny")
CORPUS = tiny.documents()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluated, Path]:
    """The model as it is, by a method, and by a plan, at two lengths."""
    run = tmp_path_factory.mktemp("runs") / "compared"
    found = rw.evaluate(
        tiny.loaded(),
        methods=["none", "linear"],
        to="256",
        plans=[extend_plan(PRESENT, 256, "ntk")],
        lengths=[256, "128"],
        tasks=["perplexity", "kv"],
        samples=5,
        corpus=CORPUS,
        run=run,
    )
    return found, run


def test_a_target_beside_plans_alone_is_refused() -> None:
    plan = rw.plan("bundled", 1024, "yarn").plan
    with pytest.raises(InputError, match="plans have a length of their own; leave out `to`"):
        rw.evaluate("bundled", plans=[plan], to=2048)


def test_the_results_are_those_of_the_records(compared: tuple[Evaluated, Path]) -> None:
    found, run = compared
    check_result(found)
    lines = read_journal(run / RECORDS)
    records = [EvalRecord.from_json(line, f"line {i}") for i, line in enumerate(lines)]
    assert list(found.results) == summarise(records)
    assert {(r.method, r.weights) for r in found.results} == {
        (method, digest_of_weights(tiny.model())[:16]) for method in ("none", "linear", "ntk")
    }
    results = {(r.method, r.task, r.length): r for r in found.results if r.metric == "exact_match"}
    for (method, task, length), result in results.items():
        own = [r for r in records if (r.method, r.task, r.length) == (method, task, length)]
        assert result.value == sum(r.score for r in own) / 5
        assert (result.estimate.low, result.estimate.high) == wilson(round(5 * result.value), 5)
    assert results["none", "kv", 256].plan_id == PRESENT.id
    assert found.original_length == tiny.WINDOW


def test_comparisons_are_paired_at_the_longest_length_and_saved(
    compared: tuple[Evaluated, Path],
) -> None:
    found, run = compared
    subjects = list(dict.fromkeys(result.subject for result in found.results))
    pairs = {(c.task, c.metric, c.first, c.second): c for c in found.comparisons}
    assert len(pairs) == 2 * 3, "two tasks, three pairs of conditions"
    assert {c.length for c in found.comparisons} == {256}
    lines = read_journal(run / RECORDS)
    losses = {
        (line["method"], line["sample"]): float(str(line["score"]))
        for line in lines
        if line["metric"] == "nll" and line["length"] == 256 and line["positions"] is None
    }
    differences = [
        value - losses["linear", sample]
        for (method, sample), value in losses.items()
        if method == "none"
    ]
    none_and_linear = pairs["perplexity", "nll", subjects[0], subjects[1]]
    assert none_and_linear.comparison.pairs == len(differences) == 5
    assert none_and_linear.comparison.difference.value == pytest.approx(sum(differences) / 5)
    kept = Evaluated.from_json(json.loads((run / "results.json").read_text()))
    assert kept == found
    assert kept.comparisons == found.comparisons


def test_depth_grids_hold_each_answer_once(compared: tuple[Evaluated, Path]) -> None:
    found, _ = compared
    assert [(grid.method, grid.task) for grid in found.depth_grids] == [
        ("unmodified", "kv"),
        ("linear", "kv"),
        ("ntk", "kv"),
    ]
    for grid in found.depth_grids:
        assert grid.lengths == (128, 256)
        cells = [cell for row in grid.rows for cell in row if cell is not None]
        assert sum(cell.total for cell in cells) == 2 * 5
        right = [
            r.value * r.samples
            for r in found.results
            if (r.method, r.task, r.metric) == (grid.method, grid.task, "exact_match")
        ]
        assert sum(cell.right for cell in cells) == sum(right)


def test_a_run_says_what_was_computed(compared: tuple[Evaluated, Path]) -> None:
    _, run = compared
    command, configuration = read_configuration(run)
    assert command == "evaluate"
    identity = run_identity(tiny.loaded(), CORPUS)
    assert {key: configuration[key] for key in identity} == identity
    assert configuration["lengths"] == [128, 256]
    conditions = configuration["conditions"]
    assert isinstance(conditions, list)
    assert [c["method"] for c in conditions] == ["none", "linear", "ntk"]
    assert conditions[0]["plan"] is None
    assert conditions[2]["plan"] == extend_plan(PRESENT, 256, "ntk").to_json()


def test_a_run_goes_on_only_with_the_weights_that_it_began_with(tmp_path: Path) -> None:
    def evaluate(loaded: object) -> Evaluated:
        return rw.evaluate(
            loaded, tasks=["kv"], samples=2, lengths=[128], corpus=CORPUS, run=tmp_path / "run"
        )

    found = evaluate(tiny.loaded())
    assert evaluate(tiny.loaded()) == found
    other = tiny.model(initializer_range=0.2)
    with pytest.raises(InputError, match="weights_sha256"):
        evaluate(replace(tiny.loaded(), model=other))


def test_the_command_prints_what_the_function_returns(model: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for document in CORPUS:
        (corpus / f"{document.name}.txt").write_text(document.text)
    plan = tmp_path / "plan.json"
    plan.write_text(extend_plan(PRESENT, 256, "ntk").dumps())
    found = rw.evaluate(
        model, plans=[plan], methods=["none"], tasks=["perplexity", "kv"], samples=3, corpus=corpus
    )
    assert sorted({r.length for r in found.results}) == [32, 64, 128, 256]
    check_command(
        *(found, "evaluate", model, "--plan", plan, "--method", "none", "--samples", 3),
        *("--tasks", "perplexity,kv", "--corpus", corpus),
    )


def test_generated_answers_are_labelled() -> None:
    found = rw.evaluate(
        tiny.loaded(),
        tasks=["kv"],
        samples=2,
        lengths=[128],
        mode="generate",
        corpus=[document.text for document in CORPUS],
    )
    assert {result.metric for result in found.results} == {
        "exact_match",
        "prefix_match",
        "task_score",
    }
    assert {result.mode for result in found.results} == {"generate"}
    assert [grid.mode for grid in found.depth_grids] == ["generate"]
    assert sum(cell.total for row in found.depth_grids[0].rows for cell in row if cell) == 2
    assert found.comparisons == ()
    check_result(found)


def test_progress_and_notices_reach_the_caller() -> None:
    seen: list[Status] = []
    notices: list[str] = []
    rw.evaluate(
        tiny.loaded(),
        tasks=["kv", "passkey"],
        samples=2,
        lengths=[128],
        corpus=CORPUS,
        progress=seen.append,
        notice=notices.append,
    )
    assert {status.stage for status in seen} == {"scoring"}
    assert seen[-1].done == 1
    [notice] = notices
    assert "passkey does not fit in 128 tokens" in notice


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["yarn"]}, "needs a target length"),
        ({"methods": ["yern"], "to": "1k"}, "did you mean 'yarn'"),
        ({"methods": ["nome"], "to": "1k"}, r"did you mean 'none'.*, none$"),
        ({"methods": "yarn", "to": "1k"}, "methods = 'yarn': must be a list"),
        ({"plans": PRESENT}, "plans = .*must be a list"),
        ({"tasks": ["neddle"]}, "did you mean 'needle'"),
        ({"tasks": "kv"}, "tasks = 'kv': must be a list"),
        ({"lengths": "128"}, "lengths = '128': must be a list"),
        ({"lengths": [1.5]}, "must be a length"),
        ({"samples": 0}, "between 1 and 100,000"),
        ({"mode": "guessed"}, "choose teacher_forced or generate"),
        ({"tasks": ["passkey"], "lengths": [64]}, "there is nothing to measure"),
        ({"methods": ["linear"], "to": 256, "lengths": [512]}, "planned for 256"),
        ({"corpus": [Document("short", "one line\n")]}, "no document of the corpus holds"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"tasks": ["perplexity"], "samples": 2, "corpus": CORPUS}
    with pytest.raises(RopewalkError, match=message) as caught:
        rw.evaluate(tiny.loaded(), **{**arguments, **changes})  # type: ignore[arg-type]
    assert caught.value.exit_status == 2


def test_conditions_never_share_a_label() -> None:
    plans = [extend_plan(PRESENT, 256, "ntk"), extend_plan(PRESENT, 512, "ntk")]
    found = conditions_of(PRESENT, ["ntk", "none", "ntk"], [*plans, plans[1]], 256)
    assert found == [
        Condition("ntk", plans[0].id, plans[0]),
        Condition("none", PRESENT.id, None),
        Condition(f"ntk ({plans[0].id[:6]})", plans[0].id, plans[0]),
        Condition(f"ntk ({plans[1].id[:6]})", plans[1].id, plans[1]),
    ]
    assert conditions_of(PRESENT, []) == [Condition("none", PRESENT.id, None)]


@pytest.mark.parametrize(
    ("window", "reaches", "target", "lengths"),
    [
        (128, (), None, (32, 64, 128)),
        (128, (256, 512), None, (32, 64, 128, 256)),
        (128, (), 200, (32, 64, 128, 200)),
        (4, (), None, (2, 4)),
    ],
)
def test_lengths_double_up_to_the_shortest_plan(
    window: int, reaches: tuple[int, ...], target: int | None, lengths: tuple[int, ...]
) -> None:
    plans = [extend_plan(PRESENT, reach, "ntk") for reach in reaches]
    conditions = [Condition("plan", plan.id, plan) for plan in plans]
    assert default_lengths(window, conditions, target) == lengths


@pytest.mark.parametrize(
    ("budget", "samples"), [(47, 5), ("3100tok", 4), ("3072tok", 4), ("3071tok", 3)]
)
def test_a_budget_decides_the_samples(budget: int | str, samples: int) -> None:
    """Two methods, two tasks, lengths of 64 and 128."""
    told: list[str] = []
    found = rw.evaluate(
        tiny.loaded(),
        methods=["none", "linear"],
        to=128,
        tasks=["kv", "passkey"],
        lengths=[64, 128],
        budget=budget,
        corpus=CORPUS,
        notice=told.append,
    )
    assert f"{samples} samples for each task, length and method fit into the budget" in told
    assert {result.samples for result in found.results} == {samples}


def test_a_budget_in_time_resumes_with_the_samples_it_began_with(
    model: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"

    def evaluated(budget: str) -> Evaluated:
        return rw.evaluate(
            model, tasks=["kv"], lengths=[128], budget=budget, corpus=CORPUS, run=run, device="cpu"
        )

    first = evaluated("2s")
    kept = (run / RECORDS).read_bytes()
    assert evaluated("9s").results == first.results
    assert (run / RECORDS).read_bytes() == kept


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"budget": 3}, "one sample of each task, length and method takes 4;"),
        ({"budget": "700tok"}, r"takes 7\.7e\+02tok; give at least that, or fewer tasks"),
        ({"budget": 100, "samples": 5}, "give `samples` or `budget`, not both"),
        ({"budget": "soon"}, "write 40, 1e9tok or 30m"),
    ],
)
def test_a_budget_too_small_for_any_answer(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        rw.evaluate(
            tiny.loaded(), tasks=["kv", "passkey"], lengths=[128, 256], corpus=CORPUS, **changes
        )


def test_none_is_the_unmodified_model_whatever_is_applied() -> None:
    loaded = rw.load(BUNDLED)
    asked = partial(rw.evaluate, loaded, tasks=["perplexity"], lengths=[512], samples=1)
    alone = asked()
    with rw.applied(loaded.model, rw.plan(BUNDLED, "2k", "yarn").plan):
        assert asked().to_json() == alone.to_json()
