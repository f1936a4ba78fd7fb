"""The rotary schedule, the central value of ropewalk. Start reading here.

A rotary position embedding turns pair i of a head by the angle position · θᵢ. Every method of
context extension changes only how fast the pairs turn. It chooses *rescale factors* λ over the
pretrained frequencies, and an attention scaling m:

    θᵢ = base^(-2i/d) / λᵢ          cos and sin are multiplied by m

Three known methods in this form:

    linear interpolation by s       λᵢ = s
    a new base b′ (NTK, ABF)        λᵢ = (b′/b)^(2i/d)
    YaRN                            λᵢ rises from 1 (fast pairs) to s (slow pairs), m = 0.1 ln s + 1

`RotaryGeometry` is the embedding of pretraining, `RotarySchedule` the present rotation, and a
`Recipe` names the method that led to it. λ is always relative to the plain frequencies, so a
schedule made from another one needs no special case. A schedule never depends on the length of a
sequence: a `ContextPlan` (context_plan.py) says which schedule serves which length.

Two kinds of pairs do not turn. A *resting* pair has frequency zero in pretraining. A pair that
*stands still* turned in pretraining, and a method slowed it down to nothing (λ at `MAX_FACTOR`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropewalk.errors import InvalidValue
from ropewalk.lengths import MAX_LENGTH, format_length
from ropewalk.untrusted import Fields, check_between, one_of, parse_json, real_number
from ropewalk.values import Members, frozen

FloatArray: TypeAlias = NDArray[np.float64]
PairLayout = Literal["half", "interleaved"]
LogNForm = Literal["everywhere", "beyond"]
"""The forms that a plan can ask for; models bring a third, `steps`."""
ParameterValue: TypeAlias = bool | int | float | str | tuple[float, ...] | None

# Limits: far outside anything that a model uses, close enough that nothing computed overflows.
MAX_DIM = 8192
MAX_BASE = 1e30
MAX_FACTOR = 1e12
"""The largest λ: within any length, a pair with it stands still."""
MAX_SCALING = 1e4
MAX_METHODS = 64


@dataclass(frozen=True)
class RotaryGeometry(Members):
    """The rotary embedding a model was pretrained with."""

    # Left out of JSON at its default: a plan's id is a digest of its JSON, and older plans lack it.
    _optional = ("resting_pairs",)

    head_dim: int
    rotary_dim: int
    """The number of the head's dimensions that rotate; d in the formulas."""
    base: float
    original_length: int
    """The context length of pretraining, before any extension."""
    pair_layout: PairLayout = "half"
    """Pair i is dimensions (i, i + d/2) in `half`, (2i, 2i + 1) in `interleaved`."""
    resting_pairs: int = 0
    """The number of slowest pairs whose frequency is zero (rope type `proportional`)."""

    def __post_init__(self) -> None:
        _check_count("head_dim", self.head_dim, 1, MAX_DIM)
        _check_count("rotary_dim", self.rotary_dim, 2, MAX_DIM)
        if self.rotary_dim % 2:
            raise InvalidValue(
                "rotary_dim", self.rotary_dim, "dimensions rotate in pairs", "give an even number"
            )
        if self.rotary_dim > self.head_dim:
            raise InvalidValue(
                "rotary_dim",
                self.rotary_dim,
                f"must not be above head_dim = {self.head_dim}",
                "a head cannot rotate more dimensions than it has",
            )
        object.__setattr__(self, "base", _real("base", self.base))
        if not 1 < self.base <= MAX_BASE:
            raise InvalidValue(
                "base",
                self.base,
                f"must be above 1 and at most {MAX_BASE:g}",
                "the usual base is 10000; at 1 or below, no pair turns slower than the first",
            )
        _check_count("original_length", self.original_length, 1, MAX_LENGTH)
        one_of(self.pair_layout, get_args(PairLayout), "pair_layout")
        _check_count("resting_pairs", self.resting_pairs, 0, self.pairs - 1)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt_from_fields(self)

    @property
    def pairs(self) -> int:
        return self.rotary_dim // 2

    @cached_property
    def plain_frequencies(self) -> FloatArray:
        """base^(-2i/d), in radians per position: θᵢ with λᵢ = 1 (Su et al. 2021, Sec. 3.2.2)."""
        exponents = np.arange(self.pairs, dtype=np.float64) * (-2.0 / self.rotary_dim)
        frequencies = np.power(self.base, exponents)
        frequencies[self.turning_pairs :] = 0.0
        return _read_only(frequencies)

    @property
    def turning_pairs(self) -> int:
        return self.pairs - self.resting_pairs

    @property
    def without_resting_pairs(self) -> RotaryGeometry:
        """The same frequencies, with a resting pair counted as dimensions that do not rotate.

        b^(-2i/d) = b′^(-2i/d′) with b′ = b^(d′/d). Theory knows no frequencies of zero, so it reads
        a head in this form, in which dimensions have other partners.
        """
        if not self.resting_pairs:
            return self
        turning = 2 * self.turning_pairs
        base = self.base ** (turning / self.rotary_dim)
        return replace(self, rotary_dim=turning, base=base, resting_pairs=0)

    def factors_of(self, frequencies: FloatArray) -> FloatArray:
        """The rescale factors that lead to these frequencies; 1 where a pair rests."""
        factors, turning = np.ones(self.pairs), slice(self.turning_pairs)
        factors[turning] = self.plain_frequencies[turning] / frequencies[turning]
        return factors


