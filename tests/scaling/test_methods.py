"""Every method passes the conformance suite; names, parameters and chains are what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from ropewalk import scaling
from ropewalk.errors import InvalidValue, RopewalkError, UnknownName, Unsupported
from ropewalk.lengths import MAX_LENGTH
from ropewalk.planning import extension
from ropewalk.scaling import (
    Method,
    base_change,
    cope,
    drope,
    linear,
    llama3,
    longrope,
    ntk,
    resonance,
    two_band,
    yarn,
)
from ropewalk.schedule import MAX_FACTOR, Recipe, RotaryGeometry, RotarySchedule
from tests.scaling.conformance import (
    CHECKS,
    LLAMA2,
    Case,
    cases,
    check_anything_is_a_schedule_or_one_refusal,
    wild_cases,
)

LLAMA31 = llama3.schedule(
    RotarySchedule.plain(RotaryGeometry(128, 128, 5e5, 8192)), 131072, factor=8.0
)


WILD = (check_anything_is_a_schedule_or_one_refusal,)
ORDINARY = tuple(check for check in CHECKS if check not in WILD)
both_kinds = pytest.mark.parametrize("checks", [ORDINARY, WILD], ids=["ordinary", "wild"])


def held_to(method: Method[...], checks: Sequence[Callable[[Case], None]]) -> None:
    """Drawing a case takes longer than most checks of it, so each case is drawn once for all."""
    wild = checks == WILD

    @settings(
        max_examples=settings().max_examples // (1 if wild else 2),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        report_multiple_bugs=False,
    )
    @given((wild_cases if wild else cases)(method))
    def holds(case: Case) -> None:
        refused = False
        for check in checks:
            try:
                check(case)
            except UnsatisfiedAssumption:  # the others hold all the same
                refused = True
        assume(not refused)

    holds()


@both_kinds
@pytest.mark.parametrize("name", scaling.names())
def test_conformance(name: str, checks: Sequence[Callable[[Case], None]]) -> None:
    held_to(scaling.named(name), checks)


def test_the_methods_are_there() -> None:
    assert set(scaling.names()) >= {
        "linear", "ntk", "ntk_old", "ntk_fixed", "ntk_mixed", "dynamic_ntk", "yarn", "llama3",
        "base_change", "longrope", "two_band", "resonance", "cope",
        "longrope2", "drope",
    }  # fmt: skip


class TestNames:
    def test_an_unknown_method_lists_the_valid_ones(self) -> None:
        for ask in (
            lambda: scaling.named("yran"),
            lambda: extension.extend(LLAMA2, 8192, "yran"),
            lambda: extension.extend(LLAMA2, 8192, "linear+yran"),
            lambda: scaling.rebuild([Recipe("yran", {})], LLAMA2.geometry),
        ):
            with pytest.raises(UnknownName, match="did you mean 'yarn'") as caught:
                ask()
            assert caught.value.valid == scaling.names()

    @pytest.mark.parametrize("name", ["", "+", "yarn+", "yarn,linear", "__init__", "../yarn", "os"])
    def test_odd_names_are_no_methods(self, name: str) -> None:
        with pytest.raises(UnknownName):
            extension.extend(LLAMA2, 8192, name)

    def test_a_recipe_from_a_file_is_not_trusted(self) -> None:
        for recipe in (
            Recipe("linear"),
            Recipe("linear", {"target_length": None}),
            Recipe("linear", {"target_length": "8k"}),
            Recipe("linear", {"target_length": 8192, "start": 1}),
            Recipe("linear", {"target_length": 8192, "self": 1}),
            Recipe("longrope", {"target_length": 8192}),
            Recipe("longrope", {"target_length": 8192, "factors": 2.0}),
            Recipe("longrope", {"target_length": 8192, "factors": (2.0,)}),
            Recipe("yarn", {"target_length": 8192, "truncate": 1}),
            Recipe("yarn", {"target_length": 8192, "beta_fast": "32"}),
            Recipe("yarn", {"target_length": 8192, "beta_fast": True}),
            Recipe("os.system", {"target_length": 8192}),
        ):
            with pytest.raises(RopewalkError):
                scaling.rebuild([recipe], LLAMA2.geometry)


class TestTarget:
    @pytest.mark.parametrize("target", [8192.0, "8192", "8k", None, True, np.int64(8192), [8192]])
    def test_is_a_whole_number(self, target: Any) -> None:
        with pytest.raises(InvalidValue, match=r"^target_length = .*must be a whole number"):
            linear.schedule(LLAMA2, target)

    @pytest.mark.parametrize(
        "target", [MAX_LENGTH + 1, 10**400, 10**5000], ids=["1 more", "400", "5000"]
    )
    def test_is_no_longer_than_anything_has_use_for(self, target: int) -> None:
        for name in scaling.names():
            required: dict[str, dict[str, object]] = {
                "longrope": {"factors": [1.0] * 64},
                "base_change": {"base": 1e6},
            }
            with pytest.raises(InvalidValue, match=r"^target_length = "):
                extension.extend(LLAMA2, target, name, required.get(name))

    def test_below_the_start_only_as_short_context_recovery(self) -> None:
        with pytest.raises(InvalidValue, match=r"recover=true"):
            longrope.schedule(LLAMA31, 8192, factors=[1.0] * 64)
        short = longrope.schedule(LLAMA31, 8192, factors=[0.5] * 64, recover=True)
        assert short.length == 8192
        assert (short.rescale_factors == LLAMA31.rescale_factors / 2).all()
        assert short.attention_scaling == LLAMA31.attention_scaling
        assert scaling.rebuild(short.recipe[1:], LLAMA2.geometry).length == 8192

    @pytest.mark.parametrize("target", [0, -1])
    def test_recovery_still_needs_a_length(self, target: int) -> None:
        with pytest.raises(InvalidValue, match="length"):
            longrope.schedule(LLAMA2, target, factors=[1.0] * 64, recover=True)


class TestParameters:
    @pytest.mark.parametrize(
        ("name", "parameters", "message"),
        [
            ("yarn", {"beta_fast": 0.5}, r"^beta_fast = 0\.5: .*at least beta_slow"),
            ("yarn", {"beta_slow": 0}, "above 0"),
            ("yarn", {"beta_slow": -1.0}, "above 0"),
            ("yarn", {"truncate": "no"}, r"^truncate = 'no': must be true or false"),
            ("yarn", {"factor": 0.5}, r"^factor = 0\.5: .*at least 1"),
            ("yarn", {"mscale": -1.0}, r"^mscale = -1\.0"),
            ("yarn", {"mscale_all_dim": -1.0}, r"^mscale_all_dim = -1\.0"),
            ("yarn", {"mscale_all_dim": 1e160, "scale_softmax": True}, r"^mscale_all_dim = 1e"),
            ("yarn", {"attention_factor": 0}, "above 0"),
            ("yarn", {"attention_factor": float("nan")}, "^attention_factor = nan: .*finite"),
            ("llama3", {"low_freq_factor": 5.0}, "^high_freq_factor = 4.*at least low_freq_factor"),
            ("llama3", {"low_freq_factor": 0.0}, "above 0"),
            ("llama3", {"factor": "8"}, "^factor = '8': must be a number"),
            ("ntk_mixed", {"b": -0.1}, r"^b = -0\.1: must lie between 0"),
            ("ntk_mixed", {"b": 1.1}, r"^b = 1\.1"),
            ("dynamic_ntk", {"factor": 0.9}, r"^factor = 0\.9: must be at least 1"),
            ("base_change", {"base": 1.0}, r"^base = 1\.0: must be above 1"),
            ("base_change", {"base": 1e31}, r"^base = 1e\+31"),
            ("base_change", {}, "^base = None: is required by base_change"),
            ("two_band", {"base": 0.5}, r"^base = 0\.5"),
            ("two_band", {"split": 65}, "^split = 65: must lie between 0 and 64"),
            ("two_band", {"split": -1}, "^split = -1"),
            ("two_band", {"split": 44.0}, r"^split = 44\.0: must be a whole number"),
            ("drope", {"beta": 0.0}, r"^beta = 0\.0: must be above 0"),
            ("drope", {"beta": float("nan")}, "^beta = nan"),
            ("drope", {"beta": "1"}, "^beta = '1': must be a number"),
            ("cope", {"pairs": 0}, "^pairs = 0: must lie between 1 and 64"),
            ("cope", {"pairs": 65}, "^pairs = 65"),
            ("cope", {"pairs": 20.0}, r"^pairs = 20\.0: must be a whole number"),
            ("longrope2", {"critical_pair": 65}, "^critical_pair = 65: must lie between 0 and 64"),
            ("longrope2", {"critical_pair": -1}, "^critical_pair = -1"),
            ("longrope2", {"factor": 0.5}, r"^factor = 0\.5: must be at least 1"),
            ("longrope", {}, "^factors = None: is required by longrope"),
            ("longrope", {"factors": [2.0] * 63}, "'63 values': must be 64 numbers"),
            ("longrope", {"factors": [2.0]}, "'1 values': must be 64 numbers"),
            ("longrope", {"factors": 2.0}, r"^factors = 2\.0: must be a list"),
            ("longrope", {"factors": "2" * 64}, "^factors = '222.*must be a list"),
            ("longrope", {"factors": "longrope:256k_la2_128k"}, "a target of 256k, and here it is"),
            ("longrope", {"factors": "2048k_la2_256k"}, "must be a list of numbers.*longrope:NAME"),
            ("longrope", {"factors": [1.0, "x"]}, r"^factors\[1\] = 'x': must be a number"),
            ("longrope", {"factors": [-2.0] * 64}, r"^rescale_factors\[0\] = -2\.0: .*above 0"),
        ],
    )  # fmt: skip
    def test_a_bad_value_is_refused_by_key_value_and_rule(
        self, name: str, parameters: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InvalidValue, match=message):
            extension.extend(LLAMA2, 32768, name, parameters)

    @given(st.integers(0, 63))
    def test_two_band_is_defined_for_every_split_at_any_scale(self, split: int) -> None:
        schedule = two_band.schedule(LLAMA2, 2**40, split=split)
        assert schedule.rescale_factors.max() == pytest.approx(2.0**28, rel=1e-12)

    @pytest.mark.parametrize(
        ("name", "key", "text", "value"),
        [
            ("yarn", "beta_fast", "16", 16.0),
            ("yarn", "beta_fast", " 1e1 ", 10.0),
            ("yarn", "truncate", "False", False),
            ("yarn", "mscale", "none", None),
            ("two_band", "split", "44", 44),
            ("two_band", "split", "None", None),
            ("longrope", "factors", "1, 2.5,3", (1.0, 2.5, 3.0)),
        ],
    )
    def test_parses_what_a_user_writes(self, name: str, key: str, text: str, value: object) -> None:
        parsed = scaling.named(name).parameters[key].parsed(text)
        assert (parsed, type(parsed)) == (value, type(value))

    @pytest.mark.parametrize(
        ("name", "key", "texts"),
        [
            ("yarn", "beta_fast", ["", "x", "nan", "inf", "1e999", "1,2", "none", "true"]),
            ("yarn", "truncate", ["", "1", "yes", "none"]),
            ("two_band", "split", ["", "4.5", "1e3", "x", "9" * 5000]),
            ("longrope", "factors", ["", "1,,2", "1,nan", "1,x", "none", "1;2"]),
        ],
    )
    def test_refuses_other_texts_and_names_the_parameter(
        self, name: str, key: str, texts: list[str]
    ) -> None:
        for text in texts:
            with pytest.raises(InvalidValue, match=rf"^{key}(\[\d\])? = "):
                scaling.named(name).parameters[key].parsed(text)

    @given(st.text())
    def test_any_text_is_a_value_or_a_refusal(self, text: str) -> None:
        for name in ("yarn", "two_band", "longrope"):
            for parameter in scaling.named(name).parameters.values():
                try:
                    parameter.parsed(text)
                except InvalidValue as error:
                    assert "\n" not in str(error)  # noqa: PT017

    def test_lists_and_arrays_are_the_same_parameter(self) -> None:
        factors = np.linspace(1, 8, 64)
        assert longrope.schedule(LLAMA2, 32768, factors=factors.tolist()) == longrope.schedule(
            LLAMA2,
            32768,
            factors=factors,  # type: ignore[arg-type]
        )


class TestPublishedFactors:
    NAME = "longrope:256k_la2_128k"

    @pytest.mark.parametrize("written", [NAME, f" {NAME.upper()} "])
    def test_a_name_stands_for_the_list_in_recipe_and_plan(self, written: str) -> None:
        given = extension.parsed("longrope", {"factors": written})
        found = extension.extend(LLAMA2, 2**18, "longrope", given)
        assert found.rescale_factors[-1] == 64
        assert found.attention_scaling == pytest.approx(np.sqrt(1 + np.log(64) / np.log(4096)))
        assert found.recipe[0].parameters["factors"] == self.NAME
        again = RotarySchedule.loads(found.dumps())
        assert again == found == scaling.rebuild(again.recipe, LLAMA2.geometry)

    def test_short_factors_of_a_fine_tuned_model(self) -> None:
        """λ for 4k in the model fine-tuned at 128k are over the plain frequencies too."""
        found = longrope.schedule(LLAMA2, 4096, factors="longrope:4k_la2_128k")
        assert found.rescale_factors[-1] == pytest.approx(2.79)
        assert found.attention_scaling == 1

    @pytest.mark.parametrize(
        ("start", "target", "message"),
        [
            (LLAMA31, 2**18, "a base of the frequencies of 10000, and here it is none"),
            (RotarySchedule.plain(RotaryGeometry(128, 128, 5e5, 4096)), 2**18, "it is 500000"),
            (linear.schedule(LLAMA2, 8192), 2**18, "and here it is none"),
            (ntk.schedule(LLAMA2, 8192), 2**18, "and here it is 20"),
            (RotarySchedule.plain(RotaryGeometry(64, 64, 1e4, 4096)), 2**18, "here it is 64"),
            (LLAMA2, 2**17, "a target of 256k, and here it is 128k"),
        ],
    )
    def test_another_model_or_target_is_refused_unless_forced(
        self, start: RotarySchedule, target: int, message: str
    ) -> None:
        with pytest.raises(InvalidValue, match=rf"is for LLaMA-2-7B.*{message}.*force=true"):
            longrope.schedule(start, target, factors=self.NAME)
        if start.geometry.pairs != 64:
            with pytest.raises(InvalidValue, match="must be 32 numbers"):
                longrope.schedule(start, target, factors=self.NAME, force=True)
            return
        found = longrope.schedule(start, target, factors=self.NAME, force=True)
        assert found.rescale_factors[-1] == pytest.approx(64 * start.rescale_factors[-1])

    @pytest.mark.parametrize("name", ["256k_la2_128", "", "../longrope", "nothing"])
    def test_an_unknown_name_lists_the_others(self, name: str) -> None:
        with pytest.raises(UnknownName) as caught:
            longrope.schedule(LLAMA2, 2**18, factors=f"longrope:{name}")
        assert "2048k_la2_256k" in caught.value.valid

    def test_only_longrope_takes_such_names(self) -> None:
        with pytest.raises(InvalidValue, match="beta_fast"):
            extension.parsed("yarn", {"beta_fast": self.NAME})


class TestCope:
    def test_takes_the_pairs_of_the_paper_and_its_taper(self) -> None:
        """The public code's expression, for its 20 of 64 pairs."""
        weights = 0.5 * (1 + np.cos(np.pi * np.arange(20) / 19))
        found = cope.schedule(LLAMA31, 2**18, pairs=20)
        expected = LLAMA31.inverse_frequencies.copy()
        expected[-20:] *= weights
        assert found.inverse_frequencies == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert found.rescale_factors[44] == LLAMA31.rescale_factors[44]
        assert found.rescale_factors[-1] == MAX_FACTOR

    @pytest.mark.parametrize(
        ("geometry", "count"),
        [
            (RotaryGeometry(32, 32, 1e4, 512), 8),
            (LLAMA2.geometry, 18),
            (LLAMA31.geometry, 29),
            (RotaryGeometry(64, 32, 1e4, 512), 8),
            (RotaryGeometry(128, 64, 1e4, 512, resting_pairs=18), 0),
        ],
    )
    def test_by_default_clips_the_pairs_without_a_full_turn_in_pretraining(
        self, geometry: RotaryGeometry, count: int
    ) -> None:
        plain = RotarySchedule.plain(geometry)
        beyond = plain.wavelengths[: geometry.turning_pairs] > geometry.original_length
        assert beyond.sum() == count
        if not count:
            with pytest.raises(
                Unsupported, match=r"cope has nothing to clip.*set the number of pairs"
            ):
                cope.schedule(plain, 1024)
            return
        found = cope.schedule(plain, 8 * plain.length)
        assert (found.rescale_factors > 1).sum() == count - 1  # the first of them is kept

    @pytest.mark.parametrize("first", ["yarn", "linear", "ntk", "longrope"])
    def test_the_last_pair_is_at_the_cap_after_any_other_method(self, first: str) -> None:
        given = {"factors": [3.0] * 64} if first == "longrope" else {}
        both = extension.extend(LLAMA2, 32768, f"{first}+cope", given)
        alone = extension.extend(LLAMA2, 32768, first, given)
        assert both.rescale_factors[-1] == MAX_FACTOR
        assert (both.rescale_factors[:46] == alone.rescale_factors[:46]).all()
        assert both.attention_scaling == alone.attention_scaling

    def test_a_pair_that_stands_still_is_left_so_by_later_methods(self) -> None:
        clipped = cope.schedule(LLAMA2, 8192)
        for name in ("linear", "ntk_old", "two_band"):
            found = extension.extend(clipped, 65536, name)
            assert found.rescale_factors[-1] == MAX_FACTOR

    def test_resting_pairs_are_not_counted(self) -> None:
        resting = RotarySchedule.plain(RotaryGeometry(128, 128, 1e4, 4096, resting_pairs=10))
        found = cope.schedule(resting, 8192, pairs=3).rescale_factors
        assert (found[51:54] > [0.5, 1.5, 1e11]).all()
        assert (found[54:] == 1).all()


