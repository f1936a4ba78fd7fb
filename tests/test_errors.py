"""Errors are one printable line, of bounded length, and travel between processes."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ropewalk as rw
from ropewalk import errors
from ropewalk.errors import (
    InputError,
    InvalidValue,
    MissingExtra,
    RopewalkError,
    UnknownName,
    Unsupported,
)


def test_the_docstring_draws_the_whole_tree() -> None:
    classes = inspect.getmembers(errors, inspect.isclass)
    defined = {name for name, item in classes if issubclass(item, Exception)}
    drawn = {line.strip("│└├─ ").split()[0] for line in (errors.__doc__ or "").splitlines()[2:]}
    assert drawn == defined


def test_wrong_input_exits_with_2_and_a_failure_with_1() -> None:
    assert RopewalkError("").exit_status == 1
    for error in (InputError, InvalidValue, UnknownName, Unsupported):
        assert issubclass(error, RopewalkError)
        assert error.exit_status == 2


def test_callers_who_do_not_know_ropewalk_catch_them_by_pythons_kinds() -> None:
    with pytest.raises(ImportError, match=r"pip install 'ropewalk\[models\]'"):
        raise MissingExtra("this", "torch", "models")
    with pytest.raises(ValueError, match="unknown method"):
        rw.plan("llama-2-7b", "32k", "no such method")


def test_an_invalid_value_says_key_value_rule_and_remedy() -> None:
    error = InvalidValue("rotary_dim", 63, "dimensions turn in pairs", "give an even number")
    assert str(error) == "rotary_dim = 63: dimensions turn in pairs; give an even number"
    assert (error.key, error.value) == ("rotary_dim", 63)
    assert (error.rule, error.remedy) == ("dimensions turn in pairs", "give an even number")


@pytest.mark.parametrize(
    ("parent", "key", "seen"),
    [
        ("plan", "base", "plan.base"),
        ("steps", "[2]", "steps[2]"),
        ("plan.json: ", "base", "plan.json: base"),
        ("plan.json: ", "[0].base", "plan.json: [0].base"),
    ],
)
def test_within_names_the_key_from_further_out(parent: str, key: str, seen: str) -> None:
    inner = InvalidValue(key, 1, "rule", "remedy")
    assert inner.within(parent).key == seen
    assert str(inner.within(parent)) == f"{seen} = 1: rule; remedy"


def test_an_unknown_name_lists_the_valid_ones_and_guesses() -> None:
    error = UnknownName("method", "yran", ["linear", "yarn"])
    assert str(error) == "unknown method 'yran' (did you mean 'yarn'?); valid: linear, yarn"
    assert "did you mean" not in str(UnknownName("method", "qqq", ["linear", "yarn"]))
    assert str(UnknownName("method", "x", [])).endswith("valid: there are none")


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("key", [1, 2], "rule", "remedy"),
        UnknownName("method", "yran", ("yarn",)),
        Unsupported("no"),
        InputError("no"),
        MissingExtra("this", "torch", "models"),
    ],
)
def test_errors_survive_the_way_out_of_a_worker_process(error: RopewalkError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def _nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        list(range(10**6)),
        {i: i for i in range(10**5)},
        10**400,
        10**5000,  # repr() itself refuses this one
        _nested(900),
        "line\nbreak \x1b[2J \ud800",
    ],
    ids=["text", "list", "dict", "400 digits", "5000 digits", "nested", "control characters"],
)
def test_any_value_is_shown_in_one_short_printable_line(value: object) -> None:
    text = str(InvalidValue("key", value, "rule", "remedy"))
    assert text.startswith("key = ")
    assert text.endswith(": rule; remedy")
    assert len(text) < 250
    assert text.isprintable()


@given(st.text(), st.text())
def test_keys_and_names_from_a_file_cannot_break_the_line(key: str, name: str) -> None:
    for error in (InvalidValue(key, 1, "rule", "remedy"), UnknownName("key", name, [key])):
        assert str(error).isprintable()
        str(error).encode()


def test_a_name_of_megabytes_is_refused_at_once() -> None:
    assert len(str(UnknownName("method", "yarn" * 10**6, ("yarn",)))) < 150


def test_a_long_key_keeps_both_its_ends() -> None:
    text = str(InvalidValue(f"plan.json: {'x' * 10_000}.base", 1, "rule", "remedy"))
    assert text.startswith("plan.json: xxx")
    assert "xxx.base = 1: rule; remedy" in text
    assert len(text) < 300
