"""Tokenizers in SentencePiece's manner (Llama 2, Mistral): scores in the place of merges.

transformers joins two pieces where a rule says so, rules in their order. llama.cpp joins any two
that together are a piece, the piece of the highest score first. The two agree where every way to
join a piece is a rule, and the rules of one piece follow each other; else it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ropewalk.errors import Unsupported

SPACE = "▁"
OTHER_SPACES = (
    "llama.cpp puts a space before every stretch of text; transformers puts none before one that "
    "begins with a space or, maybe, stands behind a special token"
)
_PREPEND = {"type": "Prepend", "prepend": SPACE}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


def scores(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], apart: set[int], size: int
) -> list[float]:
    """A score for every token, 0 for those that nothing is joined to. `apart` are never joined."""
    joined = [piece for piece, _ in groupby(left + right for left, right in merges)]
    if len(set(joined)) < len(joined):
        raise _not_said("its rules for one piece do not follow each other")
    rules = set(merges)
    for piece, token in vocab.items():
        if token in apart:
            continue
        for at in range(1, len(piece)):
            left, right = piece[:at], piece[at:]
            if left in vocab and right in vocab and (left, right) not in rules:
                raise _not_said(f"no rule joins its pieces {left!r} and {right!r} to {piece!r}")
    found = [0.0] * size
    for rank, piece in enumerate(joined):
        found[vocab[piece]] = -1.0 - rank
    return found


def begins_with_space(stated: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a text gets a space before it, and whether that is just as in llama.cpp.

    llama.cpp puts one before every stretch of text between special tokens.
    """
    normalizer, cuts = stated["normalizer"], stated["pre_tokenizer"]
    if cuts is None and normalizer == {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]}:
        return True, True
    if cuts is None and normalizer == _REPLACE:
        return False, True
    match cuts:
        case {"type": "Metaspace", "replacement": "▁", "split": False} if normalizer is None:
            # Metaspace puts none where a text begins with one, and maybe none behind a token.
            begins = cuts["prepend_scheme"] != "never"
            return begins, not begins
    raise _not_said("it treats spaces in a way that is not known")


def _not_said(reason: str) -> Unsupported:
    return Unsupported(
        f"SentencePiece-style tokenizer: {reason}, so llama.cpp would tokenize text differently; "
        "convert this model with llama.cpp's own converter"
    )
