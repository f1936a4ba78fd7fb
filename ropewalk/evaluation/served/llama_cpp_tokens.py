"""The tokenizer of a GGUF file, in llama.cpp's own words: it is asked over HTTP.

A GGUF file holds a vocabulary and the name of llama.cpp's code that cuts texts into words, so only
llama.cpp knows its tokens for sure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ropewalk.evaluation.chat import SETTINGS
from ropewalk.evaluation.encoding import TOKEN, Encoder, TokenArray
from ropewalk.evaluation.served.client import ServerError

_LONG, _AT_ONCE = 2**20, 2**16
"""Characters of a text that is cut, and of its parts: llama.cpp's time grows faster than a text."""


def _parts(text: str) -> Iterator[str]:
    """A text in parts of whole lines, as far as it has lines."""
    begin = 0
    while begin < len(text):
        end = begin + _AT_ONCE
        if end < len(text):
            end = text.rfind("\n", begin, end) + 1 or end
        yield text[begin:end]
        begin = end


class Speaker(Protocol):
    """A llama.cpp that answers over HTTP."""

    @property
    def where(self) -> object:
        """Its address, as errors name it."""

    def post(self, path: str, body: dict[str, object]) -> object:
        """Its answer, as JSON."""


def encoder_of(
    client: Speaker,
    vocabulary: int,
    digest: str,
    ends: Sequence[int] = (),
    chat_template: str | None = None,
) -> Encoder:
    """The encoder of the file that a llama.cpp serves.

    `digest` stands for all that the file says of its tokenizer; `ends` end what is written.
    """
    encoder = Encoder(_Tokenizer(client, vocabulary, chat_template), vocabulary, ends)
    encoder.sha256 = digest
    return encoder


class _Tokenizer:
    """The part of a transformers tokenizer that an encoder uses."""

    eos_token_id = None
    """Nothing that is scored by its text asks for it."""

    def __init__(self, client: Speaker, vocabulary: int, chat_template: str | None) -> None:
        self._client, self._vocabulary = client, vocabulary
        self._spelled: dict[tuple[int, ...], str] = {}
        self._long: dict[str, TokenArray] = {}
        self.chat_template = chat_template  # llama.cpp would make up one where there is none

    def __len__(self) -> int:
        return self._vocabulary

    def __call__(
        self, text: str, *, add_special_tokens: bool = True, verbose: bool = True
    ) -> dict[str, Sequence[int] | TokenArray]:
        if len(text) <= _LONG:
            return {"input_ids": self._tokens(text, add_special_tokens)}
        # A corpus: its documents are drawn from it more than once.
        if text not in self._long:
            parts = [self._tokens(part, False) for part in _parts(text)]
            self._long[text] = np.concatenate([np.array(part, dtype=TOKEN) for part in parts])
        return {"input_ids": self._long[text]}

    def _tokens(self, text: str, add_special_tokens: bool) -> list[int]:
        body = {"content": text, "add_special": add_special_tokens, "parse_special": True}
        ids: list[int] = self._asked("/tokenize", body, "tokens", list)
        if not all(type(token) is int and 0 <= token < 2**31 for token in ids):
            raise ServerError(f"{self._client.where}: its answer to /tokenize is no list of tokens")
        return ids

    def decode(self, tokens: Sequence[int], **_: bool) -> str:
        """The text of some tokens; that of one or two is asked for once."""
        ids = tuple(int(token) for token in tokens)
        if ids not in self._spelled:
            text: str = self._asked("/detokenize", {"tokens": list(ids)}, "content", str)
            if len(ids) > 2:
                return text
            self._spelled[ids] = text
        return self._spelled[ids]

    def convert_ids_to_tokens(self, token: int) -> str:
        return self.decode([token])

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        body: dict[str, object] = {"messages": messages, "chat_template_kwargs": SETTINGS}
        text: str = self._asked("/apply-template", body, "prompt", str)
        return text

    @cached_property
    def bos_token_id(self) -> int | None:
        """The token that llama.cpp puts before a text, if any."""
        plain, whole = (self("a", add_special_tokens=s)["input_ids"] for s in (False, True))
        begins = len(whole) > len(plain) and whole[1 : 1 + len(plain)] == plain
        return whole[0] if begins else None

    @cached_property
    def bos_token(self) -> str | None:
        return None if self.bos_token_id is None else self.decode([self.bos_token_id])

    def _asked(self, path: str, body: dict[str, object], key: str, kind: type) -> Any:
        answer = self._client.post(path, body)
        value = answer.get(key) if isinstance(answer, dict) else None
        if not isinstance(value, kind):
            raise ServerError(f"{self._client.where}: its answer to {path} has no {key}")
        return value
