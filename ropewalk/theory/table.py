"""Bounds that were computed once and ship with the package, so that planning answers at once.

`python -m tools.bound_table` rebuilds them; what is not here, `safe_base` computes.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from ropewalk.extras import required_by
from ropewalk.theory.bound import Infimum, Progress, SafeBase, rotary_dim_of, safe_bases, silent

FILE = "bounds.json"


@cache
def _rows() -> dict[tuple[int, int], tuple[Infimum, SafeBase]]:
    """By head size and length; every dimension of these heads rotates."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    rows = {}
    for row in json.loads(text)["rows"]:
        length = row["length"]
        rows[row["head_dim"], length] = (
            Infimum(length, row["infimum_low"], row["infimum_high"], row["infimum_witness"]),
            SafeBase(
                length,
                row["safe"],
                row["safe_certified"],
                row["safe_witness"],
                row["safe_resolution"],
            ),
        )
    return rows


def lookup(head_dim: int, length: int) -> tuple[Infimum, SafeBase] | None:
    """The bounds of a common head size and length, if they are in the table."""
    return _rows().get((head_dim, length))


def safe_base(
    head_dim: int,
    length: int,
    *,
    rotary_dim: int | None = None,
    progress: Progress = silent,
) -> SafeBase:
    """The safe base from the table, or computed."""
    rotary_dim = rotary_dim_of(head_dim, [length], rotary_dim)
    row = lookup(head_dim, length) if rotary_dim == head_dim else None
    if row is not None:
        return row[1]
    with required_by(f"a safe base outside the table (heads of {head_dim}, length {length})"):
        return safe_bases(head_dim, [length], rotary_dim=rotary_dim, progress=progress)[0]
