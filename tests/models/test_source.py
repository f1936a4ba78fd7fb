"""What a MODEL stands for: the first of path, bundled, catalogue and hub that fits."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from ropewalk.errors import InputError, RopewalkError
from ropewalk.models.config import BUNDLED_FOLDER, BUNDLED_FOLDERS, load_config, present_plan
from ropewalk.models.load import load
from ropewalk.models.source import Kind, resolve
from tests.gguf.gguf_files import header_only

LLAMA31 = Path(__file__).parents[1] / "golden" / "configs" / "llama-3.1-8b.json"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks the hub without leave fails."""

    def unwanted(*args: Any, **kwargs: Any) -> str:
        raise AssertionError("a download was tried")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unwanted)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unwanted)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a config, whose base nothing else has."""
    config = {**json.loads(LLAMA31.read_text()), "rope_scaling": None, "rope_theta": 1234.0}
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("name", ["llama-3.1-8b", "bundled", "meta-llama/Llama-3.1-8B"])
def test_a_folder_named_like_a_known_model_wins(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve(name).kind in ("catalogue", "bundled")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, name)
    found = resolve(name, allow_download=True)
    assert (found.kind, found.path, found.origin) == ("folder", Path(name), f"folder: {name}")
    assert found.config["rope_theta"] == 1234.0
    assert found.present_plan.longest().geometry.base == 1234.0
    assert found.trained_length == found.config["max_position_embeddings"]


def test_a_config_file_a_folder_and_a_config_are_one_model(folder: Path) -> None:
    plans = {}
    for model, kind in (
        (str(folder), "folder"),
        (folder / "config.json", "config file"),
        (load_config(folder), "config"),
    ):
        found = resolve(model)
        assert found.kind == kind
        plans[kind] = found.present_plan.schedules
    assert plans["folder"] == plans["config file"] == plans["config"]
    assert resolve(str(folder)).name == str(folder)


def test_the_bundled_model_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolve("bundled")
    assert (found.kind, found.folder) == ("bundled", BUNDLED_FOLDER)
    assert found.present_plan == present_plan(BUNDLED_FOLDER, "bundled")
    assert found.trained_length == resolve(BUNDLED_FOLDER).trained_length == 512
    monkeypatch.setitem(BUNDLED_FOLDERS, "bundled", tmp_path / "nothing")
    with pytest.raises(InputError, match="bundled: this copy of ropewalk lacks the model"):
        resolve("bundled")


@pytest.mark.parametrize("name", ["qwen3-8b", "Qwen/Qwen3-8B", "QWEN3-8B"])
def test_a_known_model_is_found_by_name_or_hub_id(name: str) -> None:
    found = resolve(name)
    assert (found.kind, found.name, found.trained_length) == ("catalogue", name, 32768)
    assert found.origin == "catalogue: Qwen/Qwen3-8B config.json"
    assert found.present_plan.target_length == 40960
    assert not found.has_weights


def test_what_is_loaded_and_what_is_found_are_models_too() -> None:
    loaded = load("bundled", device="cpu")
    found = resolve(loaded)
    assert (found.kind, found.name, found.path) == ("live model", "bundled", None)
    assert found.present_plan is loaded.present_plan
    assert found.config["model_type"] == "llama"
    assert found.has_weights
    assert resolve(found) is found
    for model, kind in ((loaded.model, "model in memory"), (loaded.model.config, "config")):
        assert resolve(model).kind == kind
        assert resolve(model).present_plan.schedules == loaded.present_plan.schedules


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("Llama-3.1-8B", "Llama-3.1-8B"),
        (
            "models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f249a16976918f6564b8830bc8",
            "Llama-3.1-8B",
        ),
        ("models--gpt2/snapshots/607a30d7", "gpt2"),
    ],
)
def test_the_short_name_is_the_models_own(
    place: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / place).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / place)
    for given in (tmp_path / place, ".", "./", f"../{Path(place).name}"):
        assert resolve(given).short_name == name
    assert resolve("Qwen/Qwen3-8B").short_name == "Qwen3-8B"
    assert resolve("bundled").short_name == "bundled"


def test_a_gguf_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = header_only(tmp_path / "named.as_you_like")
    found = resolve(path)
    assert (found.kind, found.origin) == ("GGUF file", f"GGUF file: {path}")
    assert found.present_plan.model == str(path)
    with pytest.raises(InputError, match="holds no transformers config; give the folder"):
        _ = found.config
    (tmp_path / "model.gguf").write_bytes(b"not at all")
    with pytest.raises(InputError, match="neither a model's folder, nor a config"):
        resolve(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("config file", "is a file; give the folder that holds config.json and weights"),
        ("GGUF file", "is a GGUF file; give the folder of safetensors"),
        ("catalogue", "the catalogue knows its config and holds no weights.*`allow_download`"),
        ("config", "is a config without weights"),
        ("live model", "is a model in memory, and this needs a model's folder.*save_pretrained"),
        ("model in memory", "is a model in memory, and this needs a model's folder"),
    ],
)
def test_what_has_no_folder_says_why(kind: Kind, reason: str, tmp_path: Path) -> None:
    models: dict[Kind, Any] = {
        "config file": LLAMA31,
        "GGUF file": header_only(tmp_path / "a.gguf"),
        "catalogue": "llama-3.1-8b",
        "config": load_config(LLAMA31),
        "live model": load("bundled", device="cpu"),
        "model in memory": load("bundled", device="cpu").model,
    }
    found = resolve(models[kind])
    assert found.kind == kind
    assert found.has_weights is (kind == "live model")
    with pytest.raises(InputError, match=reason):
        _ = found.folder


def test_the_hub_is_asked_for_a_config_alone_and_only_where_that_is_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"no known model of that name; to fetch .*`allow_down"):
        resolve("someone/some-model")
    asked = []

    def download(hub_id: str, name: str) -> str:
        asked.append((hub_id, name))
        return str(folder / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    found = resolve("someone/some-model", allow_download=True)
    assert (found.kind, found.has_weights) == ("hub", True)
    assert asked == [], "nothing is fetched before it is needed"
    assert found.present_plan.longest().geometry.base == 1234.0
    assert found.config["rope_theta"] == 1234.0
    assert asked == [("someone/some-model", "config.json")]


def test_weights_of_a_known_model_are_fetched_by_its_hub_id(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(hub_id: str, *, allow_patterns: list[str]) -> str:
        asked.append(hub_id)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    found = resolve("llama-3.1-8b", allow_download=True)
    assert found.has_weights
    assert found.folder == folder
    assert asked == ["meta-llama/Llama-3.1-8B"]


def test_a_download_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> str:
        raise OSError("no route to host\nmore of it")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
    found = resolve("someone/some-model", allow_download=True)
    with pytest.raises(RopewalkError, match=r"cannot be fetched.*no route to host$"):
        _ = found.present_plan


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("llama-3.1-9b", "the closest known names are llama-3.1-8b"),
        ("no/such/folder/at-all", "there is no such file or folder; check the path"),
        ("/no/such/folder", "there is no such file or folder; check the path"),
        ("./model", "there is no such file or folder; check the path"),
        ("x" * 5000, "is not a path|there is no such file"),  # Python 3.14 says no more
        ("", "'': is not a model"),
        ("a\nb", r"a\\nb: there is no such file or folder"),
        ("a\0b", r"a\\x00b: there is no such file or folder"),
        (3.5, "model = 3.5: is not a model"),
        (None, "model = None: is not a model"),
        (os.devnull, "neither a model's folder"),
    ],
)
def test_what_is_no_model_is_told_in_one_line(model: object, message: str) -> None:
    for allowed in (False, True):
        if allowed and "closest" in message:
            continue  # it may be a name on the hub
        with pytest.raises(InputError, match=message) as caught:
            resolve(model, allow_download=allowed)
        assert str(caught.value).isprintable()
