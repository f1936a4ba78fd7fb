"""Four real processes over gloo, in groups of four and of two, against one process.

Logits are equal to the last bit, in whatever layout and however documents cross borders between
ranks; gradients differ by the order in which ranks are added up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.multiprocessing.spawn import spawn

from ropewalk.attention import ulysses
from tests.attention import sharded
from tests.attention.layouts import PARADIGMS

EXACT = [
    *(f"{name}, {ranks} ranks" for name in PARADIGMS for ranks in (2, 4)),
    *(f"{heads} key heads, {ranks} ranks" for heads in (1, 4) for ranks in (2, 4)),
    *(
        f"{what}, {ranks} ranks"
        for what in ("3 key heads of 12", "checkpointing", "reference")
        for ranks in (2, 4)
    ),
    "FSDP2",
    "FSDP2 and checkpointing",
]

Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What each rank found."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn(sharded.work, (str(folder),), nprocs=sharded.RANKS)  # type: ignore[no-untyped-call]
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(sharded.RANKS)]


@pytest.mark.parametrize("what", EXACT)
def test_many_processes_compute_what_one_does(results: Results, what: str) -> None:
    for rank in results:
        logits, gradients = rank[what]
        assert logits == 0
        assert gradients <= 1e-6


@pytest.mark.parametrize("ranks", [2, 4])
def test_bfloat16_logits_are_equal_too(results: Results, ranks: int) -> None:
    """Its gradients are added up in bfloat16 by the model itself, so they say nothing here."""
    for rank in results:
        assert rank[f"bfloat16, {ranks} ranks"][0] == 0


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("a layout of another length", "= 124: the batch has 51 tokens on each of 4 ranks"),
        ("heads", "6 attention heads cannot be shared by 4"),
        ("mesh", "one dimension of a device mesh"),
        ("no layout", "need a layout"),
    ],
)
def test_what_cannot_be_shared_is_refused(results: Results, what: str, says: str) -> None:
    for rank in results:
        assert says in rank[f"refused: {what}"]


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
