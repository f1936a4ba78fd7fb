"""`rw.export_tasks`: what the folder holds; tests/harness runs it in the harness."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.errors import InputError, Unsupported
from tests.api.conformance import check_result
from tests.evaluation import tiny

TASKS = ["niah-multikey-2-syn", "vt-syn"]


def test_the_folder_holds_the_samples_of_an_evaluation_and_its_rules(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    done = check_result(
        rw.export_tasks(
            folder, tiny.loaded(), tasks=TASKS, lengths=[512], samples=3, corpus=tiny.documents()
        )
    )
    assert done.tasks == ("ropewalk-niah-multikey-2-syn-512", "ropewalk-vt-syn-512")
    rules = runpy.run_path(str(folder / "scores.py"))
    for name in TASKS:
        lines = (folder / f"{name}-512.jsonl").read_text().splitlines()
        docs = [json.loads(line) for line in lines]
        assert len({doc["id"] for doc in docs}) == 3
        for doc in docs:
            score = rules["score_string_match_all"]
            assert score(doc, [" ".join(doc["references"])]) == {"score": 1}
            assert score(doc, [""]) == {"score": 0}
        assert f"file: {name}-512.jsonl" in (folder / f"{name}-512.yaml").read_text()
    with pytest.raises(InputError, match="is not empty; give a new folder"):
        rw.export_tasks(folder, tiny.loaded(), tasks=TASKS, lengths=[512])


def test_a_task_with_a_score_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"passkey: it is scored by code of its own.*vt-syn"):
        rw.export_tasks(tmp_path / "tasks", tiny.loaded(), tasks=["passkey"], lengths=[512])
