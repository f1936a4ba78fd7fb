"""What the model is trained on: windows of text in which something must be looked up.

A window is a list of tokens and, for each token, the weight of predicting it. What cannot be
predicted (a value where it is defined, the letters of a key) weighs nothing; the answer of a
question and what ends it weigh more than text. Every window begins with BOS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_uppercase

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerFast

from studies.bundled_model.prompts import (
    PASSKEY_END,
    key_question,
    passkey_prompt,
    record_question,
)

TEXT, UNPREDICTABLE, ANSWER = 1.0, 0.0, 5.0

Tokens = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
Piece = tuple[str, float]  # text and the weight of predicting it


@dataclass(frozen=True)
class Window:
    tokens: Tokens
    weights: Weights

    def __getitem__(self, part: slice) -> Window:
        return Window(self.tokens[part], self.weights[part])

    def __len__(self) -> int:
        return len(self.tokens)


def joined(parts: Sequence[Window]) -> Window:
    return Window(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )


class TextStream:
    """All texts as one row of tokens, EOS after each, with the places where a line begins."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> None:
        rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        eos = tokenizer.eos_token_id
        self.tokens = np.array([token for row in rows for token in [*row, eos]], dtype=np.int64)
        spelled = [tokenizer.decode([token]) for token in range(len(tokenizer))]
        ends_line = np.array([text.endswith("\n") for text in spelled])
        ends_line[eos] = True
        # "\n\n" may be two tokens: a line inserted between them would be split differently.
        goes_on = np.array([text.startswith(("\n", "\r")) for text in spelled])
        after = np.flatnonzero(ends_line[self.tokens[:-1]] & ~goes_on[self.tokens[1:]]) + 1
        self.line_starts = after

    def crop(self, rng: np.random.Generator, length: int) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """`length` tokens that end where a line ends, and where lines may be inserted in them."""
        first = np.searchsorted(self.line_starts, length)
        end = int(self.line_starts[rng.integers(first, len(self.line_starts))])
        begin = end - length
        low, high = np.searchsorted(self.line_starts, [begin, end], side="right")
        return self.tokens[begin:end], self.line_starts[low:high] - begin


