"""Su 2023 on mixed bases and log n, at 8 times the window without training.

make study NAME=log_n
"""

from __future__ import annotations

from pathlib import Path

from studies.claims import REPEATED, TEXT, Arm, Claim, Measure, Study, main

FACTOR = 8
TEXTS = {TEXT: "other text", REPEATED: "repeated text"}
PLAIN = [Arm(method) for method in ("none", "linear", "ntk", "ntk_fixed", "ntk_mixed")]
FIXED, MIXED = Arm("ntk_fixed"), Arm("ntk_mixed")
FURTHER = Arm("ntk_mixed", stretch=1.1)
"""Planted: a schedule that is stretched a tenth more than needed."""


def claims() -> list[Claim]:
    """Tables 1 and 2; the paper's accuracies of repeated and of other text."""
    of = (
        ("NTK-fixed over NTK", FIXED, Arm("ntk"), 0.0058, 0.0034),
        ("NTK-mixed over NTK-fixed", MIXED, FIXED, 0.0123, 0.0051),
        (
            "log n beyond the window helps NTK-fixed",
            FIXED._replace(log_n=True),
            FIXED,
            0.0408,
            0.0150,
        ),
        (
            "log n beyond the window helps NTK-mixed",
            MIXED._replace(log_n=True),
            MIXED,
            0.0602,
            0.0226,
        ),
    )
    return [
        Claim(
            f"{words}, {TEXTS[task]}",
            "Su 2023, Tables 1 and 2",
            FACTOR,
            better,
            worse,
            Measure(task, "next_token_accuracy"),
            repeated if task == REPEATED else other,
            (MIXED, FURTHER),
        )
        for words, better, worse, repeated, other in of
        for task in (TEXT, REPEATED)
    ]


STUDY = Study(
    Path(__file__).parent,
    {FACTOR: [*PLAIN, *(arm._replace(log_n=True) for arm in PLAIN[1:]), FURTHER]},
    claims(),
)


if __name__ == "__main__":
    main(STUDY)
