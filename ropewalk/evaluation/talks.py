"""Conversations as tokens by a model's chat template, with only the answers to be learnt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ropewalk.data.rows import Weighted
from ropewalk.errors import InputError, Unsupported, shortened
from ropewalk.evaluation.chat import SETTINGS, Messages
from ropewalk.evaluation.encoding import IntArray

_MARK = "{% generation %}"
_MARKS = ("generation %}", "generation -%}")
"""The marks of a template that tells answers apart."""
ANSWERING = "assistant"


class TemplateTalks:
    """A model's template and tokens, as rows of data need them (`rows.Talks`)."""

    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self.begin: int | None = tokenizer.bos_token_id
        self.end: int | None = tokenizer.eos_token_id

    def check(self, ids: Sequence[int]) -> None:
        if (largest := max(ids, default=0)) >= self._vocabulary:
            raise InputError(
                f"holds the token {largest}, and the model's vocabulary has {self._vocabulary}: "
                "these tokens are of another tokenizer; give the text, or the model that they are "
                "for"
            )

    def conversation(self, messages: Messages) -> tuple[IntArray, list[Weighted]]:
        """Tokens of a whole conversation; all but answers and their ends weigh nothing."""
        template = getattr(self._tokenizer, "chat_template", None)
        if template is None:
            raise InputError(
                "the model has no chat template; make texts of the rows by a template of fields "
                "(`field`), or take a model that has one"
            )
        if not any(message["role"] == ANSWERING for message in messages):
            raise InputError(f"no message has the role {ANSWERING!r}, so nothing is learnt")
        self._check_spelled(messages)
        text = self._rendered(messages)
        if not self._tokenizer.is_fast:
            raise Unsupported(
                "this tokenizer does not say where in a conversation its tokens stand; use its "
                "fast version"
            )
        encoded = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        ids = np.array(encoded["input_ids"], dtype=np.int64)
        self.check(encoded["input_ids"])
        if any(mark in str(template) for mark in _MARKS):
            answered = self._marked(messages, encoded["input_ids"])
        else:
            answered = np.zeros(ids.size, dtype=np.bool_)
            begins = np.array([begin for begin, _ in encoded["offset_mapping"]])
            for begin, end in self._answers(messages, text):
                answered |= (begins >= begin) & (begins < end)
        if not answered.any():
            raise InputError("the chat template marks no part of the conversation as an answer")
        return self._without_blank_end(ids, answered)

    def _without_blank_end(self, ids: IntArray, answered: Any) -> tuple[IntArray, list[Weighted]]:
        """Many templates put a line break behind EOS, where a document ends with EOS already."""
        ends = np.flatnonzero(ids == self.end) if self.end is not None else np.zeros(0, np.int64)
        if ends.size and not self._tokenizer.decode(ids[ends[-1] + 1 :].tolist()).strip():
            ids, answered = ids[: ends[-1] + 1], answered[: ends[-1] + 1]
        weights, place = [], 0
        for is_answer, run in groupby(answered.tolist()):
            before, place = place, place + len(list(run))
            if not is_answer:
                weights.append(Weighted(before, place, 0.0))
        return ids, weights

    def _check_spelled(self, messages: Messages) -> None:
        """A message from elsewhere must not end its own turn, or begin another's."""
        for message in messages:
            for special in self._tokenizer.all_special_tokens:
                if special in message["content"]:
                    raise InputError(
                        f"a message spells {special!r}, which the model reads as the special "
                        "token; remove it from the text"
                    )

    def _rendered(self, messages: Messages, **how: Any) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, **SETTINGS, **how
            )
        except Exception as error:  # templates are programs, and raise what they like
            raise InputError(f"the chat template refuses it: {shortened(str(error))}") from None
        return text

    def _marked(self, messages: Messages, ids: list[int]) -> Any:
        """Find answers by the template's own marks."""
        encoded = self._tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **SETTINGS
        )
        if list(encoded["input_ids"]) != ids:
            raise InputError("the chat template renders the same conversation in two ways")
        return np.array(encoded["assistant_masks"], dtype=np.bool_)

    def _answers(self, messages: Messages, text: str) -> Iterator[tuple[int, int]]:
        """The places of answers, found by rendering the conversation up to each."""
        for number, message in enumerate(messages):
            if message["role"] != ANSWERING:
                continue
            before = self._rendered(messages[:number], add_generation_prompt=True)
            through = self._rendered(messages[: number + 1])
            if not text.startswith(through) or not through.startswith(before):
                raise InputError(
                    "the chat template renders the beginning of a conversation (up to message "
                    f"{number + 1}) differently alone than within the whole, so its answers cannot "
                    f"be told apart; give the model a template with {_MARK} around answers, or "
                    "make texts of the rows (`field`)"
                )
            end = through.rstrip()
            ended = any(end.endswith(special) for special in self._tokenizer.all_special_tokens)
            yield len(before), len(end if ended else through)
