"""Faults find their places by function, and tests notice one that is planted in a real function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import mutation


@pytest.mark.parametrize("module", mutation.MATTERS)
def test_a_row_names_functions_and_tests(module: str) -> None:
    names, _ = mutation.MATTERS[module]
    source = (mutation.ROOT / "ropewalk" / Path(*module.split(".")).with_suffix(".py")).read_text(
        "utf-8"
    )
    found = dict(mutation.functions(ast.parse(source)))
    assert {name for name in names.split() if mutation.faults(found[name])} == {*names.split()}
    assert [path for path in mutation.tests_of(module) if not (mutation.ROOT / path).exists()] == []


def test_each_kind_of_fault_is_planted_alone() -> None:
    source = """def f(a: int, b: float=2):
    if a < 0:
        raise ValueError(f'{a - 1}')
    check(a, b)
    return (a and b) + 1"""
    tree = ast.parse(source)
    ((_, function),) = mutation.functions(tree)
    planted = [set(fault.planted(tree).splitlines()) for fault in mutation.faults(function)]
    assert [sorted(lines - {*source.splitlines()}) for lines in planted] == [
        ["def f(a: int, b: float=3):"],
        ["    if False:"],
        ["    if a <= 0:"],
        ["    if a < 1:"],
        ["    ..."],
        ["    check(b, a)"],
        ["    return (a and b) - 1"],
        ["    return (a or b) + 1"],
        ["    return (a and b) + 2"],
    ]
    assert ast.unparse(tree) == source


def test_a_fault_in_a_real_function_makes_its_tests_fail() -> None:
    assert [*mutation.survivors("lengths", ["parse_lengths"], 1)] == [("parse_lengths", 1, [])]