class TestDrope:
    def test_has_no_positions_whatever_came_before(self) -> None:
        for start in (LLAMA2, LLAMA31, yarn.schedule(LLAMA2, 32768), cope.schedule(LLAMA2, 8192)):
            found = drope.schedule(start, 2**18)
            assert (found.rescale_factors == MAX_FACTOR).all()
            assert found.has_no_positions
            assert not start.has_no_positions
            far = found.cos_sin([2**18])[0] / found.attention_scaling
            assert far == pytest.approx(1.0, abs=1e-12)
            again = linear.schedule(found, 2**19)
            assert again.has_no_positions

    def test_beta_multiplies_the_logits_by_m_or_by_the_softmax(self) -> None:
        whole = drope.schedule(LLAMA2, 4 * 4096, beta=1.44)
        assert whole.attention_scaling == pytest.approx(1.2)
        assert whole.softmax_scaling == 1
        half = RotarySchedule.plain(RotaryGeometry(128, 64, 1e4, 4096))
        part = drope.schedule(half, 4 * 4096, beta=1.44)
        assert (part.attention_scaling, part.softmax_scaling) == (1.0, 1.44)
        usual = drope.schedule(LLAMA2, 4 * 4096).attention_scaling ** 2
        assert usual == pytest.approx(1 + 0.103 * np.log(4))
        at_home = drope.schedule(LLAMA2, 4096)
        assert at_home.attention_scaling == 1.0

    def test_resting_pairs_do_not_count(self) -> None:
        resting = RotarySchedule.plain(RotaryGeometry(128, 128, 1e4, 4096, resting_pairs=10))
        assert drope.schedule(resting, 8192).has_no_positions
        assert not resting.has_no_positions