class WindowMix:
    """Draws training windows of one length."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        stream: TextStream,
        words: Sequence[str],
        length: int,
        shares: Mapping[str, float],
    ) -> None:
        self._tokenizer, self._stream, self._words = tokenizer, stream, words
        self._length = length
        self._begin = Window(np.array([tokenizer.bos_token_id]), np.zeros(1, np.float32))
        kinds: dict[str, Callable[[np.random.Generator, int], Window]] = {
            "needles": self._needles_in_text,
            "table": partial(self._table, draw_keys=random_keys),
            "table of alike keys": partial(self._table, draw_keys=alike_keys),
            "passkey": self._passkey,
            "records": self._records,
            "text": self._plain_text,
        }
        self._kinds = [kinds[kind] for kind in shares]
        self._shares = list(shares.values())

    def draw(self, rng: np.random.Generator, reach: int) -> Window:
        """One window. No answer is further than about `reach` tokens from its question."""
        body = self._kinds[rng.choice(len(self._kinds), p=self._shares)](rng, reach)
        room = self._length - 1 - len(body)
        return joined([self._begin, body, self._text(rng, room)] if room else [self._begin, body])

    def _text(self, rng: np.random.Generator, length: int) -> Window:
        tokens, _ = self._stream.crop(rng, length)
        return Window(tokens, np.full(length, TEXT, np.float32))

    def _plain_text(self, rng: np.random.Generator, reach: int) -> Window:
        return self._text(rng, self._length - 1)

    def _needles_in_text(self, rng: np.random.Generator, reach: int) -> Window:
        """Pairs between lines of text, each asked for once."""
        pairs = int(rng.integers(1, min(self._length // 32, 12) + 1))
        lines = []
        for key in random_keys(rng, pairs):
            value = f"{rng.integers(10_000):04d}"
            lines += [self._encode(_key_defined(key, value)), self._encode(_key_asked(key, value))]
        room = self._length - 1 - sum(map(len, lines))
        text, places = self._stream.crop(rng, room)
        inserted: list[tuple[int, int, Window]] = []
        for definition, question in zip(lines[::2], lines[1::2], strict=True):
            if rng.random() < 0.3:  # asked at the very end, as an evaluation asks
                asked_at = int(places[-1])
                within = places[places >= asked_at - reach]
                defined_at = int(rng.choice(within))
            else:
                defined_at = int(rng.choice(places))
                within = places[(places >= defined_at) & (places <= defined_at + reach)]
                asked_at = int(rng.choice(within))
            # At one place, definitions come before questions.
            inserted += [(defined_at, 0, definition), (asked_at, 1, question)]
        rng.shuffle(inserted)
        return _with_inserted(text, sorted(inserted, key=lambda each: each[:2]))

    def _table(
        self,
        rng: np.random.Generator,
        reach: int,
        *,
        draw_keys: Callable[[np.random.Generator, int], list[str]],
    ) -> Window:
        """Pairs, then questions: many answers in one window.

        A few tokens of text follow each line. Otherwise all lines were of one length, and looking
        back by multiples of it would do instead of looking for the key.
        """
        most_text = int(rng.integers(0, 17))
        line = len(self._encode(_key_defined("QX", "4821"))) + most_text // 2
        lines = max(2, min(self._length, 2 * reach) // line)
        pairs = int(rng.integers(1, lines))
        table = {key: f"{rng.integers(10_000):04d}" for key in draw_keys(rng, pairs)}
        rows = [_key_defined(key, value) for key, value in table.items()]
        rows += [_key_asked(key, table[key]) for key in rng.choice(list(table), lines - pairs)]
        parts: list[Window] = []
        for row in rows:
            parts += [self._encode(row), self._text(rng, int(rng.integers(0, most_text + 1)))]
        return joined(parts)[: self._length - 1]

    def _passkey(self, rng: np.random.Generator, reach: int) -> Window:
        paragraph = str(rng.choice(["\n", "\n\n"]))
        repeat = str(rng.choice([" ", "\n"]))

        def pieces(before: int, after: int) -> list[Piece]:
            passkey = int(rng.integers(10_000, 100_000))
            prompt = passkey_prompt(passkey, before, after, paragraph=paragraph, repeat=repeat)
            first_mention = prompt.index(str(passkey))
            known = first_mention + len(str(passkey))
            return [
                (prompt[:first_mention], TEXT),
                (prompt[first_mention:known], UNPREDICTABLE),
                (prompt[known:], TEXT),
                (f" {passkey}{PASSKEY_END}", ANSWER),
                ("\n", TEXT),
            ]

        fixed = len(self._encode(pieces(0, 0)))
        each = len(self._encode(pieces(2, 0))) - len(self._encode(pieces(1, 0)))
        total = int(rng.integers(0, (self._length - 1 - fixed) // each + 1))
        before = int(rng.integers(0, total + 1))
        return self._encode(pieces(before, total - before))[: self._length - 1]

    def _records(self, rng: np.random.Generator, reach: int) -> Window:
        """Lines of Long-eval, then questions for some of them."""
        usual_line = 14
        lines = max(2, (min(self._length, 2 * reach) - 1) // usual_line)
        records = int(rng.integers(1, lines))
        names = {
            "-".join(rng.choice(self._words, 2)): str(rng.integers(1, 50_001))
            for _ in range(records)
        }
        asked = rng.choice(list(names), lines - records)
        return self._encode(
            [piece for name, value in names.items() for piece in _record_defined(name, value)]
            + [piece for name in asked for piece in _record_asked(name, names[name])]
        )[: self._length - 1]

    def _encode(self, pieces: Sequence[Piece]) -> Window:
        return encode(self._tokenizer, pieces)


def encode(tokenizer: PreTrainedTokenizerFast, pieces: Sequence[Piece]) -> Window:
    """The tokens of the joined text; a token weighs what the character where it begins weighs."""
    text = "".join(piece for piece, _ in pieces)
    by_character = np.repeat(
        np.array([weight for _, weight in pieces], np.float32), [len(piece) for piece, _ in pieces]
    )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    begins = np.array([begin for begin, _ in encoded["offset_mapping"]])
    return Window(np.array(encoded["input_ids"], dtype=np.int64), by_character[begins])


def _with_inserted(text: Tokens, inserted: list[tuple[int, int, Window]]) -> Window:
    parts, done = [], 0
    for place, _, line in inserted:
        parts += [Window(text[done:place], np.full(place - done, TEXT, np.float32)), line]
        done = place
    parts.append(Window(text[done:], np.full(len(text) - done, TEXT, np.float32)))
    return joined(parts)


def random_keys(rng: np.random.Generator, count: int) -> list[str]:
    return _keys_of(rng, count, list(ascii_uppercase))


def alike_keys(rng: np.random.Generator, count: int) -> list[str]:
    """Keys of few letters: most share one with another, so that both must be matched."""
    few = max(3, math.ceil(math.sqrt(count)) + 1)
    return _keys_of(rng, count, list(rng.choice(list(ascii_uppercase), few, replace=False)))


def _keys_of(rng: np.random.Generator, count: int, letters: list[str]) -> list[str]:
    chosen = rng.choice(len(letters) ** 2, count, replace=False)
    return [letters[each // len(letters)] + letters[each % len(letters)] for each in chosen]


def _key_defined(key: str, value: str) -> list[Piece]:
    return [
        (key_question("")[:-1], TEXT),
        (f" {key}{value}", UNPREDICTABLE),
        ("\n", TEXT),
    ]


def _key_asked(key: str, value: str) -> list[Piece]:
    return [
        (key_question("")[:-1], TEXT),
        (f" {key}", UNPREDICTABLE),
        (f"{value}\n", ANSWER),
    ]


def _record_defined(name: str, value: str) -> list[Piece]:
    fixed = record_question(name).removeprefix(f"line {name}")
    return [
        ("line", TEXT),
        (f" {name}", UNPREDICTABLE),
        (fixed, TEXT),
        (value, UNPREDICTABLE),
        (">\n", TEXT),
    ]


def _record_asked(name: str, value: str) -> list[Piece]:
    fixed = record_question(name).removeprefix(f"line {name}")
    return [
        ("line", TEXT),
        (f" {name}", UNPREDICTABLE),
        (fixed, TEXT),
        (f"{value}>\n", ANSWER),
    ]
