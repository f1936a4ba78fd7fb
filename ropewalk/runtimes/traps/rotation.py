"""Traps that show when the rotation of a runtime is compared with the plan's.

factors-dropped, factors-doubled, frequencies-differ, theta-lost, truncate-ignored, wrong-step,
short-text-taxed, attention-factor-dropped, attention-factor-squared, attention-factor-ignored,
softmax-scaling-differs, dropped-on-cpu, kept-positions-lost, log-n-lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ropewalk.errors import RopewalkError
from ropewalk.lengths import format_length
from ropewalk.runtimes.finding import TOLERANCE, ExaminedModel, Finding
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.reading import Effective, RotaryReading, kind_of
from ropewalk.scaling import rebuild
from ropewalk.schedule import MAX_BASE, FloatArray, RotarySchedule

_REWRITE = "write the setting anew: ropewalk export does"
_OTHER_FORM = "extend it by another base (ntk), which reaches every class, or use another runtime"


def rotation(subject: ExaminedModel) -> Iterator[Finding]:
    """Frequencies and attention scaling, layer type by layer type, step by step."""
    for reading, layer_type, want, got in _compared(subject):
        where = f"{layer_type} at {format_length(want.length)}: "
        if not _close(got.inverse_frequencies, want.inverse_frequencies):
            trap, what, remedy = _explained(subject, layer_type, want, got)
            yield Finding(
                trap,
                (reading.runtime,),
                f"{where}{what}{_because(reading)}",
                "the model rotates by the wrong angles, and fails beyond its old length",
                _remedy(reading, remedy),
            )
        wanted, found = want.attention_scaling, got.attention_scaling
        logits = want.softmax_scaling
        if not subject.config and want.geometry.rotary_dim == want.geometry.head_dim:
            # A GGUF file has no key for it, and an export multiplies cos and sin instead.
            wanted, logits = wanted * logits**0.5, 1.0
        if abs(got.softmax_scaling / logits - 1) > TOLERANCE:
            yield Finding(
                "softmax-scaling-differs",
                (reading.runtime,),
                f"{where}logits are multiplied by {got.softmax_scaling:.6g} instead of {logits:.6g}"
                f"{_because(reading)}",
                f"attention is {got.softmax_scaling / logits:.3g} times as sharp as it should be",
                _remedy(reading, _REWRITE),
            )
        if abs(found / wanted - 1) > TOLERANCE and not _rounded(found, wanted):
            yield Finding(
                _attention_trap(wanted, found),
                (reading.runtime,),
                f"{where}cos and sin are multiplied by {found:.6g} instead of {wanted:.6g}"
                f"{_because(reading)}",
                f"attention is {(found / wanted) ** 2:.3g} times as sharp as it should be",
                _remedy(reading, _attention_remedy(subject, reading.runtime, wanted)),
            )


def _remedy(reading: RotaryReading, usual: str) -> str:
    """The remedy of the runtime's class, if it has one of its own."""
    return reading.remedy or (_OTHER_FORM if reading.notes else usual)


def _rounded(found: float, wanted: float) -> bool:
    """True if a config states the same number, cut to four digits or more, as OLMo 3's 1.2079."""
    digits = len(repr(wanted).partition(".")[2])
    return digits >= 4 and round(found, digits) == wanted


def on_a_cpu(subject: ExaminedModel) -> Iterator[Finding]:
    """A class with another rotary module for CPUs."""
    kinds = list(map(kind_of, subject.ropes.values()))
    for reading in subject.readings:
        served = subject.served(reading.runtime)
        loads = not (reading.refused or reading.unread)
        if loads and served is not None and (lost := served.lost_on_a_cpu(kinds)):
            yield Finding(
                "dropped-on-cpu",
                (reading.runtime,),
                lost,
                "there, the pairs turn at their plain speeds, as if nothing were extended",
                "serve it on a GPU, or in another runtime",
                wrong=False,
            )


def _because(reading: RotaryReading) -> str:
    return "".join(f"; {note}" for note in reading.notes)


def beyond_stock(subject: ExaminedModel) -> Iterator[Finding]:
    """Find settings that no stock runtime can express at all."""
    if subject.plan is None:
        return
    for layer_type, steps in subject.plan.schedules.items():
        schedule = steps[-1].schedule
        if schedule.kept_initial_positions:
            yield Finding(
                "kept-positions-lost",
                (),
                f"{layer_type}: the plan keeps the first {schedule.kept_initial_positions} "
                "positions unscaled",
                "no stock runtime supports this",
                "plan with kept_initial_positions = 0",
            )
        if schedule.log_n is not None and schedule.log_n.form != "steps":
            # Growth by steps is the model's own, which positions.py follows.
            yield Finding(
                "log-n-lost",
                (),
                f"{layer_type}: the plan scales queries by log n",
                "no stock runtime supports this",
                "plan without log-n",
            )


