"""Installing a plan in a live model, and removing it again.

    install(model, plan)                  # until uninstall(model)
    with applied(model, plan): ...        # for a while

The model's own rotary module follows the plan where it can express it; otherwise a module of ours
(rotary.py) replaces it. Factors on logits outside cos and sin go through the attention
interface (queries.py). Library files and weights stay unchanged.

The schedule of a sequence is chosen once, by the total length it is declared to reach. Cached
decoding therefore equals a full recompute, and no row of a batch changes another. Stock runtimes
choose by the longest current position, where neither holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.models.anatomy import Anatomy, AttentionLayer, RotaryModule, anatomy_of, default_kind
from ropewalk.models.logits import check_finite
from ropewalk.models.proof import follows
from ropewalk.models.queries import LogitScaling, scale_logits
from ropewalk.models.renamed import uncompiled
from ropewalk.models.rotary import PlannedRotary


def install(
    model: nn.Module,
    plan: ContextPlan,
    *,
    length: int | None = None,
    exact_angles: bool = False,
    by_current_length: bool = False,
    check: bool = True,
) -> None:
    """Make the model follow a plan, replacing its present one.

    `length` is the total length that sequences are declared to reach (default: the plan's target);
    it selects the step of the plan. `exact_angles` computes angles in float64; those of a stock
    module are off by up to position · 2⁻²³. `by_current_length` selects the step of each row at
    every forward instead. Cached keys then keep the rotation of the step in which they were
    computed, so decoding past the end of a step differs from a full recompute.

    Kept positions and log-n depend on the position ids passed to the model. With left padding these
    must be passed (`generate` does so), since they count from the first real token.

    `check` verifies that the plan took effect (proof.py). If it did not, the model is restored
    and GateFailed is raised. Without the check, changing plans takes microseconds.
    """
    if by_current_length and length is not None:
        raise InvalidValue(
            "length", length, "must not be given with by_current_length", "give one of the two"
        )
    setting = Setting(
        plan, plan.target_length if length is None else length, exact_angles, by_current_length
    )
    installation = _installation(model) or Installation(anatomy_of(model))
    previous = installation.setting
    installation.follow(setting)
    uncompiled(model).__dict__["_ropewalk"] = installation
    if check:
        try:
            result = follows(
                model,
                plan,
                length=length,
                exact_angles=exact_angles,
                by_current_length=by_current_length,
            )
            if result.problems:
                check_finite(model)  # of these, every problem is a consequence
            result.raise_for_problems()
        except BaseException:
            _restore(model, installation, previous)
            raise


def uninstall(model: nn.Module) -> None:
    """Restore the model to its state before the first plan was installed."""
    if (installation := _installation(model)) is not None:
        installation.let_go()
        del uncompiled(model).__dict__["_ropewalk"]


@contextmanager
def applied(
    model: nn.Module,
    plan: ContextPlan,
    *,
    length: int | None = None,
    exact_angles: bool = False,
    by_current_length: bool = False,
    check: bool = True,
) -> Iterator[None]:
    """Follow a plan within a `with` block, then restore the previous one."""
    if not isinstance(model, nn.Module):
        raise InvalidValue(
            "model", model, "must be a model", "give the .model of the result of load"
        )
    if not isinstance(plan, ContextPlan):
        raise InvalidValue("plan", plan, "must be a ContextPlan", "give the .plan of a result")
    with _restored(model):
        install(
            model,
            plan,
            length=length,
            exact_angles=exact_angles,
            by_current_length=by_current_length,
            check=check,
        )
        yield


@contextmanager
def unmodified(model: nn.Module) -> Iterator[None]:
    """Follow no plan but the model's own within a `with` block, whatever was applied before."""
    with _restored(model):
        uninstall(model)
        yield


_FOLLOWED_IN: WeakKeyDictionary[nn.Module, tuple[Any, Any]] = WeakKeyDictionary()
"""The thread and task of the innermost `with` block of a model, and the same of the one around."""
_LOCK = Lock()


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Restore what the model follows at the end of a `with` block, in one thread or task at a time.

    They share a model's modules, so the plan of one would be that of all.
    """
    held, here = uncompiled(model), (get_ident(), _task())
    with _LOCK:
        former = _FOLLOWED_IN.get(held)
        if former is not None and former[0] not in (here, (here[0], None)):
            raise Unsupported(
                "another thread or task makes this model follow a plan; load it once for each"
            )
        block = _FOLLOWED_IN[held] = (here, former)
    installation = _installation(model)
    previous = installation.setting if installation else None
    try:
        yield
    finally:
        is_innermost = _FOLLOWED_IN.get(held) is block
        try:
            _restore(model, installation, previous if is_innermost else None)
        finally:
            with _LOCK:
                _FOLLOWED_IN.pop(held, None)
                if is_innermost and former is not None:
                    _FOLLOWED_IN[held] = former
        if not is_innermost:
            raise Unsupported(
                "blocks in which this model follows a plan overlapped, as those of generators do, "
                "so any of their results may be wrong; end each before the next, or load the model "
                "once for each"
            )


def _task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None


@dataclass(frozen=True)
class Setting:
    """A plan, and how it is to be followed."""

    plan: ContextPlan
    length: int
    exact_angles: bool
    by_current_length: bool

    def steps(self, layer_type: str) -> tuple[PlanStep, ...]:
        """The steps that a sequence may come to follow: one, unless chosen by current length."""
        if self.by_current_length:
            return self.plan.steps(layer_type)
        return (PlanStep(self.length, self.plan.schedule(self.length, layer_type)),)

    def needs_our_rotary(self, layer_type: str) -> bool:
        steps = self.steps(layer_type)
        return (
            self.exact_angles
            or len(steps) > 1
            or any(step.schedule.kept_initial_positions for step in steps)
        )


@dataclass(eq=False)
class Installation:
    """A model's hold on a plan, and all that is needed to let go of it."""

    anatomy: Anatomy
    setting: Setting | None = None
    _scalings: dict[AttentionLayer, LogitScaling] = field(default_factory=dict)
    _stock: dict[RotaryModule, dict[str, Any]] = field(default_factory=dict)
    _ours: dict[RotaryModule, PlannedRotary] = field(default_factory=dict)

    def follow(self, setting: Setting) -> None:
        scalings = self._checked(setting)
        for rotary in self.anatomy.rotaries:
            if rotary.obeys and not any(map(setting.needs_our_rotary, rotary.prefixes)):
                self._set(rotary, setting)
            else:
                self._replace(rotary, setting)
        if scalings != self._scalings:
            for layer, scaling in scalings.items():
                scale_logits(layer, scaling)
        self._scalings = scalings
        self.setting = setting

    def let_go(self) -> None:
        for rotary, attributes in self._stock.items():
            _put(rotary, rotary.module)
            for name, value in attributes.items():
                setattr(rotary.module, name, value)
        for layer in self.anatomy.layers:
            scale_logits(layer, LogitScaling())
        self._scalings = {}
        self.setting = None

    def _checked(self, setting: Setting) -> dict[AttentionLayer, LogitScaling]:
        """Refuse a plan that this model cannot follow, before anything is changed."""
        present = self.anatomy.present
        setting.plan.check_pairs(present)
        scalings = {}
        for layer_type in present.schedules:
            scaling = self._logit_scaling(setting, layer_type)
            if not scaling.changes_nothing and not self.anatomy.layers:
                raise Unsupported(
                    f"{present.model}: its attention layers do not use transformers' attention "
                    "interface, so log-n and softmax scaling cannot be installed"
                )
            scalings[layer_type] = scaling
        return {layer: scalings[layer.layer_type] for layer in self.anatomy.layers}

    def _logit_scaling(self, setting: Setting, layer_type: str) -> LogitScaling:
        """The scaling outside cos and sin, relative to that of the stock model."""
        present = self.anatomy.present.longest(layer_type)
        scalings = {
            LogitScaling(
                schedule.softmax_scaling / present.softmax_scaling, schedule.log_n, present.log_n
            )
            for schedule in (step.schedule for step in setting.steps(layer_type))
        }
        if len(scalings) > 1:
            raise Unsupported(
                f"{layer_type}: the steps of this plan differ in log-n or softmax scaling, which "
                "cannot change with the current length; install the plan for one length"
            )
        return scalings.pop()

    def _set(self, rotary: RotaryModule, setting: Setting) -> None:
        """Set the plan in the model's own module."""
        module: Any = rotary.module
        stock = self._stock_attributes(rotary)
        for layer_type, prefix in rotary.prefixes.items():
            schedule = setting.steps(layer_type)[0].schedule
            frequencies = torch.tensor(
                schedule.inverse_frequencies,
                dtype=torch.float32,
                device=stock[f"{prefix}inv_freq"].device,
            )
            setattr(module, f"{prefix}inv_freq", frequencies)
            # Stock modules go back to this one when a sequence is short.
            setattr(module, f"{prefix}original_inv_freq", frequencies)
            setattr(module, f"{prefix}attention_scaling", schedule.attention_scaling)
        # With any other type, stock modules compute their frequencies anew in every forward.
        module.rope_type = default_kind(stock["rope_type"])
        _put(rotary, module)

    def _replace(self, rotary: RotaryModule, setting: Setting) -> None:
        """Put a module of ours in its place."""
        self._stock_attributes(rotary)
        if rotary not in self._ours:
            self._ours[rotary] = PlannedRotary(
                rotary.arrangement,
                rotary.keeps_float32,
                recompose=rotary.recompose,
                as_complex=rotary.returns_complex,
            )
        # Granite SWA's model asks its rotary modules for their base.
        self._ours[rotary].config = getattr(rotary.module, "config", None)
        self._ours[rotary].follow({name: setting.steps(name) for name in rotary.prefixes})
        _put(rotary, self._ours[rotary])

    def _stock_attributes(self, rotary: RotaryModule) -> dict[str, Any]:
        """The attributes of the model's own module before we changed it."""
        if rotary not in self._stock:
            names = ["rope_type"]
            for prefix in rotary.prefixes.values():
                names += [f"{prefix}{name}" for name in _HELD]
            self._stock[rotary] = {name: getattr(rotary.module, name) for name in names}
        return self._stock[rotary]


# What a stock rotary module holds for every layer type.
_HELD = ("inv_freq", "original_inv_freq", "attention_scaling")


def _put(rotary: RotaryModule, module: nn.Module) -> None:
    for parent, name in rotary.held_by:
        setattr(parent, name, module)


def _installation(model: nn.Module) -> Installation | None:
    installation: Installation | None = uncompiled(model).__dict__.get("_ropewalk")
    return installation


def _restore(model: nn.Module, installation: Installation | None, setting: Setting | None) -> None:
    """Follow a setting by an installation, or let go of the present one."""
    if _installation(model) is not installation or setting is None:
        uninstall(model)
    if installation is not None and setting is not None:
        installation.follow(setting)
        uncompiled(model).__dict__["_ropewalk"] = installation
