"""The cost of a precision measurement, compared with one by hand from `output_attentions`.

    python -m benchmarks.precision          prints a table and writes results/precision.json

A llama of 4 layers with 4 heads, 2,048 tokens, the article's 19 shifts against one more, in two
arms: float32, and bf16 as FlashAttention has it. By hand is what the interface of transformers
offers: a forward in eager mode that gives the attention of all layers, one a shift, compared to the
one kept. It has no such bf16, so only float32 is done by hand, at one shift, and its time is given
for as many passes as ours. Each way runs in a process of its own, after a pass that is not counted.
Time is the processor time of one thread, which other work on the machine disturbs little. Memory is
the process's peak, libraries included, beside what it was before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph

RESULTS = Path(__file__).with_name("results") / "precision.json"
TARGET_SECONDS, TARGET_BYTES = 120, 2 * 2**30
MEASURED = """
import json, resource, sys, time
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from ropewalk.number_formats.arms import named
from ropewalk.number_formats.measurement import LENGTHS, REFERENCE, SHIFTS
from ropewalk.number_formats.shifts import shift_differences
from ropewalk.number_formats.stage import Stage

torch.set_num_threads(1)
torch.manual_seed(0)
LENGTH = 2048
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=1024, hidden_size=256, intermediate_size=704, num_hidden_layers=4,
    num_attention_heads=4, max_position_embeddings=LENGTH,
)).eval()
tokens = torch.randint(1024, (LENGTH,))
lengths = [n for n in LENGTHS if n <= LENGTH]


def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measured(stage, tokens, shifts):
    sums = []
    for arm in ("fp32", "bf16"):
        found = shift_differences(stage, tokens, named(arm), REFERENCE, shifts, lengths=lengths)
        sums.append(max(float(one.attention[-1].sum()) for one in found))
    return sums


def by_hand(model, tokens, shifts):
    def attention(model, shift):
        positions = torch.arange(shift, shift + len(tokens))[None]
        with torch.no_grad():
            return model(tokens[None], position_ids=positions, output_attentions=True).attentions

    weights = 1 / torch.arange(len(tokens), 0, -1)
    reference = attention(model, REFERENCE)
    values = []
    for shift in shifts:
        pairs = zip(attention(model, shift), reference)
        values.append(sum(float(((a - b).abs().sum((0, 1, 2)) * weights).sum()) for a, b in pairs))
    return [max(values)]


if sys.argv[1] == "ropewalk":
    subject, measure, shifts, passes = Stage(model), measured, SHIFTS, 2 * (len(SHIFTS) + 1)
else:
    model.set_attn_implementation("eager")
    subject, measure, shifts, passes = model, by_hand, SHIFTS[:1], 2
measure(subject, tokens[:64], shifts[:1])
before = peak()
busy = time.process_time()
sums = measure(subject, tokens, shifts)
times = 2 * (len(SHIFTS) + 1) / passes
print(json.dumps({
    "passes": passes,
    "processor_seconds": times * (time.process_time() - busy),
    "peak_bytes": peak(),
    "grown_bytes": peak() - before,
    "largest_difference": dict(zip(("fp32", "bf16"), sums)),
}))
"""


def measure(way: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, way],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    found = {}
    print(f"{'':10}{'seconds':>10}{'peak':>12}{'grown':>12}")
    for way in ("ropewalk", "by hand"):
        own = found[way] = measure(way)
        print(
            f"{way:10}{own['processor_seconds']:10.1f}"
            f"{own['peak_bytes'] / 2**20:8.0f} MiB{own['grown_bytes'] / 2**20:8.0f} MiB",
            flush=True,
        )
    ours = found["ropewalk"]
    met = ours["processor_seconds"] < TARGET_SECONDS and ours["peak_bytes"] < TARGET_BYTES
    print(
        f"the aim, {TARGET_SECONDS} s and {TARGET_BYTES >> 30} GiB, is {'' if met else 'not '}met"
    )
    RESULTS.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")


def blocks() -> dict[str, str]:
    results = json.loads(RESULTS.read_text())
    ours, others = results["ropewalk"], results["by hand"]
    return {
        PAGE: paragraph(
            "Four layers of four heads, 2,048 tokens, 19 shifts, two number formats: "
            f"{ours['processor_seconds']:.0f} s of processor time on one thread, peak memory "
            f"{ours['peak_bytes'] / 2**20:,.0f} MiB, libraries included. "
            "The same number of passes with `output_attentions=True` in eager mode takes "
            f"{others['processor_seconds']:.0f} s, and {others['peak_bytes'] / 2**20:,.0f} MiB for "
            "one format, which grows with the square of the length "
            f"({measured_on(results['machine'], 'python -m benchmarks.precision')}; "
            "[results](../benchmarks/results/precision.json))."
        )
    }


if __name__ == "__main__":
    main()