def _compared(
    subject: ExaminedModel,
) -> Iterator[tuple[RotaryReading, str, RotarySchedule, Effective]]:
    if subject.plan is None:
        return
    for reading in subject.readings:
        for layer_type, steps in subject.plan.schedules.items():
            # What is chosen by the declared length is compared at the length that is declared.
            chosen = steps[-1:] if reading.switches == "by the declared length" else steps
            for step in chosen:
                got = reading.at(step.up_to_length, layer_type)
                if got is not None:
                    yield reading, layer_type, step.schedule, got


def _explained(
    subject: ExaminedModel, layer_type: str, want: RotarySchedule, got: Effective
) -> tuple[str, str, str]:
    """The trap's name, effect and remedy, for frequencies other than those wanted."""
    found, geometry = got.inverse_frequencies, want.geometry
    if found.shape != want.inverse_frequencies.shape:
        return (
            "frequencies-differ",
            f"its heads have {found.size} rotary pairs instead of {geometry.pairs}",
            "create the plan from this model's config",
        )
    if _close(found, geometry.plain_frequencies):
        return (
            "factors-dropped",
            "the pairs turn at their plain speeds, as if nothing were extended",
            _REWRITE,
        )
    last = want.recipe[-1] if want.recipe else None
    if last is not None and last.parameters.get("truncate") is False:
        truncated = replace(last, parameters={**last.parameters, "truncate": True})
        if _close(found, rebuild((*want.recipe[:-1], truncated), geometry).inverse_frequencies):
            return (
                "truncate-ignored",
                "truncate = false is ignored, and the ramp begins and ends at whole pairs",
                "write the factors as longrope (ropewalk export does)",
            )
    others = subject.plan.steps(layer_type) if subject.plan else ()
    for step in others:
        if _close(found, step.schedule.inverse_frequencies):
            longer = format_length(step.up_to_length)
            if step.up_to_length > want.length:
                return (
                    "short-text-taxed",
                    f"short sequences turn by the factors that are for {longer}",
                    "serve short text from the model without this setting, or plan one schedule "
                    "for all lengths",
                )
            return (
                "wrong-step",
                f"it turns by the factors that are for {longer}",
                "write one list of factors for all lengths",
            )
    lost = _lost_base(want, found)
    if lost is not None:
        return (
            "theta-lost",
            f"the pairs turn as those of base {lost:g}; the model's is {geometry.base:g}",
            'write "rope_theta" into rope_parameters, and for transformers 4 beside it',
        )
    if _close(found * want.rescale_factors, want.inverse_frequencies):
        return ("factors-doubled", "the factors are applied twice", _REWRITE)
    turning = geometry.turning_pairs
    if found[turning:].any():
        return ("frequencies-differ", f"pair {turning} turns, and should rest", _REWRITE)
    worst = int(np.argmax(np.abs(found[:turning] / want.inverse_frequencies[:turning] - 1)))
    ratio = found[worst] / want.inverse_frequencies[worst]
    return (
        "frequencies-differ",
        f"pair {worst} turns {ratio:.6g} times as fast as it should",
        _REWRITE,
    )


def _lost_base(want: RotarySchedule, found: FloatArray) -> float | None:
    """The base of these frequencies, if only the base is not the one wanted."""
    geometry = want.geometry
    if geometry.pairs < 3:
        return None
    for factors in (want.rescale_factors, np.ones(geometry.pairs)):
        plain = found * factors
        if plain[1] <= 0 or plain[1] >= 1:
            continue
        base = float(plain[1] ** (-geometry.rotary_dim / 2))
        if 1 < base <= MAX_BASE:
            of_base = replace(geometry, base=base).plain_frequencies
            if np.allclose(plain, of_base, rtol=geometry.pairs * TOLERANCE, atol=0):
                return float(f"{base:.4g}")
    lost = replace(geometry, base=1e4)
    try:
        if _close(found, rebuild(want.recipe, lost).inverse_frequencies):
            return lost.base
    except RopewalkError:
        return None
    return None


def _attention_trap(wanted: float, found: float) -> str:
    if abs(found - 1) <= TOLERANCE:
        return "attention-factor-dropped"
    if abs(found / wanted**2 - 1) <= TOLERANCE:
        return "attention-factor-squared"
    return "attention-factor-ignored"


def _attention_remedy(subject: ExaminedModel, runtime: str, wanted: float) -> str:
    longrope = any(kind_of(rope) == "longrope" for rope in subject.ropes.values())
    if longrope and runtime.startswith(tuple(ENGINE_NAMES)):
        return f"set short_mscale and long_mscale to {wanted:.6g} in the rope setting"
    return f"write the setting anew: ropewalk export --runtime {runtime.partition('-')[0]} does"


def _close(one: FloatArray, other: FloatArray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE, atol=0)