class TestChains:
    def test_the_first_extends_and_the_others_refine(self) -> None:
        both = extension.extend(LLAMA2, 32768, "yarn+resonance", {"beta_fast": 16.0})
        assert both == resonance.schedule(yarn.schedule(LLAMA2, 32768, beta_fast=16.0), 32768)
        assert both.method == "yarn+resonance"
        assert scaling.rebuild(both.recipe, LLAMA2.geometry) == both

    def test_a_refiner_alone_says_what_to_write(self) -> None:
        with pytest.raises(InvalidValue, match=r"yarn\+resonance"):
            extension.extend(LLAMA2, 32768, "resonance")

    def test_geometric_methods_refuse_by_name_and_say_which_compose(self) -> None:
        for name, parameters in (("yarn", {}), ("base_change", {"base": 1e6})):
            with pytest.raises(
                Unsupported, match=rf"^{name} cannot be stacked on .*llama3"
            ) as caught:
                extension.extend(LLAMA31, 2**18, name, parameters)
            assert "linear, llama3, longrope" in str(caught.value)

    def test_geometric_methods_go_on_from_any_geometric_start(self) -> None:
        rebased = base_change.schedule(LLAMA2, 4096, base=5e5)
        native = RotarySchedule.plain(RotaryGeometry(128, 128, 5e5, 4096))
        for name in ("yarn", "ntk"):
            mine = extension.extend(rebased, 32768, name).inverse_frequencies
            theirs = extension.extend(native, 32768, name).inverse_frequencies
            assert mine == pytest.approx(theirs, rel=1e-12)
        assert yarn.schedule(ntk.schedule(LLAMA2, 8192), 16384).method == "ntk+yarn"

    def test_one_pair_is_refused_by_ntk_by_name(self) -> None:
        single = RotarySchedule.plain(RotaryGeometry(64, 2, 1e4, 4096))
        for name in ("ntk", "dynamic_ntk"):
            with pytest.raises(Unsupported, match=r"at least two pairs.*use linear"):
                extension.extend(single, 8192, name)


