"""A plan in a live model: what it computes, that rows and caches agree, and that it comes out."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig

from ropewalk import attention
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied, install, uninstall, unmodified
from ropewalk.models.renamed import recompute_activations
from ropewalk.models.rotary import PlannedRotary
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.schedule import RotarySchedule
from tests.models.family_run import CLOSE, PLANS, SEQUENCE, TARGET, decoded, outcome, row
from tests.models.tiny import (
    FAMILIES,
    RECENT,
    SMALL,
    WINDOW,
    model_of,
    thinned,
    tiny_config,
    tiny_model,
    tokens,
)

DOCS = Path(__file__).parents[2] / "docs" / "families.md"


def planned(model: Any, methods: str = "yarn", parameters: Any = None, **more: Any) -> ContextPlan:
    present = present_plan(model.config)
    layers = tuple(present.schedules)
    return extend_plan(present, TARGET, methods, parameters, layer_types=layers, **more)


def everything(model: Any) -> ContextPlan:
    """A plan of all that stands outside a stock config: kept positions, log-n, softmax scaling."""
    plan = planned(model, "yarn", log_n="beyond")
    schedule = replace(plan.longest(), kept_initial_positions=8, softmax_scaling=1.2)
    return ContextPlan(plan.model, {FULL_ATTENTION: (PlanStep(TARGET, schedule),)})


def two_steps(model: Any) -> ContextPlan:
    """Short and long factors, as LongRoPE has them."""
    present = present_plan(model.config)
    plain = present.longest()
    pairs = plain.geometry.pairs
    short = replace(plain, rescale_factors=np.linspace(1.0, 1.5, pairs), attention_scaling=1.1)
    long = replace(
        plain, rescale_factors=np.geomspace(1, 8, pairs), attention_scaling=1.1, length=TARGET
    )
    steps = (PlanStep(WINDOW, short), PlanStep(TARGET, long))
    return ContextPlan("two", {FULL_ATTENTION: steps})


@torch.no_grad()
def logits(model: Any, ids: Tensor, **more: Any) -> Tensor:
    result: Tensor = model(ids, **more).logits
    return result


def assert_close(one: Tensor, other: Tensor) -> None:
    assert float((one - other).abs().max() / other.std()) < CLOSE


def apart(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max() / other.std()) > 100 * CLOSE


# Llama 4's attention does not hand its positions on.
NOT_INSTALLED = {("llama4_text", "log-n")}


@pytest.mark.parametrize("family", [*thinned(FAMILIES), *RECENT])
def test_every_family_follows_every_plan_with_and_without_cache(family: str) -> None:
    outcomes = {name: outcome(family, name) for name in PLANS}
    for name, own in outcomes.items():
        assert (own is None) == ((family, name) in NOT_INSTALLED)
        assert own is None or own.works, outcomes
    assert row(family) in DOCS.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("methods", ["linear", "yarn", "ntk_mixed", "llama3"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "deepseek_v3", "gpt_neox"])
def test_what_a_stock_config_can_say_gives_the_stock_logits(family: str, methods: str) -> None:
    model = tiny_model(family)
    plan = planned(model, methods)
    stock = type(model)(type(model.config).from_dict(with_plan(model.config, plan))).eval()
    stock.load_state_dict(model.state_dict())
    ids = tokens(SEQUENCE)
    assert apart(logits(model, ids), logits(stock, ids))
    with applied(model, plan):
        assert_close(logits(model, ids), logits(stock, ids))


@pytest.mark.parametrize("beta", [1.0, 1.5])
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gemma3_text"])
def test_drope_is_a_model_without_rotation_whose_logits_are_multiplied(
    family: str, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(family)
    plan = planned(model, "drope", {"beta": beta})
    ids = tokens(SEQUENCE)
    with applied(model, plan):
        ours = logits(model, ids)
    [rotary] = {type(m) for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding")}
    forward = rotary.forward

    def still(self: Any, *arguments: Any, **more: Any) -> tuple[Tensor, Tensor]:
        cos, sin = forward(self, *arguments, **more)
        return torch.ones_like(cos), torch.zeros_like(sin)

    monkeypatch.setattr(rotary, "forward", still)
    for module in model.modules():
        if hasattr(module, "scaling"):
            module.scaling *= beta
    assert_close(logits(model, ids), ours)


def test_a_softmax_scaling_stands_beside_cos_and_sin_and_over_that_of_the_config() -> None:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": WINDOW,
    }
    stock = tiny_model("deepseek_v3", rope_parameters=rope, max_position_embeddings=TARGET)
    plan = present_plan(stock.config)
    assert plan.longest().softmax_scaling > 1
    plain = tiny_model("deepseek_v3")
    ids = tokens(SEQUENCE)
    with applied(plain, plan):
        assert_close(logits(plain, ids), logits(stock, ids))
    with applied(stock, planned(plain, "yarn", {"attention_factor": 1.0})):
        without = logits(stock, ids)
    with applied(plain, planned(plain, "yarn", {"attention_factor": 1.0})):
        assert_close(without, logits(plain, ids))


@pytest.mark.parametrize("make", [planned, everything, two_steps])
def test_decoding_through_the_cache_equals_a_full_recompute(
    make: Callable[[Any], ContextPlan],
) -> None:
    model = tiny_model()
    ids = tokens(SEQUENCE)
    with applied(model, make(model)):
        assert_close(decoded(model, ids), logits(model, ids))


def test_stock_longrope_differs_between_cache_and_recompute_and_an_installed_plan_does_not() -> (
    None
):
    plan = two_steps(tiny_model())
    config = type(tiny_config("llama")).from_dict(with_plan(tiny_config("llama"), plan))
    config.vocab_size = 64
    stock = type(tiny_model())(config).eval()
    stock.load_state_dict(tiny_model().state_dict())
    ids = tokens(SEQUENCE)
    assert apart(decoded(stock, ids), logits(stock, ids))
    with applied(stock, plan):
        assert_close(decoded(stock, ids), logits(stock, ids))
    short_and_long = torch.stack((torch.arange(10), torch.arange(10) + 30))
    both = logits(stock, tokens(10, rows=2), position_ids=short_and_long)
    alone = logits(stock, tokens(10, rows=2)[:1], position_ids=short_and_long[:1])
    assert apart(both[:1], alone)


@pytest.mark.parametrize("by_current_length", [False, True])
@pytest.mark.parametrize("make", [everything, two_steps])
def test_no_row_of_a_batch_changes_another(
    make: Callable[[Any], ContextPlan], by_current_length: bool
) -> None:
    model = tiny_model()
    ids = tokens(SEQUENCE, rows=2)
    short = WINDOW // 2
    mask = torch.ones_like(ids)
    mask[1, : SEQUENCE - short] = 0
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with applied(model, make(model), by_current_length=by_current_length):
        both = logits(model, ids, attention_mask=mask, position_ids=positions)
        assert_close(both[:1], logits(model, ids[:1]))
        assert_close(both[1:, -short:], logits(model, ids[1:, -short:]))


def test_the_declared_length_chooses_the_step_and_the_current_length_only_when_asked() -> None:
    model = tiny_model()
    plan = two_steps(model)
    short = ContextPlan("short", {FULL_ATTENTION: plan.steps()[:1]})
    ids = tokens(WINDOW)
    with applied(model, short):
        expected = logits(model, ids)
    with applied(model, plan, length=WINDOW):
        assert torch.equal(logits(model, ids), expected)
    with applied(model, plan):
        assert apart(logits(model, ids), expected)
    with applied(model, plan, by_current_length=True):
        assert_close(logits(model, ids), expected)
        longer = tokens(SEQUENCE)
        by_length = logits(model, longer)
    with applied(model, plan):
        assert_close(by_length, logits(model, longer))


def test_generation_with_left_padding_gives_each_row_what_it_gets_alone() -> None:
    model = tiny_model()
    ids = tokens(20, rows=2)
    mask = torch.ones_like(ids)
    mask[1, :12] = 0
    how = {"max_new_tokens": 12, "do_sample": False}
    with applied(model, everything(model)):
        both = model.generate(ids, attention_mask=mask, **how)
        for i, start in ((0, 0), (1, 12)):
            row_ids = ids[i : i + 1, start:]
            alone = model.generate(row_ids, attention_mask=torch.ones_like(row_ids), **how)
            assert torch.equal(alone[0], both[i, start:])


def test_phi3_generates_past_its_original_length_what_a_full_recompute_gives() -> None:
    """Its own `generate` drops the cache there, for the sake of stock longrope."""
    model = tiny_model("phi3")
    ids = tokens(WINDOW - 4)
    with applied(model, two_steps(model)):
        found = model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None)
        for _ in range(12):
            best = logits(model, ids, use_cache=False)[:, -1:].argmax(dim=-1)
            ids = torch.cat((ids, best), dim=1)
    assert torch.equal(found, ids)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named_instead_of_their_consequences(value: float) -> None:
    model = model_of(tiny_config("llama"))
    plan = planned(model)
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 3] = value
    with pytest.raises(InputError, match=r"layers\.1\.self_attn\.q_proj\.weight holds NaN or inf"):
        install(model, plan)


def test_exact_angles_remove_the_error_of_float32() -> None:
    model = tiny_model(max_position_embeddings=65536)
    plan = extend_plan(present_plan(model.config), 131072, "yarn")
    positions = torch.arange(130_000, 131_072)[None]
    errors = {}
    for exact in (False, True):
        with applied(model, plan, exact_angles=exact):
            cos, _ = model.model.rotary_emb(torch.zeros(1), position_ids=positions)
        expected, _ = plan.longest().cos_sin(positions.numpy())
        errors[exact] = np.abs(cos[..., : expected.shape[-1]].numpy() - expected).max()
    assert errors[False] > 1e-3
    assert errors[True] < 1e-6


def test_uninstalling_leaves_every_bit_as_it_was() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    model = tiny_model(rope_parameters=rope)
    ids = tokens(WINDOW)
    before = logits(model, ids)
    names = set(model.__dict__)
    rotary = model.model.rotary_emb
    attributes = {**rotary.__dict__, **dict(rotary.named_buffers())}
    for make in (planned, everything, two_steps):
        install(model, make(model))
        assert not torch.equal(logits(model, ids), before)
    uninstall(model)
    assert torch.equal(logits(model, ids), before)
    assert model.model.rotary_emb is rotary
    assert set(model.__dict__) == names
    for name, value in {**rotary.__dict__, **dict(rotary.named_buffers())}.items():
        assert value is attributes[name], name
    uninstall(model)  # nothing to take out


def failure(following: Callable[[], AbstractContextManager[None]]) -> Exception | None:
    """The error of another thread that makes a model follow a plan; None if it may."""

    def other() -> None:
        with following():
            return

    with ThreadPoolExecutor() as pool:
        error = pool.submit(other).exception()
    assert error is None or isinstance(error, Exception)
    return error


def test_a_second_thread_is_refused_and_the_first_is_not_disturbed() -> None:
    model = tiny_model()
    before = model(tokens(SEQUENCE)).logits
    plan = everything(model)
    with applied(model, plan):
        within = model(tokens(SEQUENCE)).logits
        for following in (partial(applied, model, plan), partial(unmodified, model)):
            refused = failure(following)
            assert isinstance(refused, Unsupported)
            assert "another thread or task makes this model follow" in str(refused)
        assert torch.equal(model(tokens(SEQUENCE)).logits, within)
    assert torch.equal(model(tokens(SEQUENCE)).logits, before)
    assert failure(partial(applied, model, plan)) is None


def test_applied_plans_nest() -> None:
    model = tiny_model()
    ids = tokens(WINDOW)
    outer, inner = everything(model), planned(model, "linear")
    install(model, outer, length=TARGET - 1)
    followed = logits(model, ids)
    with applied(model, inner):
        assert apart(logits(model, ids), followed)
        with pytest.raises(ZeroDivisionError), applied(model, outer):
            1 / 0  # noqa: B018
        assert apart(logits(model, ids), followed)
    assert torch.equal(logits(model, ids), followed)


def test_unmodified_is_without_any_plan_and_in_one_thread() -> None:
    model = tiny_model()
    ids = tokens(WINDOW)
    before = logits(model, ids)
    with unmodified(model):
        assert torch.equal(logits(model, ids), before)
    install(model, everything(model))
    followed = logits(model, ids)
    with unmodified(model):
        assert torch.equal(logits(model, ids), before)
        assert isinstance(failure(lambda: applied(model, everything(model))), Unsupported)
    assert torch.equal(logits(model, ids), followed)


def test_what_a_block_follows_ends_with_it() -> None:
    """Whatever was installed or taken out in it."""
    model = tiny_model()
    ids = tokens(WINDOW)
    plan, other = planned(model), everything(model)
    before = logits(model, ids)
    with unmodified(model):
        install(model, plan)
    assert torch.equal(logits(model, ids), before)
    install(model, plan)
    followed = logits(model, ids)
    with applied(model, other):
        uninstall(model)
    assert torch.equal(logits(model, ids), followed)


@pytest.mark.parametrize("plan_of", [planned, everything])
def test_a_compiled_model_follows_for_a_while_too(plan_of: Callable[[Any], ContextPlan]) -> None:
    model = tiny_model()
    ids = tokens(SEQUENCE)
    compiled: Any = torch.compile(model, backend="eager")
    before = logits(model, ids)
    with applied(compiled, plan_of(model)):
        within = logits(compiled, ids)
        assert_close(within, logits(model, ids))
    assert apart(within, before)
    assert torch.equal(logits(model, ids), before)
    assert torch.equal(logits(compiled, ids), before)


def test_tasks_and_generators_do_not_mix_their_plans() -> None:
    model = tiny_model()
    plan, ids = planned(model), tokens(SEQUENCE)
    before = logits(model, ids)

    async def task() -> None:
        with applied(model, plan):
            await asyncio.sleep(0)

    async def both() -> object:
        return await asyncio.gather(task(), task())

    with pytest.raises(Unsupported, match="another thread or task"):
        asyncio.run(both())
    with applied(model, plan):
        asyncio.run(task())

    def generator() -> Generator[None, None, None]:
        with applied(model, plan):
            yield

    first, second = generator(), generator()
    next(first), next(second)
    for each in (first, second):
        with pytest.raises(Unsupported, match="overlapped"):
            each.close()
    assert torch.equal(logits(model, ids), before)
    with applied(model, plan):
        pass


def test_weights_and_config_are_not_touched(tmp_path: Path) -> None:
    model = tiny_model()
    ids = tokens(WINDOW)
    before, config = logits(model, ids), model.config.to_dict()
    keys = set(model.state_dict())
    with applied(model, everything(model)):
        assert set(model.state_dict()) == keys
        assert model.config.to_dict() == config
        model.save_pretrained(tmp_path)
    saved = type(model).from_pretrained(tmp_path)
    assert torch.equal(logits(saved, ids), before)


def test_a_copy_of_an_installed_model_is_on_its_own() -> None:
    model = tiny_model()
    ids = tokens(WINDOW)
    before = logits(model, ids)
    install(model, everything(model))
    followed = logits(model, ids)
    twin = copy.deepcopy(model)
    uninstall(model)
    assert torch.equal(logits(twin, ids), followed)
    uninstall(twin)
    assert torch.equal(logits(twin, ids), before)
    assert torch.equal(logits(model, ids), before)


def test_log_n_stays_when_the_attention_implementation_changes() -> None:
    model = tiny_model()
    ids = tokens(SEQUENCE)
    with applied(model, everything(model)):
        before = logits(model, ids)
        model.set_attn_implementation("eager")
        assert_close(logits(model, ids), before)


def test_a_plan_and_attention_over_layouts_do_not_meet_in_transformers_table() -> None:
    """Both are attention functions by name; a model may need the two at once."""
    model = tiny_model()
    ids = tokens(SEQUENCE)
    with applied(model, everything(model)):
        before = logits(model, ids)
        attention.register()
        model.set_attn_implementation("ropewalk")
        assert_close(logits(model, ids), before)


def test_a_plan_in_our_own_module_survives_a_cast_to_bfloat16() -> None:
    model = tiny_model()
    install(model, planned(model), exact_angles=True)
    model.to(torch.bfloat16)
    cos, _ = model.model.rotary_emb(torch.zeros(1), position_ids=torch.tensor([[50]]))
    expected, _ = planned(model).longest().cos_sin([50])
    np.testing.assert_allclose(cos[0, :, : expected.shape[-1]].numpy(), expected, atol=1e-6)


def test_gradients_are_those_without_checkpointing() -> None:
    model = tiny_model()
    install(model, everything(model))
    ids = tokens(SEQUENCE)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            recompute_activations(model)
        model.train()
        model.zero_grad()
        # Two forwards before one backward: what is recomputed must not see the later one.
        first = model(ids, use_cache=False).logits.square().mean()
        other = model(ids[:, :5], use_cache=False).logits.square().mean()
        (first + other).backward()
        gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad.clone())
    assert float(gradients[0].abs().max()) > 0
    torch.testing.assert_close(gradients[0], gradients[1])


def test_only_what_needs_it_gets_a_module_of_ours() -> None:
    model = tiny_model()
    for make, exact, ours in (
        (planned, False, False),
        (two_steps, False, False),
        (planned, True, True),
        (everything, False, True),
    ):
        with applied(model, make(model), exact_angles=exact):
            assert isinstance(model.model.rotary_emb, PlannedRotary) == ours
    with applied(model, two_steps(model), by_current_length=True):
        assert isinstance(model.model.rotary_emb, PlannedRotary)


def test_a_plan_for_another_model_is_refused_before_anything_changes() -> None:
    model = tiny_model()
    ids = tokens(WINDOW)
    before = logits(model, ids)
    with pytest.raises(InvalidValue):
        install(model, planned(tiny_model("gemma3_text")))
    with pytest.raises(InvalidValue, match="8 rotary pairs"):
        install(model, planned(tiny_model("gpt_neox", rotary_pct=0.25)))
    with pytest.raises(InvalidValue, match="plan serves sequences up to 64"):
        install(model, planned(model), length=TARGET + 1)
    with pytest.raises(InvalidValue, match="give one of the two"):
        install(model, planned(model), length=TARGET, by_current_length=True)
    assert torch.equal(logits(model, ids), before)
    assert "_ropewalk" not in model.__dict__


def test_log_n_that_would_change_with_the_current_length_is_refused() -> None:
    model = tiny_model()
    plan = two_steps(model)
    short, long = plan.steps()
    log_n = everything(model).longest().log_n
    mixed = PlanStep(TARGET, replace(long.schedule, log_n=log_n))
    plan = ContextPlan("mixed", {FULL_ATTENTION: (short, mixed)})
    with pytest.raises(Unsupported, match="log-n or softmax scaling"):
        install(model, plan, by_current_length=True)
    with applied(model, plan):  # a declared length is fine
        pass


def test_a_model_that_rotates_inside_its_attention_is_refused() -> None:
    model = tiny_model()
    model.model.rotary_emb = torch.nn.Identity()
    plan = ContextPlan("x", {FULL_ATTENTION: (PlanStep(16, _plain()),)})
    with pytest.raises(Unsupported, match="no rotary module"):
        install(model, plan)


@pytest.mark.parametrize("exact_angles", [False, True])
def test_layers_whose_base_is_zero_are_left_alone(exact_angles: bool) -> None:
    """Granite SWA states a base for each layer, and 0 where a layer does not rotate."""
    bases = {"num_hidden_layers": 3, "layer_rope_theta": [5e4, 0, 5e4]}
    config = AutoConfig.for_model("granite_swa", **{**SMALL, **bases})
    model = model_of(config)
    present = present_plan(config)
    assert present.longest().geometry.base == 5e4
    assert present.provenance["rotating_layers"] == "2 of 3"
    plan = extend_plan(present, 4 * present.target_length, "ntk")
    written = with_plan(config, plan)
    assert [base > 5e4 for base in written["layer_rope_theta"]] == [True, False, True]
    assert written["layer_rope_theta"][1] == 0
    again = present_plan(written).longest().inverse_frequencies
    np.testing.assert_allclose(again, plan.longest().inverse_frequencies, rtol=1e-12)
    before = model(tokens(40)).logits
    with applied(model, plan, exact_angles=exact_angles):  # checks each layer that rotates
        assert not torch.equal(model(tokens(40)).logits, before)
    assert torch.equal(model(tokens(40)).logits, before)


def _plain() -> RotarySchedule:
    return present_plan(tiny_config("llama")).longest()


def test_what_is_no_model_or_no_plan_is_refused_by_name() -> None:
    model = tiny_model(next(iter(FAMILIES)))
    plan = present_plan(model.config)
    with pytest.raises(InvalidValue, match="model = 3: must be a model"), applied(3, plan):  # type: ignore[arg-type]
        pass
    with pytest.raises(InvalidValue, match="plan = 3: must be a ContextPlan"), applied(model, 3):  # type: ignore[arg-type]
        pass
