"""Plans and exports of the versions that scaled queries are refused, and their tag is named.

plans/query_scales.json and plans/exported_query_scales.json were written by the code of that tag:
a plan of the bundled model, and the one in its export.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ropewalk as rw
from ropewalk.cli import command_line
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError
from ropewalk.gguf.carried import PLAN
from ropewalk.models.config import BUNDLED
from ropewalk.models.source import resolve
from ropewalk.searching.model.results import Found
from tests.gguf.gguf_files import float32, header_only, raw_file, text, uint32
from tests.searching.model.test_legs import usual

PLANS = Path(__file__).with_name("plans")
GIVEN, CARRIED = PLANS / "query_scales.json", PLANS / "exported_query_scales.json"
REFUSAL = (
    ": was made with query scales, which ropewalk no longer supports; create it again without "
    "them, or use the code at the git tag before-query-scales-went"
)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The folder of an export, but for its weights."""
    folder = tmp_path / "exported"
    folder.mkdir()
    [source, *_] = resolve(BUNDLED).places
    shutil.copy(source / "config.json" if source.is_dir() else source, folder / "config.json")
    shutil.copy(CARRIED, folder / "plan.json")
    return folder


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    stated = {"context_length": 512, "embedding_length": 128, "attention.head_count": 4}
    keys = {f"llama.{key}": uint32(value) for key, value in stated.items()}
    base = {"llama.rope.freq_base": float32(10_000.0)}
    return raw_file(
        tmp_path / "exported.gguf", {**keys, **base, PLAN: text(CARRIED.read_text())}, []
    )


READERS: dict[str, Callable[[Path, Path], Any]] = {
    "read": lambda folder, gguf: ContextPlan.read(GIVEN),
    "preview": lambda folder, gguf: rw.export.preview(BUNDLED, GIVEN),
    "evaluate": lambda folder, gguf: rw.evaluate(BUNDLED, plans=[GIVEN]),
    "train": lambda folder, gguf: rw.train(BUNDLED, corpus="held-out", to="2k", plan=GIVEN),
    "verify with it": lambda folder, gguf: rw.verify(BUNDLED, plan=GIVEN),
    "verify an export": lambda folder, gguf: rw.verify(folder),
    "verify a file": lambda folder, gguf: rw.verify(gguf),
    "verify a file next to it": lambda folder, gguf: rw.verify(header_only(folder / "model.gguf")),
}


@pytest.mark.parametrize("reader", READERS)
def test_whatever_reads_one_refuses_it_in_one_sentence(
    reader: str, exported: Path, gguf: Path
) -> None:
    with pytest.raises(InputError) as refused:
        READERS[reader](exported, gguf)
    message = str(refused.value)
    assert message.endswith(("query_scales" + REFUSAL, "provenance.folded" + REFUSAL)), message
    assert "\n" not in message


def test_the_command_line_says_the_same(exported: Path) -> None:
    done = CliRunner().invoke(command_line(), ["verify", str(exported)])
    assert done.exit_code != 0
    assert "before-query-scales-went" in " ".join((str(done.exception), done.output))


def test_a_plan_without_scales_may_call_itself_folded() -> None:
    value = json.loads(CARRIED.read_text())
    value["provenance"]["folded"] = "by hand"
    assert ContextPlan.from_json(value).provenance["folded"] == "by hand"


def test_a_search_of_before_is_read_unless_it_tuned_queries() -> None:
    value = usual().to_json()
    assert Found.from_json({**value, "query_tuning": None}, "results.json: ") == usual()
    with pytest.raises(InputError, match=r"^results\.json: query_tuning: was made with query"):
        Found.from_json({**value, "query_tuning": {"adopted": False}}, "results.json: ")
