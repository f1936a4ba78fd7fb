"""Real processes under one store, against one process: the same bits, whoever computed them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import ropewalk as rw
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.evaluation.identity import digest_of_weights
from ropewalk.models import ranks as module
from ropewalk.models.ranks import StoreRanks
from ropewalk.searching.model.measure import LocalMeasure
from ropewalk.searching.model.ranks import SharedMeasure
from tests.evaluation import tiny
from tests.forks import Fork, Forks
from tests.searching.model.test_objectives import DOCUMENTS, SCHEDULES, measure, plan_of

KEPT = replace(SCHEDULES[1], kept_initial_positions=16)  # which only a rotary of ours can say
ASKED = [*SCHEDULES, KEPT]
TIED = {"tie_word_embeddings": True}  # the head, which no group shares, is then the embeddings
CPU = torch.device("cpu")

PROGRAM = """
import json, sys
import torch.distributed as dist
from ropewalk.searching.model.measure import LocalMeasure
from ropewalk.evaluation.identity import digest_of_weights
from tests.evaluation import tiny
from ropewalk.models.ranks import StoreRanks
from ropewalk.searching.model.ranks import SharedMeasure, measuring
from tests.searching.model.test_ranks import ASKED, CPU, DOCUMENTS, TIED, plan_of, torch

torch.set_num_threads(1)
per_copy = int(sys.argv[2])
if per_copy == 1:
    dist.init_process_group("gloo")  # as a process that also trains would have it
done = []

class Counted(LocalMeasure):
    def one(self, schedule, document):
        done.append(document)
        return super().one(schedule, document)

with StoreRanks.of_environment(per_copy) as ranks:
    model = tiny.model(**TIED)
    if per_copy > 1:
        ranks.by_layers = True
        ranks.place(model, CPU)
    local = Counted(model, DOCUMENTS, plan_of, in_step=per_copy > 1)
    local.prove(ASKED[0])
    answers = []
    for series in (ranks.apart("first"), ranks.apart("second")):
        with measuring(series, local) as shared:
            if shared is None:
                continue
            for _ in range(4):
                answers.append(shared(ASKED, range(len(DOCUMENTS))).tolist())
            answers.append(shared(ASKED[:1], [1]).tolist())
    held = [getattr(weight, "to_local", lambda: weight)() for weight in model.parameters()]
    result = {
        "answers": answers,
        "done": len(done),
        "held": sum(weight.numel() for weight in held),
        "fingerprint": digest_of_weights(model),
    }
    json.dump(result, open(f"{sys.argv[1]}/{ranks.rank}.json", "w"))
