"""The share of the expected references in a written text.

These are RULER's two rules (`scripts/eval/synthetic/constants.py` of NVIDIA/RULER): a reference
counts wherever the text holds it, also inside a longer word, and whatever the case. But RULER gives
a list of all words of a prompt the score of the right ones, so here a text ends where it names more
values than were asked for.
"""

from __future__ import annotations

import re
from statistics import fmean

# A letter of a value, the whole value of so many, and how many values one reference allows.
_FORMS = (
    (r"\d", "{}{}", 1),
    ("[A-Z]", "{}{}", 1),
    ("[a-z]", "{}{}", 2),
    ("[a-z]", "{0}+-{0}+", 1),
    (r"[\da-f-]", "{}{}", 1),
)


def string_match_all(written: str, references: tuple[str, ...]) -> float:
    """The share of the references that the text holds."""
    text = _cleaned(_up_to_the_last(written, references))
    return fmean(reference.lower() in text for reference in references)


def string_match_part(written: str, references: tuple[str, ...]) -> float:
    """1 if the text holds one of the references."""
    text = _cleaned(written)
    return float(any(reference.lower() in text for reference in references))


def _cleaned(written: str) -> str:
    return re.sub(r"[\x00-\x1f]", "\n", written).strip().lower()


def _up_to_the_last(written: str, references: tuple[str, ...]) -> str:
    """The text up to its last value: it may name as many as there are references.

    A value is what has their form: digits, capitals or small letters, as many as they have. Words
    of prose may have the form of small letters, so twice as many of these may be named.
    """
    values = [reference.strip() for reference in references]
    sizes = sorted(map(len, values))
    size = f"{{{sizes[0]},{sizes[-1]}}}"
    forms = [(letter, whole.format(letter, size), most) for letter, whole, most in _FORMS]
    fit = (each for each in forms if all(re.fullmatch(each[1], value) for value in values))
    if (fitting := next(fit, None)) is None:
        return written
    letter, form, most = fitting
    word = f"(?<!{letter}){form}(?!{letter})"
    named: set[str] = set()
    for value in re.finditer(word, written, 0 if re.search(word, written) else re.IGNORECASE):
        named.add(value[0])
        if len(named) > most * len(values):
            return written[: value.start()]
    return written
