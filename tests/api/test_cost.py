"""`rw.cost`, as its users call it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.models.config import BUNDLED
from tests.api.conformance import check_result


def test_a_model_of_the_catalogue_on_a_machine_of_the_table() -> None:
    found = check_result(rw.cost("llama-3.1-8b", "1M", on="8xh100"))
    assert [row.what.split(",")[0] for row in found.rows] == [
        "serve",
        "evaluate",
        "search",
        "extend",
        "train",
    ]
    assert found.rows[0].fits
    assert not found.rows[-1].fits
    assert found.rows[-1].change is not None
    assert found.summary().endswith("on 8xh100 (79.6 GiB each): what fits unchanged: serve.")


def test_a_model_at_its_own_length_is_not_extended() -> None:
    found = rw.cost(BUNDLED)
    assert {"search", "extend"}.isdisjoint(row.what.split(",")[0] for row in found.rows)
    assert all(row.fits and row.seconds is None for row in found.rows)


def test_a_target_below_the_window_has_nothing_to_search() -> None:
    found = rw.cost("llama-3.1-8b", "32k", on="8xh100")
    assert [row.what.split(",")[0] for row in found.rows] == ["serve", "evaluate", "train"]
    assert any("serves 128k already, so nothing needs to be" in told for told in found.assumptions)
    assert "weights count 16 bits, even if the folder stores fewer" in found.assumptions[0]


@pytest.mark.parametrize(
    ("on", "unmeasured"), [("h200", True), ("8xh100", True), ("24GiB", True), ("h100", False)]
)
def test_a_machine_that_was_never_measured_is_named(on: str, unmeasured: bool) -> None:
    told = [each for each in rw.cost("llama-3-8b", on=on).assumptions if "was never run on" in each]
    assert len(told) == unmeasured
    assert all(on in each for each in told)
    steps = rw.train.preview(BUNDLED, to="1k", corpus="held-out", steps=1, on=on)
    assert ("was never run on" in steps.summary()) == unmeasured


def test_bad_input_is_named() -> None:
    with pytest.raises(rw.RopewalkError, match="on = '9xq100': is not a machine"):
        rw.cost(BUNDLED, on="9xq100")
    with pytest.raises(rw.RopewalkError, match="to = 'long'"):
        rw.cost(BUNDLED, "long")
    with pytest.raises(rw.RopewalkError, match="vocab_size = None"):
        rw.cost("llama-7b")


def test_parts_that_read_no_text_are_named_as_left_out() -> None:
    published = Path(__file__).parents[1] / "models" / "published"
    told = rw.cost(published / "mistral-small-3.2-v.json").assumptions[-1]
    assert "only the part that reads text" in told
    assert "only the part" not in str(rw.cost(BUNDLED).assumptions)
