from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, RopewalkError
from ropewalk.run_directory import read_journal
from tests.cli.calling import result_of
from tests.evaluation import tiny
from tests.forks import Forks
from tests.searching.model.test_ranks import processes

QUICK = ("--to", 256, "--budget", 5, "--corpus")
RESULTS = ("plan.json", "results.json", "search.jsonl", "search-measured.jsonl")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A few stretches of 256 tokens: a quick search.
    return tiny.texts(tmp_path_factory.mktemp("corpus"), 2, lines=40)


_search = partial(result_of, "search")


def test_a_run_holds_the_plan_the_journal_and_figures_and_goes_on(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    arguments = (model, *QUICK, corpus, "--run", tmp_path / "run", "--json")
    first = json.loads(_search(*arguments).stdout)
    plan = ContextPlan.read(tmp_path / "run" / "plan.json")
    assert plan.longest().rescale_factors.tolist() == first["best"]["rescale_factors"]
    figures = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    names = ("factors", "progress")
    assert figures == {f"{name}.{e}" for name in names for e in ("png", "svg")}
    kept = {name: (tmp_path / "run" / name).read_bytes() for name in RESULTS}

    again = json.loads(_search(*arguments).stdout)
    first.pop("seconds")
    again.pop("seconds")
    assert again == first
    assert {name: (tmp_path / "run" / name).read_bytes() for name in RESULTS} == kept
    with pytest.raises(InputError, match=r"configuration\.objective was \"mixed\", now \"needle\""):
        _search(*arguments, "--objective", "needle")


def test_without_a_run_directory_there_is_a_default_one(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = _search(model, *QUICK, corpus, "--recover", "--no-stock-runtimes")
    plan = ContextPlan.read(tmp_path / "runs" / "search-tiny-256" / "plan.json")
    assert [step.up_to_length for step in plan.steps()] == [tiny.WINDOW, 256]
    for word in (
        "yarn",
        "unmodified",
        "Held-out documents",
        "wrote runs/search-tiny-256/plan.json",
    ):
        assert word in result.stdout
    more = ("--strategy", "evolution", "--run", "second")
    _search(model, *QUICK, corpus, "-o", "other.json", *more)
    assert ContextPlan.read(tmp_path / "other.json").target_length == 256
    other = (tmp_path / "other.json").read_text()
    assert other == (tmp_path / "second" / "plan.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "8k"), r"too short are document 0\.txt \(1,\d+ tokens\), document 1"),
        (("--budget", "100tok"), "--budget = '100 tokens': one evaluation at"),
        (("--evaluations", "0"), "--budget = '0': must be a whole number of evaluations"),
        (("--budget", "0"), "--budget = '0': must be a whole number of evaluations"),
        (("--to", "64", "--recover", "--beyond-critical"), "--beyond-critical = True: bounds the"),
        (("--beyond-critical", "--as-published"), "settings of its own for"),
        (("--ranks-per-copy", "2"), "the number of ranks must be a multiple of it, but is 1"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    model: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RopewalkError, match=message) as refused:
        _search(model, *QUICK, corpus, *arguments)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("given", [{"WORLD_SIZE": "2"}, {"WORLD_SIZE": "two", "RANK": "0"}])
def test_an_environment_that_torchrun_did_not_make_is_refused(
    given: dict[str, str],
    model: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for key, text in given.items():
        monkeypatch.setenv(key, text)
    with pytest.raises(InputError, match="start several processes with `torchrun"):
        _search(model, *QUICK, corpus)
    assert not list(tmp_path.iterdir())


def test_a_corpus_that_is_no_text_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_bytes(b"\xff\xfe\x00broken")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        _search(model, *QUICK, tmp_path / "corpus.txt")


@pytest.mark.slow
def test_ranks_that_share_a_model_leave_the_run_of_one_process(
    model: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    program = "import torch; torch.set_num_threads(1); from ropewalk.__main__ import main; main()"
    arguments = ["search", *map(str, (model, *QUICK, corpus, "--recover", "--run"))]
    shared = ["--ranks-per-copy", "2"]

    def run(count: int, *more: str) -> list[tuple[int, str]]:
        started = processes(fresh, program, [*arguments, *more], count)
        ended = [process.wait(300) for process in started]
        return [(each.returncode, each.stderr) for each in ended]

    [(status, errors)] = run(1, str(tmp_path / "alone"))
    assert status == 0, errors
    for status, errors in run(4, str(tmp_path / "together"), *shared):
        assert status == 0, errors
    places = [tmp_path / "together", tmp_path / "alone"]
    for name in (*RESULTS, "recovery.jsonl"):
        together, alone = (place / name for place in places)
        assert together.read_bytes() == alone.read_bytes(), name
    kept = [json.loads((place / "run.json").read_text()) for place in places]
    differ = {key for key in kept[0] if kept[0][key] != kept[1][key]}
    assert differ == {"arguments"}  # how many ranks share a copy

    first, *others = run(2, str(tmp_path / "together"), *shared, "--objective", "needle")
    assert "different configuration" in first[1]
    for status, errors in others:
        assert status == 1
        assert errors.strip().endswith("error: rank 0 failed; see its output")


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_ranks_that_divide_heads_choose_as_one_process(
    count: int, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    """Each forward is then one of two ranks together, and its sums are rounded otherwise."""
    folder = tiny.saved(tmp_path / "model", num_attention_heads=4, num_key_value_heads=2)
    program = "import torch; torch.set_num_threads(1); from ropewalk.__main__ import main; main()"
    arguments = ["search", *map(str, (folder, *QUICK, corpus, "--device", "cpu", "--run"))]

    def run(count: int, *more: str) -> list[str]:
        ended = [each.wait(300) for each in processes(fresh, program, [*arguments, *more], count)]
        assert all(each.returncode == 0 for each in ended), ended[0].stderr
        return [each.stderr for each in ended]

    run(1, str(tmp_path / "alone"))
    told, *others = run(count, str(tmp_path / "together"), "--ranks-per-copy", "2")
    assert "each rank holds its share of the heads" in told
    assert not any("each rank holds" in other for other in others)
    places = [tmp_path / "together", tmp_path / "alone"]
    plans = [ContextPlan.read(place / "plan.json").longest() for place in places]
    assert plans[0].rescale_factors.tolist() == plans[1].rescale_factors.tolist()
    for name in ("search.jsonl", "search-measured.jsonl"):
        together, alone = (read_journal(place / name) for place in places)
        assert len(together) == len(alone)
        for ours, theirs in zip(together, alone, strict=True):
            assert close(ours, theirs), (ours, theirs)


def close(ours: Any, theirs: Any) -> bool:
    """Whether two values of JSON are equal but for rounding of their numbers."""
    if isinstance(theirs, dict):
        shown = [key for key in theirs if key != "sha256"]
        return set(ours) == set(theirs) and all(close(ours[key], theirs[key]) for key in shown)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    if isinstance(theirs, float):
        return bool(ours == pytest.approx(theirs, rel=1e-5))
    return bool(ours == theirs)
