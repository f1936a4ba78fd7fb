"""AnchorAttention's layouts compared after training, at 8 times the window.

make study NAME=anchor
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from studies.claims import RETRIEVAL, Arm, Cell, Claim, Study, asked_for_facts, line_of, main
from studies.training import cells as training
from studies.training.measure import FIRST, MORE

FACTOR, STEPS = 8, 200
SIZES = {"full": 0.0685, "intra": 0.0328, "reset": 0.0322, "interleaved": 0.0648}
"""The gain of AnchorAttention over a layout at 64k, after training on SlimPajama-64K."""


def trained(layout: str, steps: int = STEPS) -> Arm:
    return Arm("base_change", layout=layout, steps=steps)


ANCHOR, PLANTED = trained("anchor"), trained("anchor", STEPS // 2)
"""Planted: half of the training."""


def claims() -> list[Claim]:
    return [
        Claim(
            f"anchor over {layout}",
            "Wang et al. 2024, Table 5",
            FACTOR,
            ANCHOR,
            trained(layout),
            RETRIEVAL,
            size,
            (ANCHOR, PLANTED),
        )
        for layout, size in SIZES.items()
    ]


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    """A training as in studies/training, half of whose windows hold short documents."""
    arm = cell.arm
    own = training.Cell(
        cell.subject, cell.factor, training.BASE, arm.steps, layout=arm.layout, short=True
    )
    line = training.measured(own, samples)
    found = {task: value for task, length, value in line["results"] if length == own.target}
    return line_of(cell, samples, asked_for_facts(found), line["seconds"])


STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [ANCHOR, *map(trained, SIZES), PLANTED]},
    claims(),
    (*FIRST, *MORE),
    measured,
    training.SAMPLES,
)


if __name__ == "__main__":
    main(STUDY)
