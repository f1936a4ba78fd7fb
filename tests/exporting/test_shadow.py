"""A shadow export: new config and plan over links to the source's weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.models.checkpoint import Checkpoint
from tests.exporting.folders import saved


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(saved(tmp_path / "source", dtype=torch.bfloat16))


@pytest.fixture
def plan(source: Path) -> ContextPlan:
    return rw.plan(str(source), "8k", "yarn").plan


def shadowed(source: Path, plan: ContextPlan, runtime: str = "transformers") -> Path:
    out = source.parent / "out"
    found = rw.export(str(source), plan, out, runtime, shadow=True)
    assert any("links" in each for each in found.warnings)
    return out


def test_weights_are_links_and_the_rest_is_its_own(source: Path, plan: ContextPlan) -> None:
    out = shadowed(source, plan)
    weights = [path.name for path in Checkpoint.open(str(source)).files]
    links = sorted(path.name for path in out.iterdir() if path.is_symlink())
    assert links == sorted(weights)
    assert sum(os.lstat(path).st_size for path in out.iterdir()) < 200_000
    moved = source.parent / "elsewhere"
    out.rename(moved)  # a link is by its whole path
    found = rw.verify(moved)
    assert found.wrong == ()
    assert any(f"linked: {source}" in check.what for check in found.checks)
    stock = AutoModelForCausalLM.from_pretrained(moved)
    assert stock.config.max_position_embeddings == 8192
    again = rw.plan(str(moved), "16k", "yarn").plan  # and is a source itself
    assert rw.export(str(moved), again, source.parent / "again", "transformers").agreement


def removed(source: Path) -> None:
    shutil.rmtree(source)


def changed(source: Path) -> None:
    path = next(source.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x3f")


def shortened(source: Path) -> None:
    path = next(source.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-8])


def replaced(source: Path) -> None:
    path = next(source.glob("*.safetensors"))
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [removed, changed, shortened, replaced])
def test_a_source_that_changed_is_named(
    source: Path, plan: ContextPlan, change: Callable[[Path], None]
) -> None:
    out = shadowed(source, plan)
    change(source)
    found = rw.verify(out, run=False)
    assert found.verdict == "wrong"
    assert any(str(source) in finding.what for finding in found.wrong)


def test_where_no_link_can_be_made_files_are_copied(
    source: Path, plan: ContextPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "symlink", refused)
    out = source.parent / "out"
    found = rw.export(str(source), plan, out, "vllm", shadow=True)
    assert not any(path.is_symlink() for path in out.iterdir())
    assert any("was copied" in each for each in found.warnings)


@pytest.mark.parametrize(
    ("runtime", "options"), [("transformers", {"dtype": "float32"}), ("llama.cpp", {})]
)
def test_what_changes_weights_casts_no_shadow(
    source: Path, plan: ContextPlan, runtime: str, options: dict[str, object]
) -> None:
    out = source.parent / "out"
    with pytest.raises(rw.InputError, match="shadow"):
        rw.export(str(source), plan, out, runtime, shadow=True, **options)  # type: ignore[arg-type]
    assert not out.exists()
