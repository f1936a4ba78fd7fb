from __future__ import annotations

import json
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.api.search import search
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue
from tests.api.conformance import check_command, check_result
from tests.evaluation import tiny


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [document.text for document in tiny.documents(2, lines=40)]


def test_command_and_function_find_the_same(
    model: Path, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for i, text in enumerate(texts):
        (corpus / f"{i}.txt").write_text(text)
    found = check_result(rw.search(str(model), "256", corpus=corpus, budget=5))
    arguments = ("search", model, "--to", 256, "--budget", 5, "--corpus", corpus)
    check_command(found, *arguments, "-o", tmp_path / "plan.json", but=["seconds"])
    assert ContextPlan.read(tmp_path / "plan.json") == found.plan


def test_a_run_is_kept_and_gone_on_with(model: Path, texts: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    told: list[str] = []
    found = search(model, 256, corpus=texts, budget=5, run=run, notice=told.append)
    before = {path: path.read_bytes() for path in run.iterdir() if path.name.endswith("json")}
    again = search(model, 256, corpus=texts, budget=5, run=run, notice=told.append)
    assert again.legs == found.legs
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(InputError, match="evaluations was 5, now 6"):
        search(model, 256, corpus=texts, budget=6, run=run)


def test_a_budget_in_time_becomes_tokens_which_a_run_keeps(
    model: Path, texts: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    found = search(model, 256, corpus=texts, budget="1s", run=run)
    kept = json.loads((run / "run.json").read_text())["configuration"]
    assert kept["tokens"] >= found.legs[0].tokens
    assert kept["evaluations"] is None
    again = search(model, 256, corpus=texts, budget="1s", run=run)
    assert again.legs == found.legs
    with pytest.raises(InputError, match=r"seconds was 1\.0, now 3600\.0"):
        search(model, 256, corpus=texts, budget="1h", run=run)
    assert json.loads((run / "run.json").read_text())["configuration"] == kept


def test_bad_input_is_refused_through_the_api_too(model: Path, texts: list[str]) -> None:
    with pytest.raises(
        InvalidValue, match="must be above 128, the length that the model already serves"
    ):
        rw.search(str(model), 128, corpus=texts)
    with pytest.raises(InvalidValue, match="to = "):
        rw.search(str(model), True, corpus=texts)
    with pytest.raises(InputError, match="holds no weights"):
        rw.search("llama-3.1-8b", "256k", corpus=texts)
