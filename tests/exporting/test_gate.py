"""The gate's errors name what the user named."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed
from ropewalk.exporting import fresh_process, gate
from ropewalk.exporting.exported import Exported, NotTheSame
from ropewalk.exporting.gate import named_as
from ropewalk.exporting.staging import staged
from ropewalk.models.config import present_plan
from ropewalk.models.load import read_model
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import targets
from tests.evaluation import tiny
from tests.models.tiny import tiny_model
from tests.stock_process import StockProcess

STOCK = targets()["transformers"]


def test_errors_name_the_export_and_not_where_it_was_written(tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real")
    out = link / "extended"
    with (
        pytest.raises(GateFailed) as caught,
        staged(out, needs_bytes=0) as folder,
        named_as(out, folder),
    ):
        raise GateFailed("stock", [f"no weights in {folder}", f"nor in {folder.resolve()}/a"])
    assert str(caught.value) == f"stock: no weights in {out}; nor in {out}/a"


@pytest.mark.usefixtures("in_process")
def test_the_tolerance_is_the_rounding_of_what_the_model_computes(tmp_path: Path) -> None:
    """Large weights repeat each rounding larger: phimoe's scaling of attention rounds otherwise."""
    made: dict[Any, Any] = {}
    for gain in (0.2, 1.0):
        source = tmp_path / f"gain {gain}"
        torch.manual_seed(0)
        model = tiny_model("phimoe")
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.mul_(gain)
        model.save_pretrained(source)
        plan = extend_plan(present_plan(source), 256, "yarn")
        made[gain] = STOCK.write(str(source), plan, tmp_path / f"out {gain}").agreement
        assert made[gain].passed
        loaded = read_model(source, torch.float32)
        sequence = gate.sequences(plan, list(range(3, 60)))[0]
        made[gain, "rounding"] = gate.rounding(loaded, plan, [sequence])
        answers = _answers(tmp_path / f"out {gain}", [sequence])
        assert gate.agreement_with(loaded, plan, [sequence], answers).passed
        assert not gate.agreement_with(loaded, _louder(plan, 0.01), [sequence], answers).passed
    assert made[0.2, "rounding"] < gate.TOLERANCE
    assert made[1.0, "rounding"] > 4 * made[0.2, "rounding"]


@pytest.mark.usefixtures("in_process")
def test_faults_between_the_tolerance_and_a_hundred_times_it_fail(tmp_path: Path) -> None:
    """Measured rounding widens the tolerance by what it is, and by no more than that."""
    for family, sizes in {"llama": (10, 30, 90), "phimoe": (30, 90)}.items():
        source, out = tmp_path / family, tmp_path / f"{family} out"
        tiny_model(family).save_pretrained(source)
        setting = {"factors": [3.0] * 8, "attention_factor": 1.2}
        plan = extend_plan(present_plan(source), 256, "longrope", setting)
        made = STOCK.write(str(source), plan, out).agreement
        assert made is not None
        assert made.passed
        loaded, asked = read_model(source, torch.float32), gate.sequences(plan, range(3, 60))[:1]
        answers = _answers(out, asked)
        far = gate.agreement_with(loaded, _louder(plan, 1e-3), asked, answers)
        assert far.usual is None  # beyond all that rounding could explain
        for size in sizes:
            by = 1e-3 * size * far.tolerance / far.max_difference
            found = gate.agreement_with(loaded, _louder(plan, by), asked, answers)
            assert size / 2 < found.max_difference / far.tolerance < 100
            assert not found.passed
            assert found.usual == pytest.approx(far.tolerance, rel=0.01)
            assert f"instead of {found.usual:.2g}" in str(found)
            assert "instead of" in str(NotTheSame(Exported("transformers", out, found), found))


def _louder(plan: ContextPlan, by: float) -> ContextPlan:
    """The plan with cos and sin larger by this part."""
    (step,) = plan.steps()
    scaling = step.schedule.attention_scaling * (1 + by)
    louder = replace(step, schedule=replace(step.schedule, attention_scaling=scaling))
    return replace(plan, schedules={"full_attention": (louder,)})


def _answers(folder: Path, asked: list[gate.TokenSequence]) -> list[gate.StockAnswer]:
    (answered,) = gate.ask_stock([(folder, asked)])
    return answered.answers


def test_a_fresh_process_sees_the_packages_of_this_one(
    stock: StockProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those that PYTHONPATH or `pip install --user` bring."""
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert stock.real(["-c", "import only_here"]).returncode == 0


def test_a_process_that_the_system_killed_is_no_fault_of_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(fresh_process, "run_script", lambda words: ended)
    found = rw.verify(tiny.saved(tmp_path / "model"))
    assert found.verdict != "wrong"
    assert any("was killed" in note for note in found.notes), found.notes