"""


def processes(fresh: Forks, program: str, arguments: list[str], count: int) -> list[Fork]:
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
        fresh.start(
            ["-c", program, *arguments],
            {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "per_copy"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.slow)]
)
def test_processes_give_the_bits_of_one_and_share_the_work(
    count: int, per_copy: int, tmp_path: Path, fresh: Forks
) -> None:
    for process in processes(fresh, PROGRAM, [str(tmp_path), str(per_copy)], count):
        ended = process.wait()
        assert ended.returncode == 0, ended.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(count)]
    alone = measure(model=tiny.model(**TIED))
    whole = alone(ASKED, range(len(DOCUMENTS))).tolist()
    series = [whole] * 4 + [alone(ASKED[:1], [1]).tolist()]
    assert found[0]["answers"] == series * 2
    done = [result["done"] for result in found]
    asked = [len(ASKED) * len(DOCUMENTS)] * 4 + [1]
    # Nothing twice, but for what keeps a group in step at the end of a request.
    assert 2 * sum(asked) <= sum(done) <= 2 * sum(n + (-n) % per_copy for n in asked)
    assert min(done) > sum(asked) // (4 * count)

    model = tiny.model(**TIED)
    layers = sum(weight.numel() for weight in model.model.layers.parameters())
    every = sum(weight.numel() for weight in model.parameters())
    for result in found:
        assert result["held"] == every - layers + layers // per_copy
        assert result["fingerprint"] == digest_of_weights(model)


def test_ranks_with_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([{"torch": "2.0"}, {"torch": "2.1"}])
    monkeypatch.setattr(module, "versions", lambda: next(found))
    store = HashStore()
    first = threading.Thread(target=StoreRanks(store, 0, 2).check_same, args=({"seed": 0},))
    first.start()
    store.wait(["ropewalk/broadcast/0/value"])
    with pytest.raises(RopewalkError, match="rank 1 sees another version of torch than rank 0"):
        StoreRanks(store, 1, 2).check_same({"seed": 0})
    first.join()


def test_ranks_with_another_seed_do_not_share_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would score documents of its own, and nothing else would say so."""
    own = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    for key, value in {**own, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(module, "_STAYS", 0.05)
    monkeypatch.setattr(module, "_met", lambda: (HashStore(), 1, 2))
    monkeypatch.setattr(StoreRanks, "broadcast", lambda self, value: {**value, "seed": 1})
    with pytest.raises(RopewalkError, match="rank 1 sees another seed than rank 0"):
        rw.search(str(tiny.saved(tmp_path)), 256, corpus=tiny.documents(), device="cpu")


def test_all_ranks_end_within_a_minute_of_the_last_beat_of_one() -> None:
    assert module.SILENT + module._GRACE + 8 < 60


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

    def check(self, keys: list[str]) -> bool:
        assert keys == ["ropewalk/failed"] or all(key in self.values for key in keys), keys
        return all(key in self.values for key in keys)

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
    shared = SharedMeasure(StoreRanks(Together(), 0, 1), found.one)
    np.testing.assert_array_equal(shared(SCHEDULES, [0, 1]), found(SCHEDULES, [0, 1]))
    assert np.isnan(shared(SCHEDULES, [0, 1])).all()
    assert np.isfinite(shared(SCHEDULES, [0, 2])).all()
    shared.close()


def test_who_serves_stops_when_dismissed() -> None:
    store = Together()
    found = measure()
    shared = SharedMeasure(StoreRanks(store, 0, 1), found.one)
    shared(SCHEDULES, [0])
    shared.close()
    SharedMeasure(StoreRanks(store, 1, 2), found.one).serve()
    assert any(key.endswith("all gone") for key in store.values)


def test_whoever_waits_for_one_that_failed_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STAYS", 0.05)
    store = HashStore()
    with pytest.raises(KeyError), StoreRanks(store, 0, 2):
        raise KeyError("whatever")
    found = measure()
    with pytest.raises(RopewalkError, match="rank 0 failed; see its output"):
        SharedMeasure(StoreRanks(store, 1, 2).apart("search"), found.one).serve()
    with pytest.raises(RopewalkError, match="rank 0 failed"), StoreRanks(store, 1, 2):
        raise RuntimeError("Connection closed by peer")


def test_the_rank_that_failed_stays_until_the_others_have_read_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_STAYS", 6.0)
    store = HashStore()

    def fail() -> None:
        with contextlib.suppress(KeyError), StoreRanks(store, 0, 3):
            raise KeyError("whatever")

    failing = threading.Thread(target=fail)
    failing.start()
    for rank in (1, 2):
        assert failing.is_alive()
        ranks = StoreRanks(store, rank, 3)
        with pytest.raises(RopewalkError, match="rank 0 failed; see its output"), ranks:
            ranks.awaited("what never comes")
    failing.join(2)
    assert not failing.is_alive()


def test_whoever_waits_ends_when_the_store_is_gone() -> None:
    class Gone(Together):
        def check(self, keys: list[str]) -> bool:
            raise dist.DistNetworkError("Connection was likely closed")

    with pytest.raises(RopewalkError, match="rank 0 failed"):
        SharedMeasure(StoreRanks(Gone(), 1, 2), measure().one).serve()


def test_a_device_that_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(Unsupported, match="cannot share a copy of the model on mps"):
        StoreRanks(Together(), 0, 2, per_copy=2).place(tiny.model(), torch.device("mps"))


def test_a_shared_model_that_runs_out_of_memory_ends_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forward of its own would wait for the others of its group for ever."""
    found = LocalMeasure(tiny.model(), DOCUMENTS, plan_of, in_step=True)

    def full(sequences: Any, starts: Any) -> Any:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(found._scorer, "score", full)
    with pytest.raises(RopewalkError, match="give a copy more ranks"):
        found(SCHEDULES, [0])
