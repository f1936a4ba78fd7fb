"""Tokenizers in SentencePiece's manner (Llama 2, Mistral, Gemma): scores in the place of merges.

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
RUNS_IN_THE_TEXT = (
    f"a text that itself holds {SPACE}{SPACE} may become other tokens in llama.cpp, which takes "
    "them for spaces"
)
_PREPEND = {"type": "Prepend", "prepend": SPACE}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_AFTER_SPACES = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
"""Gemma's, which finds no space once they are replaced."""


def scores(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], apart: set[int], size: int
) -> list[float]:
    """A score for every token, 0 for those that nothing is joined to. `apart` are never joined."""
    pieces = (left + right for left, right in merges)
    joined = [piece for piece, _ in groupby(pieces) if vocab[piece] not in apart]
    if len(set(joined)) < len(joined):
        raise _not_said("its rules for one piece do not follow each other")
    rules = set(merges)
    for piece, token in vocab.items():
        if token in apart:
            continue
        for at in range(1, len(piece)):
            left, right = piece[:at], piece[at:]
            # llama.cpp joins single characters whether they are pieces or not.
            stand = all(part in vocab or len(part) == 1 for part in (left, right))
            if stand and (left, right) not in rules:
                raise _not_said(f"no rule joins its pieces {left!r} and {right!r} to {piece!r}")
    values = [0.0] * size
    for rank, piece in enumerate(joined):
        values[vocab[piece]] = -1.0 - rank
    return values


def is_made_of_spaces(entry: Mapping[str, Any], vocab: Mapping[str, int]) -> bool:
    """True if an added token is one that spaces become, as Gemma's for two and more of them.

    llama.cpp has to join it by the rules, and to print it as spaces, as it does no added token.
    """
    if SPACE not in entry["content"] or entry["special"]:
        return False
    if entry["normalized"] or entry["content"] not in vocab:
        raise _not_said(f"its rules make no spaces into its added token {entry['content']!r}")
    return True


def begins_with_space(stated: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a text gets a space before it, and whether that is just as in llama.cpp.

    llama.cpp puts one before every stretch of text between special tokens.
    """
    normalizer, cuts = stated["normalizer"], stated["pre_tokenizer"]
    if cuts is None and normalizer == {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]}:
        return True, True
    if normalizer == _REPLACE and cuts in (None, _AFTER_SPACES):
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
