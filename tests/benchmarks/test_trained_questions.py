"""The questions of a training that was tried, and the rules that judged it."""

from __future__ import annotations

import numpy as np

from benchmarks import trained_questions
from benchmarks.trained_questions import WEIGHT, Found, asked, rules
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.planted import stretches_of
from tests.evaluation import tiny


def test_each_answer_stands_in_the_text_before_its_question() -> None:
    encoder = Encoder(tiny.loaded().tokenizer)
    [stretch], _ = stretches_of(tiny.documents(4), encoder, 1500, 1, seed=3)
    made = asked(stretch, encoder, 1500, number=2)
    assert len(made.tokens) == 1500
    weights = np.ones(1500)
    for start, end, weight in made.weights:
        weights[start:end] = weight
    assert len(made.answers) > 2
    for answer in made.answers:
        assert (weights[answer] == WEIGHT).all()
        before = made.tokens[: made.text.stop]
        places = np.lib.stride_tricks.sliding_window_view(before, answer.stop - answer.start)
        assert (places == made.tokens[answer]).all(axis=1).any()


def test_the_recorded_cells_decided_for_plain_text_and_against_a_default() -> None:
    recorded: Found = {tuple(line["cell"]): line["found"] for line in trained_questions.lines()}
    assert rules(recorded) == (False, False)
