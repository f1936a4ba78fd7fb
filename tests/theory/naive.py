"""The bound written the slow and obvious way: the reference for the compiled search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def cosine_sums(
    bases: NDArray[np.float64], length: int, head_dim: int, rotary_dim: int | None = None
) -> NDArray[np.float64]:
    """f_b(m), one row a base, one column a position."""
    rotary_dim = rotary_dim or head_dim
    exponents = -2.0 * np.arange(rotary_dim // 2) / rotary_dim
    frequencies = bases[:, None] ** exponents
    angles = np.arange(length)[None, :, None] * frequencies[:, None, :]
    sums: NDArray[np.float64] = np.cos(angles).sum(axis=2) + (head_dim - rotary_dim) // 2
    return sums


def minima(
    bases: NDArray[np.float64], length: int, head_dim: int, rotary_dim: int | None = None
) -> NDArray[np.float64]:
    """min over m < length, one a base."""
    chunk = max(1, 4_000_000 // (length * head_dim))
    return np.concatenate(
        [
            cosine_sums(bases[i : i + chunk], length, head_dim, rotary_dim).min(axis=1)
            for i in range(0, len(bases), chunk)
        ]
    )
