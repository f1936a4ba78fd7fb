"""Proof that a plan took effect: a model's behaviour is read back from it and compared.

A short forward at positions spread up to the length shows what every attention layer really
receives and computes from, and is compared in three ways:

- rotation: cos and sin, as the layers get them, with the schedule in float64;
- logits: what multiplies them outside cos and sin, with the plan's softmax scaling, log-n and query
  scales; and whether rotation, and the attention scaling in it, arrives in queries and keys at all;
- cache: the same sequence in three pieces through the cache, with the forward of all at once.

Angles in float32 are themselves wrong, by up to position · 2⁻²³ for the fastest pair: both the
frequency and its product with the position are rounded. The tolerance of cos and sin follows that
law pair by pair, so it is loose only where a stock module can do no better; the error is reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from ropewalk.agreement import Agreement, Quantity
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed
from ropewalk.models.anatomy import Anatomy, AttentionLayer, anatomy_of, arrange
from ropewalk.models.probe import Heard, ModelProbe
from ropewalk.models.renamed import uncompiled
from ropewalk.schedule import FloatArray, RotarySchedule

SPREAD = 24  # positions from 1 to the length, evenly by ratio
FLOAT32 = 2.0**-23  # from 1 to the next float32


@dataclass(frozen=True)
class Following:
    """The comparison, and every problem by name."""

    model: str
    plan_id: str
    agreements: tuple[Agreement, ...]
    """The agreements of the layers of each type at each length, by the worst of these layers."""
    problems: tuple[str, ...]

    def raise_for_problems(self) -> None:
        if self.problems:
            raise GateFailed(f"{self.model} does not follow plan {self.plan_id}", self.problems)


def follows(
    model: nn.Module,
    plan: ContextPlan,
    *,
    length: int | None = None,
    exact_angles: bool = False,
    by_current_length: bool = False,
) -> Following:
    """Compare the model's behaviour with the plan; the arguments are those of `install`.

    A stock model that follows nothing but its config can be verified too, with `by_current_length`
    where it chooses factors by the length at hand, as stock longrope does.
    """
    installation = uncompiled(model).__dict__.get("_ropewalk")
    anatomy = installation.anatomy if installation else anatomy_of(model)
    probe = ModelProbe(model, anatomy)
    # The schedule in use depends on the length, so each length with one of its own is looked at.
    lengths = [plan.target_length if length is None else length]
    if by_current_length:
        lengths = sorted({s.up_to_length for steps in plan.schedules.values() for s in steps})
    agreements: list[Agreement] = []
    problems: list[str] = []
    if not anatomy.layers:
        problems.append("no attention layer of this model can be examined")
    # Layers of one type share a schedule, but each may have lost it by itself.
    for each in lengths:
        targets = {
            layer_type: _Target(
                plan, layer_type, each, anatomy, tuple(_positions(plan, each)), exact_angles
            )
            for layer_type in plan.schedules
        }
        for layers, compared, faults in _inspect(
            probe, targets, through_cache=not by_current_length
        ):
            agreements += compared
            problems += [f"{layers}: {problem}" for problem in faults]
    return Following(anatomy.present.model, plan.id, tuple(agreements), tuple(problems))


@dataclass(frozen=True, eq=False)
class _Target:
    """The expected rotation of one layer type in a sequence of one length."""

    plan: ContextPlan
    layer_type: str
    length: int
    anatomy: Anatomy
    positions: tuple[int, ...]
    exact_angles: bool

    @cached_property
    def schedule(self) -> RotarySchedule:
        return self.plan.schedule(self.length, self.layer_type)

    @cached_property
    def present(self) -> RotarySchedule:
        """The schedule of the stock model."""
        steps = self.anatomy.present.steps(self.layer_type)
        return next((s for s in steps if self.length <= s.up_to_length), steps[-1]).schedule

    @property
    def logit_factors(self) -> FloatArray:
        """By position, the factor of the stock layer's logits outside cos and sin."""
        constant = self.schedule.softmax_scaling / self.present.softmax_scaling
        ours, stock = (s.query_scaling(self.positions) for s in (self.schedule, self.present))
        factors: FloatArray = constant * ours / stock
        return factors

    def unit_cos_sin(self, schedule: RotarySchedule | None = None) -> FloatArray:
        """cos and sin without attention scaling, as the model arranges them."""
        angles = self._angles(schedule)
        return np.stack((np.cos(angles), np.sin(angles)))

    def tolerance(self, dtype: torch.dtype, schedule: RotarySchedule | None = None) -> FloatArray:
        """The tolerance of each."""
        rounding = 2 * FLOAT32 + torch.finfo(dtype).eps
        return rounding + (0.0 if self.exact_angles else FLOAT32) * np.abs(self._angles(schedule))

    def _angles(self, schedule: RotarySchedule | None) -> FloatArray:
        """[positions, …], one angle for each value that the rotary module returns."""
        arrangement = next(
            rotary.arrangement
            for rotary in self.anatomy.rotaries
            if self.layer_type in rotary.prefixes
        )
        angles = (schedule or self.schedule).angles(self.positions)
        arranged: FloatArray = arrange(torch.from_numpy(angles), arrangement).numpy()
        return arranged


