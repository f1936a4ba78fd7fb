"""`rw.compare_runs` and `ropewalk compare`, on runs of a model that is built here."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import InputError, RopewalkError
from ropewalk.evaluation.statistics import compare_mean_rates, compare_rates, holm
from ropewalk.records import is_main_answer
from ropewalk.run_directory import RECORDS
from tests.api.conformance import check_command, check_result
from tests.cli.calling import ropewalk
from tests.evaluation import tiny
from tests.evaluation.scored import rebound, resealed

SETTINGS: dict[str, Any] = {
    "methods": ["none", "linear"],
    "to": 256,
    "lengths": [256],
    "tasks": ["perplexity", "kv", "niah-multikey-2-syn"],
    "samples": 6,
    "corpus": tiny.documents(),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same evaluation of two models."""
    folder = tmp_path_factory.mktemp("runs")
    rw.evaluate(tiny.loaded(), run=folder / "a", **SETTINGS)
    other = replace(tiny.loaded(), model=tiny.model(initializer_range=0.2))
    rw.evaluate(other, run=folder / "b", **SETTINGS)
    return folder / "a", folder / "b"


def test_runs_are_compared_sample_by_sample(runs: tuple[Path, Path]) -> None:
    found = check_result(rw.compare_runs(*runs))
    assert found.changes == ("weights", "the model's config")
    assert {found.label(c) for c in found.comparisons} == {"unmodified", "linear"}
    from ropewalk.api.compare_runs import _read

    one, two = map(_read, runs)
    for c in found.comparisons:
        assert c.first.method == c.second.method
        own, other = (
            [
                r
                for r in run.records
                if (r.subject, r.length) == (subject, c.length) and is_main_answer(r)
            ]
            for run, subject in ((one, c.first), (two, c.second))
        )
        tasks = ("kv", "niah-multikey-2-syn")
        if c.task in tasks:
            a, b = ([r for r in side if r.task == c.task] for side in (own, other))
            assert [r.sample for r in a] == [r.sample for r in b]
            expected = compare_rates(
                [r.score for r in a], [r.score for r in b], [r.layout for r in a]
            )
            assert c.comparison == expected
        elif c.task == "retrieval":
            rates = [
                [
                    (
                        [r.score for r in side if r.task == task],
                        [r.layout for r in side if r.task == task],
                    )
                    for task in tasks
                ]
                for side in (own, other)
            ]
            assert c.comparison == compare_mean_rates(*rates)
    assert {c.task for c in found.comparisons} == {*SETTINGS["tasks"], "retrieval"}
    tested = [c for c in found.comparisons if c.comparison.p_value is not None]
    assert [c.adjusted_p for c in tested] == holm([c.comparison.p_value or 0.0 for c in tested])


def test_versions_that_differ_are_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(runs[0], tmp_path / "other"))
    content = json.loads((other / "run.json").read_text())
    own = content["versions"]["torch"]
    content["versions"]["torch"] = "1.0"
    (other / "run.json").write_text(json.dumps(content))
    rebound(other)
    assert rw.compare_runs(runs[0], other).changes == (f"torch: {own} and 1.0",)


def test_what_is_shown_comes_from_the_records(runs: tuple[Path, Path], tmp_path: Path) -> None:
    """Other means, other intervals and rounding in results.json change nothing."""
    expected = rw.compare_runs(*runs)
    own = [rw.evaluate(tiny.loaded(), **SETTINGS)]
    assert expected.first_results == (*own[0].results, *own[0].means)
    for emptied in (False, True):
        other = Path(shutil.copytree(runs[0], tmp_path / f"{emptied}"))
        told = json.loads((other / "results.json").read_text())
        assert told["means"]
        for mean in told["means"]:
            mean["estimate"]["value"] = 0.123
        if emptied:
            told["means"] = []
        for result in told["results"]:
            estimate = result["estimate"]
            estimate |= {"value": math.nextafter(estimate["value"], 2), "low": None}
        (other / "results.json").write_text(json.dumps(told))
        resealed(other, "results.json")
        found = rw.compare_runs(other, runs[1])
        assert found.first_results == expected.first_results
        assert found.comparisons == expected.comparisons
        ropewalk("compare", other, runs[1])