@dataclass(frozen=True)
class LogN(Members):
    """Log-n scaling: the query at position p is multiplied by a factor that grows with log p.

    `everywhere`, for models trained with it, and `beyond` multiply by log_L(p + 1); `beyond` leaves
    positions below the trained length L unchanged (the factor is at least 1), so it can be added to
    any model. `steps` is 1 + growth · ln(1 + ⌊p / L⌋), which rises at multiples of L (Ministral 3,
    Mistral 4).
    """

    _optional = ("growth",)

    form: Literal[LogNForm, "steps"]
    length: int
    """The trained length, where the factor is 1."""
    growth: float | None = None
    """The weight of the logarithm, of `steps` only."""

    def __post_init__(self) -> None:
        one_of(self.form, (*get_args(LogNForm), "steps"), "form")
        _check_count("length", self.length, 2, MAX_LENGTH)
        if (self.growth is not None) != (self.form == "steps"):
            raise InvalidValue(
                "growth", self.growth, f"does not fit the form {self.form}",
                "give it with the form `steps` only",
            )  # fmt: skip
        if self.growth is not None:
            growth = _real("growth", self.growth)
            object.__setattr__(self, "growth", growth)
            check_between(growth, 0, MAX_SCALING, "growth", "0.1 is Ministral 3's")

    def scaling(self, positions: ArrayLike) -> FloatArray:
        """The factor at each position, by the formula of its form."""
        positions = np.asarray(positions, dtype=np.float64)
        if self.growth is not None:
            return 1.0 + self.growth * np.log1p(np.floor(positions / self.length))
        factor = np.log(positions + 1.0) / math.log(self.length)
        return np.maximum(factor, 1.0) if self.form == "beyond" else factor

    def mean_scaling(self, count: int) -> float:
        """The mean of `scaling` over positions 0 … count − 1, in closed form.

        Σ log(p + 1) = log(count!). Each of the `steps` lasts L positions; the last may be cut off.
        """
        if self.growth is not None:
            steps, cut_off = divmod(count, self.length)
            logs = self.length * math.lgamma(steps + 1) + cut_off * math.log(steps + 1)
            return 1.0 + self.growth * logs / count
        start = min(self.length, count) if self.form == "beyond" else 0
        logs = math.lgamma(count + 1) - math.lgamma(start + 1)
        return (start + logs / math.log(self.length)) / count


@dataclass(frozen=True)
class Recipe(Members):
    """A method and all its parameters: from the same start they give the same schedule."""

    method: str
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = {
            key: _parameter(value, f"parameters.{key}") for key, value in self.parameters.items()
        }
        object.__setattr__(self, "parameters", frozen(values))

    def __hash__(self) -> int:
        return hash((self.method, tuple(sorted(self.parameters))))

    def __str__(self) -> str:
        """`yarn to 128k (beta_fast 16, beta_slow 1)`, with what was left at None left out."""
        settings = {key: value for key, value in self.parameters.items() if value is not None}
        target = settings.pop("target_length", None)
        reach = f" to {format_length(target)}" if isinstance(target, int) else ""
        shown = ", ".join(f"{key} {_shown(value)}" for key, value in settings.items())
        return f"{self.method}{reach}{f' ({shown})' if shown else ''}"

    @classmethod
    def from_json(cls, value: object, path: str = "recipe") -> Recipe:
        fields = Fields(value, path)
        return fields.build(
            cls, method=fields.text("method"), parameters=fields.mapping("parameters")
        )