@dataclass(frozen=True)
class _Deviation:
    """A layer's deviation from its target."""

    error: float
    tolerance: float
    problem: str = ""


def _inspect(
    probe: ModelProbe, targets: dict[str, _Target], *, through_cache: bool
) -> Iterator[tuple[str, list[Agreement], list[str]]]:
    """Run the model once (twice with the cache), and compare the behaviour of every layer."""
    positions = next(iter(targets.values())).positions
    (heard,) = probe.forward(positions)
    pieces = []
    if through_cache and len(positions) > 2:
        # The first piece stays within the original length: models that choose their factors by the
        # current length choose others for the next.
        original = min(t.schedule.geometry.original_length for t in targets.values())
        last = len(positions) - 1
        first = min(max(1, bisect_left(positions, original)), last - 1)
        pieces = probe.forward(positions, cuts=(first, last))
    for layer_type, target in targets.items():
        name = f"{layer_type} at length {target.length}"
        layers = [layer for layer in probe.layers if layer.layer_type == layer_type]
        sounds = {layer: heard[layer] for layer in layers if layer in heard}
        problems = []
        if len(sounds) < len(layers):
            problems.append(
                f"{len(layers) - len(sounds)} of {len(layers)} layers do not use transformers' "
                "attention interface, so what they do cannot be read"
            )
        if not sounds:
            yield name, [], problems
            continue
        rotation = max(
            (_Rotation.compared(target, sound) for sound in sounds.values()),
            key=lambda compared: compared.excess,
        )
        problems += rotation.problems(target)
        logits = [_logits(target, probe, layer, sound) for layer, sound in sounds.items()]
        cached = [
            _cached(
                sound, [piece[layer] for piece in pieces], first=bool(layer.module.layer_idx == 0)
            )
            for layer, sound in sounds.items()
            if pieces
        ]
        compared: list[tuple[Quantity, _Deviation | _Rotation]] = [("cos and sin", rotation)]
        if cached:
            compared.append(("queries and keys through the cache", _worst(cached)))
        compared.append(("attention logits", _worst(logits)))
        yield (
            name,
            [
                Agreement(name, quantity, each.error, each.tolerance, len(positions))
                for quantity, each in compared
            ],
            [*problems, *_spoken(logits), *_spoken(cached)],
        )


