"""Context lengths as people write them: 4096, 4k, 128k, 1M (k = 1024)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import zip_longest

from ropewalk.errors import InvalidValue

MAX_LENGTH = 2**40
MAX_MEASURED_LENGTH = 16 * 1024**2
"""No model is run on longer texts: sixteen times the longest window that models have."""
_UNITS = {"": 1, "k": 1024, "m": 1024**2}


def parse_length(text: str) -> int:
    """The number of tokens that a text stands for."""
    plain = re.sub(r"\s*tokens?$", "", text.strip().lower())
    plain = re.sub(r"(?<=[0-9])[,_](?=[0-9]{3}(?![0-9]))", "", plain)  # 32,768
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([km]?)", plain)
    if match is not None:
        length = Fraction(match[1]) * _UNITS[match[2]]
        if length.denominator == 1 and 1 <= length <= MAX_LENGTH:
            return int(length)
    raise InvalidValue(
        "length",
        text,
        f"must be a whole number of tokens, from 1 to {format_length(MAX_LENGTH)}",
        "write 4096, 4k, 128k or 1M",
    )


def check_measured(length: int, key: str) -> None:
    """Refuse a length that no text is made for, before any is."""
    if length > MAX_MEASURED_LENGTH:
        raise InvalidValue(
            key,
            length,
            f"must be at most {MAX_MEASURED_LENGTH}, the longest text that a model is run on",
            "give a shorter length",
        )


def parse_lengths(words: Sequence[str]) -> list[int]:
    """Several lengths; `1k … 8k` (or `...`) stands for the doublings from one to the other."""
    lengths: list[int] = []
    for word, following in zip_longest(words, words[1:]):
        if word not in ("…", "..."):
            lengths.append(parse_length(word))
        elif not lengths or following is None:
            raise InvalidValue("length", word, "must be a length", "write 1k … 1M")
        else:
            while 2 * lengths[-1] < parse_length(following):
                lengths.append(2 * lengths[-1])
    return lengths


def format_length(length: int) -> str:
    """The shortest exact way to write a length; a round decimal one (128000) stays in digits."""
    for unit in ("M", "k"):
        size = _UNITS[unit.lower()]
        if length >= size and length % size == 0 and length % 1000:
            return f"{length // size}{unit}"
    return str(length)
