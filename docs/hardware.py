"""The calculated and counted figures of README: memory, operations, families, agreement."""

from __future__ import annotations

import json

from docs.figures import ROOT, Sentence, paragraph
from ropewalk.models import catalogue
from ropewalk.models.config import present_plan
from ropewalk.pipeline.settings import settings_for
from ropewalk.pipeline.stages import stages
from ropewalk.pipeline.stages.evaluate import Evaluate
from ropewalk.pipeline.stages.search import Search

MODEL, TARGET = "llama-3-8b", 131_072
PARAMETERS, VOCABULARY = 8_030_261_248, 128_256
LAYERS, HIDDEN, INTERMEDIATE, KEY_HEADS, HEAD = 32, 4096, 14_336, 8, 128
THROUGHPUT = 400e12
"""Operations a second, assumed."""
FORWARD = "2 × (weights × length + layers × width of all heads × length²) operations"


def operations(length: int) -> float:
    """Of one forward; looking up an embedding multiplies nothing."""
    return 2.0 * ((PARAMETERS - VOCABULARY * HIDDEN) * length + LAYERS * HIDDEN * length**2)


def extend() -> tuple[float, int, int]:
    """Operations of `extend` with its defaults, forwards of the search and of each length."""
    present = present_plan(catalogue.find(MODEL).config)
    window = present.target_length
    costs = {type(each): each.cost(window) for each in stages(settings_for(present, TARGET))}
    total = sum(operations(n) * times for c in costs.values() for n, times in c.forwards)
    searched = sum(times for _, times in costs[Search].forwards)
    [evaluated] = {times for _, times in costs[Evaluate].forwards}
    return total, searched, evaluated


def blocks() -> dict[str, str]:
    sizes = [
        ("weights", "parameters × 2 bytes", PARAMETERS * 2),
        (
            "KV cache, to serve or generate",
            "2 × layers × key heads × head dimension × 2 bytes × length",
            2 * LAYERS * KEY_HEADS * HEAD * 2 * TARGET,
        ),
        (
            "one layer at work, to search or evaluate",
            "(4 × hidden + 3 × intermediate size) × 2 bytes × length",
            (4 * HIDDEN + 3 * INTERMEDIATE) * 2 * TARGET,
        ),
        (
            "layer inputs, to train with activation checkpointing",
            "layers × hidden size × 2 bytes × length",
            LAYERS * HIDDEN * 2 * TARGET,
        ),
    ]
    total, searched, evaluated = extend()
    one = operations(TARGET)
    needed = (sizes[0][2] + sizes[2][2]) / 2**30
    lines = [
        "| | formula | value |",
        "|---|---|---|",
        *(f"| {name} | {formula} | {size / 2**30:.1f} GiB |" for name, formula, size in sizes),
        f"| one forward | {FORWARD} | {one / 1e15:.1f} PFLOP |",
        f"| `extend` from 8k with default settings, at most | {searched} forwards at 128k, "
        f"{evaluated} at each length evaluated | {float(f'{total / 1e15:.2g}'):,.0f} PFLOP |",
        "",
        paragraph(
            f"Searching or evaluating thus needs about {needed:.0f} GiB on the device. At an "
            f"assumed {THROUGHPUT / 1e12:.0f} TFLOP/s sustained, one forward takes "
            f"{one / THROUGHPUT:.0f} seconds and `extend` at most "
            f"{total / THROUGHPUT / 3600:.1f} hours, without exporting. `extend --dry-run` times "
            "your machine."
        ),
    ]
    return {"README.md": "\n".join(lines)}


def sentences() -> list[Sentence]:
    families = (ROOT / "docs/families.md").read_text(encoding="utf-8").splitlines()
    rows = sum(line.startswith("| ") for line in families) - 1
    readings = json.loads((ROOT / "tests/external/readings.json").read_text(encoding="utf-8"))
    agreed = {(sum(c["agrees"] for c in r["checks"]), len(r["checks"])) for r in readings.values()}
    [(agree, checks)] = agreed  # the same in each engine, as the page says
    return [
        Sentence("README.md", "[{} model families](docs/families.md)", (str(rows),)),
        Sentence("docs/verify.md", "({} of {} agree in each)", (str(agree), str(checks))),
    ]
