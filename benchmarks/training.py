"""The cost of ropewalk's parts of a training: a step next to plain trainers', and ranks.

    python -m benchmarks.training           both parts, ten minutes; writes results/training.json
    python -m benchmarks.training steps     only steps
    python -m benchmarks.training ranks     only ranks

Steps: a small llama reads the same packed windows with transformers' trainer, with TRL's where it
is installed (`make test-trl` makes an environment for it), and with ropewalk's. All run in one
process by turns, one after the other in each round; a round gives each its CPU seconds, and ratios
are taken within rounds. Memory is measured in a process for each.

Ranks: a llama of 300 MB is read, cut and trained on gloo processes. Memory is what a process holds
at most (resident, pages of files too), beyond what it held before; the worst rank counts. The C
library keeps blocks of some MiB that were freed, which says nothing of what is needed, so it is
told not to (MALLOC_MMAP_THRESHOLD_).
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes
from transformers import (
    DataCollatorWithFlattening,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.attention.layout import AttentionLayout
from ropewalk.data.windows import IGNORED, Window
from ropewalk.evaluation.statistics import t_interval
from ropewalk.models.load import quiet, read_model
from ropewalk.models.slices import Empty, without_weights
from ropewalk.training.collator import WindowCollator
from ropewalk.training.execution import Division
from ropewalk.training.parallel import Place, shard_for_training
from ropewalk.training.trainer import RopewalkTrainer

COMMAND = "python -m benchmarks.training"
RESULTS = Path(__file__).with_name("results") / "training.json"
ROUNDS, STEPS, TOKENS, VOCABULARY = 20, 2, 1024, 4096
"""The first step of a training is not measured: it makes the optimizer's state."""
SHORT = 128
"""Tokens of a window on ranks, where four make a step."""
RANKS = (1, 2, 4)
LONGEST = 3600
"""Seconds of rounds; a busy machine makes fewer of them."""
MIB = 2**20


# Steps.


def small() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=384, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=TOKENS,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).train()


def lengths_of(number: int) -> list[int]:
    """The lengths of a window's documents: log-normal around some hundreds of tokens."""
    random, left, found = np.random.default_rng([7, number]), TOKENS, []
    while left:
        found.append(min(left, int(np.clip(random.lognormal(5.5, 1.0), 16, TOKENS))))
        left -= found[-1]
    return found


def windows(layout: str, count: int = STEPS) -> list[Window]:
    """The same tokens in each layout; in `anchor` the first of them is the anchor."""
    made = []
    for number in range(count):
        lengths = lengths_of(number)
        random = np.random.default_rng([8, number])
        tokens = random.integers(3, VOCABULARY, TOKENS)
        labels = np.append(tokens[1:], IGNORED)
        if layout == "full":
            own = AttentionLayout.full([TOKENS])
        else:
            labels[np.cumsum(lengths) - 1] = IGNORED
            own = AttentionLayout.intra_document_reset(lengths)
        if layout == "anchor":
            labels[0] = IGNORED
            own = AttentionLayout.anchor([each for each in (lengths[0] - 1, *lengths[1:]) if each])
        made.append(Window(tokens, labels, own))
    return made


class Clock(TrainerCallback):  # type: ignore[misc]
    """CPU seconds of a step, except the first."""

    seconds = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 1:
            _restart_peak()
            self.seconds = -time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == args.max_steps:
            self.seconds += time.process_time()
            self.seconds /= args.max_steps - 1


def arguments(out: str, **more: Any) -> dict[str, Any]:
    return {
        "output_dir": out, "use_cpu": True, "max_steps": STEPS, "per_device_train_batch_size": 1,
        "learning_rate": 1e-4, "logging_steps": STEPS, "save_strategy": "no", "report_to": [],
        "disable_tqdm": True, "dataloader_pin_memory": False, "remove_unused_columns": False,
        **more,
    }  # fmt: skip


def ours(layout: str) -> Callable[[str], Trainer]:
    def make(out: str) -> Trainer:
        return RopewalkTrainer(
            small(), TrainingArguments(**arguments(out)), train_dataset=windows(layout)
        )

    return make


def stock(out: str) -> Trainer:
    """Causal attention over the whole window, by sdpa."""

    def collate(rows: Sequence[Window]) -> dict[str, Any]:
        batch = WindowCollator()(rows)
        return {key: batch[key] for key in ("input_ids", "labels", "shift_labels")}

    given = TrainingArguments(**arguments(out, train_sampling_strategy="sequential"))
    return Trainer(small(), given, train_dataset=windows("full"), data_collator=collate)


def flattened(out: str) -> Trainer:
    """Documents apart by positions that start again, as transformers' own collator packs them."""
    collator = DataCollatorWithFlattening()

    def collate(rows: Sequence[Window]) -> dict[str, Any]:
        [row] = rows
        ends = np.cumsum(row.layout.document_lengths)[:-1]
        own: dict[str, Any] = collator(
            [{"input_ids": each.tolist()} for each in np.split(row.tokens, ends)]
        )
        return own

    given = TrainingArguments(**arguments(out, train_sampling_strategy="sequential"))
    return Trainer(small(), given, train_dataset=windows("reset"), data_collator=collate)


