from __future__ import annotations

from typing import Any

import pytest

import ropewalk as rw
from ropewalk.errors import InputError, InvalidValue
from ropewalk.progress import Status
from ropewalk.theory.asymptote import asymptotic_base
from ropewalk.theory.bound import infima, islands, safe_bases
from tests.api.conformance import check_command, check_result


def test_rows_hold_both_bounds_and_what_was_published() -> None:
    found = check_result(rw.bound(["2k", 1024, "1k"]))
    assert found.head_dim == 128
    assert [row.length for row in found.rows] == [1024, 2048]
    row = found.rows[0]
    [least], [safe] = infima(128, [1024]), safe_bases(128, [1024])
    assert row.infimum == pytest.approx(least.value, rel=1e-9)
    assert row.infimum_low is not None
    assert row.infimum_high is not None
    assert row.infimum_low <= least.value <= row.infimum_high
    assert row.safe == pytest.approx(safe.value, rel=1e-9)
    assert row.safe_certified is True
    assert row.asymptotic == asymptotic_base(1024)
    assert row.published == {"men2024": 4.3e3, "su2024": 4.3e3}
    assert "At 1k, no base below 4,293.437569 works, and every base above 6,018" in found.summary()
    assert "among bases of at least 1" in found.summary()
    value: Any = found.to_json()
    assert value["domain"] == "base >= 1"
    assert any("cos and sin" in line for line in value["proven_assuming"])


def test_islands_are_listed_and_drawn() -> None:
    found = check_result(rw.bound("1k", islands=True))
    listed = found.rows[0].islands
    assert listed is not None
    assert [tuple(island) for island in listed] == [*islands(128, 1024).edges]
    assert listed[0].low == pytest.approx(found.rows[0].infimum, rel=1e-9)
    assert f"{len(listed)} islands" in found.summary()
    assert len(found.figure().axes[0].collections) == 3
    check_command(found, "bound", "1k", "--islands")
    assert rw.bound("1k").rows[0].islands is None


def test_a_head_that_rotates_in_part_has_bounds_of_its_own() -> None:
    found = check_result(rw.bound("1k", rotary_dim=96))
    row = found.rows[0]
    [least], [safe] = infima(128, [1024], rotary_dim=96), safe_bases(128, [1024], rotary_dim=96)
    assert row.infimum == least.value
    assert row.safe == safe.value
    assert row.asymptotic is None
    assert set(row.published.values()) == {None}
    assert "heads of 128 that rotate 96 dimensions" in found.summary()
    check_command(found, "bound", "1k", "--rotary-dim", 96)
    everything = rw.bound("1k", rotary_dim=64)
    assert everything.rows[0].infimum == 1
    assert everything.rows[0].safe == pytest.approx(1)


def test_the_command_prints_what_the_function_returns() -> None:
    check_command(rw.bound(["1k", "2k", "4k"]), "bound", "1k", "…", "4k")
    found = check_result(rw.bound(700, head_dim=48))
    assert found.rows[0].published == {"men2024": None, "su2024": None}
    check_command(found, "bound", 700, "--head-dim", 48)


def test_only_leaves_the_other_out() -> None:
    lowest = check_result(rw.bound("512", only="infimum"))
    assert lowest.rows[0].safe is None
    assert lowest.rows[0].safe_certified is None
    assert "every base" not in lowest.summary()
    safe = check_result(rw.bound("1k", only="safe"))
    assert safe.rows[0].infimum is None
    assert "no base" not in safe.summary()
    check_command(safe, "bound", "1k", "--only", "safe")


def test_the_picture_shows_the_bounds_and_the_models_of_this_head_size() -> None:
    axes = rw.bound(["1k", "8k"], only="safe").figure().axes[0]
    labels = [line.get_label() for line in axes.lines]
    assert labels[:3] == ["safe base", "Men et al. 2024", "infinitely many pairs"]
    assert "Llama 3" in {text.get_text() for text in axes.texts}
    assert rw.bound("1k", head_dim=48, only="infimum").figure().axes[0].texts[:] == []


def test_progress_names_what_is_computed() -> None:
    seen: list[Status] = []
    rw.bound(640, head_dim=16, progress=seen.append)
    assert {status.stage for status in seen} == {"infimum", "safe base"}
    assert all(0 <= status.done <= 1 for status in seen)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"lengths": 1}, "length = 1"),
        ({"lengths": "17M"}, "length = 17825792"),
        ({"lengths": "8q"}, "lengths = '8q'"),
        ({"lengths": []}, "lengths = \\[\\]"),
        ({"lengths": 8192, "head_dim": 7}, "head_dim = 7"),
        ({"lengths": 8192, "head_dim": 0}, "head_dim = 0"),
        ({"lengths": 8192, "head_dim": 64.5}, "head_dim = 64.5"),
        ({"lengths": 8192, "only": "both"}, "only = 'both'"),
        ({"lengths": 8192, "only": "safe", "islands": True}, "only = 'safe'"),
        ({"lengths": 8192, "rotary_dim": 130}, "rotary_dim = 130"),
        ({"lengths": 8192, "rotary_dim": 64.5}, "rotary_dim = 64.5"),
        ({"lengths": "1M", "islands": True}, "length = 1048576"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidValue, match=key):
        rw.bound(**arguments)


def test_a_result_whose_parts_contradict_each_other_is_refused_when_it_is_read() -> None:
    own = rw.bound([4096, 8192])
    value: Any = own.to_json()
    value["rows"][0]["published"] = {"unknown2024": 1.0}
    with pytest.raises(InputError, match=r"parts contradict.* restore the file"):
        type(own).from_json(value)
