"""One grammar for budgets."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.budget import Budget, as_budget
from ropewalk.errors import InvalidValue


@pytest.mark.parametrize(
    ("written", "amount", "unit"),
    [
        (40, 40, "evaluations"),
        ("40", 40, "evaluations"),
        ("1e9tok", 1e9, "tokens"),
        ("1.5e6 tok", 1.5e6, "tokens"),
        ("30m", 1800, "seconds"),
        ("0.5h", 1800, "seconds"),
        (" 90S ", 90, "seconds"),
    ],
)
def test_a_budget_is_a_count_tokens_or_a_time(written: Any, amount: float, unit: Any) -> None:
    assert as_budget(written) == Budget(amount, unit)


@pytest.mark.parametrize(
    "written",
    ["", "0", 0, -1, "0tok", "1.5", "0m", "m", "1e999tok", "nan", "1d", "tok", True, 2.5, "٣m"],
)
def test_anything_else_is_refused_with_the_three_ways(written: Any) -> None:
    with pytest.raises(InvalidValue, match=r"budget = .*write 40, 1e9tok or 30m"):
        as_budget(written)


@pytest.mark.parametrize("given", ["40", "1e+06tok", "30m"])
def test_a_budget_is_shown_as_it_may_be_written(given: str) -> None:
    assert str(as_budget(given)) == given


def test_what_is_shown_is_never_less() -> None:
    for amount in (1001, 123456, 999_999, 7):
        assert as_budget(str(Budget(amount, "tokens"))).amount >= amount
    assert str(Budget(61, "seconds")) == "2m"
    assert str(Budget(4.5, "seconds")) == "5s"
