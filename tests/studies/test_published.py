"""The base-bound paper's experiments at their own size: what is asked, and a tiny run of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk.run_directory import read_journal
from studies.base import published
from studies.base.published import main
from tests.evaluation import tiny

CORPUS = [document.text for document in tiny.documents(8)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tiny.model().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("text") / "text.jsonl"
    file.write_text("".join(json.dumps({"text": each}) + "\n" for each in CORPUS))
    return str(file)


def test_pre_training_is_a_trillion_tokens_at_either_rate_of_the_paper(
    model: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", "--from-config", str(model), "--corpus", text, "--run", str(tmp_path)]
    main([*words, "--dry-run"])
    said = capsys.readouterr().out
    assert "238,418 steps, 999,997,571,072 tokens" in said
    told = published.__doc__ or ""
    assert "1e-4 in section 5.1 and 2e-4 in Table 5. 1e-4 is used" in " ".join(told.split())
    parsed = published._parser().parse_args(words)
    assert published.recipe(parsed)["learning_rate"] == 1e-4
    assert published.recipe(parsed)["decay"] == "cosine"


@pytest.mark.slow
def test_a_model_is_pre_trained_with_base_100_and_swept_over_bases(
    model: Path, text: str, tmp_path: Path
) -> None:
    common = ["--corpus", text, "--steps", "2", "--batch", "2"]
    own = ["--from-config", str(model), "--tokenizer", str(model), "--length", "128"]
    main(["pretrain", *own, *common, "--rate", "2e-4", "--run", str(tmp_path / "first")])
    trained = tmp_path / "first" / "trained" / "model"
    config = json.loads((trained / "config.json").read_text())
    assert config["rope_parameters"]["rope_theta"] == 100.0
    rates = [
        float(str(step["learning_rate"]))
        for step in read_journal(trained.parent / "training.jsonl")
    ]
    assert max(rates) == pytest.approx(2e-4)

    swept = ["--to", "512", "--bases", "1e3,1e5", "--samples", "2", "--lengths", "256,512"]
    main(["sweep", str(trained), *swept, *common, "--run", str(tmp_path / "sweep")])
    for base in ("1000", "100000"):
        place = tmp_path / "sweep" / f"base-{base}"
        config = json.loads((place / "training" / "model" / "config.json").read_text())
        assert config["rope_parameters"]["rope_theta"] == pytest.approx(float(base))
        results = json.loads((place / "evaluation" / "results.json").read_text())
        rows = {(row["task"], row["length"]) for row in results["results"]}
        assert rows == {(task, length) for task in published.TASKS for length in (256, 512)}
        assert {grid["task"] for grid in results["depth_grids"]} >= {"needle"}
    assert (tmp_path / "sweep" / "bases.png").exists()
