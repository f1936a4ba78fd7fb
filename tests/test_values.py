"""Values go to JSON and back without losing a bit, and what does not belong there is named."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType, TypeVar

import ropewalk as rw
from ropewalk.errors import InvalidValue
from ropewalk.schedule import FloatArray, RotaryGeometry
from ropewalk.values import SHOWN, Result, Unbounded, Value, decode
from tests.strategies import geometries


class Point(NamedTuple):
    x: int
    label: str | None


@dataclass(frozen=True)
class Plain:
    """A dataclass that is no Value, with a rule of its own."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise InvalidValue("size", self.size, "must not be negative", "give a size")


@dataclass(frozen=True, eq=False)
class Inner(Value):
    numbers: tuple[float, ...]

    def derived(self) -> dict[str, object]:
        return {"sum": math.fsum(self.numbers)}


@dataclass(frozen=True, eq=False)
class Everything(Value):
    """A field of every type that is supported."""

    whole: int
    real: float
    reach: Unbounded
    text: str
    truth: bool
    choice: Literal["left", "right"]
    perhaps: float | None
    several: tuple[int, ...]
    pair: tuple[int, str]
    by_name: Mapping[str, tuple[bool, ...]]
    array: FloatArray
    file: Path
    anything: object
    point: Point
    plain: Plain
    inner: Inner
    inners: tuple[Inner, ...]
    geometry: RotaryGeometry | None

    def derived(self) -> dict[str, object]:
        return {"half": self.real / 2, "inner_sums": [inner.derived() for inner in self.inners]}


reals = st.floats(allow_nan=False, allow_infinity=False)
small = st.floats(-1e150, 1e150)  # whose sums are finite
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
inners = st.builds(Inner, st.lists(small, max_size=3).map(tuple))
everything = st.builds(
    Everything,
    whole=st.integers(),
    real=reals,
    reach=reals | st.just(math.inf),
    text=texts,
    truth=st.booleans(),
    choice=st.sampled_from(["left", "right"]),
    perhaps=st.none() | reals,
    several=st.lists(st.integers(), max_size=3).map(tuple),
    pair=st.tuples(st.integers(), texts),
    by_name=st.dictionaries(texts, st.lists(st.booleans(), max_size=2).map(tuple), max_size=3),
    array=st.lists(reals, max_size=4).map(np.array),
    file=st.sampled_from(["a/b.json", "/tmp/x"]).map(Path),
    anything=st.none() | st.integers() | texts | st.lists(reals, max_size=2),
    point=st.builds(Point, st.integers(), st.none() | texts),
    plain=st.builds(Plain, st.integers(0)),
    inner=inners,
    inners=st.lists(inners, max_size=2).map(tuple),
    geometry=st.none() | geometries(),
)
SAMPLE = Everything(
    whole=3,
    real=0.1,
    reach=math.inf,
    text="a",
    truth=True,
    choice="left",
    perhaps=None,
    several=(1, 2),
    pair=(1, "b"),
    by_name={"k": (True, False)},
    array=np.array([0.5, 1.5]),
    file=Path("a"),
    anything={"free": [1, None]},
    point=Point(1, None),
    plain=Plain(4),
    inner=Inner((1.0, 2.0)),
    inners=(Inner((0.5,)),),
    geometry=RotaryGeometry(8, 4, 100.0, 16),
)


@given(everything)
def test_every_type_goes_to_json_and_back_without_losing_a_bit(value: Everything) -> None:
    text = json.dumps(value.to_json(), allow_nan=False)
    again = Everything.from_json(json.loads(text))
    assert json.dumps(again.to_json(), allow_nan=False) == text
    assert again == value
    assert hash(again) == hash(value)
    assert repr(again.point) == repr(value.point)
    assert (again.reach, again.perhaps, again.file) == (value.reach, value.perhaps, value.file)
    assert [type(item) for item in again.pair] == [int, str]
    assert again.array.tobytes() == np.asarray(value.array, np.float64).tobytes()
    assert not again.array.flags.writeable


