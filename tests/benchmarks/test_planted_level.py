"""A document with one of its facts alone is the same one otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.planted_level import with_one
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import Stretch, plant
from tests.evaluation import tiny

LENGTH = 1024
LINES, WORDS = "\n".join(f"Line {i} has text." for i in range(400)), "no line ends here, " * 400


@pytest.mark.parametrize("text", [LINES, WORDS])
@pytest.mark.parametrize("asked", [0, 3])
def test_the_fact_stands_alone_at_its_depth(text: str, asked: int) -> None:
    encoder = Encoder(tiny.tokenizer())
    stretch = Stretch("text@0", encoder.pieces(text)[:LENGTH])
    whole = plant(stretch, encoder, LENGTH, 0, 0, mixed_within=LENGTH)
    alone = with_one(whole, stretch, encoder, asked)
    [answer], value = alone.answers, whole.tokens[whole.answers[asked]]
    assert len(alone.tokens) == LENGTH
    np.testing.assert_array_equal(alone.tokens[answer], value)
    told = encoder.text(alone.tokens)
    assert told.count("# key ") == 2
    assert told.count(encoder.text(value).strip()) == 2
    assert told.splitlines()[-1] == told[told.index("# key ") :].splitlines()[0]
    assert abs(alone.depths[0] - whole.depths[asked]) < 0.03
