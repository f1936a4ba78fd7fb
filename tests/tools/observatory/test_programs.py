"""The programs that run parts of releases, or read llama.cpp, on small ones of the same form."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk.exporting.llama_cpp import export
from ropewalk.models.config import present_plan
from ropewalk.schedule import RotarySchedule
from tests.audit.corpus import CLEAN
from tests.gguf.gguf_cases import unproven
from tests.gguf.tiny_families import tiny
from tests.tools.observatory.wheel_files import HOME, source, wheel
from tools.observatory import llama_cpp_architectures, readings, serving_rotary, stock_converter

LLAMA_CPP = ("llama-arch.cpp", "llama-model.cpp", "models/models.h", "models/tiny.cpp")


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is imported from a wheel is gone afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("vllm"):
            del sys.modules[name]


@pytest.mark.usefixtures("imports")
def test_a_rotary_module_of_a_wheel_is_run(tmp_path: Path) -> None:
    made = wheel(tmp_path, {f"{HOME}/layers/rotary_embedding/__init__.py": source("module")})
    package = serving_rotary.rotary_package("vllm", made, tmp_path / "room", 64)
    for name in ("plain", "linear"):
        config = CLEAN[name].config
        said = readings.said_by("vllm", package, config)
        assert not isinstance(said, str)
        wanted = present_plan(config).longest().inverse_frequencies
        assert said.inverse_frequencies == pytest.approx(wanted, rel=1e-5)
    schedule = present_plan(CLEAN["linear"].config).longest()
    rope = {"rope_type": "linear", "factor": 8.0, "rope_theta": schedule.geometry.base}
    given = {"rope_parameters": rope, "max_position_embeddings": 64}
    module = serving_rotary.rotary_module("vllm", package, given, schedule.geometry)
    plain = RotarySchedule.plain(schedule.geometry)
    found = serving_rotary.cos_sin(module, plain, range(64))
    assert serving_rotary.excess(found, schedule, range(64)) <= 1
    assert serving_rotary.excess(found, plain, range(64)) > 1
    refused = readings.said_by("vllm", package, CLEAN["yarn"].config)
    assert refused == "NotImplementedError: no other type"


def test_architectures_are_read_in_llama_cpps_source(tmp_path: Path) -> None:
    archive = tmp_path / "xllamacpp-0.2.1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in LLAMA_CPP:
            text = source(name.replace("/", "_"))
            member = tarfile.TarInfo(f"xllamacpp-0.2.1/thirdparty/llama.cpp/src/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    found = llama_cpp_architectures.read(archive)
    assert found["llama_cpp"] == "b1"
    rows = found["architectures"]
    assert isinstance(rows, dict)
    assert rows["still"] == {"rotates": False}
    tiny_row = {key: rows["tiny"][key] for key in ("tensors", "factors", "linear", "yarn")}
    assert tiny_row == {
        "tensors": ["rope_freqs"],
        "factors": "honoured",
        "linear": True,
        "yarn": False,
    }


def test_files_of_the_stock_converter_are_compared_tensor_by_tensor(tmp_path: Path) -> None:
    model = tiny(tmp_path / "llama", "llama")
    for dtype in ("F32", "F16"):
        unproven(export)(model, present_plan(model), tmp_path / f"{dtype}.gguf", dtype=dtype)
    ours, theirs = tmp_path / "F32.gguf", tmp_path / "F16.gguf"
    assert not list(stock_converter.differences(ours, ours))
    assert "theirs F16, ours F32" in "\n".join(stock_converter.differences(theirs, ours))
    assert any("file_type" in line for line in stock_converter.keys(theirs, ours))