def edited(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """The sample's JSON, with another value at one place."""
    given: Any = json.loads(json.dumps(SAMPLE.to_json()))
    place = given
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return dict(given)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("whole",), 1.5, "everything.whole = 1.5: must be a whole number"),
        (("whole",), True, "everything.whole = True: must be a whole number"),
        (("real",), "1", "everything.real = '1': must be a number"),
        (("real",), None, "everything.real = None: must be a number"),
        (("reach",), "inf", "everything.reach = 'inf': must be a number"),
        (("text",), 1, "everything.text = 1: must be a string"),
        (("truth",), 1, "everything.truth = 1: must be true or false"),
        (("choice",), "up", "everything.choice = 'up': is not one of the choices"),
        (("perhaps",), [], r"everything.perhaps = \[\]: must be a number"),
        (("several",), {}, "everything.several = {}: must be a list"),
        (("several", 1), "2", r"everything.several\[1\] = '2': must be a whole number"),
        (("pair",), [1], r"everything.pair = \[1\]: must hold 2 values"),
        (("by_name",), [], r"everything.by_name = \[\]: must be a JSON object"),
        (("by_name", "k", 0), 1, r"everything.by_name.k\[0\] = 1: must be true or false"),
        (("array", 0), None, r"everything.array\[0\] = None: must be a number"),
        (("file",), 1, "everything.file = 1: must be a string"),
        (("point", "x"), "1", "everything.point.x = '1': must be a whole number"),
        (("point", "y"), 1, "everything.point.y = 1: is not a known key"),
        (("plain", "size"), -1, "everything.plain.size = -1: must not be negative"),
        (("inner", "smuggled"), 1, "everything.inner.smuggled = 1: is not a known key"),
        (("inners", 0, "numbers"), [0.7], r"everything.inners\[0\].sum = 0.5: does not follow"),
        (("geometry", "base"), 0.5, "everything.geometry.base = 0.5: must be above 1"),
        (("smuggled",), 1, "everything.smuggled = 1: is not a known key"),
    ],
)
def test_what_has_the_wrong_type_is_named_by_its_key(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        Everything.from_json(edited(path, value))


_Kind = TypeVar("_Kind", bound=np.generic)


def test_an_array_is_read_where_its_type_is_an_alias() -> None:
    """As numpy's NDArray is from 2.5 on, under Python 3.12 and later."""
    given: Any = TypeAliasType(
        "given", np.ndarray[Any, np.dtype[_Kind]], type_params=cast(Any, (_Kind,))
    )
    assert decode(given[np.float64], [1.0, 2.5], "factors").tolist() == [1.0, 2.5]


@pytest.mark.parametrize("key", SAMPLE.to_json())
def test_a_missing_key_is_named(key: str) -> None:
    given = copy.deepcopy(json.loads(json.dumps(SAMPLE.to_json())))
    del given[key]
    with pytest.raises(InvalidValue, match=f"everything.{key} = None: is missing"):
        Everything.from_json(given)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("half",), 0.06),
        (("half",), None),
        (("half",), True),
        (("half",), 10**399),
        (("half",), [0.05]),
        (("real",), 0.2),
        (("inner", "sum"), 3.5),
        (("inner_sums",), []),
        (("inner_sums", 0, "sum"), 1.0),
    ],
)
def test_an_edited_value_no_longer_follows(path: tuple[str | int, ...], value: object) -> None:
    with pytest.raises(InvalidValue, match=r"does not follow|must be a (finite )?number"):
        Everything.from_json(edited(path, value))


def test_the_last_bits_of_a_derived_number_may_differ() -> None:
    """Another platform's logarithm may round the other way."""
    near = edited(("half",), math.nextafter(0.05, 1))
    assert Everything.from_json(near) == SAMPLE


def test_null_is_infinity_for_unbounded_numbers_alone() -> None:
    assert SAMPLE.to_json()["reach"] is None
    assert Everything.from_json(edited(("reach",), None)).reach == math.inf
    assert Everything.from_json(edited(("reach",), 2)).reach == 2.0


def test_a_file_is_named_before_its_keys() -> None:
    with pytest.raises(InvalidValue, match=r"^a\.json: real = None"):
        Everything.from_json(edited(("real",), None), "a.json: ")
    with pytest.raises(InvalidValue, match=r"^a\.json: half = 1: does not follow"):
        Everything.from_json(edited(("half",), 1), "a.json: ")
    with pytest.raises(InvalidValue, match=r"^a\.json = 7: must be a JSON object"):
        Everything.from_json(7, "a.json: ")


def test_values_are_equal_when_their_json_is() -> None:
    assert replace(SAMPLE, array=np.array([0.5, 1.5])) == SAMPLE
    assert replace(SAMPLE, array=np.array([0.5, 1.6])) != SAMPLE
    assert Inner((1.0,)) != SAMPLE
    assert len({Inner((1.0,)), Inner((1.0,)), Inner((2.0,))}) == 2


def test_a_value_cannot_be_changed_at_any_depth() -> None:
    given: Any = {"k": [True]}
    numbers = np.array([0.5])
    value = replace(SAMPLE, by_name=given, anything={"free": [{"a": 1}]}, array=numbers)
    mapping: Any = value.by_name
    for change in (
        lambda: mapping.update(k=()),
        lambda: mapping.__setitem__("k", ()),
        lambda: mapping.pop("k"),
        lambda: value.anything["free"][0].clear(),  # type: ignore[index]
        lambda: value.anything["free"].append(1),  # type: ignore[index]
        lambda: value.array.fill(0),
    ):
        with pytest.raises((TypeError, ValueError), match=r"change a copy: copy\(|read-only"):
            change()
    # Neither through what it was made from, nor is that frozen for its owner.
    given["k"].append(False)
    numbers[0] = 7
    assert mapping == {"k": [True]}
    assert value.array[0] == 0.5
    assert {**mapping, "k": 1} == {"k": 1}
    assert json.dumps(mapping) == '{"k": [true]}'
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again == value
        with pytest.raises(TypeError, match="change a copy"):
            again.by_name["k"] = ()  # type: ignore[index]


@dataclass(frozen=True, eq=False)
class Said(Result):
    text: str

    def summary(self) -> str:
        return self.text


def test_a_prompt_shows_one_short_line() -> None:
    assert repr(Said("a\nb")) == "<Said: a b>"
    assert repr(Inner((1.0, 2.0))) == "<Inner: numbers=(1.0, 2.0)>"
    long = repr(Said("a " * 1000))
    assert len(long) == SHOWN
    assert long.endswith("…>")
    assert len(repr(Inner((0.5,) * 10_000))) <= SHOWN


def test_a_result_is_a_table_of_flat_rows() -> None:
    """As `pandas.DataFrame` takes them."""
    found = rw.bound(["8k", "128k"])
    rows = found.to_rows()
    assert [row["length"] for row in rows] == [8192, 131072]
    assert rows[0]["published.men2024"] == found.rows[0].published["men2024"]
    assert rw.plan("llama-2-7b", "32k", "yarn").to_rows()[1]["runtime"] == "vllm"
    assert Said("words").to_rows() == [{"text": "words"}]


def test_a_result_is_told_by_its_summary_and_escaped_in_a_notebook() -> None:
    assert str(Said("a < b")) == "a < b"
    assert Said("a < b")._repr_html_() == "<p>a &lt; b</p>"
