"""The samples of a task at a length: all that were asked for, or none and a notice."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from ropewalk.evaluation import samples, tasks
from ropewalk.evaluation.drawing import drawn
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import DoesNotFit
from ropewalk.evaluation.settings import EvaluationSettings
from tests.evaluation import tiny

LINES = tasks.named("lines")
HAYSTACK = Haystack(tiny.documents())


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(tiny.tokenizer(), tiny.loaded().vocabulary)


def test_the_samples_are_those_that_are_generated(encoder: Encoder) -> None:
    told: list[str] = []
    own = drawn(
        LINES, encoder, HAYSTACK, 128, EvaluationSettings(("lines",), (128,), 5, 3), told.append
    )
    expected = list(samples.generate(LINES, encoder, HAYSTACK, 128, 5, 3))
    assert [sample.id for sample in own] == [sample.id for sample in expected]
    for one, other in zip(own, expected, strict=True):
        np.testing.assert_array_equal(one.prompt, other.prompt)
    assert told == []


def test_where_a_later_sample_does_not_fit_there_are_none(encoder: Encoder) -> None:
    """The first fits into 57 tokens by chance, since its words are short."""
    generated = samples.generate(LINES, encoder, HAYSTACK, 57, 6, 0)
    assert len(list(islice(generated, 1))) == 1
    with pytest.raises(DoesNotFit):
        next(generated)
    told: list[str] = []
    assert (
        drawn(LINES, encoder, HAYSTACK, 57, EvaluationSettings(("lines",), (57,), 6), told.append)
        == []
    )
    assert told == ["left out: lines does not fit in 57 tokens: its shortest sample takes 61"]