@dataclass(frozen=True, eq=False)
class _Rotation:
    """cos and sin as one layer received them, compared."""

    cos_sin: FloatArray
    """[2, positions, …], as the model arranges them."""
    dtype: torch.dtype
    scaling: float
    error: float
    tolerance: float
    at_position: int

    @classmethod
    def compared(cls, target: _Target, heard: Heard) -> _Rotation:
        """Find where cos and sin are furthest off, compared with their tolerance."""
        dtype = heard.cos_sin[0].dtype
        got = np.stack([_float64(value[0]).numpy() for value in heard.cos_sin])
        scaling = target.schedule.attention_scaling
        error = np.abs(got - scaling * target.unit_cos_sin()).max(axis=0)
        tolerance = scaling * target.tolerance(dtype)
        at, where = np.unravel_index(np.argmax(error / tolerance), error.shape)
        return cls(
            cos_sin=got,
            dtype=dtype,
            scaling=float(np.median(np.hypot(*got))),
            error=float(error[at, where]),
            tolerance=float(tolerance[at, where]),
            at_position=target.positions[at],
        )

    @property
    def excess(self) -> float:
        return self.error / self.tolerance

    def follows(self, target: _Target, schedule: RotarySchedule) -> bool:
        """True if these are the angles of a schedule, whatever the attention scaling."""
        error = np.abs(self.cos_sin / self.scaling - target.unit_cos_sin(schedule)).max(axis=0)
        return bool((error <= 2 * target.tolerance(self.dtype, schedule)).all())

    def problems(self, target: _Target) -> list[str]:
        """The problem, in words."""
        if self.excess <= 1:
            return []
        problems = []
        wanted = target.schedule.attention_scaling
        if abs(self.scaling / wanted - 1) > 2 * FLOAT32 + torch.finfo(self.dtype).eps:
            problems.append(
                f"cos and sin are multiplied by {self.scaling:.6g}; the plan's attention scaling "
                f"is {wanted:.6g}"
            )
        if not problems or not self.follows(target, target.schedule):
            followed = (said for said, other in _suspects(target) if self.follows(target, other))
            problems.append(
                f"cos and sin are off by {self.error:.2g} at position {self.at_position} "
                f"(tolerance {self.tolerance:.2g}): the layers follow "
                f"{next(followed, 'no schedule of this plan or model')}"
            )
        return problems


def _suspects(target: _Target) -> Iterator[tuple[str, RotarySchedule]]:
    """The schedules that a model follows when something was forgotten."""
    schedule = target.schedule
    if schedule.kept_initial_positions:
        yield (
            "the plan without its kept initial positions",
            replace(schedule, kept_initial_positions=0),
        )
    yield "their config, as if nothing had been installed", target.present
    yield "the plain frequencies: the factors were dropped", RotarySchedule.plain(schedule.geometry)
    for layer_type, steps in target.plan.schedules.items():
        for step in steps:
            if layer_type == target.layer_type:
                yield f"the plan's step up to length {step.up_to_length}", step.schedule
            elif step.schedule.geometry.pairs == schedule.geometry.pairs:
                yield f"the schedule of {layer_type}", step.schedule
    default_base = replace(schedule.geometry, base=1e4)
    yield "the default base of 10000: rope_theta was lost", RotarySchedule.plain(default_base)
    yield (
        "the plan's factors on the default base of 10000: rope_theta was lost",
        replace(schedule, geometry=default_base),
    )
    rounded = torch.tensor(schedule.inverse_frequencies).to(torch.bfloat16).double().numpy()
    yield (
        "inverse frequencies rounded to bfloat16",
        replace(schedule, rescale_factors=schedule.geometry.factors_of(rounded)),
    )


def _logits(target: _Target, probe: ModelProbe, layer: AttentionLayer, heard: Heard) -> _Deviation:
    """Compare a layer's logits with those of the same layer without any scaling of ours."""
    cos, sin = heard.cos_sin
    stock = probe.replay(layer, heard, cos, sin)
    epsilon = 4 * torch.finfo(heard.query.dtype).eps
    # Without cos and sin, what is left of queries and keys is their part that does not rotate.
    still = probe.replay(layer, heard, torch.zeros_like(cos), torch.zeros_like(sin))
    for name, turned, unturned in (
        ("queries", stock.query, still.query),
        ("keys", stock.key, still.key),
    ):
        if torch.equal(turned, unturned):
            return _Deviation(1.0, epsilon, f"the {name} do not rotate: cos and sin change nothing")
    # cos and sin both carry the attention scaling, so rotating logits grow by its square.
    scaling = target.schedule.attention_scaling
    if scaling != 1:
        unit = probe.replay(layer, heard, cos / scaling, sin / scaling)
        growth = _rotating(stock, still) / _rotating(unit, still)
        if not abs(growth / scaling**2 - 1) <= 2 * epsilon:
            return _Deviation(
                abs(growth - scaling**2),
                epsilon,
                f"the attention scaling {scaling:.6g} multiplies rotating logits by {growth:.6g} "
                f"instead of its square {scaling**2:.6g}",
            )
    # Outside cos and sin, every logit is compared; the position with the largest error is named.
    wanted = torch.from_numpy(target.logit_factors)
    tolerance = epsilon * max(1.0, float(wanted.max()))
    error = _logit_errors(stock, heard, wanted)
    row = int(error.amax(dim=(0, 2)).argmax())
    before, after = _all_logits(stock)[:, row], _all_logits(heard)[:, row]
    measured = float((before * after).sum() / before.square().sum())
    return _Deviation(
        float(error.max()),
        tolerance,
        f"outside cos and sin, logits at position {target.positions[row]} are multiplied by "
        f"{measured:.6g}, and the plan says {float(wanted[row]):.6g} ({_outside(target)})",
    )


