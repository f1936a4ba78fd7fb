"""`rw.evaluate_checkpoints`, on checkpoints as a trainer leaves them."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.chart import Chart
from ropewalk.errors import InputError, InvalidValue
from tests.api.conformance import check_command, check_result
from tests.cli.calling import result_of
from tests.evaluation import tiny

SETTINGS: dict[str, Any] = {"lengths": [128], "tasks": ["perplexity", "kv"], "samples": 5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trainer's folder: three checkpoints, whose names do not sort as numbers do."""
    folder = tmp_path_factory.mktemp("trained")
    for step, spread in ((90, 0.1), (100, 0.2), (1000, 0.3)):
        tiny.saved(folder / f"checkpoint-{step}", initializer_range=spread)
    (folder / "runs-7").mkdir()
    (folder / "trainer_state.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "text.txt"
    file.write_text("\n".join(document.text for document in tiny.documents()))
    return file


@pytest.mark.parametrize("budget", ["24", "3072tok", "2s"])
def test_a_budget_is_for_all_checkpoints_and_each_answers_the_same(
    budget: str, trained: Path, corpus: Path, tmp_path: Path
) -> None:
    given = {**SETTINGS, "budget": budget}
    del given["samples"]
    found = rw.evaluate_checkpoints(trained, last=3, run=tmp_path, corpus=corpus, **given)
    counts = {row.samples for own in found.evaluated for row in own.results if row.task == "kv"}
    assert len(counts) == 1
    assert counts == {4} or budget == "2s"  # of two tasks, by three
    told: list[str] = []
    again = rw.evaluate_checkpoints(
        trained, last=3, run=tmp_path, corpus=corpus, notice=told.append, **given
    )
    assert again.spreads == found.spreads
    assert any("goes on with" in line for line in told) == (budget == "2s")


def test_a_budget_too_small_for_each_checkpoint_is_refused(trained: Path, corpus: Path) -> None:
    given: dict[str, Any] = {
        "corpus": corpus, "lengths": [128], "tasks": ["kv"], "budget": 2,
    }  # fmt: skip
    with pytest.raises(InvalidValue, match="is for 3, one after another"):
        rw.evaluate_checkpoints(trained, last=3, **given)


def test_the_last_checkpoints_in_the_order_of_training(
    trained: Path, corpus: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    found = check_result(
        rw.evaluate_checkpoints(trained, last=2, run=runs, corpus=corpus, **SETTINGS)
    )
    assert found.checkpoints == ("checkpoint-100", "checkpoint-1000")
    [spread] = [s for s in found.spreads if s.metric == "perplexity"]
    values = [
        next(r.value for r in own.results if r.metric == "perplexity") for own in found.evaluated
    ]
    assert spread.values == tuple(values)
    assert values[0] != values[1]
    assert (spread.mean, spread.lowest, spread.highest) == (fmean(values), min(values), max(values))
    assert "mean and range of 2 checkpoints at 128 tokens" in found.summary()
    for name in found.checkpoints:
        assert (runs / name / "results.json").is_file()
    assert (runs / "checkpoints.json").is_file()
    assert (runs / "figures" / "checkpoints.png").is_file()
    by_step = {chart.title: chart for chart in found.charts()}["Perplexity at 128, over training"]
    assert isinstance(by_step, Chart)
    [line] = by_step.series
    assert [(mark.x, mark.y) for mark in line.marks] == [(100, values[0]), (1000, values[1])]
    assert all(mark.low is not None for mark in line.marks)
    compared = rw.compare_runs(*(runs / name for name in found.checkpoints))
    assert compared.changes == ("weights", "the model's config")


def test_iterators_are_used_up_once_for_all_checkpoints(trained: Path) -> None:
    found = rw.evaluate_checkpoints(
        trained,
        last=2,
        corpus=(document.text for document in tiny.documents()),
        methods=iter(["linear"]),
        to=256,
        tasks=iter(["perplexity"]),
        lengths=iter([128]),
        samples=5,
    )
    told = [{(r.method, r.task, r.length) for r in own.results} for own in found.evaluated]
    assert told == [{("linear", "perplexity", 128)}] * 2


def test_checkpoints_without_a_common_score_are_refused(corpus: Path, tmp_path: Path) -> None:
    for step, window in ((1, 32), (2, 256)):
        tiny.saved(tmp_path / f"at-{step}", max_position_embeddings=window)
    with pytest.raises(
        InputError, match=r"no task was scored at the same length .* for all of at-1"
    ):
        rw.evaluate_checkpoints(tmp_path, corpus=corpus, tasks=["perplexity"], samples=2)


def test_the_command_prints_what_the_function_returns(trained: Path, corpus: Path) -> None:
    found = rw.evaluate_checkpoints(trained, last=2, corpus=corpus, **SETTINGS)
    words = ("--corpus", corpus, "--lengths", 128, "--tasks", "perplexity,kv", "--samples", 5)
    check_command(found, "evaluate", trained, "--checkpoints", 2, *words)
    done = result_of("evaluate", trained, "--checkpoints", 5, *words)
    assert "checkpoint-90, checkpoint-100, checkpoint-1000" in done.stdout
    assert "holds 3 checkpoints, not 5" in done.stderr
    assert "the range is not an interval" in done.stdout


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path, trained: Path) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    with pytest.raises(InputError, match="holds no checkpoints; they are folders with a config"):
        rw.evaluate_checkpoints(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        rw.evaluate_checkpoints(tmp_path / "nowhere")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="is itself a run directory"):
        rw.evaluate_checkpoints(trained, run=tmp_path)
