"""The smallest fault that the gate of an export finds, by family: planted, in tiny models.

    python -m benchmarks.gate_faults          about five minutes of one core

Each tiny family is exported with YaRN and compared with plans whose cos and sin are larger by a
growing part. Of each family: the smallest part that fails, and how far the logits then were from
the right ones, in parts of the usual tolerance. Above 1 the model's own rounding, which the gate
measures, hides what is smaller.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.context_plan import ContextPlan
from ropewalk.exporting import gate
from ropewalk.exporting.stock_run import settle
from ropewalk.models.config import present_plan
from ropewalk.models.load import read_model
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import targets
from tests.models.tiny import STRUCTURES, tiny_model

RESULTS = Path(__file__).with_name("results") / "gate_faults.json"
FAMILIES = (*STRUCTURES, "phimoe", "granitemoe")
PARTS = tuple(10.0 ** (n / 4) for n in range(-28, -7))
"""From 10⁻⁷ to 10⁻², four a decade."""
TARGET = 256


def main() -> None:
    torch.set_num_threads(1)
    families: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as room:
        for family in FAMILIES:
            families[family] = smallest(family, Path(room))
            print(family, families[family], flush=True)
    found = {"machine": {**machine(), "torch": torch.__version__}, "families": families}
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")


def smallest(family: str, room: Path) -> dict[str, Any]:
    """The smallest part that is found, and the distance of the logits in usual tolerances."""
    source, out = room / family, room / f"{family} out"
    tiny_model(family).save_pretrained(source)
    plan = extend_plan(present_plan(source), TARGET, "yarn")
    targets()["transformers"].write(str(source), plan, out)
    model = settle(read_model(source, torch.float32))
    asked = gate.sequences(plan, list(range(3, 60)))[:1]
    (answered,) = gate.ask_stock([(out, asked)])
    for part in PARTS:
        result = gate.agreement_with(model, louder(plan, part), asked, answered.answers)
        if not result.passed:
            usual = result.usual or result.tolerance
            return {"part": part, "distance": result.max_difference / usual}
    return {"part": None, "distance": None}


def louder(plan: ContextPlan, part: float) -> ContextPlan:
    """The plan with cos and sin larger by this part."""
    schedules = {
        name: tuple(
            replace(
                step,
                schedule=replace(
                    step.schedule,
                    attention_scaling=step.schedule.attention_scaling * (1 + part),
                ),
            )
            for step in steps
        )
        for name, steps in plan.schedules.items()
    }
    return replace(plan, schedules=schedules)


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    results = json.loads(RESULTS.read_text())
    rows = [
        "| family | smallest fault found, part of cos and sin "
        "| logits then differ, in usual tolerances |",
        "|---|---|---|",
    ]
    for family, row in results["families"].items():
        shown = (
            "none up to 0.01 |"
            if row["part"] is None
            else f"{row['part']:.1e} | {row['distance']:.1f}"
        )
        rows.append(f"| {family} | {shown} |")
    told = f"{measured_on(results['machine'], 'python -m benchmarks.gate_faults')}."
    return {PAGE: "\n".join([*rows, "", told]) + "\n"}


if __name__ == "__main__":
    main()
