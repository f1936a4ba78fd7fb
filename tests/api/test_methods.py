from __future__ import annotations

import pytest

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
    assert by_name["longrope"].parameters[0] == (
        "factors",
        True,
        None,
        "factors=a,b,…|longrope:NAME",
    )
    assert all(name in found.summary() for name in scaling.names())


def test_the_published_factors_are_listed_with_model_and_licence() -> None:
    found = {each.name: each for each in rw.methods().published}
    assert len(found) == 30
    one = found["2048k_la2_256k"]
    assert (one.model, one.length, one.fine_tuned_at) == ("LLaMA-2-7B", 2**21, 2**18)
    assert one.factors[-1] == pytest.approx(575.8053)
    tuned_by = found["ft_mis_128k"]
    assert (tuned_by.model, tuned_by.length) == ("Mistral-7B-v0.1", 2**17)
    assert all(
        each.licence.startswith("MIT") and len(each.factors) == 64 for each in found.values()
    )


def test_the_command_prints_what_the_function_returns() -> None:
    check_command(rw.methods(), "methods")