@dataclass(frozen=True, eq=False)
class RotarySchedule(Members):
    """The rotation speed of each pair and all related settings. Immutable, compares by content."""

    geometry: RotaryGeometry
    rescale_factors: FloatArray
    """λ, one for each pair, over the geometry's plain frequencies."""
    length: int
    """The context length that this schedule serves."""
    attention_scaling: float = 1.0
    """m: cos and sin are both multiplied by it, so rotated logits grow by m²."""
    softmax_scaling: float = 1.0
    """Multiplies all logits, outside cos and sin (mscale² of DeepSeek's attention)."""
    kept_initial_positions: int = 0
    """n̂: positions below it keep the plain angles; m still applies to them."""
    log_n: LogN | None = None
    recipe: tuple[Recipe, ...] = ()
    """The methods that lead to this schedule from the plain one, in order."""

    def __post_init__(self) -> None:
        # Schedules that rotate alike must be equal, so factors without an effect have one value: 1
        # for a pair that rests, the cap for one that is at the cap up to the rounding of float32.
        factors = _one_factor_per_pair(self.rescale_factors, self.geometry)
        factors[self.geometry.turning_pairs :] = 1.0
        factors[np.isclose(factors, MAX_FACTOR, rtol=1e-6, atol=0)] = MAX_FACTOR
        # The comparisons are also False for NaN.
        usable = (factors >= 1 / MAX_FACTOR) & (factors <= MAX_FACTOR)
        if not usable.all():
            i = int(np.argmin(usable))
            raise InvalidValue(
                f"rescale_factors[{i}]",
                float(factors[i]),
                f"must be a finite number above 0 and at most {MAX_FACTOR:g}",
                "1 leaves a pair unchanged, larger factors slow it down",
            )
        object.__setattr__(self, "rescale_factors", _read_only(factors))
        _check_count("length", self.length, 1, MAX_LENGTH)
        # Both scalings multiply logits, so a scaling of zero would switch attention off.
        for name in ("attention_scaling", "softmax_scaling"):
            scaling = _real(name, getattr(self, name))
            object.__setattr__(self, name, scaling)
            if not 1 / MAX_SCALING <= scaling <= MAX_SCALING:
                raise InvalidValue(
                    name,
                    scaling,
                    f"must be a finite number above 0 and at most {MAX_SCALING:g}",
                    "1 changes nothing",
                )
        _check_count("kept_initial_positions", self.kept_initial_positions, 0, MAX_LENGTH)
        # A plan from a file may name methods without end; each step of a recipe is one of them.
        object.__setattr__(self, "recipe", tuple(self.recipe))
        if len(self.recipe) > MAX_METHODS:
            raise InvalidValue(
                "recipe",
                f"{len(self.recipe)} methods",
                f"must be at most {MAX_METHODS}, on top of each other",
                "plan again from the pretrained frequencies",
            )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt_from_fields(self)

    def __repr__(self) -> str:
        low, high = self.rescale_factors.min(), self.rescale_factors.max()
        return (
            f"<RotarySchedule: {self.method}, {self.geometry.pairs} factors from {low:.4g} to "
            f"{high:.4g}, serves {format_length(self.length)}>"
        )

    @classmethod
    def plain(cls, geometry: RotaryGeometry) -> RotarySchedule:
        """The schedule of pretraining: every factor 1."""
        return cls(geometry, np.ones(geometry.pairs), geometry.original_length)

    @cached_property
    def inverse_frequencies(self) -> FloatArray:
        """θᵢ = base^(-2i/d) / λᵢ, in radians per position (`inv_freq` in transformers)."""
        return _read_only(self.geometry.plain_frequencies / self.rescale_factors)

    @property
    def wavelengths(self) -> FloatArray:
        """Positions per full turn; infinite for a pair that rests or stands still."""
        with np.errstate(divide="ignore"):
            turn = 2 * np.pi / self.inverse_frequencies
        return np.where(self.rescale_factors < MAX_FACTOR, turn, np.inf)

    @property
    def has_no_positions(self) -> bool:
        """True if every pair that turns in pretraining stands still."""
        turning = slice(self.geometry.turning_pairs)
        return bool((self.rescale_factors[turning] >= MAX_FACTOR).all())

    def angles(self, positions: ArrayLike) -> FloatArray:
        """position · θᵢ in float64, of shape positions.shape + (pairs,)."""
        positions = np.asarray(positions, dtype=np.float64)
        angles = np.multiply.outer(positions, self.inverse_frequencies)
        if self.kept_initial_positions:
            plain = np.multiply.outer(positions, self.geometry.plain_frequencies)
            kept = positions < self.kept_initial_positions
            angles = np.where(kept[..., np.newaxis], plain, angles)
        return np.asarray(angles)

    def cos_sin(self, positions: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """cos and sin of the angles, both multiplied by the attention scaling."""
        angles = self.angles(positions)
        return np.cos(angles) * self.attention_scaling, np.sin(angles) * self.attention_scaling

    def query_scaling(self, positions: ArrayLike) -> FloatArray:
        """The factor of log-n on the query at each position; ones without log-n."""
        if self.log_n is None:
            return np.ones(np.shape(positions))
        return self.log_n.scaling(positions)

    @property
    def geometric_base(self) -> float | None:
        """The base b′ with θᵢ = b′^(-2i/d), or None if the frequencies do not have this form."""
        # λᵢ = (b′/b)^(2i/d), solved for b′ at the slowest pair, gives b·λ^(d/2i). The others must
        # then agree. A head of one pair turns by 1 whatever the base.
        last = self.geometry.turning_pairs - 1
        if last == 0:
            base = self.geometry.base
        else:
            exponent = self.geometry.rotary_dim / (2 * last)
            base = float(self.geometry.base * self.rescale_factors[last] ** exponent)
        if not 1 < base <= MAX_BASE:
            return None
        expected = replace(self.geometry, base=base).plain_frequencies
        return base if np.allclose(self.inverse_frequencies, expected, rtol=1e-9, atol=0) else None

    def rescaled(
        self, factors: ArrayLike, length: int, *, attention_scaling: float = 1.0
    ) -> RotarySchedule:
        """This schedule with its factors multiplied by others: the way that methods compose.

        A pair that stands still has no speed that could be changed, so it stays at the cap.
        """
        present, factors = self.rescale_factors, _one_factor_per_pair(factors, self.geometry)
        return replace(
            self,
            rescale_factors=np.where(present < MAX_FACTOR, present * factors, MAX_FACTOR),
            length=length,
            attention_scaling=self.attention_scaling * attention_scaling,
        )

    @property
    def method(self) -> str:
        """The names of its methods, such as `plain`, `yarn` or `llama3+linear`; `factors` if only
        these are known, as in a GGUF file."""
        scaled = (self.rescale_factors != 1).any()
        return "+".join(step.method for step in self.recipe) or ("factors" if scaled else "plain")

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def loads(cls, text: str, source: str = "schedule") -> RotarySchedule:
        return cls.from_json(parse_json(text, source=source), f"{source}: ")

    def _identity(self) -> tuple[object, ...]:
        """Its fields, with the factors as bytes: arrays have no hash, and compare by element."""
        _, (geometry, factors, *others) = _rebuilt_from_fields(self)
        return geometry, factors.tobytes(), *others

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RotarySchedule):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