def _logit_errors(stock: Heard, heard: Heard, wanted: Tensor) -> Tensor:
    """The errors of logits, over the largest that queries and keys could give."""
    query_norm, key_norm = (_float64(vectors).norm(dim=-1) for vectors in (stock.query, stock.key))
    largest = query_norm[:, :, None] * key_norm[:, None, :] * stock.scaling
    error = (_all_logits(heard) - _all_logits(stock) * wanted[:, None]).abs()
    relative: Tensor = error / largest.clamp(min=1e-300)
    return relative


def _outside(target: _Target) -> str:
    parts = []
    if target.schedule.softmax_scaling != 1:
        parts.append(f"softmax scaling {target.schedule.softmax_scaling:.6g}")
    if target.present.softmax_scaling != 1:
        parts.append(f"over the {target.present.softmax_scaling:.6g} of the config")
    if target.schedule.log_n is not None:
        log_n = target.schedule.log_n
        parts.append(f"log-n {log_n.form} from {log_n.length}")
    return ", ".join(parts) or "no softmax scaling, no log-n"


def _cached(heard: Heard, pieces: list[Heard], *, first: bool) -> _Deviation:
    """Compare queries and keys that came through the cache with those of a forward of all."""
    queries = torch.cat([piece.query for piece in pieces], dim=1)
    keys = pieces[-1].key  # of a sliding window, the last ones
    error = max(
        _difference(queries, heard.query), _difference(keys, heard.key[:, -keys.shape[1] :])
    )
    epsilon = torch.finfo(heard.query.dtype).eps
    # Later layers add up the rounding of those before, which differs with the piece.
    return _Deviation(
        error,
        8 * epsilon if first else epsilon**0.5,
        f"decoding through the cache differs from a full recompute: queries or keys by {error:.2g} "
        "of their norm",
    )


def _spoken(deviations: list[_Deviation]) -> list[str]:
    """The worst of the layers that are beyond their tolerance, and how many those are."""
    beyond = [deviation for deviation in deviations if not deviation.error <= deviation.tolerance]
    if not beyond:
        return []
    return [f"{_worst(beyond).problem}, in {len(beyond)} of {len(deviations)} layers"]


def _worst(deviations: list[_Deviation]) -> _Deviation:
    return max(deviations, key=lambda deviation: deviation.error / deviation.tolerance)


def _rotating(heard: Heard, still: Heard) -> float:
    """The size of the rotating part of the logits: of queries times that of keys."""
    query, key = heard.query - still.query, heard.key - still.key
    return float(_float64(query).norm() * _float64(key).norm())


def _all_logits(heard: Heard) -> Tensor:
    return _float64(heard.query) @ _float64(heard.key).transpose(1, 2) * heard.scaling


def _difference(one: Tensor, other: Tensor) -> float:
    size = _float64(other).norm(dim=-1).mean().clamp(min=1e-300)
    return float((_float64(one) - _float64(other)).norm(dim=-1).max() / size)


def _float64(value: Tensor) -> Tensor:
    return value.to("cpu", torch.float64)


def _positions(plan: ContextPlan, length: int) -> list[int]:
    """Positions spread over the length, with all those around which a schedule changes."""
    marks = {0, 1, 2, 3, length // 2, length - 1}
    marks.update(int(p) for p in np.geomspace(1, max(length - 1, 1), SPREAD).round())
    for layer_type in plan.schedules:
        schedule = plan.schedule(length, layer_type)
        edges = {schedule.geometry.original_length, schedule.kept_initial_positions}
        if schedule.log_n is not None:
            edges.add(schedule.log_n.length)
        marks.update(edge + step for edge in edges for step in (-1, 0, 1))
    return sorted(p for p in marks if 0 <= p < length)
