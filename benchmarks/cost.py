"""The memory that `ropewalk cost` calculates, compared with what a process really takes.

    python -m benchmarks.cost            runs what is missing: about 20 minutes of two cores
    python -m benchmarks.cost --report

Each case runs in a process of its own, or in one for each of several gloo ranks that share weights
(FSDP2), in float32 on the CPU, and tells by how much its peak is above that of the imports, on the
rank where it is highest. It is run twice: as it is, and with a C library that gives freed memory
back at once, whose peak is what the step holds. Finished cases are kept in results/cost.json. The
allowance, which is for what a GPU's driver and libraries take, is left out on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.costs.machines import GIB, HERE
from ropewalk.costs.machines import machine as device
from ropewalk.costs.memory_and_time import SINGLE, Way, Workload, evaluating, training
from ropewalk.costs.sizes import sizes_of

RESULTS = Path(__file__).parent / "results" / "cost.json"
RANK, MEETING = "ROPEWALK_COST_RANK", "ROPEWALK_COST_MEETING"
WITHIN = 0.15
"""The largest error of the formulas that the aim allows."""
KINDS = {"held": {"MALLOC_MMAP_THRESHOLD_": "65536"}, "bytes": {}}
"""Settings of glibc: with a fixed threshold, a freed tensor goes back to the system at once; by
default the threshold grows, and freed memory stays in the heap."""


class Case(NamedTuple):
    """One measurement."""

    does: Literal["evaluate", "train", "train --recompute"]
    layout: str
    length: int
    config: dict[str, Any]
    ranks: int = 1
    """Each reads a window of its own."""


def _llama(hidden: int, inner: int, layers: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": hidden // 64,
        "num_key_value_heads": hidden // 256, "head_dim": 64, "vocab_size": vocabulary,
        "max_position_embeddings": 65536, "rope_theta": 500000.0, "tie_word_embeddings": False,
        **more,
    }  # fmt: skip


WIDE, DEEP = _llama(1024, 4096, 4, 4000), _llama(512, 1536, 12, 4000)
HEAVY = _llama(1024, 4096, 12, 16000)
CASES = {
    "evaluate, 8k": Case("evaluate", "", 8192, HEAVY),
    "evaluate, 16k": Case("evaluate", "", 16384, HEAVY),
    "train, full, 4k": Case("train", "full", 4096, DEEP),
    "train, anchor, 4k": Case("train", "anchor", 4096, DEEP),
    "train, full, 2k, other shape": Case("train", "full", 2048, WIDE),
    "train --recompute, full, 16k": Case("train --recompute", "full", 16384, DEEP),
    "train --recompute, anchor, 16k": Case("train --recompute", "anchor", 16384, DEEP),
    "train, heavy weights, 512": Case("train", "full", 512, HEAVY),
    "train, full, 4k, 2 ranks": Case("train", "full", 4096, DEEP, 2),
    "train, anchor, 4k, 2 ranks": Case("train", "anchor", 4096, DEEP, 2),
    "train, full, 2k, other shape, 2 ranks": Case("train", "full", 2048, WIDE, 2),
    "train --recompute, full, 2k, other shape, 2 ranks": Case(
        "train --recompute", "full", 2048, WIDE, 2
    ),
    "train, heavy weights, 512, 2 ranks": Case("train", "full", 512, HEAVY, 2),
    "train, heavy weights, 512, 4 ranks": Case("train", "full", 512, HEAVY, 4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps({"bytes": measured(CASES[asked.case])}))
        return
    if not asked.report:
        run()
    print(blocks()[PAGE])


def run() -> None:
    found = recorded()
    for name in CASES:
        for kind, settings in KINDS.items():
            if name in found[kind]:
                continue
            found[kind][name] = highest(name, settings)
            print(f"{name}, {kind}: {found[kind][name] / GIB:.2f} GiB", flush=True)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def highest(name: str, settings: dict[str, str]) -> int:
    """The highest peak of a case's ranks, each a process."""
    ranks, command = CASES[name].ranks, [sys.executable, "-m", "benchmarks.cost", "--case", name]
    with tempfile.TemporaryDirectory() as folder:
        meeting = {MEETING: f"file://{folder}/meeting"}
        started = [
            subprocess.Popen(
                command,
                env={**os.environ, **settings, **meeting, RANK: str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{name} failed")
    return int(max(json.loads(each.splitlines()[-1])["bytes"] for each in said))


def recorded() -> dict[str, Any]:
    if RESULTS.exists():
        own: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
        return own
    import torch

    return {"machine": {**machine(), "torch": torch.__version__}, **{kind: {} for kind in KINDS}}


def calculated(case: Case) -> Way:
    """The cost by the formulas, for numbers of four bytes."""
    here = replace(device(HERE), devices=case.ranks)
    work = Workload(sizes_of(case.config), case.length, here, case.length, SINGLE)
    if case.does == "evaluate":
        return next(evaluating(work))
    return next(
        way for way in training(work) if way.option == case.does.removeprefix("train").strip()
    )


def measured(case: Case) -> int:
    """The peak of this process above that of its imports."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import register_fsdp_forward_method
    from transformers import AutoConfig, AutoModelForCausalLM

    from ropewalk.attention import AttentionLayout, interface
    from ropewalk.evaluation.scoring import Scorer
    from ropewalk.models.renamed import recompute_activations
    from ropewalk.training.execution import Division
    from ropewalk.training.loss import METHOD, prepare_loss, summed_loss
    from ropewalk.training.parallel import Place, shard_for_training

    torch.set_num_threads(1)
    if case.ranks > 1:
        dist.init_process_group(
            "gloo", init_method=os.environ[MEETING], rank=int(os.environ[RANK]),
            world_size=case.ranks,
        )  # fmt: skip
    before = _peak()
    config = dict(case.config)
    made = AutoConfig.for_model(config.pop("model_type"), **config)
    torch.manual_seed(0)  # all ranks make the same weights, before each keeps its part of them
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    tokens = torch.randint(config["vocab_size"], (1, case.length))
    if case.does == "evaluate":
        Scorer(model, in_chunks=True).score([tokens[0].numpy()], [case.length - 16])
        return _peak() - before
    interface.register()
    model.set_attn_implementation(interface.NAME)
    if case.does == "train --recompute":
        recompute_activations(model)
    prepare_loss(model)
    if case.ranks > 1:
        shard_for_training(model, Place(Division(case.ranks), "cpu"))
        register_fsdp_forward_method(model, METHOD)
    model.train()
    layout = AttentionLayout.full([case.length])
    if case.layout == "anchor":
        layout = AttentionLayout.anchor([case.length // 4] * 3 + [case.length // 4 - 1])
    positions = torch.tensor(layout.positions)[None]
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):  # the second has the optimizer's state
        inputs = {"input_ids": tokens, "position_ids": positions, "layout": layout}
        torch.autograd.backward(summed_loss(model, tokens, inputs) / case.length)
        optimizer.step()
        optimizer.zero_grad()
    peak = _peak() - before
    if case.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()
    return peak


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def blocks() -> dict[str, str]:
    found = recorded()
    within = dict.fromkeys(KINDS, 0)
    lines = ["| case | calculated | held | off by | resident | off by |", "|---" * 6 + "|"]
    for name, case in CASES.items():
        formula = sum(calculated(case).parts.values())
        cells = [name, f"{formula / GIB:.2f} GiB"]
        for kind in KINDS:
            seen = found[kind].get(name)
            off = 0.0 if seen is None else formula / seen - 1
            cells += ["not yet", ""] if seen is None else [f"{seen / GIB:.2f} GiB", f"{off:+.0%}"]
            within[kind] += seen is not None and abs(off) <= WITHIN
        lines.append(f"| {' | '.join(cells)} |")
    told = (
        f"Within {WITHIN:.0%}: {within['held']} of {len(found['held'])} of what is held, "
        f"{within['bytes']} of {len(found['bytes'])} of what is resident; "
        f"{measured_on(found['machine'], 'python -m benchmarks.cost')}."
    )
    return {PAGE: "\n".join([*lines, "", told, ""])}


if __name__ == "__main__":
    main()
