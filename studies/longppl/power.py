"""How sure the rule is: the share of simulated studies that end with each verdict.

    python -m studies.longppl.power     seconds; needs no run of the study

Losses of texts vary as the text losses of `studies/methods` do, text by text and method by method,
scaled to the tokens that are scored here: 512 or 1,536 of all, and four or ten key tokens (a trial
of three texts of the part for tuning, at 4 times, had 11, 16 and 4). The true losses of all tokens
are those of `studies/methods`; key tokens lose as much, less a gain times what their method
retrieves.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from studies.longppl.measure import (
    DOCUMENTS,
    Found,
    ordered,
    resampled,
    retrieved,
    separated,
    verdict,
)
from studies.methods.measure import MODELS, RETRIEVED, TEXT, WINDOW

SCORED = 512
"""Tokens of a text that `studies/methods` scores."""
KEYS = {2: 4, 4: 10}
GAINS = (0.0, 0.1, 0.2, 0.4, 0.8)
STUDIES, DRAWS = 400, 400


def main() -> None:
    print("| factor | gain in nats | true difference | seen | contradicted | undecided |")
    print("|---|---|---|---|---|---|")
    for factor in DOCUMENTS:
        _, rows, texts = retrieved(factor)
        right = separated(rows, texts)
        rows = rows.reshape(len(rows), len(MODELS), -1, rows.shape[-1]).swapaxes(0, 1)
        for gain in GAINS:
            random, told = np.random.default_rng(7), Counter[str]()
            for _ in range(STUDIES):
                again = resampled(simulated(factor, rows, right, gain, random), DRAWS)
                told[verdict(*np.quantile(again[:, 1] - again[:, 0], [0.025, 0.975]))] += 1
            exact = simulated(factor, rows, right, gain, None)
            [true] = ordered(exact, np.zeros((1, 1), dtype=np.int64))
            cells = [
                f"{told[name] / STUDIES:.0%}" for name in ("seen", "contradicted", "undecided")
            ]
            points = f"{100 * (true[1] - true[0]):+.0f} points"
            print(f"| {factor} | {gain:g} | {points} | {' | '.join(cells)} |", flush=True)


def simulated(
    factor: int,
    rows: NDArray[np.float64],
    right: list[tuple[int, int]],
    gain: float,
    random: np.random.Generator | None,
) -> Found:
    """Drawn results of rows by [model, method, text]; without a generator, the true ones."""
    text = rows[..., TEXT]
    true, found = text.mean(axis=2), rows[..., RETRIEVED].mean(axis=2)
    apart, count = text - true[..., None], DOCUMENTS[factor]
    tokens = np.array([[(factor - 1) * WINDOW, KEYS[factor]]] * count)
    means = np.stack([true, true - gain * found], axis=-1)[:, :, None, :]
    losses = np.repeat(means, count, axis=2)
    for kind in (0, 1):
        if random is None:
            break
        own = apart[:, :, random.integers(0, text.shape[2], count)]
        shared = own.mean(axis=1, keepdims=True)  # hard texts are hard for all methods
        losses[..., kind] += shared + np.sqrt(SCORED / tokens[0, kind]) * (own - shared)
    return Found([], tokens, losses * tokens, right)


if __name__ == "__main__":
    main()