def test_means_leave_out_the_tasks_that_a_mode_leaves_out(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        **SETTINGS,
        "methods": ["none"],
        "tasks": ["passkey", "kv", "niah-multikey-2-syn"],
        "mode": "shared_context",
    }
    evaluated = rw.evaluate(tiny.loaded(), run=tmp_path / "run", **asked)
    assert [mean.task for mean in evaluated.means] == ["retrieval"]
    found = rw.compare_runs(tmp_path / "run", tmp_path / "run")
    assert {c.task for c in found.comparisons} == {"kv", "niah-multikey-2-syn", "retrieval"}


def test_a_run_and_itself_are_undecided(runs: tuple[Path, Path]) -> None:
    found = rw.compare_runs(runs[0], runs[0])
    assert found.changes == ()
    assert found.significant == ()
    assert {c.comparison.difference.value for c in found.comparisons} == {0}
    assert "are not significant" in found.summary()
    assert "better" not in found.summary()


def test_the_command_prints_what_the_function_returns(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    check_command(rw.compare_runs(*runs), "compare", *runs)
    picture = tmp_path / "difference.png"
    text = ropewalk("compare", *runs, "--plot", picture)
    for shown in ("differ in weights", "perplexity (loss)", "retrieval", "difference", "Holm"):
        assert shown in text
    assert picture.stat().st_size > 1000


def test_single_methods_are_compared_whatever_they_are_called(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    for name, method in (("a", "yarn"), ("b", "ntk")):
        rw.evaluate(tiny.loaded(), run=tmp_path / name, **{**SETTINGS, "methods": [method]})
    found = rw.compare_runs(tmp_path / "a", str(tmp_path / "b"))
    assert {found.label(c) for c in found.comparisons} == {"yarn − ntk"}
    assert found.changes == ("plans",)
    with pytest.raises(
        InputError, match=r"no method is in both runs: .* yarn, .* unmodified, linear"
    ):
        rw.compare_runs(tmp_path / "a", runs[0])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"samples": 5}, r"samples \(6 and 5\)"),
        ({"tasks": ["kv"]}, r'tasks \(\["perplexity", "kv", .* and \["kv"\]\)'),
        ({"mode": "generate"}, r'mode \("teacher_forced" and "generate"\)'),
        ({"tokenizer_sha256": "0" * 64}, "tokenizer_sha256"),
        ({"seed": 1, "corpus_sha256": "1" * 64}, r"seed \(0 and 1\), corpus_sha256"),
    ],
)
def test_runs_of_other_samples_are_refused_by_name(
    runs: tuple[Path, Path], tmp_path: Path, changed: dict[str, object], told: str
) -> None:
    shutil.copytree(runs[1], tmp_path / "other")
    file = tmp_path / "other" / "run.json"
    content = json.loads(file.read_text())
    content["configuration"].update(changed)
    file.write_text(json.dumps(content))
    rebound(file.parent)
    with pytest.raises(InputError, match=f"they differ in .*{told}.*evaluate one of them again"):
        rw.compare_runs(runs[0], tmp_path / "other")


def test_unfinished_and_damaged_runs_are_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(runs[1], tmp_path / name))

    unfinished = copy("unfinished")
    (unfinished / "results.json").unlink()
    with pytest.raises(InputError, match=r"unfinished: is unfinished \(it has no results.json\)"):
        rw.compare_runs(runs[0], unfinished)
    torn = copy("torn")
    lines = (torn / RECORDS).read_bytes().splitlines(keepends=True)
    (torn / RECORDS).write_bytes(b"".join(lines[:-1]))
    with pytest.raises(
        InputError, match=r"records.jsonl: has \d+ lines of the \d+ that results.json was made from"
    ):
        rw.compare_runs(torn, runs[0])
    other = copy("other")
    of = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**of, "command": "search"}))
    resealed(other, "results.json")
    with pytest.raises(InputError, match="is a run of search, not of evaluate"):
        rw.compare_runs(runs[0], other)
    with pytest.raises(RopewalkError, match="is not a folder"):
        rw.compare_runs(runs[0], tmp_path / "nowhere")
