"""One policy for all that is written: regular files, never the source, nothing of others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from ropewalk import plan
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, RopewalkError
from ropewalk.outputs import (
    STANDARD_OUTPUT,
    UNSIGNED,
    cannot_write,
    check_file,
    is_ours,
    signed,
    write_atomically,
)
from ropewalk.reports.figures import save


def text_of_a_plan() -> str:
    return plan("llama-3-8b", "32k", "yarn").plan.dumps()


def figure() -> Figure:
    drawn = Figure()
    drawn.subplots().plot([1, 2, 3])
    return drawn


def written(path: Path) -> Path:
    if path.suffix == ".json":
        write_atomically(path, text_of_a_plan())
    else:
        save(figure(), path)
    return path


@pytest.mark.parametrize("name", ["plan.json", "picture.png", "picture.svg"])
def test_what_we_wrote_may_be_replaced_until_it_is_edited(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name)
    assert is_ours(path)
    check_file(path)
    content = path.read_bytes()
    for place in (0, len(content) // 3, len(content) - 2):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(InvalidValue):
            check_file(path)
        check_file(path, overwrite=True)
    path.write_bytes(content + b"\n")
    assert not is_ours(path)


def test_what_is_written_is_still_what_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "plan.json")
    assert ContextPlan.read(path).dumps() == path.read_text()
    # An edited plan is read: it is only not ours to replace.
    value = json.loads(path.read_text()) | {"model": "mine"}
    path.write_text(json.dumps(value))
    with pytest.warns(UserWarning, match="the plan has been edited since ropewalk wrote it"):
        assert ContextPlan.read(path).model == "mine"
    with Image.open(written(tmp_path / "picture.png")) as picture:
        picture.load()  # with the checksums of its chunks
        assert str(picture.info["ropewalk"]).startswith("ropewalk-sha256:")
    assert written(tmp_path / "a.svg").read_bytes() == written(tmp_path / "b.svg").read_bytes()


def test_two_checksums_in_one_file_are_none(tmp_path: Path) -> None:
    path = tmp_path / "two"
    path.write_bytes(signed(f"{UNSIGNED} {UNSIGNED}".encode()))
    assert not is_ours(path)


@pytest.mark.parametrize("overwrite", [False, True])
def test_only_regular_files_are_written(tmp_path: Path, overwrite: bool) -> None:
    written(tmp_path / "plan.json")
    (tmp_path / "link").symlink_to("plan.json")
    (tmp_path / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert not is_ours(tmp_path / "pipe")  # and it is not waited for
    for name, complaint in [
        ("link", "is a link, and only regular files and folders are written"),
        ("broken", "is a link"),
        ("pipe", "is a pipe"),
        ("/dev/null", "is a device"),
        ("/dev/stdout", "is a link"),
        (".", "is a folder"),
        ("deep/plan.json", "does not exist"),
        ("plan.json/plan.json", "cannot be written|does not exist"),
    ]:
        with pytest.raises(InputError, match=complaint):
            check_file(tmp_path / name, overwrite=overwrite)
    with pytest.raises(InvalidValue):
        check_file(STANDARD_OUTPUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broken", "link", "pipe", "plan.json",
    ]  # fmt: skip


def test_nothing_is_written_to_a_source(tmp_path: Path) -> None:
    model, config = tmp_path / "model", tmp_path / "model" / "config.json"
    model.mkdir()
    written(config)
    (tmp_path / "other").symlink_to(model)
    for place in (config, model / "new.json", tmp_path / "other" / "new.json"):
        with pytest.raises(InvalidValue):
            check_file(place, sources=[model], overwrite=True)
    with pytest.raises(InvalidValue):
        check_file(config, sources=[config], overwrite=True)
    check_file(model / "plan.json", sources=[config])


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    written(tmp_path / ("a" * 250 + ".json"))
    written(tmp_path / ("b" * 251 + ".png"))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_is_no_mistake_of_the_user() -> None:
    full = cannot_write("plan.json", OSError(28, "No space left on device"))
    assert (type(full), full.exit_status) == (RopewalkError, 1)
    forbidden = cannot_write("plan.json", OSError(13, "Permission denied"))
    assert (type(forbidden), forbidden.exit_status) == (InputError, 2)


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A run with a trained model in it, an export and a token store, by their marks alone."""
    for name, mark in (("run", "run.json"), ("export", "ropewalk.manifest.json")):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / mark).write_text('{"format": "ropewalk-run-1"}')
    for name in ("plan.json", "training.jsonl", "model/model.safetensors", "figures.png"):
        (tmp_path / "run" / name).write_text("kept")
    (tmp_path / "export" / "config.json").write_text("kept")
    (tmp_path / "alone.gguf").write_text("kept")
    (tmp_path / "aside").symlink_to(tmp_path / "run")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *("run/run.json", "run/training.jsonl", "run/model/model.safetensors", "run/figures.png"),
        *("run/plan.json", "export/config.json", "export/ropewalk.manifest.json", "alone.gguf"),
        *("run/../run/run.json", "aside/run.json"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_no_part_of_a_run_an_export_or_a_model_is_replaced(
    places: Path, name: str, overwrite: bool
) -> None:
    with pytest.raises(InvalidValue, match=r"belongs to the (run|export)|is a model's weights"):
        check_file(places / name, overwrite=overwrite)


def test_our_own_plan_in_a_run_is_no_exception(places: Path) -> None:
    written(places / "run" / "plan.json")
    assert is_ours(places / "run" / "plan.json")
    with pytest.raises(InvalidValue):
        check_file(places / "run" / "plan.json")


@pytest.mark.parametrize("mine", ["{}", "[1, 2]", "", "not JSON"])
def test_a_run_json_of_somebody_else_protects_nothing(tmp_path: Path, mine: str) -> None:
    (tmp_path / "run.json").write_text(mine)
    (tmp_path / "notes").mkdir()
    for path in (tmp_path / "plan.json", tmp_path / "notes" / "plan.json"):
        check_file(written(path))
    check_file(tmp_path / "run.json", overwrite=True)


def test_a_plan_that_is_called_run_json_may_be_written_again(tmp_path: Path) -> None:
    check_file(written(tmp_path / "run.json"))


def test_a_new_file_and_a_page_may_stand_in_a_run(places: Path) -> None:
    check_file(places / "run" / "mine.json")
    (places / "run" / "report.html").write_text("a page")
    check_file(places / "run" / "report.html", overwrite=True)
