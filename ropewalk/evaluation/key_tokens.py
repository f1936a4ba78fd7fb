"""Key tokens: those that a long context lets a model predict (LongPPL, arXiv 2410.23771).

A model, the evaluator, reads a text twice: whole, and in windows of K + d tokens that begin every d
tokens, so that each token is also predicted from the K to K + d − 1 before it. A token is a key
token if its loss in the whole text is more than α lower, and below −β: α = 2 and β = −2 nats, as
the authors have it. Their K is 4,096 and d a quarter of it; here K is no longer than the original
length of the model that is measured, since a short context is one that this model never lacked.

An evaluator with another tokenizer marks text: tokens within the text of neighbouring key tokens
are key tokens. LongCE, the loss for training of the same paper, weighs a token by e to the same
gain of the context, but by no more than γ = 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.evaluation.answering import Answerer, at_once
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.perplexity import ScoredWindow, short_context
from ropewalk.records import AS_IT_IS, Subject

ALPHA, BETA, GAMMA = 2.0, -2.0, 5.0

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


class ContextGain(NamedTuple):
    """An entry for each token of a text from K on."""

    loss: Floats
    """In nats, with the whole text before it."""
    gain: Floats
    """The loss with a short context minus this one."""

    @property
    def is_key(self) -> Mask:
        mask: Mask = (self.gain > ALPHA) & (self.loss < -BETA)
        return mask

    @property
    def weights(self) -> Floats:
        """LongCE's weight of each token."""
        weights: Floats = np.exp(np.minimum(self.gain, np.log(GAMMA)))
        return weights


@dataclass(eq=False)
class Evaluator:
    """The model that chooses key tokens, the same ones for all that are measured."""

    answerer: Answerer
    _known: dict[str, Mask] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def subject(self) -> Subject:
        """The first plan of those that it could follow; unmodified, it may not reach far."""
        subjects = self.answerer.subjects
        return next((each for each in subjects if each.method != AS_IT_IS), subjects[0])

    @property
    def identity(self) -> Mapping[str, object]:
        encoder = self.answerer.encoder
        return {"tokenizer_sha256": encoder.sha256, **self.subject._asdict()}

    def __str__(self) -> str:
        method = self.subject.method
        return self.answerer.model + ("" if method == AS_IT_IS else f" under {method}")

    def rule(self, original_length: int) -> str:
        """The rule of the key tokens of a model of this original length, for people."""
        short = short_context(original_length)
        return (
            f"longppl: key tokens by {self}, those of a loss below {-BETA:g} nats that is more "
            f"than {ALPHA:g} lower with all of the text than with {short} to "
            f"{short + short // 4 - 1} tokens before it; texts without any do not count"
        )

    def gain(self, tokens: IntArray, short: int) -> ContextGain:
        """The gain of the tokens from `short` on, of which there must be one."""
        step = max(1, short // 4)
        starts = range(0, len(tokens) - short, step)
        rows = [tokens[start : start + short + step] for start in starts]
        size = at_once(short + step)
        with self.answerer.under(self.subject, len(tokens)):
            [whole] = self.answerer.losses([tokens], [short])
        with self.answerer.under(self.subject, short + step):
            parts = [
                each.losses
                for first in range(0, len(rows), size)
                for batch in [rows[first : first + size]]
                for each in self.answerer.losses(batch, [short] * len(batch))
            ]
        return ContextGain(whole.losses, np.concatenate(parts) - whole.losses)

    def weights(self, tokens: IntArray, length: int) -> Floats:
        """LongCE's weights of the tokens of a text, which is read `length` tokens at a time.

        A token without more than the short context before it weighs 1.
        """
        bos = np.array(self.answerer.encoder.bos, dtype=np.int64)
        short, inner = short_context(self.answerer.original_length), length - len(bos)
        weights = np.ones(len(tokens))
        for start in range(0, len(tokens), inner):
            row = np.concatenate([bos, tokens[start : start + inner]])
            if len(row) > short:
                gained = self.gain(row, short).weights
                end = start + len(row) - len(bos)
                weights[end - len(gained) : end] = gained
        return weights

    def keys(self, window: ScoredWindow, name: str, short: int, encoder: Encoder) -> Mask:
        """The key tokens of a window, whose tokens are the encoder's; `name` is its id."""
        if name not in self._known:
            self._known[name] = self._keys(window, short, encoder)
        return self._known[name]

    def _keys(self, window: ScoredWindow, short: int, encoder: Encoder) -> Mask:
        marker = self.answerer.encoder
        if marker.sha256 == encoder.sha256:
            return self._among(window.tokens, short)
        spans = encoder.spans(window.text.text)[window.begin : window.end]
        begin, end = int(spans[0, 0]), int(spans[-1, 1])
        text = window.text.text[begin:end]
        tokens = marker.sequence(text)
        theirs = np.concatenate([np.zeros((len(marker.bos), 2), np.int64), marker.spans(text)])
        marked = within(spans - begin, theirs[self._among(tokens, short)])
        return np.concatenate([np.zeros(len(window.bos), np.bool_), marked])

    def _among(self, tokens: IntArray, short: int) -> Mask:
        mask = np.zeros(len(tokens), np.bool_)
        if len(tokens) > short:
            mask[short:] = self.gain(tokens, short).is_key
        return mask


def within(spans: IntArray, marked: IntArray) -> Mask:
    """The spans of text that lie within marked ones; those that touch are one."""
    if not len(marked):
        return np.zeros(len(spans), np.bool_)
    apart = marked[1:, 0] != marked[:-1, 1]
    starts = marked[np.append(True, apart), 0]
    ends = marked[np.append(apart, True), 1]
    at = np.searchsorted(starts, spans[:, 0], side="right") - 1
    inside: Mask = (at >= 0) & (spans[:, 1] <= ends[at])
    return inside
