"""Samples of a task, fitted to a length: pure functions of what their ids say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.randomness import SILVER, Stream, identity, spread
from ropewalk.evaluation.tasks import Draft, Scene, Task

VERSION = 2
# Besides the answer itself, what a model may write around it.
MARGIN = 8


class DoesNotFit(InputError):
    """A length that cannot hold even the shortest sample of a task."""


@dataclass(frozen=True)
class Sample:
    """One question: a prompt of so many tokens, and the tokens that answer it."""

    id: str
    length: int
    """The budget: prompt, answer and margin together are at most so many tokens."""
    prompt: IntArray
    answer: IntArray
    answer_text: str
    depth: float
    layout: str
    """Samples of one layout read the same text, so they are not independent."""

    @property
    def tokens(self) -> IntArray:
        return np.concatenate([self.prompt, self.answer])

    @property
    def allowance(self) -> int:
        """How many tokens a model may write."""
        return len(self.answer) + MARGIN


def generate(
    task: Task, encoder: Encoder, haystack: Haystack, length: int, count: int, seed: int
) -> Iterator[Sample]:
    """`count` samples of a length; the first fifty of five hundred are the fifty."""
    units = 0
    for index in range(count):
        # The length is no part of the key: at every length the same facts are hidden equally deep.
        key = (task.name, task.version, seed)

        place = spread(index, "place", *key, step=SILVER)

        def draft(
            units: int, index: int = index, key: tuple[object, ...] = key, place: float = place
        ) -> Draft:
            scene = Scene(
                random=Stream(*key, index),
                depth=spread(index, *key),
                haystack=haystack,
                place=place,
                small=encoder.is_small,
            )
            return task.draft(scene, units)

        units = _fit(lambda units: _tokens(encoder, draft(units)), length, task.name, guess=units)
        fitted = draft(units)
        prompt, answer = split(encoder, fitted)
        name = identity(*key, index, length, haystack.fingerprint, encoder.fingerprint, VERSION)
        yield Sample(
            id=name,
            length=length,
            prompt=prompt,
            answer=answer,
            answer_text=fitted.answer,
            depth=fitted.depth,
            layout=haystack.stretch(place, fitted.words) if fitted.words else name,
        )


def _tokens(encoder: Encoder, draft: Draft) -> int:
    return len(encoder.sequence(draft.prompt + draft.answer)) + MARGIN


def _fit(tokens: Callable[[int], int], length: int, task: str, *, guess: int) -> int:
    """The most units whose tokens fit, between a number that fits and the next that does not.

    The search aims where the tokens per unit so far say that the budget ends, and bisects where
    that leads nowhere. `guess` says where to look first; where more units always mean more tokens,
    the result does not depend on it.
    """
    shortest = used = tokens(0)
    if shortest > length:
        raise DoesNotFit(
            f"{task} does not fit in {length} tokens: its shortest sample takes {shortest}"
        )
    fits, too_many = 0, None
    units, attempts = guess or 1, 0
    while too_many is None or too_many - fits > 1:
        counted = tokens(units)
        if counted <= length:
            fits, used = units, counted
        else:
            too_many = units
        attempts += 1
        per_unit = max(1, counted - shortest) / units
        units = fits + max(1, int((length - used) / per_unit))
        if too_many is not None:
            units = min(units, too_many - 1) if attempts < 8 else (fits + too_many) // 2
    return fits


def split(encoder: Encoder, draft: Draft) -> tuple[IntArray, IntArray]:
    """The tokens of the whole, apart where the answer begins.

    A tokenizer may join the end of the prompt with the beginning of the answer. The joined token
    then belongs to the answer, since the model must predict it.
    """
    asked = encoder.sequence(draft.prompt)
    whole = encoder.sequence(draft.prompt + draft.answer)
    same = asked == whole[: len(asked)]
    shared = len(asked) if same.all() else int(np.argmin(same))
    prompt, answer = whole[:shared], whole[shared:]
    if draft.answer.strip() not in encoder.text(answer):
        raise InvalidValue(
            "tokenizer",
            draft.answer,
            f"comes back as {encoder.text(answer)!r} from its tokens, so it cannot be an answer",
            "leave out the task, or check the tokenizer",
        )
    return prompt, answer
