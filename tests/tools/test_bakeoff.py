"""The bake-off's faults, its rules, and its independent formulas; and the table of models."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from transformers import AutoConfig

from tests.models import truth
from tools.bakeoff import page, score
from tools.bakeoff.bases import BASES
from tools.bakeoff.fault import written
from tools.bakeoff.folders import LENGTH
from tools.bakeoff.new_faults import FOLDER, LIVE, SERVER, TRAINING
from tools.bakeoff.reference import Rotation, rotations
from tools.models_table.__main__ import RECORDED, RUNTIMES, published

FLAT = ("llama yarn", "llama llama3", "qwen2 linear", "gpt_oss yarn", "olmo3 yarn", "neox linear")


@pytest.mark.parametrize("base", FLAT)
def test_transformers_follows_an_intended_set_up(base: str) -> None:
    config = AutoConfig.for_model(**copy.deepcopy(BASES[base]))
    found = {r.layer_type: r for r in truth.rotations(config)}
    for layer, right in rotations(BASES[base], LENGTH).items():
        own = found[layer]
        got = Rotation(own.inverse_frequencies, own.attention_scaling)
        assert right.distance(got, LENGTH - 1) < score.MOVED


def test_each_new_fault_changes_its_file_and_is_counted_or_named_as_none() -> None:
    for fault in FOLDER:
        config: dict[str, Any] = copy.deepcopy(BASES[fault.base])
        for edit in fault.edits:
            edit(config)
        assert written(config) != written(BASES[fault.base])
    names = [fault.name for fault in FOLDER]
    names += [fault.name for fault in (*LIVE, *TRAINING, *SERVER)]
    rows = [row["name"] for row in page.recorded()["rows"] if row["group"] == "new"]
    assert sorted(rows) == sorted(names)
    assert len(page.rows_of(page.recorded(), "new")) >= 50
    assert len(page.recorded()["rows"]) >= 100


def test_a_later_run_is_told_beside_the_first_one_which_stays_counted() -> None:
    first = page.recorded()
    last = copy.deepcopy({**first, "ropewalk": "later"})
    assert page.rerun(first, last)["differ"] == []
    row = next(row for row in last["rows"] if page.by_ropewalk(row))
    row["ropewalk"] = {way: ["silent", False] for way in row["ropewalk"]}
    told = page.rerun(first, last)
    assert told["differ"] == [row["name"]]
    reported = sum(map(page.by_ropewalk, page.rows_of(first, "new")))
    assert told["counts"][2] == reported - (row["group"] == "new" and bool(row["effect"]))


def test_a_report_is_an_error_or_a_warning_that_names_the_setting() -> None:
    base: dict[str, Any] = {"error": "", "warnings": ["as always: factor"], "length": LENGTH}

    def outcome(**found: Any) -> str:
        return score.stock_outcome("vllm", base, {**base, **found}, ["factor"])

    assert outcome() == score.SILENT
    assert outcome(warnings=["the FACTOR is odd"]) == score.REPORTED
    assert outcome(warnings=["something else"]) == score.WARNED
    assert outcome(error="KeyError") == score.REPORTED
    assert outcome(length=LENGTH - 1) == score.REPORTED
    assert score.stock_outcome("vllm", {**base, "error": "x"}, base, []) == score.NOT_RUN


def test_a_note_or_a_finding_of_the_intended_folder_is_no_report() -> None:
    lost = ["theta-lost", ["vllm"], "theta-lost: base 10,000", True]
    base: dict[str, Any] = {"exit": 0, "error": "", "findings": []}

    def outcome(before: list[Any], *findings: list[Any]) -> tuple[str, bool]:
        found = {"exit": 1, "error": "", "findings": list(findings)}
        return score.ropewalk_outcome({**base, "findings": before}, found, ["theta"])

    assert outcome([], lost) == (score.REPORTED, True)
    assert outcome([lost], lost) == (score.SILENT, False)
    assert outcome([], [*lost[:3], False]) == (score.SILENT, False)


def test_the_table_has_eighty_models_and_a_word_on_each_runtime() -> None:
    table = json.loads(RECORDED.read_text(encoding="utf-8"))
    configs = list(published())
    assert [row["model"] for row in table["models"]] == [name for name, *_ in configs]
    assert len(configs) == 80
    html = RECORDED.with_suffix(".html").read_text(encoding="utf-8")
    for row in table["models"]:
        assert f"<td>{row['model']}<small>" in html
        assert "refused" in row or set(row["runtimes"]) == set(RUNTIMES)
    assert all(row["source"] for row in table["models"])
