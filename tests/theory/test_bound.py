from __future__ import annotations

import math
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.schedule import FloatArray
from ropewalk.theory import table
from ropewalk.theory.bound import SAMPLING_STEP, infima, islands, safe_bases
from tests.examples import examples
from tests.theory.naive import cosine_sums, minima
from tools.bound_table import HEAD_SIZES, LENGTHS

# From an independent certified run, head size 128.
CHECKED = {
    1024: 4293.4376,
    2048: 11587.244,
    4096: 26952.339,
    8192: 83763.841,
    16384: 231643.65,
    32768: 629978.26,
    65536: 2090179.674,
    131072: 4869104.371,
    262144: 23662397.04,
    524288: 58496173.8,
    1048576: 65374955.14,
}


def agrees(value: float, printed: float) -> bool:
    """To the last digit that was printed."""
    decimals = len(repr(printed).partition(".")[2])
    return abs(value - printed) <= 0.51 * 10.0**-decimals


def check_infimum(head_dim: int, lengths: list[int], rotary_dim: int | None = None) -> None:
    for least in infima(head_dim, lengths, rotary_dim=rotary_dim):
        length = least.length
        assert least.low <= least.high <= least.low * (1 + 1e-9)
        edges = np.array([least.low, least.high])
        assert minima(edges[1:], length, head_dim, rotary_dim)[0] > -1e-9
        if least.witness is None:
            assert least.low <= 1
            continue
        below = cosine_sums(edges[:1] * (1 - 1e-7), length, head_dim, rotary_dim)[0]
        assert below[least.witness] < 0
        # No base of a dense grid below works, neither over the whole range nor close to the edge.
        far = np.exp(np.linspace(0, math.log(least.low), 1500))[1:-1]
        near = least.low * np.exp(-np.linspace(1e-7, 1e-2, 300))
        for bases in (far, near):
            assert minima(bases, length, head_dim, rotary_dim).max() < 1e-9


def test_the_independent_run_is_reproduced() -> None:
    lengths = [length for length in CHECKED if length <= 65536]
    for least in infima(128, lengths):
        assert agrees(least.value, CHECKED[least.length])


@pytest.mark.slow
def test_the_independent_run_is_reproduced_to_a_million() -> None:
    for least in infima(128, list(CHECKED)):
        assert agrees(least.value, CHECKED[least.length])


@pytest.mark.parametrize(
    "head_dim", [8, 16, 32, 64, 80, 96, 128, pytest.param(256, marks=pytest.mark.slow)]
)
def test_infimum_against_the_slow_way(head_dim: int) -> None:
    check_infimum(head_dim, [5, 64, 100, 257])


@given(
    half=st.integers(2, 40),
    length=st.integers(3, 120),
    kept=st.integers(0, 8),
)
@examples(25)
def test_infimum_for_any_head(half: int, length: int, kept: int) -> None:
    check_infimum(2 * (half + kept), [length], rotary_dim=2 * half)


def test_one_walk_gives_what_single_walks_give() -> None:
    together = infima(64, [4096, 512, 512, 700])
    assert [least.length for least in together] == [4096, 512, 512, 700]
    for least in together:
        alone = infima(64, [least.length])[0]
        assert alone.value == pytest.approx(least.value, rel=1e-9)


def test_infimum_grows_with_length() -> None:
    lengths = list(range(3, 400, 7))
    values = [least.low for least in infima(96, lengths)]
    assert values == sorted(values)


def test_a_base_below_one_may_work_so_the_domain_begins_at_one() -> None:
    """b = (2π)⁻² makes the second pair of two turn by 2πm: the sum is 1 + cos m."""
    base = (2 * math.pi) ** -2
    assert minima(np.array([base]), 1024, 4)[0] >= 0
    (least,) = infima(4, [1024])
    assert least.low > 1e14
    works_everywhere = infima(128, [4096], rotary_dim=64)[0]
    assert works_everywhere.low == 1, "the domain ends there, whatever works below"


def test_two_positions_need_nothing() -> None:
    assert infima(128, [2])[0].witness is None
    assert safe_bases(128, [2])[0].value == pytest.approx(1)


