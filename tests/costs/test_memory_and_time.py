"""What fits, and which change makes it fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropewalk.costs.machines import GIB, machine, of_main_memory
from ropewalk.costs.memory_and_time import (
    Way,
    Workload,
    cheapest,
    evaluating,
    rows,
    serving,
    training,
)
from ropewalk.costs.sizes import sizes_of
from ropewalk.models import catalogue

ENTRY = catalogue.find("llama-3.1-8b")
SIZES = sizes_of({**ENTRY.config, **ENTRY.sizes})


def work(length: int, on: str) -> Workload:
    return Workload(SIZES, length, machine(on), 8192)


def test_serving_names_the_cheapest_number_format_that_fits() -> None:
    [row] = rows(work(131072, "rtx-4090"), {"serve": serving})
    assert row.breaks == "cache"
    assert row.change is not None
    assert row.change.option == "a cache of 4 bits"
    assert row.change.parts["cache"] == row.way.parts["cache"] / 4
    [row] = rows(work(131072, "h100"), {"serve": serving})
    assert row.breaks is None
    assert row.change is None


def test_a_cache_is_divided_by_no_more_than_the_key_heads() -> None:
    [eight, sixteen] = [next(serving(work(2**20, f"{n}xh100"))) for n in (8, 16)]
    assert eight.parts["cache"] == sixteen.parts["cache"] == 16 * GIB
    assert sixteen.parts["weights"] == eight.parts["weights"] / 2


def test_a_server_takes_as_many_devices_as_divide_the_heads() -> None:
    for devices, used in ((3, 2), (24, 16), (64, 32)):
        way = next(serving(work(8192, f"{devices}xh100")))
        assert way.devices == used
        assert way.parts["weights"] == SIZES.weights * 2 / used
    # Three divide the heads, and not the two that keys have.
    odd = replace(SIZES, heads=6, key_heads=2)
    assert next(serving(replace(work(8192, "3xh100"), sizes=odd))).devices == 2


def test_the_part_that_breaks_is_the_first_there_is_no_room_for() -> None:
    way = Way("", {"weights": 10 * GIB, "cache": 5 * GIB, "loss": 0.5 * GIB}, None, 1)
    assert way.bytes == pytest.approx(15.5 * 1.08 * GIB + GIB)
    found = [way.breaks(size * GIB) for size in (17.8, 17.5, 17, 11, 1)]
    assert found == [None, "loss", "cache", "weights", "weights"]


def test_an_evaluation_is_shortened_to_what_fits() -> None:
    [row] = rows(work(2**19, "8xh100"), {"evaluate": evaluating})
    assert row.breaks == "cache"
    assert row.change is not None
    assert row.change.option == "--ranks-per-copy 2"
    assert row.change.bytes < machine("h100").memory
    here = replace(work(2**20, "h100"), machine=of_main_memory("here", 1, 8 * GIB))
    [shared] = rows(here, {"evaluate": evaluating})
    assert shared.change is None, "ranks on one machine would share its memory"
    [alone] = rows(work(2**19, "h100"), {"evaluate": evaluating})
    assert alone.change is not None
    assert alone.change.option == "lengths of at most 256k"
    assert alone.change.bytes < machine("h100").memory


@pytest.mark.parametrize(
    ("on", "number", "masked"),
    [("h100", 2, False), ("24GiB", 2, False), ("h100", 4, True), ("here", 2, True)],
)
def test_a_chunk_is_counted_as_it_is_read(on: str, number: int, masked: bool) -> None:
    """On a GPU in half precision a chunk has 4,096 tokens and no mask; else the mask limits it."""
    once, twice = (
        next(evaluating(replace(work(length, on), number=number))).parts["a chunk at work"]
        for length in (2**17, 2**18)
    )
    token = number * (4 * SIZES.hidden + 3 * SIZES.inner)
    assert once == (512 * (token + 2**17 * (1 + number)) if masked else 4096 * token)
    assert twice == (256 * (token + 2**18 * (1 + number)) if masked else once)


def test_training_is_changed_by_what_costs_least_first() -> None:
    ways = list(training(work(131072, "8xh100")))
    assert [way.option for way in ways[:3]] == [
        "",
        "--recompute",
        "--recompute --sequence-parallel 2",
    ]
    assert ways[1].bytes < ways[0].bytes
    assert ways[1].seconds is not None
    assert ways[0].seconds is not None
    assert ways[1].seconds > ways[0].seconds
    assert ways[-1].option.endswith("--layout skip --window 16k")
    one, four = (sum(next(training(work(8192, f"{n}xh100"))).parts.values()) for n in (1, 4))
    assert four < one


def test_cheapest_are_counted_where_one_machine_is_too_small() -> None:
    found = cheapest(work(2**20, "1xrtx-4090"), serving)
    assert found is not None
    assert found.devices == 2
    assert found.bytes <= machine("rtx-4090").memory
    assert cheapest(work(2**30, "1x1GiB"), evaluating) is None


def test_no_time_is_said_where_no_speed_is_known() -> None:
    assert next(serving(work(8192, "1x80GiB"))).seconds is None
