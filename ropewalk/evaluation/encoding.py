"""Text to tokens as a model expects a sequence to begin, with the policy on BOS made explicit."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ropewalk.confined import confined
from ropewalk.errors import InputError, shortened
from ropewalk.evaluation.chat import Chat
from ropewalk.evaluation.randomness import identity

IntArray = NDArray[np.int64]
TokenArray = NDArray[np.uint32]
TOKEN = np.dtype("<u4")

# Below this a tokenizer belongs to a small model, which knows no prompts in plain English.
SMALL_VOCABULARY = 8192


class Encoder:
    """A tokenizer, and whether a sequence begins with BOS, as the tokenizer decides.

    A model of a smaller `vocabulary` cannot look up every token: one beyond it is refused.
    """

    chat: Chat | None = None
    """The chat template around questions; None if they are text to continue."""

    def __init__(
        self, tokenizer: Any, vocabulary: int | None = None, ends: Sequence[int] = ()
    ) -> None:
        """`ends`: tokens that end a text besides the tokenizer's own."""
        self.tokenizer = confined(tokenizer)
        self._ends = tuple(ends)
        self.vocabulary = vocabulary
        self._known: dict[tuple[str, int], bool] = {}
        bos = tokenizer.bos_token_id
        begins = self.tokenizer("a")["input_ids"][:1] == [bos]
        self.bos: tuple[int, ...] = (int(bos),) if bos is not None and begins else ()
        self.check(self.bos)

    @property
    def is_small(self) -> bool:
        return len(self.tokenizer) < SMALL_VOCABULARY

    @cached_property
    def sha256(self) -> str:
        """A SHA-256 of all that decides how text becomes tokens."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        whole = backend.to_str() if backend is not None else self.tokenizer.get_vocab()
        return identity(whole, self.bos)

    def with_chat(self, chat: Chat | None) -> Encoder:
        """The same tokenizer, with questions put as a conversation, if there is a template."""
        if chat is None:
            return self
        other = copy.copy(self)
        other.chat, other._ends = chat, (*self._ends, *self._ids(chat.end)[:1])
        other.sha256 = identity(self.sha256, chat.to_json())
        return other

    def ends_as(self, chat: Chat) -> bool:
        """True if the model ends its answers as a chat template does.

        Base models may carry a template too, and end otherwise.
        """
        return any(self.is_end(token) for token in self._ids(chat.end)[:1])

    def prompt(self, text: str) -> IntArray:
        """The tokens of a question; a chat template itself decides how a sequence begins."""
        return self.sequence(text) if self.chat is None else self.pieces(text)

    def pieces(self, text: str) -> IntArray:
        """The tokens of a text in the middle of a sequence."""
        return np.array(self._ids(text), dtype=np.int64)

    def spans(self, text: str) -> IntArray:
        """The first character of each token of a text in the middle of a sequence, and the one
        after its last."""
        spans: IntArray = self.tokenizer.spans(text)
        return spans

    def batch(self, texts: Sequence[str]) -> list[TokenArray]:
        """The tokens of whole texts; a fast tokenizer uses every core.

        None is special: a text that spells one, as `<|end|>`, does not end there.
        """
        if not texts:
            return []
        encoded = self.tokenizer(
            list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False
        )
        rows = [np.array(ids, dtype=TOKEN) for ids in encoded["input_ids"]]
        for ids in rows:
            self.check(ids)
        return rows

    def sequence(self, text: str) -> IntArray:
        """The tokens of a whole sequence, BOS included."""
        ids = self._ids(text)
        if self.bos and ids[:1] == list(self.bos):
            raise InputError(
                f"the text begins with {self.tokenizer.bos_token!r}, which the tokenizer adds too: "
                "a doubled BOS changes a model's answers; remove it from the text"
            )
        return np.array([*self.bos, *ids], dtype=np.int64)

    def text(self, tokens: IntArray) -> str:
        decoded: str = self.tokenizer.decode(tokens.tolist(), skip_special_tokens=True)
        return decoded

    def _ids(self, text: str) -> list[int]:
        # verbose=False: that a text exceeds the model's window is the point here.
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        self.check(ids)
        return ids

    def until_end(self, tokens: IntArray) -> IntArray:
        """The tokens before the first that ends a text; text after it does not count."""
        ends = next((i for i, token in enumerate(tokens) if self.is_end(token)), len(tokens))
        return tokens[:ends]

    def is_end(self, token: int) -> bool:
        """True if a token ends a text."""
        return token == self.tokenizer.eos_token_id or token in self._ends

    def continues(self, tokens: IntArray, pattern: str) -> bool:
        """True if text that ends in a digit continues, with these tokens, by a pattern."""
        return bool(len(tokens)) and self.goes_on(pattern, int(tokens[0]))

    def goes_on(self, pattern: str, token: int) -> bool:
        """True if a token begins with a match of a pattern when it follows a digit.

        Alone, a tokenizer may decode the token of " 1" as "1".
        """
        if (pattern, token) not in self._known:
            digit = self._ids("0")[-1]
            before, both = (
                self.tokenizer.decode(
                    tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
                )
                for tokens in ([digit], [digit, token])
            )
            match = re.compile(pattern).match(both, len(before))
            self._known[pattern, token] = match is not None
        return self._known[pattern, token]

    def check(self, ids: Sequence[int] | TokenArray) -> None:
        """Refuse tokens that the model has no embedding for."""
        largest = int(ids.max(initial=0)) if isinstance(ids, np.ndarray) else max(ids, default=0)
        if self.vocabulary is not None and largest >= self.vocabulary:
            token = shortened(self.tokenizer.convert_ids_to_tokens(largest))
            raise InputError(
                f"the tokenizer has token {largest} ({token}), and the model's vocabulary ends at "
                f"{self.vocabulary - 1}: they do not belong together; use the tokenizer that was "
                "saved with the model"
            )
