"""`extend` with training: measured before and after, on text that was not trained on."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ropewalk.data.corpora import Document, apart_from
from ropewalk.errors import InputError, InvalidValue
from ropewalk.exporting.staging import SPARE_BYTES
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.load import load
from ropewalk.pipeline.extend import Extended, check
from ropewalk.pipeline.results import TRAINED, Inspected, run_id
from ropewalk.pipeline.settings import parted, settings_for
from ropewalk.pipeline.stage import Start
from ropewalk.pipeline.stages import stages
from ropewalk.pipeline.stages.judge import JudgeFirst
from ropewalk.pipeline.stages.train import Train
from ropewalk.reports.commands import page_of
from ropewalk.run_directory import RunDirectory
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.training.recipes import named
from tests.api.conformance import check_result
from tests.evaluation import tiny
from tests.mutants.damage import flip
from tests.pipeline.conftest import TARGET, extended

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained") / "run"


def with_training(folder: Path, run: Path) -> Extended:
    return extended(folder, run, train_steps=6, learning_rate=1e-2, batch=2, search=False)


@pytest.fixture(scope="module")
def done(folder: Path, run: Path) -> Extended:
    return with_training(folder, run)


@pytest.mark.slow
def test_the_trained_model_is_measured_next_to_the_one_it_was(
    done: Extended, folder: Path, run: Path
) -> None:
    check_result(done)
    assert list(done.results)[-4:] == ["train", "trained", "export", "verify"]
    judged, before = done.judged, done.result(JudgeFirst)
    assert done.method == judged.chosen == TRAINED
    # The unmodified model is read once; the trained one reads the same documents as before.
    unmodified, own = (before.of("none", tiny.WINDOW), judged.of(TRAINED, tiny.WINDOW))
    assert judged.of("none", tiny.WINDOW) == unmodified
    assert [each.source for each in own] == [each.source for each in unmodified]
    # Its loss fell where it was trained.
    after = [each.text for each in judged.of(TRAINED, TARGET)]
    assert sum(after) < sum(each.text for each in before.of("yarn", TARGET)[: len(after)])
    assert "without training, " in done.told
    assert "the trained model" in done.told


@pytest.mark.slow
def test_what_is_exported_is_the_trained_model(done: Extended, folder: Path, run: Path) -> None:
    exported, trained, source = (
        load_file(place / "model.safetensors")
        for place in (run / "model", run / "train" / "trained", folder)
    )
    assert all(torch.equal(exported[name], trained[name]) for name in trained)
    assert not all(torch.equal(exported[name], source[name]) for name in source)
    loaded = load(str(run / "model"))
    assert loaded.present_plan.target_length == TARGET
    expected = done.judged.plan.longest().inverse_frequencies
    np.testing.assert_allclose(loaded.model.model.rotary_emb.inv_freq, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_finished_run_is_only_told_again(done: Extended, folder: Path, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    assert with_training(folder, run) == done
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")} == before


@pytest.mark.slow
def test_trained_weights_that_were_changed_are_not_gone_on_with(
    done: Extended, folder: Path, run: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    weights = copied / "train" / "trained" / "model.safetensors"
    flip(weights, -10)
    with pytest.raises(InputError, match=r"model\.safetensors: is not as it was written; remove"):
        with_training(folder, copied)


@pytest.mark.slow
def test_text_that_the_evaluation_reads_is_not_trained_on(folder: Path, run: Path) -> None:
    texts = tiny.documents(8)
    to_search, to_report = parted(texts)
    start = Start(str(folder), load(str(folder)), TARGET, to_search, to_report, to_train=to_report)
    with pytest.raises(InputError, match=r"shares text with .* \(`train_corpus`\)"):
        Train(TARGET, 5, 1e-3, 2).check(start)


@pytest.mark.parametrize("steps", [0, 50])
def test_a_disk_without_room_for_all_stages_is_found_before_any_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Checkpoints with their moments and the trained model; a folder and a GGUF file."""
    loaded, run = load(str(folder)), tmp_path / "runs" / "run"
    weights = Checkpoint.open(str(folder)).bytes(torch.float32)
    most = weights * (3 * 3 + 1 if steps else 0) + Checkpoint.open(str(folder)).bytes() + weights
    most += SPARE_BYTES
    start = Start(str(folder), loaded, TARGET, *parted(tiny.documents(8)), place=run)
    settings = replace(settings_for(loaded.present_plan, TARGET, train_steps=steps), batch=2)

    def free(room: int) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=room))

    free(most)
    check(start, settings)
    free(most - 1)
    check(replace(start, place=None), settings)
    with pytest.raises(InputError, match="the run needs up to"):
        check(start, settings)
    if steps:
        with pytest.raises(InputError, match="the run needs up to"):
            with_training(folder, run)
    assert not run.parent.exists()
    if steps:
        (run / "train" / "trained").mkdir(parents=True)
        (run / "train" / "trained" / "config.json").touch()
        check(start, settings)  # trained already


def test_a_training_has_the_values_of_its_recipe() -> None:
    """Not a higher rate for small models, which forgot under it."""
    asked = settings_for(tiny.loaded().present_plan, TARGET, train_steps=3)
    [training] = [stage for stage in stages(asked) if isinstance(stage, Train)]
    own, anchor = training.settings, named("anchor")
    for key in ("layout", "batch", "learning_rate", "decay", "weight_decay", "betas", "filling"):
        assert getattr(own, key) == getattr(anchor, key)


def test_the_page_of_a_run_that_has_yet_to_train_says_so(tmp_path: Path) -> None:
    asked = settings_for(tiny.loaded().present_plan, TARGET, train_steps=3)
    names = [stage.name for stage in stages(asked)]
    configuration = {"stages": names}
    loaded = tiny.loaded().present_plan
    geometry = loaded.longest().geometry
    inspected = Inspected("tiny", "plain", geometry, tiny.WINDOW, TARGET).to_json()
    with RunDirectory(tmp_path / "run", "extend", configuration) as directory:
        kept = {"stage": "inspect", "run": run_id(configuration), "result": inspected}
        directory.keep("inspect.json", kept)
    missing = page_of(RunOnDisk.read(tmp_path / "run")).missing
    assert [name for name in names if name not in missing] == ["inspect", "search", "verdict"]


def test_a_training_is_a_number_of_steps(folder: Path) -> None:
    with pytest.raises(InvalidValue, match=r"train_steps = 'auto': must be a whole number"):
        settings_for(load(str(folder)).present_plan, TARGET, train_steps="auto")


def test_a_copy_of_five_lines_is_found() -> None:
    lines = [f"line {i}" for i in range(40)]
    measured = [Document("measured", "\n".join(lines[:20]))]
    copied = Document("copied", "\n".join(["x", *lines[8:13], "y"]))
    spaced = Document("spaced", "\n\n".join(f"  {line}" for line in lines[8:13]))
    four = Document("four", "\n".join(["x", *lines[8:12], "y"]))
    other = Document("other", "\n".join(lines[20:]))
    assert apart_from([copied, spaced, four, other], measured) == [four, other]
