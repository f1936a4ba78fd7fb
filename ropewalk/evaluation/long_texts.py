"""Tokens of a long text in bounded memory: it is read in stretches, which give those of the whole.

A text is cut at joints: before a blank between two letters of ASCII, and behind a line break that
a letter or digit follows. A kind of joint is used only if no token of the vocabulary, added ones
included, spans one. Then no merge of a BPE model, and no piece of a vocabulary, reaches across, so
the tokens on one side do not depend on the other. The regular expressions that split a text into
words look at its neighbourhood, and some tokenizers put a blank before a text: so a stretch begins
at a joint before the place that its tokens are kept from, and ends at one behind the place that
they are kept to. Two neighbours must agree on the tokens around the place where they meet; if they
do not, both are read again as one. Unigram models that see no words apart are read whole, since the
rounding of their sums depends on all that came before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Tokens = tuple[NDArray[np.uint32], IntArray]
"""The tokens of a text, and the character at which each begins."""
Read = Callable[[str], Tokens]

STRETCH, MARGIN = 2**17, 2**8
"""Characters that are read at once, at least, and between joints of a meeting."""
_PUNCTUATION = re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_JOINTS = {
    r"(?<=[A-Za-z])(?= [A-Za-z])": re.compile(r"[A-Za-z] "),
    r"(?<=\n)(?=[^\W_])": re.compile(rf"\n[^\s{_PUNCTUATION}]"),
}
"""Places to cut at, and what a token that spans one has in it."""
_SPELLED = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})


class _Meeting(NamedTuple):
    """Three joints: where the right stretch begins, where the two meet, where the left one ends."""

    begin: int
    here: int
    end: int


def joints(vocabulary: Iterable[str]) -> re.Pattern[str] | None:
    """The places at which texts may be cut; None if tokens span every kind of joint."""
    left = dict(_JOINTS)
    for token in vocabulary:
        spelled = token.translate(_SPELLED).replace("<0x0A>", "\n")
        for place, spans in tuple(left.items()):
            if spans.search(spelled):
                del left[place]
    return re.compile("|".join(left)) if left else None


def in_stretches(text: str, read: Read, joint: re.Pattern[str]) -> Iterator[Tokens]:
    """Apply `read` to the whole text, part by part."""
    before = first = _Meeting(0, 0, 0)
    left: Tokens | None = None  # from `before` to `first`
    for last in _meetings(text, joint):
        right = _read(text, read, first.begin, last.end)
        if left is not None and not _agree(left, right, first.here):
            right = _read(text, read, before.begin, last.end)
        elif left is not None:
            yield _within(left, before.here, first.here)
            before = first
        left, first = right, last
    assert left is not None
    yield _within(left, before.here, len(text) + 1)


def _meetings(text: str, joint: re.Pattern[str]) -> Iterator[_Meeting]:
    """The meetings at which stretches end; the last is the end of the text."""
    reached = 0
    while True:
        places = []
        at = reached + STRETCH
        for _ in range(3):
            found = joint.search(text, at)
            if found is None:
                yield _Meeting(len(text), len(text), len(text))
                return
            places.append(found.start())
            at = found.start() + MARGIN
        yield _Meeting(*places)
        reached = places[1]


def _read(text: str, read: Read, begin: int, end: int) -> Tokens:
    tokens, begins = read(text[begin:end])
    return tokens, begins + begin


def _agree(left: Tokens, right: Tokens, here: int) -> bool:
    """True if both agree on all tokens around the place where they meet."""
    near = here - MARGIN // 2, here + MARGIN // 2
    ours, theirs = _within(left, *near), _within(right, *near)
    return np.array_equal(ours[0], theirs[0]) and np.array_equal(ours[1], theirs[1])


def _within(own: Tokens, begin: int, end: int) -> Tokens:
    held = (own[1] >= begin) & (own[1] < end)
    return own[0][held], own[1][held]
