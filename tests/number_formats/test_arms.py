"""The formats themselves, and what their tables hold."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.number_formats.arms import ARMS, EXACT, cast, matmul_format, tables

FREQUENCIES = 10_000.0 ** (-torch.arange(0, 32, 2, dtype=torch.float64) / 32)


@given(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False))
def test_tf32_is_the_nearest_number_of_eleven_bits(value: float) -> None:
    x = torch.tensor(value, dtype=torch.float32)
    rounded = cast(x, "tf32")
    assert not int(rounded.view(torch.int32)) & 0x1FFF
    mantissa, exponent = torch.frexp(x.double())
    nearest = torch.ldexp((mantissa * 2**11).round(), exponent - 11)  # ties to even, too
    assert rounded.double() == nearest


def test_tf32_and_bf16_hold_positions_exactly_up_to_their_width_and_no_further() -> None:
    for format, last in (("tf32", 2048), ("bfloat16", 256)):
        positions = torch.arange(last + 2)
        held = cast(positions, format).long()  # type: ignore[arg-type]
        assert torch.equal(held[:-1], positions[:-1])
        assert held[-1] != positions[-1]


@pytest.mark.parametrize("arm", [a for a in ARMS if a != "fp64"])
def test_tables_are_near_the_exact_ones_where_positions_are_small(arm: str) -> None:
    positions = torch.arange(8)
    exact = tables(EXACT, FREQUENCIES, positions)
    for ours, theirs in zip(tables(ARMS[arm], FREQUENCIES, positions), exact, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=0.03)


def test_tf32_is_switched_for_the_arm_that_means_it_and_put_back() -> None:
    setting = torch.backends.cuda.matmul
    before = setting.allow_tf32
    for name, meant in (("tf32", True), ("fp32", False)):
        with matmul_format(ARMS[name]):
            assert setting.allow_tf32 is meant
        assert setting.allow_tf32 is before
