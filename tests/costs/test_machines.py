"""Machines by name, by memory, and here."""

from __future__ import annotations

import pytest

from ropewalk.costs.machines import GIB, machine, table
from ropewalk.errors import InvalidValue


def test_a_number_and_a_name() -> None:
    eight = machine("8xH100")
    assert (eight.devices, eight.name) == (8, "h100")
    assert eight.operations == machine("h100").operations == 989e12


@pytest.mark.parametrize("text", ["2x24GiB", "2x24g", "2 x 24GB"])
def test_a_memory(text: str) -> None:
    two = machine(text)
    assert (two.devices, two.memory, two.operations) == (2, 24 * GIB, None)


def test_here_has_the_memory_of_this_machine() -> None:
    assert machine("here").memory > GIB // 4


@pytest.mark.parametrize("text", ["", "?", "0xh100", "8x", "3xfoo", "2xhere", "h100x8", "2x0GiB"])
def test_what_is_no_machine_is_answered_with_the_table(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"is not a machine of the table \(b200, h200"):
        machine(text)


def test_each_machine_has_its_source() -> None:
    assert all("data sheet" in row.source or "whitepaper" in row.source for row in table())
    assert len({row.name for row in table()}) == len(table())
