"""RULER's own inputs, as far as the manifest goes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import RopewalkError
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.official import every, groups, read
from ropewalk.evaluation.scoring import Scorer
from ropewalk.evaluation.tasks import named
from ropewalk.run_directory import read_journal
from tests.evaluation import tiny

LENGTH = 256


def official_folder(folder: Path, names: tuple[str, ...] = ("vt",), **changes: Any) -> Path:
    entries = []
    for name in names:
        path = folder / str(LENGTH) / name / "validation.jsonl"
        path.parent.mkdir(parents=True)
        lines = [
            {"index": i, "input": f"VAR A{i} = 12. VAR B = A{i}. Who is 12?", "outputs": ["A", "B"]}
            | {"length": 60, "answer_prefix": " Answer:", "token_position_answer": 3}
            for i in range(3)
        ]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        entries.append({**_entry(path, folder), **changes})
    _write_manifest(folder, entries)
    return folder


def _entry(path: Path, folder: Path) -> dict[str, Any]:
    """What the manifest says of a file as it is now."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    own = {"path": str(path.relative_to(folder)), "task": path.parent.name, "length": LENGTH}
    return {**own, "sha256": digest}


def _write_manifest(folder: Path, entries: list[dict[str, Any]]) -> None:
    (folder / "manifest.json").write_text(json.dumps({"files": entries}))


def _rewrite(folder: Path, content: str, *, names: tuple[str, ...] = ("vt",)) -> None:
    """Give the last of the named tasks another content, which the manifest knows of."""
    paths = [folder / str(LENGTH) / name / "validation.jsonl" for name in names]
    paths[-1].write_text(content)
    _write_manifest(folder, [_entry(path, folder) for path in paths])


def _evaluate(folder: Path | None, **changes: Any) -> Any:
    asked = {"tasks": ["vt"], "mode": "generate", "samples": 2, "corpus": tiny.documents()}
    arguments: dict[str, Any] = {**asked, "official": folder, **changes}
    return rw.evaluate(tiny.loaded(), **arguments)


def test_inputs_of_the_manifest_are_asked_as_they_are(tmp_path: Path) -> None:
    found = _evaluate(official_folder(tmp_path / "inputs"), run=tmp_path / "run")
    [result] = found.results
    assert (result.task, result.mode, result.length) == ("vt", "generate", LENGTH)
    assert (result.metric, result.samples) == ("string_match_all", 2)
    assert found.means == ()
    [first, second] = read_journal(tmp_path / "run" / "records.jsonl")
    assert first["sample"] != second["sample"]
    [sample, *_] = read(tmp_path / "inputs").samples("vt", LENGTH, _encoder(), 1)
    assert _encoder().text(sample.prompt) == "VAR A0 = 12. VAR B = A0. Who is 12? Answer:"
    assert sample.allowance == 30
    with pytest.raises(RopewalkError, match="official"):  # other inputs under the same run
        _evaluate(official_folder(tmp_path / "others", ("vt", "cwe")), run=tmp_path / "run")


def _encoder() -> Encoder:
    return Encoder(tiny.tokenizer())


def test_only_all_thirteen_make_the_official_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scorer, "write", lambda self, prompts, *_: [prompts[0][:3]])
    names = tuple(name.replace("-", "_") for name in groups()["ruler"])
    found = _evaluate(official_folder(tmp_path, names), tasks=["ruler"], samples=1)
    assert {result.task for result in found.results} == set(every())
    assert [mean.task for mean in found.means] == ["ruler", "ruler-11"]


def test_scores_are_those_of_ruler() -> None:
    for name, task in every().items():
        assert task.metric == ("string_match_part" if name.startswith("qa") else "string_match_all")
        assert task.score is named(f"{name}-syn").score


@pytest.mark.parametrize(
    ("files", "call", "message"),
    [
        ({"sha256": "0" * 64}, {}, r"validation\.jsonl: its SHA-256 is .* the manifest says 000"),
        ({"sha256": "no"}, {}, "must be 64 hex digits"),
        ({"sha256": None}, {}, "must be a string"),
        ({"path": "../../outside.jsonl"}, {}, "leads out of the folder"),
        ({"path": "256/none.jsonl"}, {}, "no such file, but the manifest names it"),
        ({"path": "a\0b"}, {}, "must be the path of a file in this folder"),
        ({"path": "x/" * 3000}, {}, "must be the path of a file in this folder"),
        ({"path": ""}, {}, "must be the path of a file in this folder"),
        ({"path": "/etc/passwd"}, {}, "must be the path of a file in this folder"),
        ({}, {"tasks": ["vt", "cwe"]}, "no length at which there is a file for each of vt, cwe"),
        ({"task": "niah"}, {}, "niah.*is not one of the choices"),
        ({"more": 1}, {}, "more.*not a known key"),
        ({}, {"tasks": ["cwe"], "lengths": [LENGTH]}, "cwe at 256.: is not in the manifest"),
        ({}, {"lengths": [512]}, "vt at 512.: is not in the manifest.*lengths: 256"),
        ({}, {"mode": "teacher_forced"}, "official inputs, whose answers must be generated"),
        ({}, {"folder": None}, "vt needs RULER's own inputs"),
        ({}, {"tasks": ["kv"]}, "given, but no task reads them"),
        ({"length": 70}, {}, "line 1: takes .* tokens with this tokenizer"),
    ],
)
def test_what_does_not_match_is_refused_by_name(
    files: dict[str, Any], call: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "outside.jsonl").write_text("{}")
    folder = official_folder(tmp_path / "some" / "inputs", **files)
    with pytest.raises(RopewalkError, match=message) as caught:
        _evaluate(**{"folder": folder, **call})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "must be a JSON object"),
        ('{"input": "a", "outputs": []}', "must be answers to a prompt"),
        ('{"input": "a", "outputs": [1]}', "must be a string"),
        ('{"outputs": ["a"]}', "input.*is missing"),
        ('{"input": "a", "outputs": ["\\ud800"]}', "not valid Unicode"),
    ],
)
def test_a_line_of_another_form_is_refused(line: str, message: str, tmp_path: Path) -> None:
    folder = official_folder(tmp_path)
    _rewrite(folder, line)
    with pytest.raises(RopewalkError, match=message):
        read(folder).check(["vt"], [LENGTH], 1)


def test_blank_lines_are_counted_and_nothing_else_is_a_sample(tmp_path: Path) -> None:
    folder = official_folder(tmp_path)
    for content, message in (("\n\n{}\n", r"line 3: input.*is missing"), ("\n", "is empty")):
        _rewrite(folder, content)
        with pytest.raises(RopewalkError, match=message):
            read(folder).check(["vt"], [LENGTH], 1)


def test_prompts_that_are_too_long_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("measured before the inputs were known to fit")

    folder = official_folder(tmp_path, ("vt", "cwe"))
    _rewrite(folder, json.dumps({"input": "a b " * 300, "outputs": ["a"]}), names=("vt", "cwe"))
    monkeypatch.setattr(Scorer, "write", never)
    with pytest.raises(RopewalkError, match=r"cwe/validation\.jsonl, line 1: takes"):
        _evaluate(folder, tasks=["vt", "cwe"])


def test_a_line_without_an_end_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.evaluation.official.LONGEST_LINE", 50)
    with pytest.raises(RopewalkError, match="50 in a line"):
        read(official_folder(tmp_path)).check(["vt"], [LENGTH], 1)
