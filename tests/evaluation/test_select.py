"""The one rule for what is best."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.select import Standing, best, best_hand_designed

HAND_DESIGNED = ("ntk", "yarn")
shares = st.integers(0, 8).map(lambda n: n / 8)
losses = st.floats(0, 10) | st.just(math.inf)
standings = st.dictionaries(
    st.sampled_from(["ntk", "yarn", "0", "1", "2"]), st.builds(Standing, losses, shares)
).filter(lambda found: bool(set(found) & set(HAND_DESIGNED)))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"ntk": (4.0, 0.7), "yarn": (3.9, 0.9), "0": (3.8, 0.9)}, "0"),
        ({"ntk": (4.0, 0.7), "yarn": (3.9, 0.9), "0": (3.5, 0.8), "1": (3.8, 0.95)}, "1"),
        ({"ntk": (4.0, 0.7), "yarn": (3.9, 0.9), "0": (3.5, 0.8)}, "yarn"),
        ({"ntk": (4.0, 0.9), "yarn": (3.9, 0.9), "0": (math.inf, 0.0)}, "yarn"),
        # More retrieval than needed is no reason to take a higher loss.
        ({"ntk": (4.0, 0.7), "yarn": (3.9, 0.9), "0": (3.95, 1.0)}, "yarn"),
    ],
)
def test_the_lowest_loss_that_retrieves_as_much_as_any_hand_designed_method(
    scores: dict[str, tuple[float, float]], expected: str
) -> None:
    assert best({name: Standing(*pair) for name, pair in scores.items()}, HAND_DESIGNED) == expected


@given(standings)
def test_the_best_never_retrieves_less_nor_loses_more(found: dict[str, Standing]) -> None:
    chosen, baseline = best(found, HAND_DESIGNED), best_hand_designed(found, HAND_DESIGNED)
    assert baseline in HAND_DESIGNED
    most = max(found[name].retrieval for name in found if name in HAND_DESIGNED)
    assert found[baseline].retrieval == most
    assert found[chosen].retrieval >= most
    assert found[chosen].loss <= found[baseline].loss


def test_without_a_hand_designed_method_there_is_nothing_to_hold_it_to() -> None:
    with pytest.raises(InvalidValue, match="add one of ntk, yarn"):
        best({"0": Standing(1.0, 1.0)}, HAND_DESIGNED)
