from __future__ import annotations

import ropewalk as rw
from ropewalk import scaling
from tests.api.conformance import check_command, check_result


def test_every_method_is_listed_with_its_parameters() -> None:
    found = check_result(rw.methods())
    assert tuple(method.name for method in found.methods) == scaling.names()
    by_name = {method.name: method for method in found.methods}
    yarn = {parameter.name: parameter for parameter in by_name["yarn"].parameters}
    assert yarn["beta_fast"] == ("beta_fast", False, 32.0, "beta_fast=32")
    assert yarn["attention_factor"].default is None
    assert by_name["yarn"].needs_geometric_start
    assert not by_name["linear"].needs_geometric_start
    assert by_name["longrope"].parameters[0] == ("factors", True, None, "factors=a,b,…")
    assert all(name in found.summary() for name in scaling.names())


def test_the_command_prints_what_the_function_returns() -> None:
    check_command(rw.methods(), "methods")