NEW_METHOD = '''
"""A method of someone else, in one file."""

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.scaling import scale_of, scaling_method
from ropewalk.schedule import RotarySchedule


@scaling_method(identity_at_one=True, monotone=True)
def schedule(
    start: RotarySchedule, target_length: int, *, sharpness: float, steps: int, flat: bool = False
) -> RotarySchedule:
    if not 0 <= sharpness <= 1e9:
        raise InvalidValue("sharpness", sharpness, "must lie between 0 and 1e9", "try 1")
    if not 1 <= steps <= 100:
        raise InvalidValue("steps", steps, "must lie between 1 and 100", "try 4")
    share = np.ceil(np.linspace(0, steps, start.geometry.pairs)) / steps
    s = scale_of(start, target_length)
    factors = np.full(len(share), s) if flat else s ** (share**sharpness)
    return start.rescaled(factors, target_length)
'''


@pytest.fixture
def new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder more where the methods are looked for, and no trace of it afterwards."""
    monkeypatch.setattr(scaling, "__path__", [*scaling.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "staircase.py"
    sys.modules.pop("ropewalk.scaling.staircase", None)
    vars(scaling).pop("staircase", None)


class TestAddingAMethod:
    def test_is_adding_one_file(self, new_file: Path) -> None:
        before = scaling.names()
        new_file.write_text(NEW_METHOD)
        assert set(scaling.names()) == {*before, "staircase"}
        method = scaling.named("staircase")
        assert method.summary == "A method of someone else, in one file."
        assert [str(p) for p in method.parameters.values()] == [
            "sharpness=NUMBER", "steps=N", "flat=false"
        ]  # fmt: skip
        schedule = extension.extend(LLAMA31, 2**18, "staircase", {"sharpness": 2.0, "steps": 4})
        assert schedule.method == "llama3+staircase"
        assert scaling.rebuild(schedule.recipe[1:], LLAMA2.geometry).length == 2**18
        with pytest.raises(InvalidValue):
            extension.extend(LLAMA2, 8192, "staircase", {"sharpness": 2.0})
        with pytest.raises(UnknownName, match="sharpness"):
            extension.extend(LLAMA2, 8192, "staircase", {"sharpnes": 2.0})

    @both_kinds
    def test_inherits_the_conformance_suite(
        self, new_file: Path, checks: Sequence[Callable[[Case], None]]
    ) -> None:
        new_file.write_text(NEW_METHOD)
        held_to(scaling.named("staircase"), checks)

    @pytest.mark.parametrize(
        ("right", "wrong"),
        [
            ("s ** (share**sharpness)", "s ** -(share**sharpness)"),  # not monotone
            ("s ** (share**sharpness)", "1.01 * s ** share"),  # no identity at 1
            ("s ** (share**sharpness)", "0 * share"),
            ("s ** (share**sharpness)", "s ** share[1:]"),
            ("return start.rescaled", "return RotarySchedule.plain(start.geometry).rescaled"),
            ("rescaled(factors, target_length)", "rescaled(factors, start.length)"),
        ],
    )
    def test_which_catches_a_wrong_method(self, new_file: Path, right: str, wrong: str) -> None:
        assert NEW_METHOD.count(right) == 1
        new_file.write_text(NEW_METHOD.replace(right, wrong))

        def caught(check: Callable[[Case], None]) -> bool:
            try:
                held_to(scaling.named("staircase"), [check])
            except (AssertionError, RopewalkError):
                return True
            return False

        assert any(caught(check) for check in CHECKS)
