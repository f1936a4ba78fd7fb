"""Each method against its formula, written once more from the papers, and against transformers.

The formulas stand pair by pair in plain Python floats, so that they share no code and no order of
operations with the package. transformers computes in float32; here it is made to use float64, so
that the comparison sees a wrong formula and not the rounding of another precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ropewalk.context_plan import ladder
from ropewalk.errors import InvalidValue
from ropewalk.scaling import (
    base_change,
    dynamic_ntk,
    linear,
    llama3,
    longrope,
    longrope2,
    ntk,
    ntk_fixed,
    ntk_mixed,
    ntk_old,
    resonance,
    two_band,
    yarn,
)
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule
from ropewalk.theory.coverage import critical_pair
from tests.strategies import bases, geometries, scales, schedules

CLOSE = 1e-12
SCHEDULERS = {"linear": linear, "ntk_old": ntk_old, "ntk_fixed": ntk_fixed, "ntk_mixed": ntk_mixed}


@st.composite
def extensions(draw: st.DrawFn, min_pairs: int = 2) -> tuple[RotarySchedule, int]:
    """A plain start and a target at or above it."""
    start = RotarySchedule.plain(draw(geometries(min_pairs)))
    return start, max(start.length, round(start.length * draw(scales)))


def frequencies(base: float, d: int) -> list[float]:
    return [1.0 / base ** (2 * i / d) for i in range(d // 2)]


class TestLinearAndNtk:
    @given(extensions())
    def test_linear_is_s(self, extension: tuple[RotarySchedule, int]) -> None:
        start, target = extension
        schedule = linear.schedule(start, target)
        assert (schedule.rescale_factors == target / start.length).all()
        # Position interpolation: position L′ lands on the angle that L had.
        assert schedule.angles(target) == pytest.approx(start.angles(start.length), rel=CLOSE)

    @given(extensions())
    def test_ntk_is_the_base_times_s_to_the_d_over_d_minus_2(
        self, extension: tuple[RotarySchedule, int]
    ) -> None:
        start, target = extension
        d, s = start.geometry.rotary_dim, target / start.length
        schedule = ntk.schedule(start, target)
        expected = frequencies(start.geometry.base * s ** (d / (d - 2)), d)
        assert schedule.inverse_frequencies == pytest.approx(expected, rel=1e-11)
        assert schedule.rescale_factors[0] == 1
        assert schedule.rescale_factors[-1] == pytest.approx(s, rel=CLOSE)

    @given(extensions())
    def test_ntk_old_is_equation_3(self, extension: tuple[RotarySchedule, int]) -> None:
        start, target = extension
        d, s = start.geometry.rotary_dim, target / start.length
        schedule = ntk_old.schedule(start, target)
        beta, growth = start.geometry.base ** (2 / d), s ** (2 / d)
        # n/(βλ)^(m-1), the digits counted from m = 1
        expected = [1 / (beta * growth) ** (m - 1) for m in range(1, d // 2 + 1)]
        assert schedule.inverse_frequencies == pytest.approx(expected, rel=1e-10)

    @given(extensions(min_pairs=1))
    def test_ntk_fixed_is_equation_5(self, extension: tuple[RotarySchedule, int]) -> None:
        start, target = extension
        d, s = start.geometry.rotary_dim, target / start.length
        schedule = ntk_fixed.schedule(start, target)
        beta, growth = start.geometry.base ** (2 / d), s ** (2 / d)
        expected = [1 / (growth * (beta * growth) ** (m - 1)) for m in range(1, d // 2 + 1)]
        assert schedule.inverse_frequencies == pytest.approx(expected, rel=1e-10)

    @given(extensions(min_pairs=1), st.floats(0, 1))
    def test_ntk_mixed_is_exp_of_a_power(
        self, extension: tuple[RotarySchedule, int], b: float
    ) -> None:
        start, target = extension
        s, pairs = target / start.length, start.geometry.pairs
        factors = ntk_mixed.schedule(start, target, b=b).rescale_factors
        a = math.log(s) / pairs**b
        assert factors == pytest.approx(
            [math.exp(a * (i + 1) ** b) for i in range(pairs)], rel=1e-11
        )
        # The bases of the single digits fall, stay at or above 1, and multiply to s.
        digits = np.diff(np.log(factors), prepend=0.0)
        assert (np.diff(digits) <= 1e-12).all()
        assert (digits >= -1e-12).all()
        assert factors[-1] == pytest.approx(s, rel=1e-11)

    @given(extensions(min_pairs=1))
    def test_ntk_mixed_is_ntk_fixed_at_1_and_linear_at_0(
        self, extension: tuple[RotarySchedule, int]
    ) -> None:
        start, target = extension
        fixed, flat = (ntk_mixed.schedule(start, target, b=b).rescale_factors for b in (1.0, 0.0))
        d, s = start.geometry.rotary_dim, target / start.length
        assert fixed == pytest.approx([s ** (2 * (i + 1) / d) for i in range(d // 2)], rel=CLOSE)
        assert (fixed == ntk_fixed.schedule(start, target).rescale_factors).all()
        assert flat == pytest.approx(linear.schedule(start, target).rescale_factors, rel=CLOSE)
        default = ntk_mixed.schedule(start, target).rescale_factors
        assert (default == ntk_mixed.schedule(start, target, b=0.625).rescale_factors).all()
        assert (fixed <= default * (1 + CLOSE)).all()
        assert (default <= flat * (1 + CLOSE)).all()

    @given(extensions(), st.floats(1, 16))
    def test_dynamic_ntk_is_its_formula(
        self, extension: tuple[RotarySchedule, int], f: float
    ) -> None:
        start, length = extension
        d = start.geometry.rotary_dim
        growth = f * length / start.length - (f - 1)
        base = start.geometry.base * growth ** (d / (d - 2))
        schedule = dynamic_ntk.schedule(start, length, factor=f)
        assert schedule.inverse_frequencies == pytest.approx(frequencies(base, d), rel=1e-10)
        if f == 1:
            assert schedule.inverse_frequencies == pytest.approx(
                ntk.schedule(start, length).inverse_frequencies, rel=CLOSE
            )

    @given(extensions(), st.floats(1, 16))
    def test_its_ladder_has_the_plain_angles_up_to_the_trained_length_and_never_falls(
        self, extension: tuple[RotarySchedule, int], f: float
    ) -> None:
        start, target = extension
        lengths = sorted({max(1, start.length // 2), start.length, target, 2 * target})
        steps = ladder(partial(dynamic_ntk.schedule, factor=f), start, lengths)
        assert all(s.schedule is start for s in steps if s.up_to_length <= start.length)
        factors = np.array([step.schedule.rescale_factors for step in steps])
        assert (np.diff(factors, axis=0) >= 0).all()

    @given(extensions(), bases)
    def test_base_change_gives_exactly_that_model(
        self, extension: tuple[RotarySchedule, int], base: float
    ) -> None:
        start, target = extension
        schedule = base_change.schedule(start, target, base=base)
        expected = frequencies(base, start.geometry.rotary_dim)
        assert schedule.inverse_frequencies == pytest.approx(expected, rel=1e-11)
        assert schedule.geometric_base == pytest.approx(base, rel=1e-9)


def yarn_again(
    base: float, d: int, trained: int, s: float, fast: float, slow: float, truncate: bool
) -> list[float]:
    """The ramp of the YaRN paper over pair indices, as every implementation has it."""

    def index(turns: float) -> float:
        return d * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = index(fast), index(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    result = []
    for i, theta in enumerate(frequencies(base, d)):
        mix = (i - low) / ((high - low) or 0.001)
        mix = min(max(mix, 0.0), 1.0)
        result.append(theta / s * mix + theta * (1 - mix))
    return result


class TestYarn:
    # With a base this small, the ramp would end behind the bound on its end.
    @example((RotarySchedule.plain(RotaryGeometry(16, 16, 16.0, 4096)), 8192), 64.0, 1.0, True)
    @given(extensions(), st.floats(1, 64), st.floats(0.1, 1), st.booleans())
    def test_frequencies(
        self,
        extension: tuple[RotarySchedule, int],
        beta_fast: float,
        beta_slow: float,
        truncate: bool,
    ) -> None:
        start, target = extension
        g, s = start.geometry, target / start.length
        schedule = yarn.schedule(
            start, target, beta_fast=beta_fast, beta_slow=beta_slow, truncate=truncate
        )
        expected = yarn_again(g.base, g.rotary_dim, start.length, s, beta_fast, beta_slow, truncate)
        assert schedule.inverse_frequencies == pytest.approx(expected, rel=1e-9)

    @given(extensions(), st.floats(0.1, 2), st.floats(0.1, 2))
    def test_attention_scaling(
        self, extension: tuple[RotarySchedule, int], mscale: float, all_dim: float
    ) -> None:
        start, target = extension
        log_s = math.log(target / start.length)
        default = yarn.schedule(start, target).attention_scaling
        assert default == pytest.approx(0.1 * log_s + 1, rel=CLOSE)
        # One of the two alone changes nothing: that is how runtimes read it.
        assert yarn.schedule(start, target, mscale=mscale).attention_scaling == default
        assert yarn.schedule(start, target, mscale_all_dim=all_dim).attention_scaling == default
        both = yarn.schedule(start, target, mscale=mscale, mscale_all_dim=all_dim)
        ratio = (0.1 * mscale * log_s + 1) / (0.1 * all_dim * log_s + 1)
        assert both.attention_scaling == pytest.approx(ratio, rel=CLOSE)
        assert both.softmax_scaling == 1
        given_ = yarn.schedule(start, target, attention_factor=1.5, mscale=2.0, mscale_all_dim=1.0)
        assert given_.attention_scaling == 1.5

    @given(extensions(), st.floats(0.1, 2))
    def test_softmax_scaling_is_the_square_outside_cos_and_sin(
        self, extension: tuple[RotarySchedule, int], all_dim: float
    ) -> None:
        start, target = extension
        schedule = yarn.schedule(
            start, target, mscale=all_dim, mscale_all_dim=all_dim, scale_softmax=True
        )
        growth = 0.1 * all_dim * math.log(target / start.length) + 1
        assert schedule.softmax_scaling == pytest.approx(growth**2, rel=CLOSE)
        assert schedule.attention_scaling == 1


class TestLlama3:
    @given(extensions(min_pairs=1), st.floats(0.1, 4), st.floats(0.1, 16))
    def test_frequencies(
        self, extension: tuple[RotarySchedule, int], low: float, width: float
    ) -> None:
        start, target = extension
        high, s, trained = low + width, target / start.length, start.length
        expected = []
        for theta in frequencies(start.geometry.base, start.geometry.rotary_dim):
            wavelength = 2 * math.pi / theta
            if wavelength < trained / high:
                expected.append(theta)
            elif wavelength > trained / low:
                expected.append(theta / s)
            else:
                smooth = (trained / wavelength - low) / (high - low)
                expected.append((1 - smooth) * theta / s + smooth * theta)
        schedule = llama3.schedule(start, target, low_freq_factor=low, high_freq_factor=high)
        assert schedule.inverse_frequencies == pytest.approx(expected, rel=1e-10)
        assert schedule.attention_scaling == 1


class TestLongrope:
    @given(extensions(min_pairs=1), st.data())
    def test_takes_the_factors_as_they_are(
        self, extension: tuple[RotarySchedule, int], data: st.DataObject
    ) -> None:
        start, target = extension
        factors = data.draw(schedules(start.geometry)).rescale_factors.tolist()
        schedule = longrope.schedule(start, target, factors=factors)
        assert schedule.rescale_factors.tolist() == factors
        ratio = math.log(target / start.length) / math.log(start.length)
        assert schedule.attention_scaling == pytest.approx(math.sqrt(1 + ratio), rel=CLOSE)
        given_ = longrope.schedule(start, target, factors=factors, attention_factor=1.5)
        assert given_.attention_scaling == 1.5

    def test_kept_initial_positions_turn_as_in_pretraining_and_are_still_scaled_by_m(self) -> None:
        plain = RotarySchedule.plain(RotaryGeometry(64, 64, 1e4, 4096))
        start = replace(plain, kept_initial_positions=4)
        schedule = longrope.schedule(start, 32768, factors=[8.0] * 32, attention_factor=1.25)
        cos, sin = schedule.cos_sin([3, 4])
        at_3, at_4 = plain.angles([3, 0.5])  # 4 / 8
        assert cos == pytest.approx(1.25 * np.cos([at_3, at_4]), rel=1e-13)
        assert sin == pytest.approx(1.25 * np.sin([at_3, at_4]), rel=1e-13)

    def test_a_start_of_one_token_has_no_default_attention_factor(self) -> None:
        start = RotarySchedule.plain(RotaryGeometry(8, 2, 1e4, 1))
        with pytest.raises(InvalidValue, match=r"^attention_factor = None: .*give it"):
            longrope.schedule(start, 2, factors=[2.0])
        longrope.schedule(start, 2, factors=[2.0], attention_factor=1.0)

    def test_a_second_stage_composes_on_the_first(self) -> None:
        plain = RotarySchedule.plain(RotaryGeometry(8, 4, 100.0, 16))
        first = longrope.schedule(plain, 64, factors=[2.0, 4.0], attention_factor=1.5)
        second = longrope.schedule(first, 256, factors=[3.0, 5.0], attention_factor=2.0)
        assert second.rescale_factors.tolist() == [6.0, 20.0]
        assert second.attention_scaling == 3.0
        assert second.length == 256


class TestTwoBand:
    def test_is_method_2_of_the_base_bound_paper(self) -> None:
        start = RotarySchedule.plain(RotaryGeometry(128, 128, 1e4, 4096))
        paper = [
            (1e4 * 8 ** (128 / 88)) ** (-2 * i / 128) if i < 44 else 1e4 ** (-2 * i / 128) / 8
            for i in range(64)
        ]
        meeting = two_band.schedule(start, 32768, split=44)
        assert meeting.inverse_frequencies == pytest.approx(paper, rel=CLOSE)
        explicit = two_band.schedule(start, 32768, split=44, base=1e4 * 8 ** (128 / 88))
        assert explicit.inverse_frequencies == pytest.approx(paper, rel=CLOSE)

    @given(extensions(), bases, st.data())
    def test_is_a_base_change_below_the_split_and_linear_above(
        self, extension: tuple[RotarySchedule, int], base: float, data: st.DataObject
    ) -> None:
        start, target = extension
        split = data.draw(st.integers(0, start.geometry.pairs))
        got = two_band.schedule(start, target, split=split, base=base).inverse_frequencies
        d, s = start.geometry.rotary_dim, target / start.length
        below = frequencies(base, d)[:split]
        above = [theta / s for theta in frequencies(start.geometry.base, d)[split:]]
        assert got == pytest.approx(below + above, rel=1e-11)

    @given(extensions())
    def test_splits_where_pairs_stop_completing_a_turn_unless_told(
        self, extension: tuple[RotarySchedule, int]
    ) -> None:
        start, target = extension
        whole_turns = [bool(w <= start.length) for w in start.wavelengths]
        schedule = two_band.schedule(start, target)
        told = two_band.schedule(start, target, split=sum(whole_turns))
        assert (schedule.rescale_factors == told.rescale_factors).all()
        # No pair that never completed a turn meets an angle that it has not seen.
        slow = ~np.array(whole_turns)
        furthest = schedule.inverse_frequencies * target
        assert (furthest[slow] <= (start.inverse_frequencies * start.length)[slow] * 1.0001).all()


class TestLongrope2:
    @pytest.mark.parametrize(
        ("head_dim", "base", "length", "pair", "real"),
        [(96, 1e4, 2048, 31, 25), (128, 5e5, 8192, 35, 30)],
        ids=["Phi3-mini", "LLaMA3-8B"],
    )
    def test_takes_the_critical_pairs_of_the_paper(
        self, head_dim: int, base: float, length: int, pair: int, real: int
    ) -> None:
        start = RotarySchedule.plain(RotaryGeometry(head_dim, head_dim, base, length))
        s = 2**17 / length
        assert critical_pair(start) == pair
        for schedule, critical in (
            (longrope2.schedule(start, 2**17), pair),
            (longrope2.schedule(start, 2**17, critical_pair=real), real),
        ):
            # Algorithm 1: pair d_rcd turns at 1/(s·b^(2·d_rcd/d)), and the base below follows.
            below = (s * base ** (2 * critical / head_dim)) ** (head_dim / (2 * critical))
            assert schedule.inverse_frequencies[:critical] == pytest.approx(
                frequencies(below, head_dim)[:critical], rel=CLOSE
            )
            assert schedule.rescale_factors[critical:] == pytest.approx(s, rel=CLOSE)
            assert schedule.rescale_factors[critical - 1] < s

    @given(extensions())
    def test_is_two_bands_that_meet_at_the_critical_pair(
        self, extension: tuple[RotarySchedule, int]
    ) -> None:
        ours, theirs = longrope2.schedule(*extension), two_band.schedule(*extension)
        assert ours.rescale_factors == pytest.approx(theirs.rescale_factors, rel=CLOSE)

    def test_from_pair_0_on_it_is_linear(self) -> None:
        start = RotarySchedule.plain(RotaryGeometry(128, 128, 1e4, 4096))
        schedule = longrope2.schedule(start, 32768, critical_pair=0, factor=12.0)
        assert (schedule.rescale_factors == 12).all()


@given(schedules())
def test_resonance_makes_every_wavelength_whole(schedule: RotarySchedule) -> None:
    before = schedule.wavelengths
    after = resonance.schedule(schedule, schedule.length)
    whole = np.round(after.wavelengths)
    assert after.wavelengths == pytest.approx(whole, rel=1e-14)
    assert (whole >= 1).all()
    assert (np.abs(whole - before) <= 0.5 + 1e-14 * before)[before >= 0.5].all()
    assert after.attention_scaling == schedule.attention_scaling


def test_resonance_meets_the_same_angles_in_every_turn() -> None:
    start = RotarySchedule.plain(RotaryGeometry(64, 64, 1e4, 4096))
    schedule = resonance.schedule(yarn.schedule(start, 32768), 32768)
    for pair, wavelength in enumerate(np.round(schedule.wavelengths)):
        positions = np.array([0, 1, 5])
        once, again = (schedule.angles(positions + n * wavelength)[:, pair] for n in (0, 100))
        assert np.cos(again) == pytest.approx(np.cos(once), abs=1e-9)


@pytest.mark.parametrize("method", SCHEDULERS.values(), ids=list(SCHEDULERS))
@given(extensions(min_pairs=1), scales, scales)
def test_two_steps_are_one_step_of_the_product(
    method: Any, extension: tuple[RotarySchedule, int], s: float, t: float
) -> None:
    """Their factors are powers of s alone, so composition multiplies the scales."""
    start, _ = extension
    middle = round(start.length * s)
    target = max(middle, round(middle * t))
    twice = method.schedule(method.schedule(start, middle), target)
    once = method.schedule(start, target)
    assert twice.rescale_factors == pytest.approx(once.rescale_factors, rel=1e-11)
    assert twice.length == once.length
    assert len(twice.recipe) == 2


# transformers


@pytest.fixture(scope="module")
def rope_init() -> Iterator[Any]:
    """`rope_init(type, start, …) -> (inverse frequencies, attention factor)`, all in float64."""
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    def init(
        rope_type: str, start: RotarySchedule, seq_len: int | None = None, **parameters: object
    ) -> tuple[FloatArray, float]:
        g = start.geometry
        config = LlamaConfig(
            hidden_size=4 * g.head_dim,
            num_attention_heads=4,
            head_dim=g.head_dim,
            max_position_embeddings=start.length,
            rope_parameters={
                "rope_type": rope_type,
                "rope_theta": g.base,
                "partial_rotary_factor": g.rotary_dim / g.head_dim,
                "original_max_position_embeddings": start.length,
                **parameters,
            },
        )
        frequencies, factor = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", seq_len=seq_len)
        assert frequencies.dtype == torch.float64
        return frequencies.numpy(), float(factor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield init


@st.composite
def llamas(draw: st.DrawFn) -> RotarySchedule:
    """Models that a LlamaConfig can express: the share that rotates is a fraction of the head."""
    rotary_dim = draw(st.sampled_from([16, 32, 64, 128]))
    head_dim = rotary_dim * draw(st.sampled_from([1, 2, 4]))
    length = draw(st.sampled_from([2048, 4096, 8192, 32768]))
    return RotarySchedule.plain(RotaryGeometry(head_dim, rotary_dim, draw(bases), length))


def agree(schedule: RotarySchedule, theirs: tuple[FloatArray, float]) -> None:
    assert schedule.inverse_frequencies == pytest.approx(theirs[0], rel=1e-6)
    assert schedule.attention_scaling == pytest.approx(theirs[1], rel=1e-6)


factors = st.floats(1, 64)


class TestTransformers:
    @given(llamas(), factors)
    def test_linear(self, rope_init: Any, start: RotarySchedule, s: float) -> None:
        target = round(start.length * s)
        theirs = rope_init("linear", start, factor=target / start.length)
        agree(linear.schedule(start, target), theirs)

    @given(llamas(), factors, factors)
    def test_dynamic(self, rope_init: Any, start: RotarySchedule, s: float, f: float) -> None:
        length = round(start.length * s)
        theirs = rope_init("dynamic", start, seq_len=length, factor=f)
        agree(dynamic_ntk.schedule(start, length, factor=f), theirs)

    @settings(max_examples=2 * settings().max_examples)
    @given(
        llamas(),
        factors,
        st.fixed_dictionaries(
            {"beta_fast": st.floats(1, 64), "beta_slow": st.floats(0.1, 1)},
            optional={
                "truncate": st.booleans(),
                "attention_factor": st.floats(0.5, 2),
                "mscale": st.floats(0, 2),
                "mscale_all_dim": st.floats(0, 2),
            },
        ),
    )
    def test_yarn(
        self, rope_init: Any, start: RotarySchedule, s: float, parameters: dict[str, Any]
    ) -> None:
        target = round(start.length * s)
        theirs = rope_init("yarn", start, factor=target / start.length, **parameters)
        agree(yarn.schedule(start, target, **parameters), theirs)

    @given(llamas(), factors, st.floats(0.1, 4), st.floats(0.1, 16))
    def test_llama3(
        self, rope_init: Any, start: RotarySchedule, s: float, low: float, width: float
    ) -> None:
        own = {"low_freq_factor": low, "high_freq_factor": low + width, "factor": s}
        theirs = rope_init("llama3", start, **own)
        agree(llama3.schedule(start, 64 * start.length, **own), theirs)

    @given(llamas(), factors, st.none() | st.floats(0.5, 2), st.data())
    def test_longrope(
        self,
        rope_init: Any,
        start: RotarySchedule,
        s: float,
        attention_factor: float | None,
        data: st.DataObject,
    ) -> None:
        target = round(start.length * s)
        own = data.draw(schedules(start.geometry)).rescale_factors.tolist()
        theirs = rope_init(
            "longrope",
            start,
            seq_len=start.length + 1,
            long_factor=own,
            short_factor=[1.0] * len(own),
            factor=target / start.length,
            attention_factor=attention_factor,
        )
        agree(
            longrope.schedule(start, target, factors=own, attention_factor=attention_factor),
            theirs,
        )
