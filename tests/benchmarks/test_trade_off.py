"""The trade-off's front, from points that are known, and the recorded searches."""

from __future__ import annotations

from benchmarks import trade_off
from benchmarks.trade_off import Point, front
from ropewalk.scaling import rebuild
from ropewalk.schedule import Recipe, RotaryGeometry
from studies.methods.measure import WINDOW


def test_the_front_holds_what_no_other_beats_in_both() -> None:
    def point(name: str, retrieved: float, cost: float) -> Point:
        return Point(name, retrieved, cost, cost - 0.01, cost + 0.01)

    cheap, best, beaten = point("a", 0.6, 0.0), point("b", 0.9, 0.03), point("c", 0.8, 0.04)
    assert front([best, beaten, cheap]) == [cheap, best]
    twin = point("b too", 0.9, 0.03)
    assert front([best, twin, cheap]) == [cheap, best]
    assert front([best, twin, point("d", 0.9, 0.02)]) == [point("d", 0.9, 0.02)]
    assert str(best) == "b 90%, +3.0% (+2.0% to +4.1%)"


def test_each_recorded_search_over_yarns_parameters_ended_in_yarn() -> None:
    """Rebuilt from its recipe alone: no runtime needs a list of factors for it."""
    found = [line for line in trade_off.lines() if line["cell"][0] == "yarn"]
    assert found
    geometry = RotaryGeometry(32, 32, 1e4, original_length=WINDOW)
    for line in found:
        recipe = [Recipe.from_json(each, "recipe") for each in line["recipe"]]
        assert line["chosen"] in ("search", recipe[-1].method)
        if line["chosen"] == "search":
            assert [each.method for each in recipe] == ["yarn"]
        assert rebuild(recipe, geometry).length == line["cell"][1] * WINDOW
