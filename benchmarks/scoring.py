"""The memory that scoring a document takes, beyond the weights and the cache.

    python -m benchmarks.scoring            writes results/scoring.json and prints the table
    python -m benchmarks.scoring --longest 32k

Every token of one document is scored, over a vocabulary of 128,256 and with few hidden dimensions:
by the scorer, which reads in chunks, and, where that still fits, by `model(ids, labels=ids)` of
transformers' page on perplexity. Each case is a process of its own; its peak is VmHWM of
/proc/self/status, less what was resident when the scoring began, less the cache. Next to it stands
what the sizes of the tensors add up to, and the same sum for Llama 3 8B.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import PAGE, machine
from ropewalk.costs.memory_and_time import AT_ONCE, HALF, LARGEST, MASKED, SMALLEST
from ropewalk.evaluation.scoring import LOGITS_AT_ONCE
from ropewalk.lengths import format_length, parse_length
from ropewalk.outputs import write_atomically

RESULTS = Path(__file__).with_name("results") / "scoring.json"
VOCABULARY = 128_256
LENGTHS = (2**12, 2**13, 2**15, 2**17)
LABELS = 2**12
"""The longest text whose logits are made at once: 2 GiB, and that several times."""
LIMIT = 2**30
TINY = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 128,
    "max_position_embeddings": 2**17,
}
WINDOW = 1024
MEASURED = """
import json, sys
from pathlib import Path
import numpy as np, torch
from transformers import LlamaConfig, MistralConfig, AutoModelForCausalLM
from ropewalk.evaluation.scoring import Scorer

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return 1024 * int(line.split()[1])

sizes, window, way, length = json.loads(sys.argv[1])
config = MistralConfig(**sizes, sliding_window=window) if window else LlamaConfig(**sizes)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config).eval()
tokens = np.random.default_rng(0).integers(0, model.config.vocab_size, size=length)
scorer = Scorer(model, in_chunks=True)
scorer.score([tokens[:64]], [1])
before = status("VmRSS")
if way == "scorer":
    [scores] = scorer.score([tokens], [1])
    loss = scores.losses.mean()
else:
    ids = torch.from_numpy(tokens)[None]
    with torch.inference_mode():
        loss = model(ids, labels=ids).loss
print(json.dumps({"bytes": status("VmHWM") - before, "loss": float(loss)}))
"""


class Sizes(NamedTuple):
    """The sizes that decide the memory of a forward."""

    layers: int
    width: int
    heads: int
    shared: int
    """Heads of keys and values."""
    head_dim: int
    inner: int
    bytes: int
    """The bytes of a number."""

    def cache(self, length: int) -> int:
        return 2 * self.layers * self.shared * self.head_dim * length * self.bytes

    def forward(self, length: int) -> int:
        """The largest of: a chunk's attention, its feed-forward layer, its logits and losses."""
        chunked = length > AT_ONCE
        before = 4 * LOGITS_AT_ONCE if chunked else 0  # the last logits of the chunk before
        if self.bytes == HALF:  # on a GPU, without a mask
            rows, masked, filled = min(length, AT_ONCE), 0, 0
        else:
            rows = max(SMALLEST, min(LARGEST, MASKED // length)) if chunked else length
            masked, filled = chunked * self._under_a_mask(rows, length), chunked * rows * length
        stream = 3 * rows * self.width * self.bytes  # the residual, its norm, a layer's output
        queries = 3 * rows * self.heads * self.head_dim * self.bytes
        inner = filled + 3 * rows * self.inner * self.bytes
        # In the dtype of the model and, unless that is float32, again in float32; their softmax.
        each = 8 if self.bytes == 4 else self.bytes + 8
        logits = min(rows * VOCABULARY, LOGITS_AT_ONCE) * each
        return stream + max(before + masked + queries, before + inner, logits)

    def _under_a_mask(self, rows: int, length: int) -> int:
        # Two masks of truth values exist while one is made; then one, and the same as numbers.
        masked = rows * length * (1 + max(1, self.bytes))
        # As if the kernel copied the keys and values of a head for each that shares them.
        return masked + 2 * self.heads // self.shared * length * self.head_dim * self.bytes


SMALL = Sizes(2, 64, 2, 1, 32, 128, 4)
LLAMA_3_8B = Sizes(32, 4096, 32, 8, 128, 14336, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longest", default="128k")
    longest = parse_length(parser.parse_args().longest)
    rows: list[dict[str, Any]] = []
    for window in (None, WINDOW):
        for length in (length for length in LENGTHS if length <= longest):
            # A layer with a window keeps no more than that.
            cache = SMALL.cache(length if window is None else min(length, window))
            row: dict[str, Any] = {"window": window, "length": length, "cache": cache}
            for way in ("scorer", *(["labels"] if length <= LABELS else [])):
                row[way] = measure(window, way, length)
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    found = {"machine": machine(), "vocabulary": VOCABULARY, "model": TINY, "rows": rows}
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 0


def blocks() -> dict[str, str]:
    return {PAGE: table(json.loads(RESULTS.read_text(encoding="utf-8")))}


def measure(window: int | None, way: str, length: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, json.dumps([TINY, window, way, length])],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def table(found: dict[str, Any]) -> str:
    """MiB beyond weights and cache; a text that is read at once has no cache."""
    lines = [
        "| layers | tokens | measured | calculated | `labels=ids` | calculated for Llama 3 8B |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        if row["length"] not in (LENGTHS[0], LENGTHS[-1]):
            continue
        length, window = row["length"], row["window"]
        beyond = row["scorer"]["bytes"] - (row["cache"] if length > AT_ONCE else 0)
        small, large = (
            ("–", "–") if window else (_mib(sizes.forward(length)) for sizes in (SMALL, LLAMA_3_8B))
        )
        labels = _mib(row["labels"]["bytes"]) if "labels" in row else "–"
        name = f"window of {window}" if window else "full attention"
        lines.append(
            f"| {name} | {format_length(length)} | {_mib(beyond)} | {small} | {labels} | {large} |"
        )
    cache = LLAMA_3_8B.cache(LENGTHS[-1]) / 2**30
    lines.append(
        f"\nVocabulary {found['vocabulary']:,}, {found['model']['num_hidden_layers']} layers of "
        f"width {found['model']['hidden_size']} in float32; Llama 3 8B in bfloat16, whose cache of "
        f"{format_length(LENGTHS[-1])} takes {cache:.0f} GiB"
    )
    return "\n".join(lines)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


if __name__ == "__main__":
    sys.exit(main())
