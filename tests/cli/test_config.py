"""`--config RUN/run.json` repeats a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.cli import call
from ropewalk.errors import InputError
from ropewalk.run_directory import RunDirectory
from tests.evaluation import tiny

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.texts(tmp_path_factory.mktemp("texts") / "texts", 8)


def ropewalk(*words: object) -> int:
    return call([str(word) for word in words])


@pytest.fixture(scope="module")
def evaluated(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `evaluate`, started in Python."""
    run = tmp_path_factory.mktemp("runs") / "first"
    rw.evaluate(
        model,
        corpus=corpus,
        methods=["none", "linear"],
        to=256,
        tasks=("kv", "perplexity"),
        lengths=["128", 256],
        samples=2,
        seed=3,
        run=run,
    )
    return run


def test_an_evaluation_is_repeated(evaluated: Path, tmp_path: Path) -> None:
    assert ropewalk("evaluate", "--config", evaluated / "run.json", "--run", tmp_path / "run") == 0
    for name in ("run.json", "results.json", "records.jsonl"):
        again = (tmp_path / "run" / name).read_text()
        assert json.loads(again.splitlines()[0] if name == "records.jsonl" else again)
        assert again == (evaluated / name).read_text()


def test_what_is_given_wins(evaluated: Path, tmp_path: Path) -> None:
    config = f"--config={evaluated}"
    changed = ("--samples", 1, "--method", "none", "--run", tmp_path / "run")
    assert ropewalk("evaluate", config, *changed) == 0
    before, after = (
        json.loads((run / "run.json").read_text())["arguments"]
        for run in (evaluated, tmp_path / "run")
    )
    assert after == {**before, "samples": 1, "methods": ["none"]}


@pytest.mark.slow
def test_a_training_is_repeated(model: Path, corpus: Path, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    given = ("--to", 256, "--method", "linear", "--steps", 2, "--batch", 2, "--seed", 5)
    one, two = (f"{name}={corpus / f'document {i}.txt'}" for i, name in enumerate("ab"))
    texts = ("--corpus", one, "--corpus", two)
    shares = ("--share", "a=0.25", "--share", "b=0.75", "--field", "text")
    assert ropewalk("train", model, *texts, *shares, *given, "--run", first) == 0
    assert ropewalk("train", "--config", first / "run.json", "--run", again) == 0
    assert (again / "run.json").read_text() == (first / "run.json").read_text()
    before, after = (
        json.loads((run / "results.json").read_text())["stages"] for run in (first, again)
    )
    assert [stage["steps"] for stage in before] == [stage["steps"] for stage in after]


def test_a_repeated_training_is_the_same_preview(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    given = ("--corpus", corpus, "--to", 256, "--steps", "1,2", "--stages", "160,256", "--json")
    assert ropewalk("train", model, *given, "--dry-run") == 0
    first = capsys.readouterr().out
    kept = {"model": str(model), "corpus": str(corpus), "to": "256", "steps": [1, 2]}
    content = {"format": "ropewalk-run-1", "command": "train", "configuration": {}, "versions": {}}
    (folder / "run.json").write_text(
        json.dumps({**content, "arguments": {**kept, "stages": ["160", "256"]}})
    )
    assert ropewalk("train", "--config", folder / "run.json", "--dry-run", "--json") == 0
    assert capsys.readouterr().out == first


def test_a_run_that_cannot_be_repeated_is_named(
    evaluated: Path, model: Path, corpus: Path, tmp_path: Path
) -> None:
    def refused(*words: object) -> str:
        with pytest.raises(InputError) as caught:
            ropewalk(*words)
        return str(caught.value)

    file = evaluated / "run.json"
    assert (
        "belongs to a run of `ropewalk evaluate`; give the run.json of a run of search"
        in refused("search", "--config", file)
    )
    assert "is not the run.json of a run" in refused("evaluate", "--config", corpus / "0.txt")
    with RunDirectory(tmp_path / "old", "evaluate", {"seed": 1}):
        pass
    assert "an earlier version of ropewalk" in refused("evaluate", "--config", tmp_path / "old")
    content = json.loads(file.read_text())
    damaged = tmp_path / "damaged" / "run.json"
    damaged.parent.mkdir()
    damaged.write_text(json.dumps({**content, "arguments": {"colour": "red"}}))
    assert "'colour' is not an argument of evaluate" in refused("evaluate", "--config", damaged)
    rw.evaluate(
        tiny.loaded(), corpus=corpus, tasks=["kv"], lengths=[128], samples=1, run=tmp_path / "live"
    )
    told = refused("evaluate", "--config", tmp_path / "live")
    assert "does not hold MODEL, a LoadedModel that was given in Python and cannot" in told
