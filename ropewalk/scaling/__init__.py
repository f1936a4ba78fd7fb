"""The scaling methods, one per file. To add one, add a file here of this form:

    '''One line that `ropewalk methods` shows.'''

    @scaling_method(identity_at_one=True, monotone=True)
    def schedule(start: RotarySchedule, target_length: int, *, …) -> RotarySchedule:
        return start.rescaled(factors, target_length)

Nothing else needs a change: the command, the conformance tests and the recipes find the method by
its file name. `start` is the model's present schedule, and a method multiplies its factors, so
methods compose. A method whose formula needs geometric frequencies declares `geometric_start=True`
and is never called with others. The decorator checks the target and the parameters, and writes the
recipe.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, ParamSpec, get_args, get_type_hints

import numpy as np

from ropewalk.errors import InvalidValue, UnknownName, Unsupported
from ropewalk.lengths import MAX_LENGTH
from ropewalk.registered import added
from ropewalk.schedule import (
    MAX_FACTOR,
    FloatArray,
    ParameterValue,
    Recipe,
    RotaryGeometry,
    RotarySchedule,
)
from ropewalk.untrusted import real_number, whole_number

P = ParamSpec("P")
PUBLISHED = "longrope:"
"""The prefix of the names of published factors, which a parameter takes for a list."""


@dataclass(frozen=True)
class Method(Generic[P]):
    """A scaling method: the function, and the promises that the conformance tests hold it to."""

    compute: Callable[P, RotarySchedule]
    identity_at_one: bool
    """True if it changes no factor at target = start.length."""
    monotone: bool
    """True if its factors never fall, from a plain start, from a pair to the next slower one."""
    geometric_start: bool
    """True if it needs a start whose frequencies are b^(-2i/d) for some base b."""
    by_length: bool
    """Its factors are for the length at hand, so a plan holds it as a ladder of lengths."""
    needs_training: bool = False
    """A model is of no use under it before further training."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> RotarySchedule:
        bound = inspect.signature(self.compute).bind(*args, **kwargs)
        bound.apply_defaults()
        start, target_length, *_ = bound.arguments.values()
        self._check(start, target_length, recover=bool(bound.arguments.get("recover")))
        values = {
            key: self.parameters[key].checked(value, key) if key in self.parameters else value
            for key, value in bound.arguments.items()
            if key != "start"
        }
        result = self.compute(start, **values)  # type: ignore[arg-type]
        return replace(result, recipe=(*start.recipe, Recipe(self.name, values)))

    @property
    def is_built_in(self) -> bool:
        """True if it is a file here, not a function that a user registered."""
        return self.compute.__module__.startswith(f"{__name__}.")

    @property
    def name(self) -> str:
        by_file = self.compute.__module__.rpartition(".")[2]
        return by_file if self.is_built_in else self.compute.__name__

    @property
    def summary(self) -> str:
        """The first sentence of the file, or of a registered function."""
        described = inspect.getmodule(self.compute) if self.is_built_in else self.compute
        text = inspect.getdoc(described) or ""
        return " ".join(text.partition("\n\n")[0].split())

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """Its own parameters, by name, in the order of the signature."""
        hints = get_type_hints(self.compute)
        return {
            key: Parameter(key, hints[key], parameter.default)
            for key, parameter in inspect.signature(self.compute).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def check_parameters(self, given: Iterable[str]) -> None:
        """Refuse names it does not have, and a required one that is not given."""
        given = tuple(given)
        for key in given:
            if key not in self.parameters:
                raise UnknownName(f"parameter of {self.name}", key, self.parameters)
        for parameter in self.parameters.values():
            if parameter.required and parameter.name not in given:
                raise InvalidValue(
                    parameter.name,
                    None,
                    f"is required by {self.name}",
                    f"pass {parameter}",
                )

    def _check(self, start: RotarySchedule, target_length: object, *, recover: bool) -> None:
        target = whole_number(target_length, "target_length")
        if target > MAX_LENGTH:
            raise InvalidValue(
                "target_length", target, f"must be at most {MAX_LENGTH}", "give a shorter target"
            )
        if target < start.length and not recover:
            raise InvalidValue(
                "target_length",
                target,
                f"is below {start.length}, the length that the model already supports",
                "choose a longer target, or short-context recovery with longrope (recover=true)",
            )
        if self.geometric_start and start.geometric_base is None:
            raise Unsupported(
                f"{self.name} cannot be stacked on this model's {start.method} scaling; replace "
                "that scaling (`from_original`), or choose a method that composes: "
                + ", ".join(name for name in names() if not named(name).geometric_start)
            )


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method, with the values that a user may write for it."""

    name: str
    type: Any
    default: object

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that it takes: (float, NoneType) for `float | None`."""
        return get_args(self.type) if None.__class__ in get_args(self.type) else (self.type,)

    @property
    def takes_names(self) -> bool:
        """True if the name of published factors may stand for a list."""
        return str in get_args(self.type)

    def __str__(self) -> str:
        if self.required or self.default is None:
            listed = f"a,b,…|{PUBLISHED}NAME" if self.takes_names else "a,b,…"
            kind = {float: "NUMBER", int: "N", bool: "true|false"}.get(self.kinds[0], listed)
            return f"{self.name}={kind}"
        default = f"{self.default:g}" if isinstance(self.default, float) else self.default
        return f"{self.name}={str(default).lower()}"

    def checked(self, value: object, path: str) -> ParameterValue:
        """The value in the parameter's own type, or a refusal."""
        if value is None and None.__class__ in self.kinds:
            return None
        kind = self.kinds[0]
        if kind is bool:
            if not isinstance(value, bool):
                raise InvalidValue(path, value, "must be true or false", "give one of them")
            return value
        if kind is int:
            return whole_number(value, path)
        if kind is float:
            return real_number(value, path)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if self.takes_names and isinstance(value, str) and value.startswith(PUBLISHED):
            return value
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InvalidValue(path, value, "must be a list of numbers", f"write {self}")
        return tuple(real_number(item, f"{path}[{i}]") for i, item in enumerate(value))

    def parsed(self, text: str) -> ParameterValue:
        """The value that `--set name=text` stands for."""
        kind = self.kinds[0]
        low = text.strip().lower()
        if low == "none" and None.__class__ in self.kinds:
            return None
        if kind is bool:
            return self.checked({"true": True, "false": False}.get(low, text), self.name)
        try:
            if kind is int:
                return int(low)
            if kind is float:
                return self.checked(float(low), self.name)
            if self.takes_names and low.startswith(PUBLISHED):
                return low
            return self.checked([float(item) for item in low.split(",")], self.name)
        except ValueError:
            raise InvalidValue(
                self.name, text, "has the wrong form for this parameter", f"write {self}"
            ) from None


def scaling_method(
    *,
    identity_at_one: bool,
    monotone: bool,
    geometric_start: bool = False,
    by_length: bool = False,
    needs_training: bool = False,
) -> Callable[[Callable[P, RotarySchedule]], Method[P]]:
    """Make a method of a function `schedule(start, target_length, *, …)`."""

    def method(compute: Callable[P, RotarySchedule]) -> Method[P]:
        return Method(
            compute, identity_at_one, monotone, geometric_start, by_length, needs_training
        )

    return method


def built_in_names() -> tuple[str, ...]:
    """The files of this folder."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def names() -> tuple[str, ...]:
    """All methods: ropewalk's own, then those that a user registered."""
    return (*built_in_names(), *added("method"))


def named(name: str) -> Method[...]:
    """A method by its name."""
    if isinstance(name, str) and (registered := added("method").get(name)) is not None:
        return registered  # type: ignore[no-any-return]
    if name not in names():
        raise UnknownName("method", name, names())
    method = importlib.import_module(f"{__name__}.{name}").schedule
    assert isinstance(method, Method), f"{name}.py: decorate `schedule` with @scaling_method"
    return method


def parameter_names() -> set[str]:
    """The parameters of all methods."""
    return {key for method in names() for key in named(method).parameters}


def stacked(methods: str, *words: str) -> list[Method[...]]:
    """The methods that a name stands for, to be applied on top of each other: `yarn+resonance`.

    `words` are those that the caller takes instead of a method, to be named with the methods.
    """
    if not isinstance(methods, str):
        raise UnknownName("method", methods, (*names(), *words))
    try:
        return [named(name) for name in methods.split("+")]
    except UnknownName as error:
        raise UnknownName(error.kind, error.name, (*error.valid, *words)) from None


def rebuild(recipe: Iterable[Recipe], geometry: RotaryGeometry) -> RotarySchedule:
    """The schedule that a recipe leads to from the plain one."""
    schedule = RotarySchedule.plain(geometry)
    for step in recipe:
        parameters = dict(step.parameters)
        target_length = parameters.pop("target_length", None)
        # Plans from before n̂ was an option of `plan` have it here.
        kept = parameters.pop("kept_initial_positions", None)
        method = named(step.method)
        method.check_parameters(parameters)
        schedule = method(schedule, target_length, **parameters)
        if kept is not None:
            count = whole_number(kept, "kept_initial_positions")
            schedule = replace(schedule, kept_initial_positions=count)
    return schedule


def scale_of(start: RotarySchedule, target_length: int, factor: float | None = None) -> float:
    """s: the extension factor, as given or as the ratio of the lengths."""
    if factor is None:
        return target_length / start.length
    if not 1 <= factor <= MAX_FACTOR:
        raise InvalidValue(
            "factor",
            factor,
            f"must be at least 1 for an extension, and at most {MAX_FACTOR:g}",
            "give s ≥ 1",
        )
    return factor


def doublings(start_length: int, target_length: int) -> list[int]:
    """The rungs of a ladder: start_length, twice that, … and the target itself."""
    count = max(0, math.ceil(math.log2(target_length / start_length)))
    return [*(start_length * 2**i for i in range(count)), target_length]


def ntk_exponents(start: RotarySchedule) -> FloatArray:
    """2i/(d-2): raising s to it stretches the slowest pair by s and leaves the fastest alone."""
    if start.geometry.pairs < 2:
        raise Unsupported(
            "NTK scaling needs at least two pairs; rotary_dim = 2 has one: use linear"
        )
    index = np.arange(start.geometry.pairs, dtype=np.float64)
    return index * (2.0 / (start.geometry.rotary_dim - 2))


def log_growth(scale: float, weight: float = 1.0) -> float:
    """0.1 · weight · ln s + 1: YaRN's growth of attention, 1 if nothing is extended."""
    return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0
