from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.corpora import Document
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import DoesNotFit, _fit, _Fitted, _Question, generate, split
from ropewalk.evaluation.tasks import Draft, Scene, Task, named
from ropewalk.models.load import load
from tests.evaluation import tiny


def _counted(units: int, size: int) -> _Fitted:
    """A text of so many units, whose one question takes so many tokens."""
    none = np.zeros(0, dtype=np.int64)
    return _Fitted(units, [_Question(Draft("", ""), none, none, size)])


def _task(**changes: Any) -> Task:
    return replace(named("needle"), **changes)


growing = st.lists(st.integers(1, 60), min_size=1, max_size=40).map(
    lambda sizes: [5, *(5 + np.cumsum(np.tile(sizes, 60))).tolist()]
)


@given(growing, st.integers(5, 900), st.integers(0, 200))
def test_the_most_units_that_fit_are_found_wherever_the_search_begins(
    tokens: list[int], length: int, guess: int
) -> None:
    asked: list[int] = []

    def count(units: int) -> _Fitted:
        asked.append(units)
        return _counted(units, tokens[units] if units < len(tokens) else 10**6)

    units = _fit(count, length, _task(), guess=guess).units
    assert tokens[units] <= length
    assert units + 1 == len(tokens) or tokens[units + 1] > length
    assert len(asked) <= 24


def test_nothing_fits_below_the_shortest() -> None:
    message = r"needle does not fit in 4 tokens: its shortest .* takes 5"
    with pytest.raises(DoesNotFit, match=message):
        _fit(lambda units: _counted(units, 5 + units), 4, _task(), guess=7)


def test_nothing_fits_below_the_floor_of_a_task() -> None:
    def fitted(length: int) -> int:
        task = _task(floor=9)
        return _fit(lambda units: _counted(units, 5 + units), length, task, guess=7).units

    assert fitted(9) == 4
    with pytest.raises(DoesNotFit, match=r"does not fit in 8 tokens: its shortest .* takes 9"):
        fitted(8)


@given(st.floats(0.5, 10), st.integers(4_000, 200_000), st.floats(0.9, 1.1))
def test_where_98_percent_are_enough_few_prompts_are_encoded(
    per_unit: float, length: int, off: float
) -> None:
    """A guess that is 10% off costs one encoding more, whatever the length."""
    asked: list[int] = []

    def fitted(units: int) -> _Fitted:
        asked.append(units)
        return _counted(units, 100 + int(per_unit * units))

    guess = int(off * 0.99 * length / per_unit)
    assert 0.98 * length <= _fit(fitted, length, _task(fill=0.98), guess=guess).size <= length
    assert len([units for units in asked if units]) <= 2


def test_the_tokens_of_a_prompt_and_its_answer_are_those_of_the_whole() -> None:
    """Only the last line is encoded again with the answer, where that changes nothing."""
    for tokenizer in (tiny.tokenizer(), load("bundled").tokenizer):
        encoder = Encoder(tokenizer)
        for prompt in ("one\ntwo\n\nthree is", "one\ntwo\n", "one", "\n"):
            draft = Draft(prompt, " 4821.", 0.0)
            joined = np.concatenate(split(encoder, draft))
            np.testing.assert_array_equal(joined, encoder.sequence(prompt + " 4821."))


def test_the_values_of_an_answer_are_found_in_its_tokens() -> None:
    encoder = Encoder(load("bundled").tokenizer)
    haystack = Haystack([Document("unused", "some text\n")])

    def draft(scene: Scene, units: int) -> Draft:
        prompt = "some text\n" * units + "# key QX"
        return Draft(prompt, "4821\n# key AB4821\n# key CD77", parts=("4821", "4821", "77"))

    [sample] = generate(replace(named("needle"), draft=draft), encoder, haystack, 128, 1, 0)
    spelled = [encoder.text(sample.answer[part]) for part in sample.parts]
    assert spelled == ["4821", "4821", "77"]
    assert [part.start for part in sample.parts] == sorted({part.start for part in sample.parts})
    assert sample.references == ("4821", "4821", "77")
    assert sample.depth is None
