"""Four real processes over gloo, in groups of four and of two, against one process.

Logits are equal to the last bit, in whatever layout and however documents cross borders between
ranks; gradients differ by the order in which ranks are added up.
"""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from torch.multiprocessing.spawn import start_processes

from ropewalk.attention import ulysses
from tests.attention import sharded
from tests.attention.layouts import PARADIGMS

REFUSED = {
    "a layout of another length": "= 124: the batch has 51 tokens on each of 4 ranks",
    "heads": "6 attention heads cannot be shared by 4",
    "mesh": "one dimension of a device mesh",
    "no layout": "need a layout",
}


def test_many_processes_compute_what_one_does(tmp_path: Path) -> None:
    """One test, for the processes take longer to start than to compute.

    They are forked from one clean process that has imported torch and transformers, for that takes
    longest of all.
    """
    multiprocessing.set_forkserver_preload([sharded.__name__])
    start_processes(  # type: ignore[no-untyped-call]
        sharded.work, (str(tmp_path),), nprocs=sharded.RANKS, start_method="forkserver"
    )
    for rank in range(sharded.RANKS):
        results = json.loads((tmp_path / f"{rank}.json").read_text())
        for what, says in REFUSED.items():
            assert says in results.pop(f"refused: {what}")
        for what in PARADIGMS:
            assert {f"{what}, 2 ranks", f"{what}, 4 ranks"} <= results.keys()
        for what, (logits, gradients) in results.items():
            assert logits == 0, what
            # In bfloat16 the parameters' gradients are rounded on each rank before they are added.
            assert gradients <= 1e-6 or what.startswith("bfloat16"), what


@pytest.mark.parametrize(
    ("heads", "key_heads", "ranks", "copies"),
    [(8, 8, 4, 1), (8, 2, 4, 2), (8, 1, 8, 8), (12, 3, 2, 2), (12, 3, 4, 4), (12, 4, 6, 3)],
)
def test_key_heads_are_copied_as_little_as_possible(
    heads: int, key_heads: int, ranks: int, copies: int
) -> None:
    assert ulysses._copies(heads, key_heads, ranks) == copies


def test_the_documents_do_cross_borders() -> None:
    """Or these tests would not see a document that is cut between ranks."""
    layout = PARADIGMS["anchor"](sharded.DOCUMENTS)
    for ranks in (2, 4):
        stretch = ulysses.shard_length(layout.length, ranks)
        for border in range(stretch, layout.length, stretch):
            assert layout.document_ids[border - 1] == layout.document_ids[border]
    lengths = [paradigm(sharded.DOCUMENTS).length for paradigm in PARADIGMS.values()]
    assert sum(length % 4 != 0 for length in lengths) >= 3
    assert len(set(lengths)) > 2
