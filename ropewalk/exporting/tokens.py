"""The files that hold a tokenizer, and the text by which two tokenizers are compared.

Light: the gate uses it beside transformers, and `verify` without.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ropewalk.confined import FAST

OLDER = (
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt"),
    *("tekken.json", "tokenizer.tiktoken", "qwen.tiktoken", "tiktoken.model", "vocab.bpe"),
)
"""The files of which transformers makes a tokenizer, each in a way of its own."""
SETTINGS = "tokenizer_config.json"
TOKENIZER_LIMITS = ("model_max_length", "max_len")
"""The keys of a tokenizer's limit: the first that is stated holds in transformers."""
PROBE = (
    "It's the 3rd of May, 2024: we'll see 12345 LINES.\n\n\tdef f(x):\n        return x**2  # y\r\n"
    "Straße, naïve, 東京, Привет, مرحبا, 🙂👍🏽   and   spaces . . . https://example.org/?q=a \n \n"
)


def tokenizer_files(folder: Path) -> list[str]:
    """The names of the files that a tokenizer of this folder would be made of."""
    return [name for name in (FAST, *OLDER) if (folder / name).exists()]


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The place of the first token that two texts do not share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
