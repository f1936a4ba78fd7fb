"""Previews: what a verb would take, on a machine that one does not sit at."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.api.cost import Cost
from ropewalk.models.config import BUNDLED
from tests.api.conformance import check_result

MODEL, ON = "llama-3.1-8b", "8xh100"
TEXTS = ["some text"]
TRAINING: dict[str, Any] = {"corpus": TEXTS, "to": "256k", "steps": 10, "method": "linear"}
FITS: dict[str, Any] = {"recompute": True, "sequence_parallel": 8}
WITHOUT_TORCH = """
import json, sys
from ropewalk.__main__ import main
try:
    main()
except SystemExit as ended:
    loaded = [name for name in ("torch", "transformers") if name in sys.modules]
    print(json.dumps([ended.code, loaded]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", MODEL, "--to", "512k", "--method", "linear"],
        ["search", MODEL, "--to", "512k"],
        ["extend", MODEL, "--to", "512k", "--train-steps", "20"],
        ["train", MODEL, "--to=256k", "--steps=10", "--recompute", "--sequence-parallel=8"],
        ["evaluate", BUNDLED],
    ],
    ids=lambda words: " ".join(map(str, words[:1])),
)
def test_no_preview_imports_torch(words: list[object], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some text")
    words = [*words, "--dry-run", "--json", *(["--on", ON] if MODEL in words else [])]
    words += ["--corpus", text] if words[0] == "train" else []
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *map(str, words)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stderr.splitlines()[-1]) == [0, []]
    assert json.loads(done.stdout)["machine"].startswith(ON if MODEL in words else "here")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_previews_and_cost_are_one_function() -> None:
    [row] = [row for row in rw.cost(MODEL, "512k", on=ON).rows if row.what.startswith("search")]
    found = check_result(rw.search.preview(MODEL, "512k", on=ON))
    assert found.rows[0]._replace(what="") == row._replace(what="")
    [whole] = [row for row in rw.cost(MODEL, "512k", on=ON).rows if row.what == "extend"]
    stages = rw.extend.preview(MODEL, "512k", on=ON)
    assert isinstance(stages, Cost)
    assert sum(row.seconds or 0 for row in stages.rows) == pytest.approx(whole.seconds)
    assert max(row.bytes for row in stages.rows) == whole.bytes
    trained = rw.extend.preview(MODEL, "512k", train_steps=10, on=ON)
    assert isinstance(trained, Cost)
    assert [row.breaks for row in trained.rows if row.what.startswith("train,")] == [
        "gradients and optimizer"
    ]


def test_an_evaluation_is_counted_by_length_and_shared_by_copies() -> None:
    def preview(on: str, **given: Any) -> Cost:
        return rw.evaluate.preview(
            MODEL, methods=["none", "linear"], to="512k", lengths=["128k", "512k"], samples=10,
            on=on, **given,
        )  # fmt: skip

    eight = preview(ON)
    assert [row.what for row in eight.rows] == ["100 forwards at 128k", "100 forwards at 512k"]
    assert (eight.rows[0].breaks, eight.rows[1].breaks) == (None, "cache")
    assert eight.rows[1].change is not None
    assert eight.rows[1].change.told == "--ranks-per-copy 2"
    assert eight.summary().endswith("what fits unchanged: 100 forwards at 128k.")
    assert preview(ON, ranks_per_copy=2).rows[1].fits
    one, two = preview("h100").rows[0].seconds, preview("2xh100").rows[0].seconds
    assert one is not None
    assert one == 2 * (two or 0)


def test_an_extension_is_counted_as_its_stages_read(tmp_path: Path) -> None:
    """A verdict holds what a search does, a training its optimizer; copies share both."""

    def preview(on: str, **given: Any) -> dict[str, Any]:
        found = rw.extend.preview(MODEL, "512k", on=on, **given)
        assert isinstance(found, Cost)
        return {row.what.partition(",")[0]: row for row in found.rows}

    own = preview(ON)
    read = rw.search.preview(MODEL, "512k", on=ON)
    assert own["first"].breaks == own["search"].breaks == read.rows[0].breaks
    assert own["first"].bytes == read.rows[0].bytes
    divided = preview(ON, ranks_per_copy=8)
    assert all(row.fits for row in divided.values())
    one = preview("h100")
    assert one["search"].seconds > 7 * own["search"].seconds
    trained = preview(ON, train_steps=10)["train"]
    assert trained.what == "train, 10 steps"
    assert trained.parts["gradients and optimizer"] > trained.parts["weights"]


