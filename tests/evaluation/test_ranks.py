"""Two real processes under one store, against one process: the same bits, whoever computed them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.evaluation.ranks import Ranks
from tests.evaluation.test_objectives import DOCUMENTS, SCHEDULES, measure

PROGRAM = """
import json, sys
import torch
import torch.distributed as dist
torch.set_num_threads(1)
from ropewalk.evaluation.ranks import Ranks
from tests.evaluation.test_objectives import DOCUMENTS, SCHEDULES, measure

dist.init_process_group("gloo")  # as a process that also trains would have it
ranks = Ranks.of_environment()
local, done = measure(), []

def one(schedule, document):
    done.append(document)
    return local.one(schedule, document)

first, second = ranks.apart("first"), ranks.apart("second")
if ranks.rank == 0:
    answers = []
    for series in (first, second):
        shared = series.measure(one)
        for _ in range(4):
            answers.append(shared(SCHEDULES, range(len(DOCUMENTS))).tolist())
        answers.append(shared(SCHEDULES[:1], [1]).tolist())
        shared.close()
else:
    first.serve(one)
    second.serve(one)
    answers = None
json.dump({"answers": answers, "done": len(done)}, open(f"{sys.argv[1]}/{ranks.rank}.json", "w"))
dist.destroy_process_group()
"""


def processes(program: str, arguments: list[str], count: int) -> list[subprocess.Popen[str]]:
    """The same program on so many ranks, as `torchrun` starts them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "OMP_NUM_THREADS": "1",
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def test_two_processes_give_the_bits_of_one_and_share_the_work(tmp_path: Path) -> None:
    for process in processes(PROGRAM, [str(tmp_path)], 2):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    alone = measure()
    whole = alone(SCHEDULES, range(len(DOCUMENTS))).tolist()
    series = [whole] * 4 + [alone(SCHEDULES[:1], [1]).tolist()]
    assert found[0]["answers"] == series * 2
    pairs = 2 * (4 * len(SCHEDULES) * len(DOCUMENTS) + 1)
    assert found[0]["done"] + found[1]["done"] == pairs  # nothing twice
    assert min(found[0]["done"], found[1]["done"]) > pairs // 8


class Together:
    """A store for one process, in which what is awaited is there or never will be."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def add(self, key: str, amount: int) -> int:
        total = int(self.values.get(key, b"0")) + amount
        self.values[key] = str(total).encode()
        return total

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def wait(self, keys: list[str], timeout: object) -> None:
        assert all(key in self.values for key in keys), keys

    def get(self, key: str) -> bytes:
        return self.values[key]


def test_a_failure_on_any_rank_fails_the_schedule_as_it_does_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = measure()
    score = found._scorer.score

    def broken(sequences: Any, starts: Any) -> Any:
        scores = score(sequences, starts)
        first = sequences[0] is DOCUMENTS[1].tokens
        return [s._replace(losses=s.losses * np.nan) for s in scores] if first else scores

    monkeypatch.setattr(found._scorer, "score", broken)
    shared = Ranks(Together(), 0, 1).measure(found.one)
    np.testing.assert_array_equal(shared(SCHEDULES, [0, 1]), found(SCHEDULES, [0, 1]))
    assert np.isnan(shared(SCHEDULES, [0, 1])).all()
    assert np.isfinite(shared(SCHEDULES, [0, 2])).all()
    shared.close()


def test_who_serves_stops_when_dismissed() -> None:
    store = Together()
    found = measure()
    shared = Ranks(store, 0, 1).measure(found.one)
    shared(SCHEDULES, [0])
    shared.close()
    Ranks(store, 1, 2).serve(found.one)
    assert any(key.endswith("all gone") for key in store.values)
