"""Trainings on two and four gloo processes, compared with one process and with a plain loop.

The processes take longer to start than to train, so each number of ranks is started once, for all
of its cases (cases.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training import sharded, tiny
from tests.training.cases import CASES
from tests.training.hybrids import trainable

FAST = {
    4: ("saved on 4",),
    2: ("sharded 2", "sequence 2", "weighted sequence 2", "not finite on a rank",
        "disk full on a rank", "gone on with", "other weights", "not sharded", "other number",
        "hybrid", "hybrid in sequence", "parts 2", "parts of each kind", "other files",
        "other values", "other folders"),
}  # fmt: skip
"""Four ranks first: what they save is gone on with by two."""
REFUSED = {
    "not finite on a rank": ("NotFinite", "step 2: the loss is nan in window 5; the update was"),
    "disk full on a rank": ("RopewalkError", "checkpoint-2: cannot be written ([Errno 27]"),
    "other weights": ("InputError", "rank 1 holds different weights from the first (4 parameters"),
    "other files": ("InputError", "rank 1 differs from the first rank in weights"),
    "other values": ("InputError", "rank 1 differs from the first rank in settings"),
    "other folders": ("InputError", "machines that train together need a common file system"),
    "not sharded": ("RopewalkError", "21 parameters are whole on this rank"),
    "other number": ("InvalidValue", "must be the number of ranks, 2"),
    "no targets": ("NotFinite", "step 2: the loss has no targets in windows 4 to 7"),
    "hybrid in sequence": ("Unsupported", "mix tokens outside attention: their states run through"),
    "heads": ("Unsupported", "3 attention heads cannot be shared by 2"),
}


@pytest.fixture(scope="module")
def out(store: Path, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Path:
    """What the fast cases reported, and those of slow tests where such are asked for."""
    folder = tmp_path_factory.mktemp("sharded") / "out"
    slow = any(item.get_closest_marker("slow") for item in request.session.items)
    for ranks in (4, 2):
        names = [name for name in CASES[ranks] if slow or name in FAST[ranks]]
        sharded.run(names, ranks, store, folder)
    return folder


def cases(*beginnings: str) -> list[Any]:
    """Each with its number of ranks; marked slow unless it is of the fast ones."""
    return [
        pytest.param(name, ranks, marks=() if name in FAST[ranks] else pytest.mark.slow)
        for ranks in (4, 2)
        for name in CASES[ranks]
        if name in beginnings or (name.split()[0] in beginnings and name != "parts of each kind")
    ]


@pytest.mark.parametrize(("name", "ranks"), cases("sharded", "sequence", "copied", "parts"))
def test_any_division_trains_as_a_plain_loop(name: str, ranks: int, out: Path, store: Path) -> None:
    expected = tiny.oracle(tiny.stream(store), 3)
    tiny.check_alike(sharded.course(out, name), expected)


def test_hybrids_train_on_ranks_as_on_one(out: Path, store: Path, tmp_path: Path) -> None:
    """Their documents run one by one, as many on each rank as its windows have."""
    alone = tiny.trainer(tmp_path, tiny.stream(store), 3, model=trainable("falcon_h1"))
    alone.train()
    tiny.check_alike(sharded.course(out, "hybrid"), tiny.course(alone))


def test_weights_read_in_parts_are_those_that_one_process_loads(out: Path) -> None:
    for report in sharded.reported(out, "parts of each kind", 2):
        assert len(report) == 8
        assert not any(report.values()), report


@pytest.mark.parametrize(("name", "ranks"), cases("weighted"))
def test_weights_count_on_any_division(name: str, ranks: int, out: Path, store: Path) -> None:
    expected = tiny.oracle(tiny.weighted(tiny.stream(store)), 3)
    tiny.check_alike(sharded.course(out, name), expected)


@pytest.mark.parametrize(("name", "ranks"), cases("sharded", "sequence", "copied", "saved"))
def test_packed_documents_lose_what_they_lose_alone(
    name: str, ranks: int, out: Path, store: Path
) -> None:
    """Before the first update: the sum over a step's documents, each read by the stock model."""
    windows = [tiny.stream(store)[i] for i in range(tiny.PER_STEP)]
    assert all(window.layout.document_ids.max() > 0 for window in windows)
    targets = sum(int((window.labels != -100).sum()) for window in windows)
    packed = sharded.course(out, name).losses[0] * targets
    assert packed / tiny.alone(windows) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("name", "ranks"), cases(*REFUSED))
def test_all_ranks_stop_together(name: str, ranks: int, out: Path) -> None:
    """Each with an error that says the same, though only one rank had the cause."""
    kind, says = REFUSED[name]
    for report in sharded.reported(out, name, ranks):
        assert report["error"] == kind
        assert says in report["says"]


def test_a_checkpoint_goes_on_with_another_number_of_ranks(out: Path) -> None:
    saved, resumed = (sharded.course(out, name) for name in ("saved on 4", "gone on with"))
    assert len(resumed.losses) == 4
    assert resumed.losses[:2] == saved.losses[:2]  # from the checkpoint's log
    tiny.check_alike(saved, resumed)


@pytest.mark.slow
def test_tied_weights_a_rank_without_targets_and_bfloat16_train(out: Path) -> None:
    for name in ("tied 2", "no targets on a rank", "bfloat16"):
        assert all(4.5 < loss < 5.5 for loss in sharded.course(out, name).losses)
    exact = sharded.course(out, "sharded 2").losses
    rounded = sharded.course(out, "bfloat16").losses
    assert exact != rounded
    assert rounded == pytest.approx(exact, abs=0.02)


@pytest.mark.slow
def test_adapters_are_sharded_saved_alone_and_gone_on_with(out: Path) -> None:
    for report in sharded.reported(out, "lora", 2):
        assert report["equal"] == [0, 0]
        assert report["losses"][0] == report["losses"][1]
        assert report["sharded"]
        assert "trained on top of other frozen weights" in report["refused"]
        assert len(report["saved"]) == 8
        assert all("lora_" in name for name in report["saved"])
    final = out / "lora" / "final"
    assert (final / "plan.json").is_file()
    assert not (final / "model.safetensors").exists()
    assert 0 < sum(path.stat().st_size for path in final.glob("*.safetensors")) < 20_000
