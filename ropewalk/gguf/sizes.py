"""The number of bytes a tensor takes, by its type: GGML's blocks of values."""

from __future__ import annotations

import math

from ropewalk.gguf.header import TensorPlace

# How many bytes a block takes, by how many values it has and GGML's number of the type.
_SIZES = {
    1: {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2},
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 9: 40, 20: 18, 39: 17},
    64: {40: 36},
    128: {41: 18},
    256: dict(
        zip(
            (*range(10, 20), 21, 22, 23, 29, 34, 35),
            (84, 110, 144, 176, 210, 292, 66, 74, 98, 50, 110, 82, 136, 56, 54, 66),
            strict=True,
        )
    ),
}
NAMES = {
    **dict(enumerate(("F32", "F16", "Q4_0", "Q4_1"))),
    **dict(enumerate(("Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"), 6)),
    **dict(enumerate(("Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S"), 15)),
    **dict(enumerate(("IQ2_S", "IQ4_XS", "I8", "I16", "I32", "I64", "F64", "IQ1_M", "BF16"), 22)),
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}
"""GGML's names of types, by its numbers."""
BLOCKS = {kind: (block, size) for block, own in _SIZES.items() for kind, size in own.items()}


def bytes_of(place: TensorPlace) -> int | None:
    """The size of a tensor; None if its type is unknown."""
    if place.kind not in BLOCKS:
        return None
    block, size = BLOCKS[place.kind]
    return -(-math.prod(place.shape) // block) * size