def test_no_machine_is_so_large_that_a_search_takes_less_than_a_forward() -> None:
    rows = {row.what: row for row in rw.cost(MODEL, "1M", on="2000xh100").rows}
    [search] = [row for what, row in rows.items() if what.startswith("search")]
    one = rows["evaluate, a forward"].seconds
    assert one is not None
    assert search.seconds == pytest.approx(one)
    change = rows["evaluate, a forward"].change
    assert change is not None
    assert change.told.startswith("--ranks-per-copy")


def test_a_training_is_counted_for_the_machine_and_its_division() -> None:
    found = check_result(rw.train.preview(MODEL, on=ON, **TRAINING, **FITS))
    [stage] = found.stages
    assert found.machine == "8xh100 (79.6 GiB each)"
    # Eight windows a step, each read by all ranks; a step of `cost` is one of them.
    [step] = [row for row in rw.cost(MODEL, "256k", on=ON).rows if row.what.startswith("train")]
    assert step.seconds is not None
    # That one recomputes nothing, and reads a window with each of eight ranks.
    assert stage.seconds == pytest.approx(10 * step.seconds * 4 / 3)
    assert found.peak_bytes is not None
    assert found.peak_bytes < step.bytes / 10


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: rw.train.preview(MODEL, on=ON, **TRAINING),
        r"window = 262144: a step takes at least .* would fit",
    ),
    (
        lambda: rw.train.preview(MODEL, on=ON, sequence_parallel=3, **TRAINING),
        "sequence_parallel = 3: 8 ranks cannot be divided into 1 × 3; choose numbers whose",
    ),
    (
        lambda: rw.train.preview("llama-3.2-3b", on="16xh100", sequence_parallel=16, **TRAINING),
        r"sequence_parallel = 16: 24 attention heads cannot be .* one of 1, 2, 3, 4, 6, 8, 12, 24",
    ),
    (
        lambda: rw.evaluate.preview(MODEL, on=ON, ranks_per_copy=3),
        "ranks_per_copy = 3: the number of ranks must be a multiple of it, but is 8",
    ),
    (
        lambda: rw.evaluate.preview(MODEL, on="3xh100", ranks_per_copy=3),
        "ranks_per_copy = 3: 32 query heads cannot be divided .* give 1 or 2 or 4 or 8",
    ),
    (
        lambda: rw.extend.preview(MODEL, "512k", on="16xh100", ranks_per_copy=16),
        "ranks_per_copy = 16: 8 key heads cannot be divided",
    ),
    (
        lambda: rw.extend.preview(MODEL, "512k", on=ON, train_steps=3, learning_rate=-5.0),
        "learning_rate = -5.0: must be above 0",
    ),
    (
        lambda: rw.extend.preview(MODEL, "512k", on=ON, train_steps=3, train_corpus="/nonexistent"),
        "/nonexistent",
    ),
    (lambda: rw.search.preview(MODEL, "512k", on=ON, corpus="/nonexistent"), "/nonexistent"),
    (lambda: rw.cost(MODEL, on="1000000xh100"), "on = '1000000xh100': .* 100,000 devices"),
    (lambda: rw.search.preview(MODEL, "32k", on=ON), "to = 32768: must be above 131072"),
    (lambda: rw.extend.preview(MODEL, "32k", on=ON), "32768: .*131072|32768.*128k"),
    (
        lambda: rw.train.preview(MODEL, on=ON, **{**TRAINING, "to": "32k"}),
        "to = 32768: the model serves 128k already",
    ),
    (lambda: rw.evaluate.preview(MODEL, on="8xq100"), r"on = '8xq100': is not a machine .*h100"),
    (lambda: rw.search.preview("llama-7b", "32k", on=ON), "vocab_size = None: is missing in"),
    (lambda: rw.search.preview(MODEL, "512k", on=ON, budget="30m"), "budget = '30m': how many"),
    (
        lambda: rw.extend.preview(MODEL, "512k", on=ON, budget="1e9tok"),
        "budget = .*tok.*: settings that fit",
    ),
    (lambda: rw.evaluate.preview(server="http://localhost:1", on=ON), "a preview is only for"),
    (lambda: rw.evaluate(BUNDLED, on=ON), "another .* is only for its preview"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_bad_input_is_named_before_any_work(call: Callable[[], object], message: str) -> None:
    with pytest.raises(rw.RopewalkError, match=message):
        call()
