"""Perplexity can stay while retrieval is lost: a base below the bound, on seeds of one shape.

make study NAME=superficial
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from studies.base.measure import FACTOR, SAFE, SOURCE, TENTH
from studies.base.measure import measured as measured_with
from studies.claims import RETRIEVAL, TEXT, Arm, Cell, Claim, Known, Measure, Study, main
from studies.power import Effect, Power
from studies.training.cells import SAMPLES, TASKS
from studies.training.measure import RETRIEVES

MODELS = tuple(f"narrow {seed}" for seed in range(2, 9))
"""None of them was in the study of the base; the last two stand in for models below the gate."""
NATS = Measure(TEXT, "nats")
MARGIN = 0.03
"""Nats per token that count as no loss, as in studies/base."""


def _of_retrieving(
    measure: Measure, better: Arm, worse: Arm, sign: int, margin: float = 0.0
) -> Callable[[Known, str], float | None]:
    """The gain, of models of MODELS that retrieve under the safe base: no others can lose."""

    def gain(known: Known, name: str) -> float | None:
        cells = [Cell(name, FACTOR, arm) for arm in (better, worse)]
        if name not in MODELS or any(cell not in known for cell in cells):
            return None
        if known[Cell(name, FACTOR, SAFE)][RETRIEVAL] < RETRIEVES:
            return None
        return sign * (known[cells[0]][measure] - known[cells[1]][measure]) + margin

    return gain


CLAIMS = [
    Claim(
        f"below the bound, text costs less than {MARGIN} nats more",
        f"{SOURCE}, Fig. 6 and 9",
        *(FACTOR, TENTH, SAFE, NATS),
        margin=MARGIN,
        of_model=_of_retrieving(NATS, TENTH, SAFE, -1, MARGIN),
    ),
    Claim(
        "below the bound, retrieval is lost all the same",
        f"{SOURCE}, Fig. 6 and 9",
        *(FACTOR, SAFE, TENTH, RETRIEVAL),
        of_model=_of_retrieving(RETRIEVAL, SAFE, TENTH, 1),
    ),
]

STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [SAFE, TENTH]},
    CLAIMS,
    MODELS,
    partial(measured_with, tasks=(*TASKS, TEXT)),
    SAMPLES,
    over="seeds of one shape",
    powers=[
        Power(
            (
                Effect("the margin less the loss of text, in nats", MARGIN - 0.008, 0.011),
                Effect("the loss of retrieval, as a share of answers", 0.190, 0.095),
            ),
            5,
            "seeds",
            "the five models of the study of the base, which are of five shapes: seeds differ less",
        ),
    ],
)


if __name__ == "__main__":
    main(STUDY)