def trl(out: str) -> Trainer:
    """Windows as TRL packs them: tokens, and the lengths of what is in them."""
    import datasets
    from trl import SFTConfig, SFTTrainer

    from tests.evaluation.tiny import tokenizer

    words = tokenizer()
    words.pad_token = words.convert_ids_to_tokens(0)  # TRL asks for one; nothing is padded
    made = [
        {"input_ids": own.tokens.tolist(), "seq_lengths": own.layout.document_lengths.tolist()}
        for own in windows("reset")
    ]
    given = arguments(out, train_sampling_strategy="sequential")
    given |= {"packing": True, "max_length": TOKENS, "bf16": False, "gradient_checkpointing": False}
    trained: Trainer = SFTTrainer(
        small(),
        args=SFTConfig(**given, dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=datasets.Dataset.from_list(made),
        processing_class=words,
    )
    return trained


ARMS: dict[str, Callable[[str], Trainer]] = {
    "transformers, full": stock,
    "ropewalk, full": ours("full"),
    "ropewalk, anchor": ours("anchor"),
    "ropewalk, reset": ours("reset"),
    "transformers, packed": flattened,
    "TRL, packed": trl,
}
PAIRS = (
    ("ropewalk, full", "transformers, full"),
    ("ropewalk, anchor", "ropewalk, full"),
    ("ropewalk, reset", "transformers, packed"),
    ("ropewalk, reset", "TRL, packed"),
    ("ropewalk, anchor", "TRL, packed"),
)


def one(name: str) -> tuple[float, float]:
    """CPU seconds of a step, and MiB beyond those before the second."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as out, quiet():
        trainer = ARMS[name](out)
        trainer.add_callback(clock)
        trainer.train()
    return clock.seconds, _of_status("VmHWM") - _started


def steps() -> dict[str, Any]:
    names = [name for name in ARMS if not name.startswith("TRL") or find_spec("trl")]
    for name in names:
        one(name)  # what is imported and compiled once
    rounds = []
    begin = time.monotonic()
    for number in range(ROUNDS):
        if time.monotonic() - begin > LONGEST:
            break
        turn = names[number % len(names) :] + names[: number % len(names)]
        rounds.append({name: one(name)[0] for name in turn})
        print(number, {name: round(seconds, 3) for name, seconds in rounds[-1].items()})
    memory = {name: float(_apart("one", name).split()[-1]) for name in names}
    return {"rounds": rounds, "mib": memory, "tokens": TOKENS}


# Ranks.


def large(folder: Path) -> None:
    config = LlamaConfig(
        vocab_size=4096, hidden_size=768, intermediate_size=2048, num_hidden_layers=10,
        num_attention_heads=12, num_key_value_heads=12, max_position_embeddings=512,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)


class Peak:
    """The most memory that this process holds, in MiB, looked at every millisecond."""

    def __init__(self) -> None:
        gc.collect()
        self.before = self.most = _of_status("VmRSS")
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ends.wait(0.001):
            self.most = max(self.most, _of_status("VmRSS"))

    def end(self) -> float:
        self._ends.set()
        self._thread.join()
        return self.most - self.before


def rank(number: int, ranks: int, model: str, out: str, way: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
        "ACCELERATE_USE_CPU": "1",
    }  # fmt: skip
    meeting = f"file://{out}/meeting-{way}-{ranks}"
    dist.init_process_group("gloo", init_method=meeting, rank=number, world_size=ranks)
    short = [_cut(own, SHORT) for own in windows("reset", 4 * STEPS)]
    given = TrainingArguments(**arguments(f"{out}/run", gradient_accumulation_steps=4 // ranks))
    with quiet():
        warm = RopewalkTrainer(small(), given, train_dataset=short)  # what is imported once
        del warm
        reading = Peak()
        own, parts = _unread(model, way)
        shard_for_training(own, Place(Division(ranks), "cpu"))
        if parts is not None:
            parts.read()
        found = {"read": reading.end()}
        del own, parts
        building = Peak()
        own, parts = _unread(model, way)
        clock = Clock()
        trainer = RopewalkTrainer(
            own, given, train_dataset=short, division=Division(ranks), weights=parts,
            callbacks=[clock],
        )  # fmt: skip
        found["built"] = building.end()
        held = [getattr(each, "_local_tensor", each) for each in trainer.model.parameters()]
        found["shard"] = sum(each.numel() * each.element_size() for each in held) / MIB
        layer = trainer.model.model.layers[0]
        found["layer"] = sum(each.numel() * 4 for each in layer.parameters()) / MIB
        training = Peak()
        trainer.train()
        found |= {"train": training.end() + training.before - building.before, "cpu": clock.seconds}
        found["loss"] = trainer.state.log_history[-1]["train_loss"]
    Path(out, f"{way}-{ranks}.{number}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _unread(model: str, way: str) -> tuple[Any, Empty | None]:
    if way == "whole":
        return read_model(Path(model), torch.float32), None
    parts = without_weights(Path(model), torch.float32)
    assert not isinstance(parts, str), parts
    return parts.model, parts


def _cut(window: Window, length: int) -> Window:
    labels = window.labels[:length].copy()
    labels[-1] = IGNORED
    return Window(window.tokens[:length], labels, AttentionLayout.full([length]))


def over_ranks() -> dict[str, Any]:
    rows: dict[str, Any] = {}
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # the C library then gives back what is freed
    with tempfile.TemporaryDirectory() as out:
        model = Path(out, "model")
        large(model)
        size = sum(path.stat().st_size for path in model.glob("*.safetensors")) / MIB
        for ranks in RANKS:
            for way in _ways(ranks):
                start_processes(  # type: ignore[no-untyped-call]
                    rank, (ranks, str(model), out, way), nprocs=ranks, start_method="spawn"
                )
                found = [
                    json.loads(Path(out, f"{way}-{ranks}.{number}.json").read_text())
                    for number in range(ranks)
                ]
                row = {key: max(each[key] for each in found) for key in found[0]}
                row["tokens_per_cpu_second"] = 4 * SHORT / sum(each["cpu"] for each in found)
                rows[f"{ranks}, {way}"] = row
                print(ranks, way, row)
    return {"model": size, "rows": rows}


def _ways(ranks: int) -> tuple[str, ...]:
    """One process has nothing to divide; two are compared with the way of before."""
    return {1: ("whole",), 2: ("slices", "whole")}.get(ranks, ("slices",))


def _of_status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [own for own in lines if own.startswith(f"{key}:")]
    return int(line.split()[1]) / 1024


_started = 0.0


def _restart_peak() -> None:
    global _started
    Path("/proc/self/clear_refs").write_text("5")
    _started = _of_status("VmHWM")


def _apart(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.training", *words],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def main() -> int:
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or ["steps", "ranks"]
    if wanted[0] == "one":
        print(*one(wanted[1]))
        return 0
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found |= {name: {"steps": steps, "ranks": over_ranks}[name]() for name in wanted}
    found["machine"] = {**machine(), "torch": torch.__version__}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print("\n\n".join(blocks().values()))
    return 0


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    where = measured_on(found["machine"], COMMAND)
    parts = [tell(found[key]) for key, tell in _TOLD.items() if key in found]
    return {PAGE: "\n\n".join([*parts, f"{where}."])}


def _of_steps(found: dict[str, Any]) -> str:
    rounds, memory = found["rounds"], found["mib"]
    lines = [
        f"A step on one window of {found['tokens']:,} tokens in documents of some hundreds, "
        f"forward, backward and update of a llama of four layers; the mean of {len(rounds)} "
        "rounds:",
        "",
        "| trainer, and what a token sees | CPU seconds | memory of a step |",
        "|---|---|---|",
    ]
    for name in rounds[0]:
        mean = np.mean([each[name] for each in rounds])
        took = f"{memory[name]:,.0f} MiB" if name in memory else "not measured"
        lines.append(f"| {name} | {mean:.2f} | {took} |")
    lines += ["", "Ratios of CPU time within rounds, with 95% intervals:", ""]
    lines += ["| | ratio |", "|---|---|"]
    for one, other in PAIRS:
        if {one, other} <= rounds[0].keys():
            ratios = np.log([each[one] / each[other] for each in rounds])
            interval = t_interval(ratios)
            assert interval is not None
            low, high = np.exp(interval)
            lines.append(
                f"| {one} / {other} | {np.exp(np.mean(ratios)):.2f} ({low:.2f} to {high:.2f}) |"
            )
    return "\n".join(lines)


def _of_ranks(found: dict[str, Any]) -> str:
    rows = found["rows"]
    lines = [
        f"A llama of {found['model']:,.0f} MiB on gloo processes; memory in MiB on the rank that "
        "takes most, and tokens of all ranks for each CPU second of all:",
        "",
        "| ranks | weights are | shard | one layer | reading | until the first step "
        "| training | tokens a CPU second |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ways = {"slices": "read in parts", "whole": "loaded whole"}
    for name, row in rows.items():
        ranks, way = name.split(", ")
        lines.append(
            f"| {ranks} | {ways[way]} | {row['shard']:,.0f} | {row['layer']:,.0f} "
            f"| {row['read']:,.0f} | {row['built']:,.0f} | {row['train']:,.0f} "
            f"| {row['tokens_per_cpu_second']:,.0f} |"
        )
    return "\n".join(lines)


_TOLD = {"steps": _of_steps, "ranks": _of_ranks}

if __name__ == "__main__":
    sys.exit(main())
