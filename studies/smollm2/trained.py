"""The gain of twenty steps of training over YaRN, on a pretrained model: adapters, windows of 4k.

    make real                             the model, once
    python -m studies.smollm2.trained     runs what is missing: about 80 minutes of one core

The training is `rw.train`, which goes on where it was stopped, on text that shares nothing with
the documents; these are the ones of the comparison of methods, read by the trained model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

import ropewalk as rw
from benchmarks.text import read_text
from docs.figures import paragraph
from ropewalk.models.load import load
from studies.smollm2.cells import Asked, Cell, Mean, command, documents, fill, kept
from studies.smollm2.methods import CELLS as BY_METHOD
from studies.smollm2.methods import SHORT, TARGET, THREADS, mean
from studies.smollm2.model import PLACE, ready

CELLS = Path(__file__).with_name("trained.jsonl")
PAGE = "studies/smollm2/README.md"
TRAINED = "yarn, trained"
STEPS, WINDOW, RANK, RATE = 20, 4096, 16, 2e-4


def run(count: int) -> None:
    """Every cell that is missing, document by document."""
    torch.set_num_threads(THREADS)
    model = str(ready())
    place = PLACE / "trained"
    rw.train(
        model,
        corpus=read_text().tuning,
        plan=rw.plan(model, TARGET, "yarn").plan,
        window=WINDOW,
        layout="skip",
        steps=STEPS,
        batch=1,
        learning_rate=RATE,
        warmup=2,
        lora=RANK,
        dtype="float32",
        device="cpu",
        save_every=5,
        run=place,
    )
    loaded = load(str(place / "model"), dtype="float32", device="cpu")
    wanted = (
        Asked(number, TRAINED, loaded.present_plan, document)
        for number, by_length in enumerate(documents(loaded, (TARGET, SHORT))[:count])
        for document in by_length.values()
    )
    fill(CELLS, loaded, wanted)


def cells() -> list[Cell]:
    """With those of the untrained twin, on the same documents."""
    return [*kept(CELLS), *(cell for cell in kept(BY_METHOD) if cell.method == "yarn")]


def table(own: Sequence[Cell]) -> str:
    rows = [
        "| length | documents | facts retrieved, points | loss of answers | loss of the text |",
        "|---|---|---|---|---|",
    ]
    for length in (TARGET, SHORT):
        shown: dict[str, Mean | None] = {
            what: mean(own, TRAINED, length, what, "yarn") for what in ("right", "answers", "text")
        }
        right, answers, text = shown.values()
        if right and answers and text:
            found = (
                right.shown(100, "+.0f"),
                *(each.shown(1, "+.3f") for each in (answers, text)),
            )
            rows.append(f"| {length:,} | {right.documents} | {' | '.join(found)} |")
    return "\n".join(rows) + "\n"


def blocks() -> dict[str, str]:
    own = cells()
    if not any(cell.method == TRAINED for cell in own):
        return {PAGE: "Not measured yet.\n"}
    told = paragraph("YaRN trained minus YaRN untrained, paired over documents:")
    return {PAGE: f"{told}\n\n{table(own)}"}


if __name__ == "__main__":
    command(__doc__, run, lambda: blocks()[PAGE])
