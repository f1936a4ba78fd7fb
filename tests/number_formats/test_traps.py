"""Every trap planted in a clean model is named, and nothing is named in a clean one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ropewalk.number_formats.arms import ARMS, EXACT, cast
from ropewalk.number_formats.stage import OpenModel
from ropewalk.number_formats.traps import Trap, find_traps, logit_error
from tests.models import tiny


def plant_frequencies(model: Any) -> None:
    rotary = model.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq.bfloat16()


def plant_tables(model: Any) -> None:
    _wrap(model, lambda stock, x, positions: tuple(t.bfloat16() for t in stock(x, positions)))


def plant_half_tables(model: Any) -> None:
    _wrap(model, lambda stock, x, positions: tuple(t.half().float() for t in stock(x, positions)))


def plant_positions(model: Any) -> None:
    _wrap(model, lambda stock, x, positions: stock(x, positions.bfloat16()))


def plant_angles(model: Any) -> None:
    def forward(_stock: Any, x: torch.Tensor, positions: torch.Tensor) -> Any:
        frequencies = model.model.rotary_emb.inv_freq
        angles = (positions[..., None].float() * frequencies).bfloat16().float()
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    _wrap(model, forward)


def plant_tf32(model: Any) -> None:
    """What allow_tf32 makes of a rotary module's matrix product, on a GPU that has it."""

    def forward(_stock: Any, x: torch.Tensor, positions: torch.Tensor) -> Any:
        frequencies = cast(model.model.rotary_emb.inv_freq, "tf32")
        angles = cast(positions.float(), "tf32")[..., None] * frequencies
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    _wrap(model, forward)


def plant_two(model: Any) -> None:
    plant_frequencies(model)
    plant_tables(model)


def plant_nonsense(model: Any) -> None:
    _wrap(model, lambda stock, x, positions: stock(x, positions * 3))


def _wrap(model: Any, forward: Callable[..., Any]) -> None:
    rotary = model.model.rotary_emb
    stock = rotary.forward

    def wrapped(x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        return forward(stock, x, position_ids)

    rotary.forward = wrapped


def given(traps: list[Trap]) -> set[tuple[str, str]]:
    return {(trap.step, trap.format) for trap in traps if trap.path == "as given"}


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gemma3_text", "olmo3", "phi3"])
def test_a_clean_model_has_no_trap(family: str) -> None:
    assert given(find_traps(OpenModel(tiny.tiny_model(family)))) == set()


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (plant_frequencies, {("frequencies", "bfloat16")}),
        (plant_tables, {("tables", "bfloat16")}),
        (plant_half_tables, {("tables", "float16")}),
        (plant_positions, {("positions", "bfloat16")}),
        (plant_angles, {("angles", "bfloat16")}),
        (plant_tf32, {("angles", "tf32")}),
        (plant_two, {("frequencies", "bfloat16"), ("tables", "bfloat16")}),
        (plant_nonsense, {("unknown", "")}),
    ],
)
def test_every_planted_trap_is_named(plant: Callable[[Any], None], found: Any) -> None:
    model = tiny.tiny_model("llama", max_position_embeddings=1024)
    plant(model)
    assert given(find_traps(OpenModel(model))) == found


def test_the_two_ways_to_bf16_are_foretold() -> None:
    found = {(t.path, t.step) for t in find_traps(OpenModel(tiny.tiny_model("llama")))}
    assert found == {
        ("loaded with dtype=bfloat16", "tables"),
        ("cast by .to(bfloat16)", "frequencies"),
        ("cast by .to(bfloat16)", "tables"),
    }


def test_they_are_what_happens() -> None:
    cast = tiny.tiny_model("llama").to(torch.bfloat16)
    assert given(find_traps(OpenModel(cast))) == {
        ("frequencies", "bfloat16"),
        ("tables", "bfloat16"),
    }


@pytest.mark.parametrize("plant", [plant_frequencies, plant_positions, plant_tables, plant_tf32])
def test_a_remedy_brings_logits_nearer_to_float64(plant: Callable[[Any], None]) -> None:
    model = tiny.tiny_model("llama", max_position_embeddings=1024)
    plant(model)
    stage = OpenModel(model)
    [trap] = [t for t in find_traps(stage) if t.path == "as given"]
    tokens = tiny.tokens(32)[0]
    before, after, exact = (
        logit_error(stage, tokens, arm, 992) for arm in (trap.arm, trap.remedied, EXACT)
    )
    assert exact == 0
    assert 0 < after < before


def test_an_error_counts_a_query_with_the_key_of_its_own_position() -> None:
    stage = OpenModel(tiny.tiny_model("llama", max_position_embeddings=1024))
    assert logit_error(stage, tiny.tokens(1)[0], ARMS["bf16"], 992) > 0
