"""Values: frozen dataclasses that convert to JSON and back exactly, by their type hints.

    @dataclass(frozen=True, eq=False)
    class Inspection(Result):
        model: str
        plan: ContextPlan

A field is read back by its type: numbers, texts, Literals, optional values, tuples, mappings,
arrays, other dataclasses and NamedTuples, and every class with `to_json` and `from_json` of its
own. What follows from the fields is added to the JSON by `derived`, for people and scripts who read
it; on the way back it must still follow. So a file that was damaged or edited is refused by key.

JSON has no infinity: a number that may be infinite has the type `Unbounded`, and null stands for
infinity.

Fields are read-only all the way down: a value makes its mappings a `FrozenDict`, the lists in them
a `FrozenList`, other lists tuples, and its arrays unwritable.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import types
from collections.abc import Collection, Iterator, Mapping, Sequence, Sized
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ropewalk.blocks import Block, Paragraph
from ropewalk.chart import Chart, TileGrid
from ropewalk.errors import InputError, InvalidValue, RopewalkError
from ropewalk.untrusted import (
    Fields,
    list_value,
    one_of,
    real_number,
    real_numbers,
    text_value,
    truth_value,
    whole_number,
    whole_numbers,
)

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.figure import Figure


T = TypeVar("T")
_INFINITE = "null is infinity"
RESTORE = "restore the file, or create it again"
Unbounded: TypeAlias = Annotated[float, _INFINITE]


SHOWN = 160  # characters of a value at Python's prompt


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("this belongs to an immutable value; change a copy: copy()")


class FrozenDict(dict[str, Any]):
    """A mapping that cannot be changed. Its `copy()` can, and so can all that the copy holds."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def copy(self) -> dict[str, Any]:
        copied: dict[str, Any] = encode(self)
        return copied

    def __reduce__(self) -> tuple[object, ...]:  # else it would be filled item by item
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A list in such a mapping: configs have lists where other fields of values have tuples."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenList, (list(self),)


_IMMUTABLE = (str, int, float, bool, type(None), FrozenDict)


class Members:
    """A frozen dataclass whose JSON form is its fields."""

    _optional: ClassVar[tuple[str, ...]] = ()
    """Fields that the JSON has only if they are not their defaults."""

    def to_json(self) -> dict[str, object]:
        return _members(self)

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """The value that this JSON was made of; what does not belong to it is named by its key."""
        return _from_members(cls, value, path or cls.__name__.lower(), strict=True)


class Value(Members):
    """A frozen dataclass with a JSON form. Equal when its JSON is equal."""

    never_empty: ClassVar[tuple[str, ...]] = ()
    """The fields that must not be empty, since what follows reads their first member."""

    def __init_subclass__(cls) -> None:
        # In the class itself: else @dataclass writes one that prints every array and record.
        cls.__repr__ = Value.__repr__  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Make the fields read-only; a subclass with checks of its own calls this first."""
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, frozen(value))
        for name in self.never_empty:
            check_filled(getattr(self, name), name)

    def __repr__(self) -> str:
        line = " ".join(f"<{type(self).__name__}: {self._told()}>".split())
        return line if len(line) <= SHOWN else f"{line[: SHOWN - 2]}…>"

    def _told(self) -> str:
        """The value in short, for Python's prompt."""
        kind: Any = type(self)
        return ", ".join(f"{name}={_SHORT.repr(getattr(self, name))}" for name in _hints(kind))

    def derived(self) -> dict[str, object]:
        """Values derived from the fields, shown with them."""
        return {}

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **{k: encode(v) for k, v in self.derived().items()}}

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        if cls.derived is Value.derived:
            return super().from_json(value, path)
        path = path or cls.__name__.lower()
        built = _from_members(cls, value, path, strict=False)
        built.check_json(value, path)
        return built

    def check_json(self, actual: object, path: str) -> None:
        """Refuse a JSON value that is not this value's own, by the key in which it differs."""
        _check_same(actual, self.to_json(), path)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_json(), sort_keys=True))


