"""`rw.precision`, on a model that is built here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.errors import RopewalkError
from ropewalk.evaluation.identity import run_identity
from ropewalk.number_formats.results import Precision
from ropewalk.progress import Status
from ropewalk.run_directory import RECORDS, read_configuration
from tests.api.conformance import check_command, check_result
from tests.evaluation import tiny

CORPUS = tiny.documents()


def measured(**changes: object) -> Precision:
    arguments: dict[str, object] = {
        "quick": True,
        "length": 64,
        "sequences": 2,
        "arms": ["fp32", "bf16"],
        "shifts": [16, 0],
        "corpus": CORPUS,
    }
    return rw.precision(tiny.loaded(), **{**arguments, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Precision, Path]:
    run = tmp_path_factory.mktemp("runs") / "precision"
    return measured(run=run), run


def test_a_result_survives_json_and_is_what_the_run_keeps(found: tuple[Precision, Path]) -> None:
    precision, run = found
    check_result(precision)
    assert Precision.from_json(json.loads((run / "results.json").read_text())) == precision
    assert {path.name for path in (run / "figures").iterdir()} >= {"precision.png", "precision.svg"}
    fp32, bf16 = (arm.strays for arm in precision.arms)
    without = " (no intervals: they need five sequences)" if fp32.low is None else ""
    assert f"D = fp32 {fp32}, bf16 {bf16}{without}." in precision.summary()
    assert "loaded with dtype=bfloat16: cos and sin in bfloat16" in precision.summary()


def test_json_keeps_estimates_as_lists(found: tuple[Precision, Path]) -> None:
    precision, _ = found
    value = json.loads(json.dumps(precision.to_json()))
    assert list(value) == [
        *("model", "length", "reference", "sequences", "device", "arms", "traps", "verdict"),
    ]
    fp32, bf16 = value["arms"]
    (first, second, (strays, low, high)), (_, _, (same, *_)) = bf16["curve"]
    assert (first, second) == (0, 16)
    assert (low, high) == (None, None), "two sequences give no interval"
    assert same == 0, "a shift compared with itself"
    assert strays > 100 * fp32["curve"][0][2][0]
    assert bf16["attention_by_length"][-1][0] == 64


def test_no_records_of_another_kind_are_kept(found: tuple[Precision, Path]) -> None:
    _, run = found
    assert (run / "measurements.jsonl").exists()
    assert not (run / RECORDS).exists()
    command, configuration = read_configuration(run)
    assert command == "precision"
    identity = run_identity(tiny.loaded(), CORPUS)
    assert {key: configuration[key] for key in identity} == identity
    assert configuration["shifts"] == [0, 16]


def test_a_run_goes_on_where_it_was(found: tuple[Precision, Path]) -> None:
    precision, run = found
    journal = (run / "measurements.jsonl").read_bytes()
    seen: list[Status] = []
    assert measured(run=run, progress=seen.append) == precision
    assert (run / "measurements.jsonl").read_bytes() == journal
    assert {(status.stage, status.done) for status in seen} == {("measuring", 1.0)}


def test_the_command_prints_what_the_function_returns(model: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "text.txt"
    corpus.write_text(CORPUS[1].text)
    result = rw.precision(model, quick=True, arms=["bf16"], shifts=[0, 16], corpus=corpus)
    assert result.length == tiny.WINDOW
    check_command(
        *(result, "precision", model, "--quick", "--arms", "bf16", "--shifts", "16,0"),
        *("--corpus", corpus),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ["fp23"]}, "fp23"),
        ({"arms": "bf16"}, "arms = 'bf16': must be a list"),
        ({"arms": []}, "must not be empty"),
        ({"arms": ["tf32"]}, "no TF32 units"),
        ({"length": "9M"}, "shorter|longer|tokens"),
        ({"shifts": [16, 32]}, "must contain 0"),
        ({"shifts": [0, "16"]}, "must be a whole number"),
        ({"sequences": 0}, "must be positive"),
        ({"corpus": "nothing.txt"}, "no such file"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RopewalkError, match=message) as caught:
        measured(**changes)
    assert caught.value.exit_status == 2
