"""Memory and time of one text by length, in one process and over two ranks, with a needle to find.

    python -m benchmarks.ranks                  runs what is missing, the shortest texts first
    python -m benchmarks.ranks --longest 32k
    python -m benchmarks.ranks --report

The model has heads of 64 and is made by hand, so that it retrieves at any length: its first layer
(a window of 128) tells each token the token before it, its second finds where the last token stood
before, by the slow pairs of RoPE, and repeats what followed. Each half of what is found is in the
head of another rank. It serves an eighth of each length, and follows YaRN from there. Five needles
stand at five depths of one text, which is read once. Finished cases are kept in results/ranks.json;
1M and 2M are calculated from them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import ropewalk as rw
from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.costs.machines import HERE
from ropewalk.costs.machines import machine as device
from ropewalk.costs.memory_and_time import SINGLE, Workload, reading
from ropewalk.costs.sizes import sizes_of
from ropewalk.lengths import format_length, parse_length
from ropewalk.models.dividing import all_ranks
from ropewalk.outputs import write_atomically
from ropewalk.torchrun import started

RESULTS = Path(__file__).with_name("results") / "ranks.json"
LENGTHS = (2**15, 2**16, 2**17, 2**18)
MIB = 2**20
PREDICTED = (2**20, 2**21)
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
HEAD, CODE, WINDOW, BASE, TIMES = 64, 64, 128, 1e12, 8
WORDS = 400
"""Tokens that the text is made of; those above are needles."""


def config(length: int) -> dict[str, Any]:
    return {
        "model_type": "qwen2", "vocab_size": 512, "hidden_size": 2 * CODE,
        "intermediate_size": CODE, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": length // TIMES,
        "rope_parameters": {"rope_type": "default", "rope_theta": BASE},
        "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"], "max_window_layers": 1,
        "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip


def write_model(length: int, place: Path) -> None:
    """A folder of the model that is described above."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    own = config(length)
    made = AutoConfig.for_model(own.pop("model_type"), **own)
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    for name, weight in model.named_parameters():
        weight.data.fill_(1.0 if "norm" in name else 0.0)
    random = torch.Generator().manual_seed(0)
    codes = torch.randint(2, (own["vocab_size"], CODE), generator=random) * 2.0 - 1.0
    model.model.embed_tokens.weight.data[:, :CODE] = codes
    before, match = (layer.self_attn for layer in model.model.layers)
    half, part = HEAD // 2, CODE // 2
    pairs = torch.arange(half)
    angle = BASE ** (-pairs.double() / half)
    for head in range(2):
        start, own_part = head * HEAD, torch.arange(part)
        # Constant queries and keys that agree best at a distance of one.
        before.k_proj.bias.data[start : start + half] = 16.0
        before.q_proj.bias.data[start : start + half] = 16.0 * angle.cos().float()
        before.q_proj.bias.data[start + half : start + HEAD] = -16.0 * angle.sin().float()
        # Values: half of a token's code, which goes beside that of the token after it.
        for layer, to in ((before, CODE), (match, 0)):
            layer.v_proj.weight.data[start + own_part, head * part + own_part] = 1.0
            layer.o_proj.weight.data[to + head * part + own_part, start + own_part] = 0.7
        match.o_proj.weight.data[head * part + own_part, start + own_part] = 50.0
        # The code of the last token asks for that of the token before, in the slow half of pairs.
        slow = start + torch.cat([pairs[half // 2 :], half + pairs[half // 2 :]])
        match.q_proj.weight.data[slow, head * part + own_part] = 7.0
        match.k_proj.weight.data[slow, CODE + head * part + own_part] = 7.0
    model.save_pretrained(place)


def text(length: int) -> tuple[list[np.ndarray[Any, Any]], list[int]]:
    """Prompts that share a text and end in one of its markers each; what follows these."""
    random = np.random.default_rng(length)
    tokens = random.integers(0, WORDS, length - 1)
    answers = random.choice(WORDS, len(DEPTHS), replace=False).tolist()
    for number, (depth, answer) in enumerate(zip(DEPTHS, answers, strict=True)):
        place = int(depth * length)
        tokens[place : place + 2] = WORDS + number, answer
    return [np.append(tokens, WORDS + number) for number in range(len(DEPTHS))], answers


def measured(folder: Path, length: int) -> dict[str, Any]:
    """The text read once and asked five times, by this rank or by a process alone."""
    import torch

    from ropewalk.evaluation.chunks import Reader, branch
    from ropewalk.models.dividing import distributed
    from ropewalk.models.install import applied
    from ropewalk.models.load import read_model
    from ropewalk.models.logits import Head

    torch.set_num_threads(1)
    prompts, answers = text(length)
    if started() > 1:
        all_ranks(started(), "evaluate").meet(torch.device("cpu"))
        model = read_model(folder, torch.float32, distributed_config=distributed(started()))
    else:
        model = read_model(folder, torch.float32)
    plan = rw.plan(folder, length, "yarn").plan
    reader, head = Reader(model.eval()), Head(model)
    with torch.no_grad(), applied(model, plan, length=length):
        assert reader.continues, "read in chunks"
        loaded, began = _peak(), time.perf_counter()
        cache = reader.cache(length)
        reader.last(torch.from_numpy(prompts[0][None, :-1]), cache)
        chosen = []
        for prompt in prompts:
            hidden, _ = reader.last(torch.from_numpy(prompt[None, -1:]), branch(cache))
            chosen.append(int(head.logits(hidden).argmax()))
        seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 1),
        "bytes": _peak() - loaded,
        "cache": sum(kept.nbytes for each in cache.layers for kept in (each.keys, each.values)),
        "chosen": chosen,
        "answers": answers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--longest", default="256k", help="the longest text (default: 256k)")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        found = measured(Path(asked.case[0]), int(asked.case[1]))
        print("measured", json.dumps(found), flush=True)
        return
    if not asked.report:
        run(parse_length(asked.longest))
    print(table())


def run(longest: int) -> None:
    found = recorded()
    for length in LENGTHS:
        for ranks in (1, 2):
            if length > longest or any(_case(row) == (length, ranks) for row in found["rows"]):
                continue
            told = _processes(length, ranks)
            row = {
                "length": length, "ranks": ranks,
                "seconds": max(each["seconds"] for each in told),
                "bytes": max(each["bytes"] for each in told),
                "cache": max(each["cache"] for each in told),
                "chosen": [each["chosen"] for each in told], "answers": told[0]["answers"],
            }  # fmt: skip
            found["rows"].append(row)
            write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
            print(row, flush=True)


def _processes(length: int, ranks: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        write_model(length, Path(folder))
        start = [sys.executable]
        if ranks > 1:
            start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        own = [*start, "-m", "benchmarks.ranks", "--case", folder, str(length)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        said = subprocess.run(own, check=True, capture_output=True, text=True, env=environment)
    lines = [line for line in said.stdout.splitlines() if line.startswith("measured ")]
    assert len(lines) == ranks, said.stderr
    return [json.loads(line.removeprefix("measured ")) for line in lines]


def recorded() -> dict[str, Any]:
    if RESULTS.exists():
        own: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
        return own
    import torch

    return {"machine": {**machine(), "torch": torch.__version__}, "rows": []}


def _case(row: dict[str, Any]) -> tuple[int, int]:
    return row["length"], row["ranks"]


def blocks() -> dict[str, str]:
    return {PAGE: table()}


def table() -> str:
    """Measured cases, and those that are predicted from them."""
    found = recorded()
    lines = [
        "| length | ranks | needles found, of 5 | time | cache of a rank | its peak | calculated |",
        "|---" * 7 + "|",
    ]
    for row in sorted(found["rows"], key=_case):
        right = {sum(map(int.__eq__, own, row["answers"])) for own in row["chosen"]}
        lines.append(
            f"| {format_length(row['length'])} | {row['ranks']} | {min(right)} "
            f"| {row['seconds']:,.0f} s | {row['cache'] / MIB:,.0f} MiB "
            f"| {row['bytes'] / MIB:,.0f} MiB | {_calculated(*_case(row))} |"
        )
    for length in PREDICTED:
        for ranks in (1, 2):
            own = {row["length"]: row["seconds"] for row in found["rows"] if row["ranks"] == ranks}
            if len(own) < 2:
                continue
            known = sorted(own)[-2:]  # a part that grows with the length, and one with its square
            powers = np.array([[n, n**2] for n in known], np.float64)
            seconds = np.linalg.solve(powers, [own[n] for n in known]) @ [length, length**2]
            lines.append(
                f"| {format_length(length)} | {ranks} | predicted | {seconds / 3600:,.1f} hours "
                f"| | | {_calculated(length, ranks)} |"
            )
    said = measured_on(found["machine"], "python -m benchmarks.ranks")
    return "\n".join([*lines, "", f"{said}.", ""])


def _calculated(length: int, ranks: int) -> str:
    """The peak above the weights, by the formulas of `cost`."""
    work = Workload(sizes_of(config(length)), length, device(HERE), length // TIMES, SINGLE)
    parts = {**reading(work, in_chunks=True, ranks=ranks), "weights": 0.0}
    return f"{sum(parts.values()) / MIB:,.0f} MiB"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
