"""The letters and words that samples are made of. Changing one changes samples: raise the versions
of the tasks that use it."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_uppercase

from ropewalk.evaluation.randomness import Stream

LETTERS = ascii_uppercase
DIGITS = "0123456789"
HEX = "0123456789abcdef"

WORDS = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
ADJECTIVES: list[str] = WORDS["adjectives"]
NOUNS: list[str] = WORDS["nouns"]
NAMES = len(ADJECTIVES) * len(NOUNS)


def pair_name(random: Stream) -> str:
    """One of the `NAMES` names `adjective-noun`."""
    return f"{random.choice(ADJECTIVES)}-{random.choice(NOUNS)}"


def numbered_name(number: int) -> str:
    """The name of a number below `NAMES`."""
    return f"{ADJECTIVES[number // len(NOUNS)]}-{NOUNS[number % len(NOUNS)]}"