def _rebuilt_from_fields(value: RotaryGeometry | RotarySchedule) -> tuple[type, tuple[Any, ...]]:
    """The class and its fields, by which pickle and copy make it anew: numpy's own copy of an array
    would be writable."""
    return type(value), tuple(getattr(value, item.name) for item in dataclasses.fields(value))


def _one_factor_per_pair(values: ArrayLike, geometry: RotaryGeometry) -> FloatArray:
    """A new array of factors. Their count is checked before numpy can broadcast them."""
    try:
        factors = np.asarray(values)
    except ValueError:  # lists of unequal lengths
        factors = np.empty(0, dtype=object)
    numbers = factors.dtype.kind in "iuf"
    if factors.shape != (geometry.pairs,) or not numbers:
        raise InvalidValue(
            "rescale_factors",
            f"{factors.size} values" if numbers and factors.ndim == 1 else values,
            f"must be {geometry.pairs} numbers, one per pair of rotary_dim = {geometry.rotary_dim}",
            f"give a list of {geometry.pairs} numbers",
        )
    return factors.astype(np.float64)


def _read_only(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array


def _check_count(key: str, value: object, lowest: int, highest: int) -> None:
    """A whole number in a range. numpy's integers are refused: they do not go into JSON."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(key, value, "must be a whole number", "give an int")
    check_between(value, lowest, highest, key, "check the value")


def _real(key: str, value: object) -> float:
    return real_number(float(value) if isinstance(value, np.floating) else value, key)


def _shown(value: ParameterValue) -> str:
    if isinstance(value, tuple):
        return f"[{len(value)} values]"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _parameter(value: object, path: str) -> ParameterValue:
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(
            item if type(item) is float and math.isfinite(item) else _real(f"{path}[{i}]", item)
            for i, item in enumerate(value)
        )
    if isinstance(value, float):
        return real_number(value, path)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise InvalidValue(
        path, value, "is not a valid parameter value", "give a number, a string or a list"
    )
