"""A whole measurement, stopped anywhere and gone on with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, InvalidValue
from ropewalk.models.load import LoadedModel, load
from ropewalk.number_formats.measurement import (
    MEASUREMENTS,
    Measurement,
    PrecisionSettings,
    arms_for,
    settings_for,
)
from ropewalk.number_formats.request import PrecisionRequest
from ropewalk.number_formats.results import Precision
from ropewalk.run_directory import Journal, RunDirectory, read_journal
from tests.number_formats import test_traps

TEXT = [Document("text", "def f(x):\n    return x + 1\n" * 120)]
SETTINGS = PrecisionSettings(24, arms=("fp32", "bf16"), shifts=(0, 50), sequences=2)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load("bundled", dtype="float32", device="cpu")


def measurement(loaded: LoadedModel, **changes: Any) -> Measurement:
    settings = replace(SETTINGS, **changes)
    return Measurement(loaded, TEXT, settings)


def measured(loaded: LoadedModel, folder: Path, **changes: Any) -> tuple[Precision, list[int]]:
    """The result, and how many passes were made for it."""
    passes = [0]
    own = measurement(loaded, **changes)
    with RunDirectory(folder, "precision", own.identity()) as directory:
        journal = directory.journal(MEASUREMENTS)
        found = own.run(journal, lambda done, _total: passes.append(done))
    return found, passes


def test_stopped_at_any_byte_it_ends_with_the_same_bytes(
    loaded: LoadedModel, tmp_path: Path
) -> None:
    whole, _ = measured(loaded, tmp_path / "whole")
    content = (tmp_path / "whole" / MEASUREMENTS).read_bytes()
    lines = content.splitlines(keepends=True)
    folder = tmp_path / "stopped"
    measured(loaded, folder)
    for kept in (len(lines[0]), sum(map(len, lines[:3])) + 40, len(content) - 1):
        (folder / MEASUREMENTS).write_bytes(content[:kept])
        if content[:kept].endswith(b"\n"):
            again, _ = measured(loaded, folder)
        else:
            with pytest.warns(UserWarning, match=MEASUREMENTS):
                again, _ = measured(loaded, folder)
        assert again == whole
        assert (folder / MEASUREMENTS).read_bytes() == content


def test_a_finished_run_computes_nothing_again(loaded: LoadedModel, tmp_path: Path) -> None:
    _, passes = measured(loaded, tmp_path / "run")
    assert passes[-1] == 2 * 2 * 3
    _, passes = measured(loaded, tmp_path / "run")
    assert passes == [0, 0]


def test_a_line_that_was_edited_and_sealed_again_is_refused(
    loaded: LoadedModel, tmp_path: Path
) -> None:
    measured(loaded, tmp_path)
    file = tmp_path / MEASUREMENTS
    records: list[Any] = read_journal(file)
    [one, *others] = records
    [first, *points] = one["points"]
    for changed, told in (
        ([*others, others[-1]], "line 5 is not one that"),
        ([{**one, "points": [{**first, "logit": []}, *points]}], "line 1 is not one that"),
        ([{**one, "points": points}], "line 1 is not one that"),
        ([{**one, "kind": "other"}], "line 1: kind"),
        ([{**one, "points": [{**first, "losses": [1.0]}]}], "line 1: points.0..losses"),
        ([{key: own for key, own in one.items() if key != "kind"}], "line 1: kind .*is missing"),
    ):
        file.unlink()
        journal = Journal(file)
        journal.append(changed)
        journal.close()
        with pytest.raises(InputError, match=told):
            measured(loaded, tmp_path)


def test_progress_reaches_its_total(loaded: LoadedModel) -> None:
    seen: list[tuple[int, int]] = []
    measurement(loaded).run(None, lambda *at: seen.append(at))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(
    ("plant", "name", "costs"),
    [
        (test_traps.plant_frequencies, "inverse frequencies cast to bfloat16", True),
        (test_traps.plant_tables, "cos and sin in bfloat16", True),
        (test_traps.plant_positions, "positions cast to bfloat16", True),
        # Up to 2,048 TF32 holds every position, so a shift moves nothing at these lengths.
        (test_traps.plant_tf32, "angles computed in tf32", False),
    ],
)
def test_the_diagnosis_names_a_planted_trap_and_what_its_remedy_brings(
    loaded: LoadedModel, plant: Callable[[Any], None], name: str, costs: bool
) -> None:
    model = copy.deepcopy(loaded.model)
    plant(model)
    planted = replace(loaded, model=model)
    found = measurement(planted, arms=("bf16",)).run()
    [gain] = [gain for gain in found.traps if gain.path == "as given"]
    assert gain.trap == name
    if costs:
        assert gain.logit_error_after < gain.logit_error_before
    else:
        assert gain.logit_error_after == pytest.approx(gain.logit_error_before, rel=0.01)
    [line] = [line for line in found.verdict if line.startswith("TRAP, as given")]
    assert name in line
    assert gain.remedy in line
    assert not any("no trap" in line for line in found.verdict)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sequences": 5000}, "holds only"),
        ({"shifts": (5,)}, "must contain 0"),
        ({"arms": ("tf32",)}, "TF32"),
        ({"shifts": (0, -1)}, "begin at 0"),
        ({"arms": ()}, "must not be empty"),
    ],
)
def test_bad_settings_are_refused(loaded: LoadedModel, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValue, match=text):
        measurement(loaded, **changes)


def test_a_device_is_asked_only_for_arms_that_it_computes(loaded: LoadedModel) -> None:
    assert "tf32" not in arms_for(loaded.model.device)
    assert {"fp32", "bf16", "tf32_angles", "fp16"} <= set(arms_for(loaded.model.device))


def test_the_grids_end_where_the_model_and_the_text_end(loaded: LoadedModel) -> None:
    whole = settings_for(loaded, TEXT, PrecisionRequest())
    assert whole.length == loaded.present_plan.target_length
    assert whole.lengths == (64, 128, 256, 512)
    assert 1 <= whole.sequences < 50, "all that the text holds"
    quick = settings_for(loaded, TEXT, PrecisionRequest(quick=True, length=24))
    assert (quick.length, quick.lengths, quick.sequences) == (24, (24,), 5)
    assert quick.shifts == (0, 8, 50, 500)
    given = PrecisionRequest(sequences=5000, arms=("bf16",), shifts=(0,))
    asked = settings_for(loaded, TEXT, given)
    assert (asked.sequences, asked.arms, asked.shifts) == (5000, ("bf16",), (0,))