def test_half_unrotated_needs_nothing() -> None:
    """Su: with as many pairs at rest as turning, the sum cannot be negative."""
    least = infima(128, [4096], rotary_dim=64)[0]
    assert least.witness is None
    assert least.high == pytest.approx(1, rel=1e-9)


def test_one_pair_beside_one_at_rest_needs_nothing() -> None:
    assert infima(4, [4096], rotary_dim=2)[0].witness is None
    assert safe_bases(4, [4096], rotary_dim=2)[0].witness is None


def test_heads_that_rest_by_half_work_with_every_base_and_need_no_sweep() -> None:
    """As those of ChatGLM and GLM-4, for which plans up to 128k took most of a minute."""
    start = time.process_time()
    safe = safe_bases(128, [2**17], rotary_dim=64)[0]
    assert safe.value == pytest.approx(1)
    assert (safe.certified, safe.witness) == (True, None)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
def test_safe_base_against_the_slow_way(head_dim: int) -> None:
    for safe in safe_bases(head_dim, [64, 100, 257]):
        assert safe.certified
        assert safe.witness is not None
        below = cosine_sums(np.array([safe.value * (1 - 1e-9)]), safe.length, head_dim)[0]
        assert below[safe.witness] < 0
        near = safe.value * np.exp(np.linspace(0, 1e-2, 300))
        far = safe.value * np.exp(np.linspace(0, 15, 1500))
        for bases in (near, far):
            assert minima(bases, safe.length, head_dim).min() > -1e-9


def test_an_estimated_safe_base_is_marked_and_below_the_certified_one() -> None:
    proven = safe_bases(128, [2048])[0]
    tried = safe_bases(128, [2048], certify_to=1024)[0]
    assert not tried.certified
    assert tried.resolution == SAMPLING_STEP
    assert tried.value <= proven.value * (1 + 1e-9)
    assert tried.witness is not None
    below = cosine_sums(np.array([tried.value * (1 - 1e-9)]), 2048, 128)[0]
    assert below[tried.witness] < 0


@pytest.mark.slow
def test_islands_are_what_a_dense_grid_sees() -> None:
    found = islands(128, 1024)
    bases = np.exp(np.linspace(math.log(4200), math.log(6200), 3000))
    works = minima(bases, 1024, 128) >= 0
    inside = bases > found.safe
    for low, high in found.edges:
        inside |= (bases >= low) & (bases <= high)
    # Grid points within 1e-9 of an edge may fall on either side.
    edges = np.array([edge for island in found.edges for edge in island] + [found.safe])
    close = np.abs(bases[:, None] / edges - 1).min(axis=1) < 1e-8
    assert ((works == inside) | close).all()


def test_islands_lie_between_infimum_and_safe_base() -> None:
    found = islands(64, 512)
    assert found.edges[0][0] == pytest.approx(infima(64, [512])[0].high, rel=1e-9)
    assert found.edges[-1][1] < safe_bases(64, [512])[0].value
    flat = [edge for island in found.edges for edge in island]
    assert flat == sorted(flat)


def test_islands_of_a_head_that_rotates_in_part() -> None:
    found = islands(64, 300, rotary_dim=48)
    assert found.edges[0][0] == pytest.approx(infima(64, [300], rotary_dim=48)[0].high, rel=1e-9)
    for low, high in found.edges:
        inside = np.exp(np.linspace(math.log(low), math.log(high), 50))
        assert minima(inside, 300, 64, 48).min() > -1e-9
        outside = np.array([low * (1 - 1e-8), high * (1 + 1e-8)])
        assert minima(outside, 300, 64, 48).max() < 0


def test_a_list_of_islands_that_would_take_hours_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at most 512k"):
        islands(128, 1024**2)


@pytest.mark.parametrize("most", [2**20, pytest.param(2**24, marks=pytest.mark.slow)])
def test_two_pairs_work_above_the_start_of_the_sweep(most: int) -> None:
    """Whole numbers stay 1e-8 away from multiples of π, which the proof for two pairs rests on."""
    positions = np.arange(1, most)
    assert np.abs(positions - np.rint(positions / np.pi) * np.pi).min() > 1e-8


