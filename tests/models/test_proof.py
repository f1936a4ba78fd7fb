"""The gate catches every way in which a plan is known to get lost between a file and the logits."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize
from transformers.models.llama import modeling_llama

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import GateFailed
from ropewalk.models import queries
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied, install
from ropewalk.models.proof import follows
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.schedule import LogN, RotarySchedule
from tests.models.tiny import FAMILIES, WINDOW, thinned, tiny_model, tokens
from tests.strategies import schedules

TARGET = 8 * WINDOW


def yarn(model: Any, **more: Any) -> ContextPlan:
    present = present_plan(model.config)
    return extend_plan(present, TARGET, "yarn", layer_types=tuple(present.schedules), **more)


def one_schedule(schedule: RotarySchedule) -> ContextPlan:
    return ContextPlan("one", {FULL_ATTENTION: (PlanStep(TARGET, schedule),)})


def short_and_long(model: Any) -> ContextPlan:
    plain = present_plan(model.config).longest()
    long = replace(plain, rescale_factors=np.geomspace(1, 8, plain.geometry.pairs), length=TARGET)
    steps = (PlanStep(WINDOW, plain), PlanStep(TARGET, long))
    return ContextPlan("two", {FULL_ATTENTION: steps})


def problems(model: Any, plan: ContextPlan, **more: Any) -> str:
    """What the gate says of a model that was tampered with, after it passed as installed."""
    return " | ".join(follows(model, plan, **more).problems)


def rotary_of(model: Any) -> Any:
    return model.model.rotary_emb


def set_frequencies(model: Any, schedule: RotarySchedule, prefix: str = "") -> None:
    frequencies = torch.tensor(schedule.inverse_frequencies, dtype=torch.float32)
    setattr(rotary_of(model), f"{prefix}inv_freq", frequencies)


@pytest.fixture
def model() -> Any:
    return tiny_model(rope_parameters={"rope_type": "default", "rope_theta": 5e5})


class TestPlantedFaults:
    def test_factors_dropped(self, model: Any) -> None:
        plan = yarn(model)
        install(model, plan)
        set_frequencies(model, RotarySchedule.plain(plan.longest().geometry))
        # The config of this model is plain, so these two are one.
        assert "follow their config, as if nothing had been installed" in problems(model, plan)

    def test_factors_dropped_on_a_model_that_is_scaled_already(self) -> None:
        rope = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
        scaled = tiny_model(rope_parameters=rope)
        plan = extend_plan(present_plan(scaled.config), TARGET, "ntk_mixed")
        install(scaled, plan)
        set_frequencies(scaled, RotarySchedule.plain(plan.longest().geometry))
        assert "the plain frequencies: the factors were dropped" in problems(scaled, plan)

    def test_factors_of_another_length(self, model: Any) -> None:
        plan = yarn(model)
        shorter = extend_plan(present_plan(model.config), TARGET // 2, "yarn").longest()
        install(model, plan)
        set_frequencies(model, shorter)
        assert "no schedule of this plan or model" in problems(model, plan)
        steps = (PlanStep(TARGET // 2, shorter), *plan.steps())
        ladder = ContextPlan("ladder", {FULL_ATTENTION: steps})
        install(model, ladder)
        set_frequencies(model, shorter)
        assert f"step up to length {TARGET // 2}" in problems(model, ladder)

    def test_short_factors_used_for_long(self, model: Any) -> None:
        plan = short_and_long(model)
        install(model, plan, length=WINDOW)
        assert problems(model, plan, length=WINDOW) == ""
        assert "as if nothing had been installed" in problems(model, plan)

    @pytest.mark.parametrize("power", [0, 2])
    def test_attention_scaling_dropped_or_squared(self, model: Any, power: int) -> None:
        plan = yarn(model)
        install(model, plan)
        wrong = plan.longest().attention_scaling ** power
        rotary_of(model).attention_scaling = wrong
        found = problems(model, plan)
        assert f"multiplied by {wrong:.6g}; the plan's attention scaling" in found
        assert "follow" not in found  # the angles are right

    def test_attention_scaling_that_never_arrives_in_the_logits(
        self, model: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = yarn(model)
        install(model, plan)
        rotate = modeling_llama.apply_rotary_pos_emb

        def normed(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
            """As in models whose query and key norms stand behind the rotation."""
            return tuple(normalize(x, dim=-1) for x in rotate(*args, **kwargs))

        monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", normed)
        found = problems(model, plan)
        assert "multiplies rotating logits by 1 instead of its square" in found

    def test_theta_lost(self, model: Any) -> None:
        plan = yarn(model)
        install(model, plan)
        schedule = plan.longest()
        lost = replace(schedule, geometry=replace(schedule.geometry, base=1e4))
        set_frequencies(model, lost)
        assert "rope_theta was lost" in problems(model, plan)
        set_frequencies(model, RotarySchedule.plain(lost.geometry))
        assert "rope_theta was lost" in problems(model, plan)

    def test_a_swap_in_every_layer_that_does_nothing(self, model: Any) -> None:
        plan = extend_plan(present_plan(model.config), TARGET, "linear")
        for layer in model.model.layers:  # where layers held their own rotary module in the past
            layer.self_attn.rotary_emb = torch.nn.Module()
            layer.self_attn.rotary_emb.inv_freq = torch.tensor(plan.longest().inverse_frequencies)
        assert "as if nothing had been installed" in problems(model, plan)

    @pytest.mark.parametrize("forgotten", [FULL_ATTENTION, SLIDING_ATTENTION])
    def test_one_layer_type_forgotten(self, forgotten: str) -> None:
        two_types = tiny_model("gemma3_text")
        plan = yarn(two_types)
        install(two_types, plan)
        present = present_plan(two_types.config).longest(forgotten)
        set_frequencies(two_types, present, prefix=f"{forgotten}_")
        found = follows(two_types, plan).problems
        assert len(found) == 1
        assert found[0].startswith(f"{forgotten} at length {TARGET}: cos and sin are off")
        assert "as if nothing had been installed" in found[0]

    def test_layer_types_exchanged(self) -> None:
        two_types = tiny_model("gemma3_text")
        plan = extend_plan(present_plan(two_types.config), TARGET, "linear")
        install(two_types, plan)
        set_frequencies(two_types, plan.longest(SLIDING_ATTENTION), prefix="full_attention_")
        assert "the schedule of sliding_attention" in problems(two_types, plan)

    def test_inverse_frequencies_cast_to_bf16(self, model: Any) -> None:
        plan = yarn(model)
        install(model, plan)
        rotary_of(model).to(torch.bfloat16)
        assert "inverse frequencies rounded to bfloat16" in problems(model, plan)

    def test_kept_initial_positions_ignored(self, model: Any) -> None:
        plan = one_schedule(replace(yarn(model).longest(), kept_initial_positions=8))
        install(model, plan)
        ours = rotary_of(model)
        steps = ours._steps[FULL_ATTENTION]
        ours._steps[FULL_ATTENTION] = steps._replace(kept=torch.zeros_like(steps.kept))
        assert "the plan without its kept initial positions" in problems(model, plan)

    def test_log_n_ignored(self, model: Any) -> None:
        plan = yarn(model, log_n="everywhere")
        install(model, plan)
        layer = model.model.layers[1].self_attn
        layer.config = model.config
        found = problems(model, plan)
        assert "outside cos and sin, logits at position" in found
        assert "log-n everywhere from 16" in found
        assert "in 1 of 2 layers" in found

    @pytest.mark.parametrize("form", ["everywhere", "beyond"])
    def test_log_n_ignored_in_cached_decoding(
        self, model: Any, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = yarn(model, log_n=form)
        install(model, plan)
        right = queries._log_n

        def only_without_cache(log_n: LogN, positions: torch.Tensor) -> torch.Tensor:
            factors = right(log_n, positions)
            return factors if positions[0, 0] == 0 else torch.ones_like(factors)

        monkeypatch.setattr(queries, "_log_n", only_without_cache)
        found = follows(model, plan).problems
        assert len(found) == 1
        assert "decoding through the cache differs from a full recompute" in found[0]

    def test_softmax_scaling_ignored(self, model: Any) -> None:
        plan = one_schedule(replace(yarn(model).longest(), softmax_scaling=1.25))
        install(model, plan)
        for layer in model.model.layers:
            layer.self_attn.config = model.config
        found = problems(model, plan)
        assert "are multiplied by 1, and the plan says 1.25 (softmax scaling 1.25)" in found

    def test_a_layer_that_does_not_rotate(self) -> None:
        some_rotate = tiny_model("smollm3")
        plan = yarn(some_rotate)
        install(some_rotate, plan)
        some_rotate.model.layers[0].self_attn.use_rope = False
        assert "the queries do not rotate" in problems(some_rotate, plan)

    @pytest.mark.parametrize(("weight", "said"), [("q_proj", "queries"), ("k_proj", "keys")])
    def test_a_layer_with_nothing_to_rotate(self, weight: str, said: str) -> None:
        dead = tiny_model("llama")
        plan = yarn(dead)
        install(dead, plan)
        getattr(dead.model.layers[0].self_attn, weight).weight.data.zero_()
        assert f"the {said} do not rotate" in problems(dead, plan)

    def test_attention_that_bypasses_the_interface(self, model: Any) -> None:
        plan = yarn(model)
        install(model, plan)
        for count, layer in enumerate(model.model.layers, start=1):
            layer.self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
            found = problems(model, plan)
            assert f"{count} of 2 layers do not use transformers' attention interface" in found

    def test_halves_that_do_not_match(self, model: Any) -> None:
        plan = yarn(model)
        install(model, plan)
        right = rotary_of(model).forward

        def forward(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
            return [x[..., [*range(8), *range(15, 7, -1)]] for x in right(*args, **kwargs)]

        rotary_of(model).forward = forward
        assert "no schedule of this plan or model" in problems(model, plan)


@pytest.mark.parametrize("family", thinned(FAMILIES))
def test_every_stock_family_follows_its_own_config(family: str) -> None:
    model = tiny_model(family)
    assert follows(model, present_plan(model.config)).problems == ()


PLAIN = present_plan(tiny_model().config).longest()


@given(schedule=schedules(PLAIN.geometry), length=st.integers(1, 2**20), exact_angles=st.booleans())
def test_the_gate_passes_any_schedule_that_is_installed(
    schedule: RotarySchedule, length: int, exact_angles: bool
) -> None:
    plan = ContextPlan("any", {FULL_ATTENTION: (PlanStep(length, schedule),)})
    model = tiny_model()
    install(model, plan, exact_angles=exact_angles)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_half_precision_pass_and_their_faults_do_not(dtype: torch.dtype) -> None:
    model = tiny_model().to(dtype)
    plan = yarn(model, log_n="beyond")
    install(model, plan)
    rotary_of(model).attention_scaling = 1.0
    assert "cos and sin are multiplied by 1;" in problems(model, plan)
    install(model, plan)
    set_frequencies(model, present_plan(model.config).longest())
    assert "as if nothing had been installed" in problems(model, plan)
    install(model, plan)
    model.model.layers[0].self_attn.config = model.config
    assert "log-n beyond from 16" in problems(model, plan)


def test_stock_longrope_passes_only_where_schedules_may_change_with_the_length() -> None:
    plan = short_and_long(tiny_model())
    config = type(tiny_model().config).from_dict(with_plan(tiny_model().config, plan))
    stock = type(tiny_model())(config)
    stock.load_state_dict(tiny_model().state_dict())
    as_one = follows(stock, plan)
    assert "decoding through the cache differs" in " ".join(as_one.problems)
    by_length = follows(stock, plan, by_current_length=True)
    assert by_length.problems == ()
    assert list(dict.fromkeys(each.runtime for each in by_length.agreements)) == [
        f"{FULL_ATTENTION} at length {length}" for length in (WINDOW, TARGET)
    ]


def test_the_tolerance_follows_the_law_of_float32_and_exact_angles_need_none() -> None:
    model = tiny_model()
    plan = extend_plan(present_plan(model.config), 131072, "ntk")
    results = {}
    for exact in (False, True):
        with applied(model, plan, exact_angles=exact):
            results[exact] = follows(model, plan, exact_angles=exact).agreements[0]
    assert {each.quantity for each in results.values()} == {"cos and sin"}
    assert results[False].max_difference > 1e-4 > 1e-6 > results[True].max_difference
    assert results[False].passed
    assert results[False].tolerance < 131072 * 2.0**-22
    with applied(model, plan):
        assert "cos and sin are off" in problems(model, plan, exact_angles=True)


def test_a_failed_gate_names_all_problems_and_leaves_the_model_as_it_was(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        before = model(tokens(WINDOW)).logits
        monkeypatch.setattr(queries, "_log_n", lambda log_n, positions: torch.ones(positions.shape))
        with pytest.raises(GateFailed) as caught:
            install(model, yarn(model, log_n="everywhere"))
        assert torch.equal(model(tokens(WINDOW)).logits, before)
    assert caught.value.exit_status == 1
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert "_ropewalk" not in model.__dict__


def test_verification_leaves_no_trace(model: Any) -> None:
    model.train()
    states = [(dict(m.__dict__), len(m._forward_pre_hooks)) for m in model.modules()]
    follows(model, present_plan(model.config))
    assert [(dict(m.__dict__), len(m._forward_pre_hooks)) for m in model.modules()] == states


def test_a_verification_compares_three_quantities() -> None:
    model = tiny_model()
    found = follows(model, present_plan(model.config))
    assert found.problems == ()
    assert [(each.quantity, each.passed) for each in found.agreements] == [
        ("cos and sin", True),
        ("queries and keys through the cache", True),
        ("attention logits", True),
    ]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_lengths_of_a_few_tokens_can_be_verified(length: int) -> None:
    model = tiny_model(max_position_embeddings=length)
    compared = {each.quantity for each in follows(model, present_plan(model.config)).agreements}
    assert ("queries and keys through the cache" in compared) == (length >= 3)
