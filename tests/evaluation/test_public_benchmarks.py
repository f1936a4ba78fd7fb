"""What is asked of lm-evaluation-harness, and what is read from its answer; without the harness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ropewalk.errors import InputError, UnknownName, Unsupported
from ropewalk.evaluation.public_benchmarks import asked, leaves, scores_of


def _entry(kind: str, tags: tuple[str, ...] = (), **cfg: Any) -> Any:
    """An entry of the harness's index, as far as it is read."""
    return SimpleNamespace(kind=SimpleNamespace(name=kind), tags=set(tags), cfg=cfg)


BY_SIZE = [{"metric": "acc", "weight_by_size": True}]
INDEX = {
    **{name: _entry("TASK") for name in ("hellaswag", "anatomy", "law", "arc_challenge")},
    **{name: _entry("TASK") for name in ("niah_single_1", "ruler_vt")},
    "longcxt": _entry("TAG", ("niah_single_1", "ruler_vt")),
    "law_tasks": _entry("TAG", ("law",)),
    "mmlu_law": _entry("GROUP", task=["law_tasks"], aggregate_metric_list=BY_SIZE),
    "mmlu": _entry("GROUP", task=["anatomy", "mmlu_law"], aggregate_metric_list=BY_SIZE),
    "even": _entry(
        "GROUP",
        task=["anatomy", "law"],
        aggregate_metric_list={"metric": "acc", "weight_by_size": False},
    ),
    "arcs": _entry("TAG", ("arc_challenge", "hellaswag")),
    "mixed": _entry(
        "GROUP",
        task=[
            {"group": "inner", "task": [{"task": "law", "num_fewshot": 1}]},
            {"group": "mmlu_law", "num_fewshot": 2},
            {"task": "in_place", "dataset_path": "json"},
        ],
    ),
    "hidden": _entry("GROUP", task=[{"group": "inner", "task": ["hellaswag", "longcxt"]}]),
    "copied": _entry("GROUP", task=[{"task": "ruler_mine", "dataset_path": "json"}]),
}


def test_groups_and_tags_come_down_to_tasks() -> None:
    assert leaves(INDEX, "hellaswag") == ("hellaswag",)
    assert leaves(INDEX, "longcxt") == ("niah_single_1", "ruler_vt")
    assert leaves(INDEX, "mmlu") == ("anatomy", "law")
    assert leaves(INDEX, "mixed") == ("law", "mixed::in_place")


@pytest.mark.parametrize("name", ["longcxt", "hidden", "copied", "niah_single_1"])
def test_remote_code_is_refused_in_groups_and_tags_too(name: str) -> None:
    with pytest.raises(Unsupported, match="trusts remote code"):
        asked(INDEX, ["hellaswag", name])


def test_an_unknown_name_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownName, match="nothing"):
        asked(INDEX, ["hellaswag", "nothing"])


def test_a_task_named_alone_and_in_its_group_runs_once() -> None:
    runs = asked(INDEX, ["law", "hellaswag", "mmlu", "mmlu_law"])
    assert [run.name for run in runs] == ["hellaswag", "mmlu"]
    assert runs[0].compared == {"law", "hellaswag", "mmlu", "mmlu_law"}
    assert [run.name for run in asked(INDEX, ["arc-c", "arc_challenge"])] == ["arc-c"]
    both = asked(INDEX, ["law_tasks", "mmlu_law"])
    assert [run.name for run in both] == ["law_tasks", "mmlu_law"], "the group has its own score"
    assert [run.name for run in asked(INDEX, ["mmlu", "even"])] == ["mmlu", "even"]
    [run] = asked(INDEX, ["arcs"])
    assert {"arc_challenge", "hellaswag"} <= run.compared
    with pytest.raises(InputError, match=r"arc-c and arcs both include arc_challenge, with diff"):
        asked(INDEX, ["arc-c", "arcs"])


def _samples(scores: list[float], metric: str = "acc", chosen: str = "none") -> list[Any]:
    return [{"doc_id": i, "filter": chosen, metric: score} for i, score in enumerate(scores)]


def test_each_filter_has_its_own_scores() -> None:
    results = {
        "results": {"gsm8k": {"exact_match,strict": 0.0, "exact_match,flexible": 0.5}},
        "samples": {
            "gsm8k": _samples([0, 0], "exact_match", "strict")
            + _samples([0, 1], "exact_match", "flexible")
        },
    }
    strict, flexible = scores_of(results, {"gsm8k": _entry("TASK")}, frozenset(["gsm8k"]))
    assert (strict.metric, flexible.metric) == ("exact_match,strict", "exact_match,flexible")
    assert strict.scores == {"gsm8k": {0: 0.0, 1: 0.0}}
    assert flexible.scores == {"gsm8k": {0: 0.0, 1: 1.0}}


def _answer(value: float, children: dict[str, list[str]]) -> Any:
    groups = {name: {"alias": name, "acc,none": value} for name in children}
    return {
        "results": {"anatomy": {"acc,none": 0.5}, "law": {"acc,none": 1.0}, **groups},
        "groups": dict(reversed(groups.items())),
        "group_subtasks": children,
        "samples": {"anatomy": _samples([0, 1]), "law": _samples([1, 1, 1, 1, 1, 1])},
    }


def test_a_group_comes_first_with_the_score_that_the_harness_gives_it() -> None:
    children = {"mmlu": ["anatomy", "mmlu_law"], "mmlu_law": ["law"]}
    answer = _answer(7 / 8, children)
    found = scores_of(answer, INDEX, frozenset(["mmlu"]))
    assert [own.task for own in found] == ["mmlu", "mmlu_law", "anatomy", "law"]
    assert [own.compared for own in found] == [True, False, False, False]
    assert (found[0].value, found[0].metric) == (7 / 8, "acc")
    assert found[0].weighting == "questions"
    assert set(found[0].scores) == {"anatomy", "law"}
    assert found[1].weighting is None, "7 / 8 is not the mean of law"


def test_a_group_can_weight_tasks_alike() -> None:
    first, *_ = scores_of(_answer(3 / 4, {"even": ["anatomy", "law"]}), INDEX, frozenset())
    assert first.weighting == "tasks"
    first, *_ = scores_of(_answer(7 / 8, {"even": ["anatomy", "law"]}), INDEX, frozenset())
    assert first.weighting is None, "the harness computed something else"