@pytest.mark.parametrize(
    ("head_dim", "length", "rotary_dim"),
    [(127, 1024, None), (2, 1024, None), (128, 1, None), (128, 2**24 + 1, None), (128, 8, 129)],
)
def test_bad_questions_are_refused(head_dim: int, length: int, rotary_dim: int | None) -> None:
    with pytest.raises(InvalidValue):
        infima(head_dim, [length], rotary_dim=rotary_dim)
    with pytest.raises(InvalidValue):
        safe_bases(head_dim, [length], rotary_dim=rotary_dim)


def test_what_double_precision_cannot_decide_is_refused() -> None:
    """Position 5419351 is too close to an odd multiple of π: with two pairs, rounding hides it."""
    with pytest.raises(Unsupported, match="double precision"):
        infima(4, [6_000_000])


def test_an_interval_that_rounding_widens_still_holds_the_infimum() -> None:
    """355 is 3e-5 from 113π: two pairs work once 355/√b is no farther from 0, b = 1.4e14."""
    (least,) = infima(4, [400])
    exact = (355 / (355 - 113 * math.pi)) ** 2
    assert least.high > least.low * (1 + 1e-9)
    assert least.low * (1 - 1e-7) < exact < least.high * (1 + 1e-7)
    assert least.high < least.low * 1.01


def test_progress_ends_at_one() -> None:
    seen: list[float] = []
    infima(128, [2048], progress=seen.append)
    safe_bases(128, [2048], progress=seen.append)
    assert seen[-1] == 1
    assert all(0 <= share <= 1 for share in seen)


@pytest.mark.parametrize("head_dim", HEAD_SIZES)
def test_the_shipped_table_is_what_the_search_finds(head_dim: int) -> None:
    for length in (1024, 4096):
        known = table.lookup(head_dim, length)
        assert known is not None
        assert known[0].low == pytest.approx(infima(head_dim, [length])[0].low, rel=1e-9)
        assert known[1].value == pytest.approx(safe_bases(head_dim, [length])[0].value, rel=1e-9)
        assert table.safe_base(head_dim, length) == known[1]


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", HEAD_SIZES)
def test_every_infimum_of_the_shipped_table_is_found_again(head_dim: int) -> None:
    """With the rounding of every slope allowed for, and so within the stated inequality."""
    for least in infima(head_dim, LENGTHS):
        known = table.lookup(head_dim, least.length)
        assert known is not None
        assert known[0].witness == least.witness
        assert known[0].low == pytest.approx(least.low, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", HEAD_SIZES)
def test_every_row_of_the_shipped_table_stands_up(head_dim: int) -> None:
    """By a sum that shares nothing with the search: working where it should, failing below."""

    def sums(base: float, length: int) -> FloatArray:
        frequencies = base ** (-2.0 * np.arange(head_dim // 2) / head_dim)
        return np.concatenate(
            [
                np.cos(np.multiply.outer(part, frequencies)).sum(axis=1)
                for part in np.array_split(np.arange(length), 1 + length // 8192)
            ]
        )

    for length in LENGTHS:
        known = table.lookup(head_dim, length)
        assert known is not None
        least, safe = known
        assert least.high <= least.low * (1 + 1e-9)
        assert sums(least.high, length).min() > -1e-8
        assert least.witness is not None
        assert sums(least.low * (1 - 1e-9), least.witness + 1)[-1] < 0
        assert safe.witness is not None
        assert sums(safe.value * (1 - 1e-9), safe.witness + 1)[-1] < 0
        if safe.certified:
            assert sums(safe.value, length).min() > -1e-8


def test_what_is_not_in_the_table_is_computed() -> None:
    assert table.lookup(48, 1000) is None
    assert table.safe_base(48, 1000) == safe_bases(48, [1000])[0]
    partial = table.safe_base(128, 1024, rotary_dim=96)
    assert partial.value < table.safe_base(128, 1024).value


def test_importing_the_theory_compiles_nothing() -> None:
    code = "import sys, ropewalk.theory.bound, ropewalk.theory.table; print('numba' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
