"""LongPPL: as the authors' package computes it, and in a run of `evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.key_tokens import Evaluator, within
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.run_directory import Journal
from tests.evaluation.longppl_package import CASES, RECORDED, TOKENS, document, reader, readers
from tests.evaluation.scored import known

SPANS = [(0, 2), (2, 3), (3, 3), (3, 7), (7, 9), (9, 12)]


@pytest.mark.parametrize("case", CASES)
def test_longppl_is_that_of_the_authors_package(case: str) -> None:
    """The package ran once on the same models, document and short context: its values are kept."""
    model, evaluator = readers(case)
    answerer = InProcess(model.loaded, [model.condition])
    length = len(answerer.encoder.sequence(document().text))
    [record] = Evaluation(
        *(answerer, [document()], EvaluationSettings(("longppl",), (length,), 1)),
        evaluator=Evaluator(InProcess(evaluator.loaded, [evaluator.condition])),
    ).run()
    expected = json.loads(RECORDED.read_text())[case]
    assert record.weight == expected["n_key_token"]
    assert np.exp(record.score) == pytest.approx(expected["longppl"], rel=1e-5)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ([], []),
        ([(2, 7)], [1, 2, 3]),  # an empty token within it too
        ([(0, 2), (2, 4)], [0, 1, 2]),  # two that touch are one
        ([(0, 2), (9, 20)], [0, 5]),
    ],
)
def test_tokens_within_marked_text_are_marked(
    marked: list[tuple[int, int]], expected: list[int]
) -> None:
    found = within(np.array(SPANS), np.array(marked, dtype=np.int64).reshape(-1, 2))
    assert np.flatnonzero(found).tolist() == expected


def _evaluation(*methods: str) -> Evaluation:
    bare = reader("bundled bare", TOKENS)
    conditions = [Condition("none", bare.loaded.present_plan.id, None), bare.condition]
    answerer = InProcess(bare.loaded, [c for c in conditions if c.method in methods])
    settings = EvaluationSettings(("longppl",), (512, TOKENS), 4)
    return Evaluation(answerer, [document()], settings)


def test_methods_are_scored_on_the_same_key_tokens_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    """Those that the model under YaRN finds: unmodified, it predicts them badly."""
    whole = _evaluation("none", "yarn")
    none, yarn = whole.run(Journal(tmp_path / "whole"))
    assert (none.sample, none.weight) == (yarn.sample, yarn.weight)
    assert none.length == TOKENS
    assert none.score > yarn.score + 1
    begun = Journal(tmp_path / "begun")
    begun.append([none.to_json()])
    _evaluation("none", "yarn").run(Journal(tmp_path / "begun"))
    assert (tmp_path / "begun").read_bytes() == (tmp_path / "whole").read_bytes()
    other = _evaluation("none")
    assert other.configuration["evaluator"] != whole.configuration["evaluator"]


def test_the_result_says_whose_key_tokens_it_has() -> None:
    plan = known(reader("bundled", TOKENS).condition.plan)
    found = rw.evaluate(
        "bundled", plans=[plan], tasks=["longppl"], lengths=[TOKENS], corpus=[document().text]
    )
    assert "key tokens by bundled under yarn" in found.key_tokens
    assert "with 512 to 639 tokens before it" in found.key_tokens
    assert found.key_tokens in [getattr(block, "text", "") for block in found.blocks()]
    assert rw.Evaluated.from_json(found.to_json()) == found


def test_an_evaluator_must_be_asked_and_reach_as_far() -> None:
    asked: Any = {"methods": ["yarn"], "to": TOKENS, "lengths": [TOKENS]}
    with pytest.raises(InputError, match="add longppl"):
        rw.evaluate("bundled", tasks=["perplexity"], evaluator="bundled:2", **asked)
    with pytest.raises(InvalidValue, match="bundled:2, which judges tokens, reads up to 512"):
        rw.evaluate("bundled", tasks=["longppl"], evaluator="bundled:2", **asked)


def test_text_without_key_tokens_is_refused() -> None:
    prose = next(iter(read_documents(HELD_OUT))).text
    with pytest.raises(InputError, match="bundled under linear finds no key tokens"):
        rw.evaluate(
            "bundled",
            methods=["linear"],
            to=640,
            tasks=["longppl"],
            lengths=[640],
            samples=1,
            corpus=[prose[:6000]],
        )
