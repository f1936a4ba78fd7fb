"""Samples of a task, fitted to a length: pure functions of their ids."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count as from_0
from typing import NamedTuple

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
    """The budget: the most tokens of the prompt and the answer together."""
    prompt: IntArray
    answer: IntArray
    answer_text: str
    parts: tuple[slice, ...]
    """The tokens of the answer that hold its values."""
    references: tuple[str, ...]
    distractors: tuple[str, ...]
    depth: float | None
    layout: str
    """Samples of one layout read the same text, so they are not independent."""
    allowance: int
    """The number of tokens a model may write."""
    context: str
    """Samples of one context ask for different things in one text; most are alone in theirs."""

    @property
    def prompt_sha256(self) -> str:
        return hashlib.sha256(self.prompt.astype("<i8").tobytes()).hexdigest()

    @property
    def tokens(self) -> IntArray:
        return np.concatenate([self.prompt, self.answer])


def generate(
    task: Task,
    encoder: Encoder,
    haystack: Haystack,
    length: int,
    count: int,
    seed: int,
    *,
    shared: bool = False,
) -> Iterator[Sample]:
    """`count` samples of a length; the first fifty of five hundred are the fifty.

    `shared`: as many of them on one context as the task has questions for.
    """
    # The length is no part of the key: at every length the same facts are hidden equally deep.
    key = (task.name, task.version, seed)
    units = made = 0
    for index in from_0():
        place = spread(index, "place", *key, step=SILVER)

        def fitted(units: int, index: int = index, place: float = place) -> _Fitted:
            scene = Scene(
                random=Stream(*key, index),
                depth=spread(index, *key),
                haystack=haystack,
                place=place,
                small=encoder.is_small,
                length=length,
            )
            several = task.questions if shared else None
            drafts = several(scene, units) if several else [task.draft(scene, units)]
            return _Fitted(units, [_in_tokens(draft, task, encoder) for draft in drafts])

        fitting = _fit(fitted, length, task, guess=units)
        units = fitting.units
        name = identity(*key, index, length, haystack.sha256, encoder.sha256, VERSION)
        for question, (draft, prompt, answer, allowance) in enumerate(fitting.questions):
            yield Sample(
                id=identity(name, question) if shared else name,
                length=length,
                prompt=prompt,
                answer=answer,
                answer_text=draft.answer,
                parts=_parts(encoder, draft, answer),
                references=draft.references or draft.parts or (draft.answer,),
                distractors=draft.distractors,
                depth=draft.depth,
                layout=haystack.stretch(place, draft.words) if draft.words else name,
                allowance=allowance,
                context=name,
            )
            made += 1
            if made == count:
                return


class _Question(NamedTuple):
    """A draft in tokens."""

    draft: Draft
    prompt: IntArray
    answer: IntArray
    allowance: int


def _check(draft: Draft, task: Task) -> None:
    """Refuse a question of a plugin that cannot be asked or scored."""
    text, name = draft.prompt + draft.answer, f"task {task.name}"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        rule, remedy = "stands in its text, and is no character", "read that text as UTF-8"
        raise InvalidValue(name, text[error.start], rule, remedy) from None
    if not draft.answer.strip():
        raise InvalidValue(name, draft.answer, "must be an answer to score", "give it one")
    if draft.depth is not None and not 0 <= draft.depth <= 1:
        rule = "must be a depth from 0 to 1, or None"
        raise InvalidValue(name, draft.depth, rule, "return the place of the answer in the prompt")


def _in_tokens(draft: Draft, task: Task, encoder: Encoder) -> _Question:
    _check(draft, task)
    draft = draft if encoder.chat is None else encoder.chat.put(draft)
    prompt, answer = split(encoder, draft)
    allowance = len(answer) + MARGIN
    if not encoder.is_small:
        allowance = max(allowance, task.allowance)
    return _Question(draft, prompt, answer, allowance)


class _Fitted(NamedTuple):
    """The questions on a text of so many units."""

    units: int
    questions: list[_Question]

    @property
    def size(self) -> int:
        """The tokens of the longest, with room for its answer."""
        return max(len(each.prompt) + each.allowance for each in self.questions)


def _fit(fitted: Callable[[int], _Fitted], length: int, task: Task, *, guess: int) -> _Fitted:
    """Fit as many units as the task calls enough, or the most that fit.

    The search aims where the tokens per unit so far say that the budget ends, and bisects where
    that leads nowhere. `guess` says where to look first; where the task wants the most units, and
    more of them always mean more tokens, the result does not depend on it.
    """
    best = fitted(0)
    shortest = max(best.size, task.floor)
    if shortest > length:
        raise DoesNotFit(
            f"{task.name} does not fit in {length} tokens: its shortest sample takes {shortest}"
        )
    aim, enough = (1 + task.fill) / 2 * length, task.fill * length
    least, too_many = best.size, None
    units, attempts = guess or 1, 0
    while best.size < enough and (too_many is None or too_many - best.units > 1):
        tried = fitted(units)
        if tried.size <= length:
            best = tried
        else:
            too_many = units
        attempts += 1
        if units >= length and tried.size <= least:  # a unit has at least a token
            raise InputError(
                f"task {task.name}: its prompt does not grow with {units:,} units, so it cannot "
                f"fill {length} tokens; let its text grow with `units`"
            )
        per_unit = max(1, tried.size - least) / units
        units = best.units + max(1, int((aim - best.size) / per_unit))
        if too_many is not None:
            units = min(units, too_many - 1) if attempts < 8 else (best.units + too_many) // 2
    return best


def split(encoder: Encoder, draft: Draft) -> tuple[IntArray, IntArray]:
    """The tokens of the whole, split where the answer begins.

    A tokenizer may join the end of the prompt with the beginning of the answer. The joined token
    then belongs to the answer, since the model must predict it.
    """
    prompt_tokens = encoder.prompt(draft.prompt)
    whole = _continued(encoder, prompt_tokens, draft.prompt, draft.answer)
    shared = common_beginning(prompt_tokens, whole)
    prompt, answer = whole[:shared], whole[shared:]
    if draft.answer.strip() not in encoder.text(answer):
        raise InvalidValue(
            "tokenizer",
            draft.answer,
            f"turns into {encoder.text(answer)!r} when encoded and decoded, so it cannot be an "
            "answer",
            "leave out the task, or check the tokenizer",
        )
    return prompt, answer


def _continued(encoder: Encoder, tokens: IntArray, prompt: str, answer: str) -> IntArray:
    """The tokens of prompt and answer; of a long prompt only the last line is encoded again.

    A line is encoded alike wherever it stands, or else it is noticed here.
    """
    line = _last_line(prompt)
    end = encoder.pieces(line)
    before = len(tokens) - len(end)
    if before < 0 or not np.array_equal(tokens[before:], end):
        return encoder.prompt(prompt + answer)
    return np.concatenate([tokens[:before], encoder.pieces(line + answer)])


def _last_line(prompt: str) -> str:
    return prompt[prompt.rfind("\n", 0, len(prompt.rstrip())) + 1 :]


def common_beginning(first: IntArray, second: IntArray) -> int:
    """The number of tokens at the beginning of both."""
    count = min(len(first), len(second))
    same = first[:count] == second[:count]
    return count if same.all() else int(np.argmin(same))


def _parts(encoder: Encoder, draft: Draft, answer: IntArray) -> tuple[slice, ...]:
    """The places of the values in the tokens of an answer; without any, all of it is one."""
    if not draft.parts:
        return (slice(0, len(answer)),)
    parts, place = [], 0
    line = _last_line(draft.prompt)
    whole = encoder.pieces(line + draft.answer)
    for part in draft.parts:
        begin = draft.answer.index(part, place)
        place = begin + len(part)
        # Tokens that a value shares with its neighbours belong to it.
        start = common_beginning(encoder.pieces(line + draft.answer[:begin]), whole) - len(whole)
        stop = common_beginning(encoder.pieces(line + draft.answer[:place]), whole) - len(whole)
        start, stop = max(0, len(answer) + start), len(answer) + stop
        while stop < len(answer) and part not in encoder.text(answer[start:stop]):
            stop += 1
        parts.append(slice(start, stop))
    return tuple(parts)
