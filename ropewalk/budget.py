"""Budgets as people write them: `40` evaluations or documents, `1e9tok` tokens, `30m` of time."""

from __future__ import annotations

import math
import re
from numbers import Integral
from typing import Literal, NamedTuple

from ropewalk.errors import InvalidValue

Unit = Literal["evaluations", "tokens", "seconds"]
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_WRITTEN = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?(?:e\+?[0-9]{1,2})?)\s*(tok|[smh]|)")


class Budget(NamedTuple):
    """The amount that a command may spend."""

    amount: float
    unit: Unit

    def __str__(self) -> str:
        if self.unit == "seconds":
            whole = self.amount < 60
            return f"{math.ceil(self.amount)}s" if whole else f"{math.ceil(self.amount / 60)}m"
        if self.unit == "tokens":
            return f"{_rounded_up(self.amount):.2g}tok"
        return f"{self.amount:.0f}"


def as_budget(value: int | str, key: str = "budget") -> Budget:
    """The budget that `40`, `"1e9tok"` or `"30m"` stands for."""
    valid = not isinstance(value, bool) and isinstance(value, Integral | str)
    match = _WRITTEN.fullmatch(str(value).strip().lower()) if valid else None
    if match is not None:
        amount, unit = float(match[1]), match[2]
        if unit in _SECONDS and amount > 0:
            return Budget(amount * _SECONDS[unit], "seconds")
        if amount >= 1 and amount.is_integer():
            return Budget(amount, "tokens" if unit == "tok" else "evaluations")
    raise InvalidValue(
        key,
        value,
        "must be a whole number of evaluations or tokens, or a time",
        "write 40, 1e9tok or 30m",
    )


def share_of(value: int | str, parts: int) -> str:
    """A part of a budget, as it is written."""
    budget = as_budget(value)
    if budget.unit == "seconds":
        return f"{budget.amount / parts:.3f}s"
    amount = int(budget.amount // parts)
    if amount < 1:
        raise InvalidValue("budget", value, f"is for {parts}, one after another", "give more")
    return f"{amount}tok" if budget.unit == "tokens" else f"{amount}"


def counted(budget: Budget | None, unit: Unit) -> int | None:
    """The number that a budget states in this unit; None if it states another, or nothing."""
    return int(budget.amount) if budget is not None and budget.unit == unit else None


def check_over_ranks(budget: Budget | None) -> None:
    """Refuse a limit of time for several processes: clocks would end them apart."""
    if budget is not None and budget.unit == "seconds":
        raise InvalidValue(
            "budget",
            str(budget),
            "under a limit of time, processes would stop at different points",
            "give tokens, such as 1e9tok",
        )


def _rounded_up(amount: float) -> float:
    """To two digits."""
    digits = 10.0 ** (math.floor(math.log10(amount)) - 1)
    return math.ceil(amount / digits - 1e-9) * digits