class Result(Value):
    """The result of a verb: a value with a summary and blocks, which a notebook displays.

    A result that is best shown as a picture is `Drawn`.
    """

    rows_in: ClassVar[str] = ""
    """The field with the rows of `to_rows`."""

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """The value that this JSON was made of; one that cannot be shown is none."""
        try:
            built = super().from_json(value, path)
            list(built.blocks())
        except (RopewalkError, MemoryError):
            raise
        except Exception as error:
            where = (path or cls.__name__.lower()).rstrip(": ")
            said = f"it cannot be shown ({type(error).__name__}: {error})"
            raise InputError(f"{where}: parts contradict each other: {said}; {RESTORE}") from None
        return built

    def to_rows(self) -> list[dict[str, Any]]:
        """The result as a table: a dict for each row, as `pandas.DataFrame` takes them.

        A part of a part is named by its path, such as `estimate.low`. A result that is no table
        is one row.
        """
        return [flat(row) for row in (getattr(self, self.rows_in) if self.rows_in else [self])]

    def summary(self) -> str:
        """Describe the result in one paragraph."""
        raise NotImplementedError

    def blocks(self) -> Iterator[Block]:
        """Yield what a person should see, in order: the same in a terminal, page and notebook."""
        yield Paragraph(self.summary())

    def __str__(self) -> str:
        return self.summary()

    def _told(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        from ropewalk.reports.notebook import html

        return html(self)


Charts: TypeAlias = Sequence[Chart | TileGrid]


class Drawn(Result):
    """A result that is best shown as a picture."""

    @property
    def figure_title(self) -> str:
        """The title of the picture, if its charts have none."""
        return ""

    def charts(self) -> Charts:
        """The charts of its picture."""
        raise NotImplementedError

    def figure(self) -> Figure:
        """The charts, drawn by matplotlib."""
        from ropewalk.reports.figures import figure

        return figure(self.charts(), self.figure_title)


def check_filled(members: Sized, key: str) -> None:
    """Refuse an empty collection."""
    if not members:
        raise InvalidValue(key, members, "must not be empty", RESTORE)


def check_member(member: object, members: Collection[object], key: str) -> None:
    """Refuse a name that nothing in a collection has."""
    if member not in members:
        rule = f"must be one of {', '.join(map(str, members))}"
        raise InvalidValue(key, member, rule, RESTORE)


def frozen(value: Any, lists: type[Any] = tuple) -> Any:
    """A value with the same content that cannot be changed; a list becomes one of `lists`."""
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, Mapping):
        return FrozenDict({key: frozen(item, FrozenList) for key, item in value.items()})
    if hasattr(value, "_fields"):
        return type(value)(*map(frozen, value))
    if isinstance(value, tuple | list):
        kind = lists if isinstance(value, list) else tuple
        return kind(frozen(item, lists) for item in value)
    if hasattr(value, "setflags") and value.flags.writeable:  # an array: its owner may change it
        value = value.copy()
        value.setflags(write=False)
    return value


