"""vLLM's offline engine, by a stand-in whose signatures are those of the released wheel."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.conclusion import EvaluatedServer
from ropewalk.models.config import BUNDLED_FOLDER
from ropewalk.records import EvalRecord
from ropewalk.run_directory import RECORDS, read_journal
from tests.api.conformance import check_result
from tests.evaluation.answerers import vllm_stand_in
from tests.external.vllm_offline import TABLE

ASKED: dict[str, Any] = {"tasks": ["needle", "kv"], "lengths": [128, 256], "samples": 4}
FOLDER = str(BUNDLED_FOLDER)


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", vllm_stand_in.module())


def test_the_stand_in_has_the_signatures_of_the_wheel() -> None:
    wheel = json.loads(TABLE.read_text("utf-8"))
    own = inspect.signature(vllm_stand_in.LLM.generate).parameters
    by_kind = {"positional": [], "keyword": []}  # type: dict[str, list[str]]
    for name, each in own.items():
        by_kind["keyword" if each.kind is each.KEYWORD_ONLY else "positional"].append(name)
    assert by_kind == {key: wheel["LLM.generate"][key] for key in by_kind}
    for kind in ("SamplingParams", "CompletionOutput"):
        assert sorted(getattr(vllm_stand_in, kind).__annotations__) == sorted(wheel[kind])
    assert {"prompt_token_ids", "outputs"} <= {*wheel["RequestOutput.__init__"]["positional"]}
    engine = vllm_stand_in.LLM(FOLDER)
    assert sorted(vars(engine.model_config)) == sorted(wheel["ModelConfig"])


@pytest.mark.parametrize("mode", ["generate", "shared_context"])
def test_its_scores_are_those_of_the_folder_in_process(mode: Any, tmp_path: Path) -> None:
    asked = {**ASKED, "mode": mode}
    found = rw.evaluate(vllm_stand_in.LLM(FOLDER), run=tmp_path / "run", **asked)
    here = rw.evaluate(FOLDER, dtype="float32", device="cpu", **asked)
    check_result(found)
    assert isinstance(found, EvaluatedServer)
    assert found.server.kind == "vLLM"
    own, others = (
        {(r.task, r.length, r.metric): r.value for r in each.results} for each in (found, here)
    )
    assert own == others
    records = [EvalRecord.from_json(r) for r in read_journal(tmp_path / "run" / RECORDS)]
    assert {r.server for r in records} == {found.server.line}


def test_a_run_goes_on_and_another_engine_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = rw.evaluate(vllm_stand_in.LLM(FOLDER), run=run, **ASKED)
    kept = (run / RECORDS).read_bytes()
    (run / RECORDS).write_bytes(kept[: len(kept) // 2])
    with pytest.warns(UserWarning, match="torn off"):
        assert rw.evaluate(vllm_stand_in.LLM(FOLDER), run=run, **ASKED) == first
    assert (run / RECORDS).read_bytes() == kept
    with pytest.raises(RopewalkError, match="different configuration"):
        rw.evaluate(vllm_stand_in.LLM(FOLDER, max_model_len=300), run=run, **ASKED)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"methods": ["yarn"], "to": 1024}, Unsupported, "follows the plan of the folder"),
        ({"mode": "teacher_forced"}, Unsupported, "choose generate"),
        ({"tasks": ["perplexity"]}, Unsupported, "leave the task out"),
        ({"lengths": [1024]}, InvalidValue, "made for 512 tokens"),
        ({"plans": [rw.plan("bundled", 1024, "yarn").plan]}, RopewalkError, "export the folder"),
    ],
)
def test_what_an_engine_cannot_do(
    changes: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        rw.evaluate(vllm_stand_in.LLM(FOLDER), **{**ASKED, **changes})


def test_a_prompt_that_the_engine_cut_is_no_answer() -> None:
    with pytest.raises(RopewalkError, match="read 64 tokens of a prompt of"):
        rw.evaluate(vllm_stand_in.LLM(FOLDER, cut=64), **ASKED)
