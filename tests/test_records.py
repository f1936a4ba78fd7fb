from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue
from ropewalk.interval import Interval
from ropewalk.records import EvalRecord, EvalResult

RECORD = EvalRecord(
    method="yarn",
    plan_id="abc",
    weights="0f" * 8,
    task="needle",
    mode="generate",
    metric="exact_match",
    length=512,
    sample="5f",
    layout="5f",
    score=1.0,
    depth=0.25,
    answer='4821"',
)

records = st.builds(
    replace,
    st.just(RECORD),
    score=st.floats(0, 1),
    weight=st.integers(1, 2**40),
    depth=st.none() | st.floats(0, 1),
    positions=st.none() | st.tuples(st.integers(0, 9), st.integers(10, 99)),
    answer=st.none() | st.text(),
)


@given(records)
def test_a_record_survives_json(record: EvalRecord) -> None:
    assert EvalRecord.from_json(json.loads(json.dumps(record.to_json())), "record") == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": float("nan")}, "score"),
        ({"score": "1"}, "record.score"),
        ({"mode": "guessed"}, "record.mode"),
        ({"depth": "deep"}, "record.depth"),
        ({"speed": 3}, "record.speed"),
        ({"positions": [1]}, "record.positions"),
        ({"weights": 7}, "record.weights"),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        EvalRecord.from_json({**RECORD.to_json(), **change}, "record")


def test_a_record_is_the_same_one_whatever_it_scored() -> None:
    assert replace(RECORD, score=0.0, answer="no").key == RECORD.key
    assert replace(RECORD, positions=(0, 8)).key != RECORD.key
    assert replace(RECORD, method="ntk").key != RECORD.key


def test_two_checkpoints_under_one_plan_are_two_subjects() -> None:
    trained = replace(RECORD, weights="aa" * 8)
    assert trained.subject != RECORD.subject
    assert trained.subject[1:] == RECORD.subject[1:] == ("abc", "yarn")
    assert trained.key != RECORD.key


SURE = Interval(1.0, 0.8, 1.0, "share")


def test_a_result_has_the_members_that_were_promised() -> None:
    result = EvalResult("yarn", "abc", "0f" * 8, "needle", "generate", 512, "exact_match", SURE, 20)
    assert EvalResult.from_json(result.to_json()) == result
    assert list(result.to_json()) == [
        "method",
        "plan_id",
        "weights",
        "task",
        "mode",
        "length",
        "metric",
        "estimate",
        "samples",
    ]