def encode(value: object) -> Any:
    """The JSON form of a value that `decode` knows the type of."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return _members(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return encode(value.tolist())
    if isinstance(value, float) and math.isinf(value):
        return None
    return str(value) if isinstance(value, Path) else value


def flat(value: object, path: str = "") -> dict[str, Any]:
    """The JSON form of a value without objects in objects: keys are paths."""
    fields: dict[str, Any] = {}
    for key, item in encode(value).items():
        fields |= flat(item, f"{path}{key}.") if isinstance(item, dict) else {f"{path}{key}": item}
    return fields


def decode(hint: Any, value: object, path: str) -> Any:
    """The value of a type that this JSON stands for."""
    if (leaf := _LEAVES.get(hint)) is not None:
        return leaf(value, path)
    origin, arguments = get_origin(hint), get_args(hint)
    if hasattr(origin, "__value__"):  # an alias by `type`, as numpy's NDArray is from 2.5 on
        return decode(origin.__value__[arguments], value, path)
    if origin is Annotated:
        if value is None and _INFINITE in arguments:
            return math.inf
        return decode(arguments[0], value, path)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        [hint] = [argument for argument in arguments if argument is not type(None)]
        return decode(hint, value, path)
    if origin is Literal:
        one_of(value, arguments, path)
        return value
    if origin is tuple:
        return _tuple(arguments, value, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise InvalidValue(path, value, "must be a JSON object", 'write {"key": value, …}')
        return {key: decode(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
    if origin is not None and origin.__name__ == "ndarray":
        import numpy as np

        [kind] = get_args(arguments[1])
        of_kind: Any = real_numbers if kind is np.float64 else whole_numbers
        array = np.array(of_kind(value, path), dtype=kind)
        array.setflags(write=False)
        return array
    if hasattr(hint, "from_json"):
        return hint.from_json(value, path)
    return _from_members(hint, value, path, strict=True)


_SHORT = reprlib.Repr()
_SHORT.maxlevel = 1


_LEAVES: Mapping[object, Any] = {
    Any: lambda value, path: value,
    object: lambda value, path: value,
    str: text_value,
    bool: truth_value,
    int: whole_number,
    float: real_number,
    Path: lambda value, path: Path(text_value(value, path)),
}


def _tuple(kinds: tuple[Any, ...], value: object, path: str) -> tuple[Any, ...]:
    items = list_value(value, path)
    if kinds[-1] is not Ellipsis:
        if len(items) != len(kinds):
            raise InvalidValue(path, value, f"must hold {len(kinds)} values", "complete the list")
    else:
        kinds = (kinds[0],) * len(items)
    pairs = zip(kinds, items, strict=True)
    return tuple(decode(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(pairs))


def _members(value: Any) -> dict[str, object]:
    """The fields of a dataclass or NamedTuple in their JSON form."""
    kind: Any = type(value)
    values = {name: getattr(value, name) for name in _hints(kind)}
    unset = [name for name in getattr(kind, "_optional", ()) if values[name] == getattr(kind, name)]
    return {name: encode(item) for name, item in values.items() if name not in unset}


def _from_members(kind: type[T], value: object, path: str, *, strict: bool) -> T:
    fields, may_lack = Fields(value, path), getattr(kind, "_optional", ())
    taken = {
        name: decode(hint, fields.take(name), fields.of(name))
        for name, hint in _hints(kind).items()  # type: ignore[arg-type]
        if name not in may_lack or fields.holds(name)
    }
    if strict:
        fields.close()
    try:
        return kind(**taken)
    except InvalidValue as error:
        raise error.within(path) from None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass or NamedTuple with their types, in order."""
    hints = get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: hints[name] for name in kind._fields}


def _check_same(actual: object, expected: object, path: str) -> None:
    """Refuse values that the fields contradict; the last bits of a derived number may differ."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for key in {**expected, **actual}:
            place = f"{path}{key}" if path.endswith(": ") else f"{path}.{key}"
            if key not in expected:
                remedy = f"remove it; known: {', '.join(map(str, expected))}"
                raise InvalidValue(place, actual[key], "is not a known key", remedy)
            if key not in actual:
                raise InvalidValue(place, None, "is missing", RESTORE)
            _check_same(actual[key], expected[key], place)
    elif isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            _check_same(one, other, f"{path}[{i}]")
    else:
        same = actual == expected
        if isinstance(expected, float) and isinstance(actual, int | float):
            same = math.isclose(real_number(actual, path), expected, rel_tol=1e-9, abs_tol=1e-300)
        if not same:
            rule = f"does not follow from the rest of the file, which gives {str(expected)[:80]}"
            raise InvalidValue(path, actual, rule, RESTORE)


@cache
def table_in(path: Path) -> Any:
    """The content of a JSON file of this package, which nobody changes."""
    return json.loads(path.read_text(encoding="utf-8"))


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as fields of a frozen value, whose lists are tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
