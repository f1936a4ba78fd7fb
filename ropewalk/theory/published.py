"""The bounds in print for heads of 128, to the two digits that they were printed with."""

from __future__ import annotations

HEAD_DIM = 128
LENGTHS = tuple(1024 << i for i in range(11))

MEN_2024 = dict(
    zip(
        LENGTHS,
        (4.3e3, 1.6e4, 2.7e4, 8.4e4, 3.1e5, 6.4e5, 2.1e6, 7.8e6, 3.6e7, 6.4e7, 5.1e8),
        strict=True,
    )
)
"""Men et al. 2024, *Base of RoPE Bounds Context Length*, Table 2."""

SU_2024 = dict(
    zip(
        LENGTHS,
        (4.3e3, 1.2e4, 2.7e4, 8.4e4, 2.3e5, 6.3e5, 2.1e6, 4.9e6, 2.4e7, 5.8e7, 6.5e7),
        strict=True,
    )
)
"""Su, article of 29 May 2024 on the same bound, found by brute force on a grid."""


def published(head_dim: int | None, length: int) -> dict[str, float | None]:
    """The values of the two tables, None if they have none; `head_dim` None is another head."""
    printed = head_dim == HEAD_DIM
    return {
        "men2024": MEN_2024.get(length) if printed else None,
        "su2024": SU_2024.get(length) if printed else None,
    }
