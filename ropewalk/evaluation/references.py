"""The share of the expected references in a written text.

These are RULER's two rules (`scripts/eval/synthetic/constants.py` of NVIDIA/RULER): a reference
counts wherever the text holds it, also inside a longer word, and whatever the case.
"""

from __future__ import annotations

import re
from statistics import fmean


def string_match_all(written: str, references: tuple[str, ...]) -> float:
    """The share of the references that the text holds."""
    text = _cleaned(written)
    return fmean(reference.lower() in text for reference in references)


def string_match_part(written: str, references: tuple[str, ...]) -> float:
    """1 if the text holds one of the references."""
    text = _cleaned(written)
    return float(any(reference.lower() in text for reference in references))


def _cleaned(written: str) -> str:
    return re.sub(r"[\x00-\x1f]", "\n", written).strip().lower()
