from __future__ import annotations

import json
import math

import pytest

from ropewalk.errors import InvalidValue
from ropewalk.interval import Interval, Unit
from ropewalk.values import decode, encode

SCORE = Interval.of(0.8, (0.58, 0.92), "share")


def test_an_interval_has_one_json_form() -> None:
    value = json.loads(json.dumps(encode(SCORE)))
    ends = {"value": 0.8, "low": 0.58, "high": 0.92}
    assert value == {**ends, "unit": "share", "varies": "samples", "level": 0.95}
    assert decode(Interval, value, "estimate") == SCORE
    with pytest.raises(InvalidValue, match=r"estimate\.low"):
        decode(Interval, {**value, "low": "nothing"}, "estimate")


@pytest.mark.parametrize(
    ("unit", "shown"),
    [
        ("share", "80% (58 to 92%)"),
        ("perplexity", "0.8 (0.58 to 0.92)"),
        ("nats", "0.800 (0.580 to 0.920)"),
        ("difference", "+0.8 (+0.58 to +0.92)"),
        ("difference in nats", "+0.800 (+0.580 to +0.920)"),
    ],
)
def test_an_interval_is_written_by_its_unit(unit: Unit, shown: str) -> None:
    assert str(Interval.of(0.8, (0.58, 0.92), unit)) == shown
    few = f"{shown.partition(' ')[0]} (too few samples for an interval)"
    assert str(Interval.of(0.8, None, unit)) == few


def test_what_is_above_a_limit_is_so_with_its_whole_interval() -> None:
    assert SCORE.is_above(0.5)
    assert SCORE.is_below(0.95)
    assert not SCORE.is_above(0.58)
    few = Interval.of(0.8, None, "share")
    assert not few.is_above(0)
    assert not few.is_below(1)


def test_an_interval_is_turned_and_mapped_with_its_ends() -> None:
    assert (-SCORE).ends == (-0.92, -0.58)
    shown = Interval.of(7, (6, 8), "nats").mapped(math.exp, "perplexity")
    assert str(shown) == "1,097 (403 to 2,981)"
    assert Interval.of(1, None, "nats").mapped(math.exp, "perplexity").ends is None
