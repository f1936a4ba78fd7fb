"""`ropewalk evaluate` as a user meets it; tests/api/test_evaluate.py holds it to its numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ropewalk.errors import InputError
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from tests.cli.calling import result_of
from tests.evaluation import tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.texts(tmp_path_factory.mktemp("corpus"))


_evaluate = partial(result_of, "evaluate")


QUICK = ("--samples", 3, "--tasks", "perplexity,kv")


def test_json_has_the_promised_members(model: Path, corpus: Path) -> None:
    answer = json.loads(_evaluate(model, "--corpus", corpus, *QUICK, "--json").stdout)
    assert {"model", "results", "comparisons"} <= set(answer)
    assert answer["model"] == str(model)
    for row in answer["results"]:
        assert list(row) == [
            *("method", "plan_id", "weights", "task", "mode", "length", "metric"),
            *("estimate", "samples"),
        ]
        assert row["method"] == "none"
        assert row["plan_id"] == present_plan(tiny.model().config).id
        assert row["mode"] == "teacher_forced"
        assert row["samples"] == 3
    assert {row["metric"] for row in answer["results"]} == {
        "perplexity",
        "next_token_accuracy",
        "exact_match",
        "prefix_match",
    }
    lengths = sorted({row["length"] for row in answer["results"] if row["task"] == "perplexity"})
    assert lengths == [32, 64, 128]  # from a quarter of the window to the window


def test_methods_and_plans_stand_beside_each_other(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    plan = extend_plan(present_plan(tiny.model().config), 256, "ntk")
    (tmp_path / "plan.json").write_text(plan.dumps())
    result = _evaluate(
        *(model, "--corpus", corpus, *QUICK, "--lengths", "128,256"),
        *("--method", "none", "--method", "linear", "--to", 256),
        *("--plan", tmp_path / "plan.json", "--run", tmp_path / "run"),
    )
    words = ("McNemar", "kv, linear", "results and figures are in")
    for shown in ("unmodified", "linear", "ntk", *words):
        assert shown in result.stdout
    names = {
        path.relative_to(tmp_path / "run").as_posix()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    }
    assert {"run.json", "records.jsonl", "results.json", "events.jsonl"} <= names
    assert {"figures/by-length.png", "figures/by-length.svg"} <= names


def test_a_run_goes_on_and_says_the_same(model: Path, corpus: Path, tmp_path: Path) -> None:
    arguments = (model, "--corpus", corpus, *QUICK, "--run", tmp_path / "run", "--json")
    first = _evaluate(*arguments)
    records = (tmp_path / "run" / "records.jsonl").read_bytes()
    again = _evaluate(*arguments)
    assert again.stdout == first.stdout
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == records
    assert (tmp_path / "run" / "results.json").read_text() == first.stdout
    with pytest.raises(InputError, match=r"configuration\.seed was 0, now 1"):
        _evaluate(*arguments, "--seed", 1)
    with pytest.raises(InputError, match=r"configuration\.mode was .*, now .*generate"):
        _evaluate(*arguments, "--mode", "generate")
    with pytest.raises(InputError, match=r"configuration\.conditions"):
        _evaluate(*arguments, "--method", "linear", "--to", 2 * tiny.WINDOW)


def test_the_effective_length_is_shown_with_its_threshold(model: Path, corpus: Path) -> None:
    tasks = ("--tasks", "kv,niah-multikey-2-syn", "--samples", 5, "--corpus", corpus)
    shown = _evaluate(model, *tasks, "--lengths", tiny.WINDOW).stdout
    assert "A length passes where the whole 95% interval reaches the threshold" in shown
    [row] = [line for line in shown.splitlines() if line.strip().startswith("unmodified ")]
    words = " ".join(row.split())
    assert words == "unmodified retrieval 0.0% (85% of unmodified undecided up to 128"
    shown = _evaluate(model, *tasks, "--lengths", 2 * tiny.WINDOW).stdout
    assert "85% of the model's own score: not measured (needs --method none at 128)" in shown


def test_a_plan_may_bear_any_label(model: Path, corpus: Path, tmp_path: Path) -> None:
    """The label comes from the plan's file: it is neither markup nor a formula."""
    label = "[/nope] $a_$"
    plan = extend_plan(present_plan(tiny.model().config), 2 * tiny.WINDOW, "yarn")
    (tmp_path / "plan.json").write_text(replace(plan, provenance={"methods": label}).dumps())
    words = ("--plan", tmp_path / "plan.json", "--method", "none", "--lengths", 2 * tiny.WINDOW)
    shown = _evaluate(model, "--corpus", corpus, *QUICK, *words, "--run", tmp_path / "run").stdout
    assert "[/nope]" in shown
