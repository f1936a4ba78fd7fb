"""What fits, and which change makes it fit."""

from __future__ import annotations

from ropewalk.costs.estimates import Work, cheapest, evaluating, rows, serving, training
from ropewalk.costs.machines import GIB, machine
from ropewalk.costs.sizes import sizes_of
from ropewalk.models import catalogue

ENTRY = catalogue.find("llama-3.1-8b")
SIZES = sizes_of({**ENTRY.config, **ENTRY.sizes})


def work(length: int, on: str) -> Work:
    return Work(SIZES, length, machine(on), 8192)


def test_serving_names_the_cheapest_number_format_that_fits() -> None:
    [row] = rows(work(131072, "rtx-4090"), {"serve": serving})
    assert not row.fits
    assert row.change is not None
    assert row.change.told == "a cache of 4 bits"
    assert row.change.parts["cache"] == row.way.parts["cache"] / 4
    [row] = rows(work(131072, "h100"), {"serve": serving})
    assert row.fits
    assert row.change is None


def test_a_cache_is_divided_by_no_more_than_the_key_heads() -> None:
    [eight, sixteen] = [next(serving(work(2**20, f"{n}xh100"))) for n in (8, 16)]
    assert eight.parts["cache"] == sixteen.parts["cache"] == 16 * GIB
    assert sixteen.parts["weights"] == eight.parts["weights"] / 2


def test_an_evaluation_is_shortened_to_what_fits() -> None:
    [row] = rows(work(2**20, "8xh100"), {"evaluate": evaluating})
    assert not row.fits
    assert row.change is not None
    assert row.change.told == "--ranks-per-copy 2"
    assert row.change.bytes < machine("h100").memory
    [alone] = rows(work(2**20, "h100"), {"evaluate": evaluating})
    assert alone.change is not None
    assert alone.change.told == "lengths of at most 256k"
    assert alone.change.bytes < machine("h100").memory


def test_training_is_changed_by_what_costs_least_first() -> None:
    ways = list(training(work(131072, "8xh100")))
    assert [way.told for way in ways[:3]] == [
        "",
        "--recompute",
        "--recompute --sequence-parallel 2",
    ]
    assert ways[1].bytes < ways[0].bytes
    assert ways[1].seconds is not None
    assert ways[0].seconds is not None
    assert ways[1].seconds > ways[0].seconds
    assert ways[-1].told.endswith("--layout skip --window 16k")
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
