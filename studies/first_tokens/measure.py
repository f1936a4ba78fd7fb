"""LongRoPE's first tokens without interpolation, at 4 times the window without training.

make study NAME=first_tokens
"""

from __future__ import annotations

from pathlib import Path

from studies.claims import TEXT, Arm, Claim, Measure, Study, main

FACTOR = 4
KEPT = (0, 16, 4, 64)
"""The first two are the claim's; the others show how the loss depends on n̂."""
METHODS = {"linear": ("PI", 0.0424), "ntk": ("dynamic NTK", 0.0265)}
"""At its own target, dynamic NTK is NTK. The paper's sizes: Table 2 at 16k, n̂ of 16 and of 0."""


def claims() -> list[Claim]:
    return [
        Claim(
            f"16 first tokens without interpolation lower the loss under {name}",
            "Ding et al. 2024, Table 2",
            FACTOR,
            Arm(method, kept=16),
            Arm(method),
            Measure(TEXT, "nats"),
            size,
            (Arm(method), Arm(method, stretch=1.1)),
        )
        for method, (name, size) in METHODS.items()
    ]


STUDY = Study(
    Path(__file__).parent,
    {
        FACTOR: [
            *(Arm(method, kept=kept) for kept in KEPT[:2] for method in METHODS),
            *(Arm(method, stretch=1.1) for method in METHODS),
            *(Arm(method, kept=kept) for kept in KEPT[2:] for method in METHODS),
        ]
    },
    claims(),
)


if __name__ == "__main__":
    main(STUDY)
