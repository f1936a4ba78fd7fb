"""What every process of the sharded tests runs, and how the processes are started.

A rank reports to `NAME.RANK.json`, the first also the weights to `NAME.safetensors`. A case that
raises reports its error, so a test sees whether all ranks stopped, and with which words.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import peft
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.multiprocessing.spawn import start_processes

from ropewalk.training.execution import Division
from ropewalk.training.trainer import RopewalkTrainer
from tests.training import tiny
from tests.training.tiny import Course

Case = Callable[[Path, Path], Any]
"""Takes the store and the folder of the case, and returns a trainer that trained, or JSON."""


def run(names: Sequence[str], ranks: int, store: Path, out: Path) -> None:
    """Cases of cases.py, one after the other, in so many processes."""
    multiprocessing.set_forkserver_preload(["tests.training.cases"])
    out.mkdir(exist_ok=True)
    start_processes(  # type: ignore[no-untyped-call]
        work, (ranks, tuple(names), str(store), str(out)), nprocs=ranks, start_method="forkserver"
    )


def work(rank: int, ranks: int, names: Sequence[str], store: str, out: str) -> None:
    from tests.training.cases import CASES

    join(rank, ranks, Path(out) / f"meeting-{ranks}")
    for name in names:
        report: Any
        try:
            done = CASES[ranks][name](Path(store), Path(out))
        except Exception as error:
            report = {"error": type(error).__name__, "says": str(error)}
        else:
            report = done
            if isinstance(done, RopewalkTrainer):
                course = tiny.course(done)
                report = {"losses": course.losses, "norms": course.norms}
                if rank == 0:
                    save_file(course.weights, Path(out) / f"{name}.safetensors")
        (Path(out) / f"{name}.{rank}.json").write_text(json.dumps(report))
        dist.barrier()
    dist.destroy_process_group()


def join(rank: int, ranks: int, meeting: Path) -> None:
    """As torchrun starts a process, but without a network port."""
    torch.set_num_threads(1)
    gc.freeze()  # every training collects garbage, and modules have much that is none
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "ACCELERATE_USE_CPU": "1",
    }
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=120),  # the other may be killed before they meet
    )


def reported(out: Path, name: str, ranks: int) -> list[Any]:
    return [json.loads((out / f"{name}.{rank}.json").read_text()) for rank in range(ranks)]


def course(out: Path, name: str) -> Course:
    report = json.loads((out / f"{name}.0.json").read_text())
    assert "error" not in report, report
    return Course(report["losses"], report["norms"], load_file(out / f"{name}.safetensors"))


def train(
    name: str, division: Division, steps: int = 3, *, resume: Any = None, **changes: Any
) -> Case:
    def case(store: Path, out: Path) -> RopewalkTrainer:
        trained = trainer(store, out / name, division, steps, **changes)
        trained.train(resume if resume is None else str(out / resume))
        return trained

    return case


def trainer(
    store: Path, out: Path, division: Division, steps: int = 3, **changes: Any
) -> RopewalkTrainer:
    """With as many windows in a step whatever the division."""
    windows = changes.pop("windows", None) or tiny.stream(store)
    accumulated = tiny.PER_STEP // division.readers
    return tiny.trainer(
        out, windows, steps, division=division, gradient_accumulation_steps=accumulated, **changes
    )


def with_lora(seed: int = 0, **changes: Any) -> Any:
    model = tiny.build(**changes)
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config)
