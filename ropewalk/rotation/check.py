"""Two rotations compared: a live model with its plan, or a trainer's model with a rollout's.

    rw.assert_rotation(model, "plan.json")        raises GateFailed if they differ
    rw.same_rotation(trainer.model, rollout)      the comparison, with where they differ and why

cos and sin are compared at positions spread up to each length. They may differ by what float32 and
the number format of a table round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.context_plan import PLAN
from ropewalk.errors import GateFailed, InputError, InvalidValue, Unsupported
from ropewalk.lengths import MAX_LENGTH, format_length
from ropewalk.rotation.causes import SampledRotation, tolerance, unit
from ropewalk.rotation.reading import Live, Reading, read, unwrapped
from ropewalk.untrusted import check_between, whole_number
from ropewalk.values import Members, Result

_SPREAD = 48
"""Positions from 1 to the length, evenly by ratio."""
_LENGTH = 131072
"""The length at which two objects are compared of which neither says what it serves."""


@dataclass(frozen=True)
class Difference(Members):
    """The first place where a rotation differs, of layers that share it."""

    layer: str
    """The first of them, by its module or number."""
    layers: int
    """How many there are."""
    length: int
    position: int
    pair: int
    error: float
    """Of cos or sin there."""
    tolerance: float
    cause: str

    def __str__(self) -> str:
        more = f" and {self.layers - 1} more" if self.layers > 1 else ""
        return (
            f"{self.layer}{more}, at length {format_length(self.length)}: cos or sin of pair "
            f"{self.pair} is off by {self.error:.2g} at position {self.position} (tolerance "
            f"{self.tolerance:.1g}); likely cause: {self.cause}"
        )


@dataclass(frozen=True, eq=False)
class RotationCheck(Result):
    """The comparison of two rotations."""

    live: str
    reference: str
    lengths: tuple[int, ...]
    differences: tuple[Difference, ...]
    unread: tuple[str, ...]
    """Parts that were not compared: towers, and what lies outside cos and sin."""

    @property
    def same(self) -> bool:
        return not self.differences

    def derived(self) -> dict[str, object]:
        return {"same": self.same}

    def summary(self) -> str:
        lengths = ", ".join(map(format_length, self.lengths))
        but = f"; not compared: {', '.join(self.unread)}" if self.unread else ""
        if self.same:
            return f"{self.live} rotates like {self.reference} at length {lengths}{but}"
        listed = "; ".join(map(str, self.differences))
        return f"{self.live} does not rotate like {self.reference}: {listed}{but}"


def assert_rotation(live: Any, plan: Any = None, *, lengths: Sequence[int] = ()) -> RotationCheck:
    """Raise GateFailed unless a live object rotates as its plan says.

    `live` is a model of transformers, vLLM or SGLang, however it is wrapped, a rotary module, or
    inverse frequencies; `plan` a ContextPlan, its file, a folder with one, or another live object.
    Without it, the plan lies in the folder that the model came from. `lengths` are those at which
    sequences are run (default: the plan's target).
    """
    result = same_rotation(live, _folder_plan(live) if plan is None else plan, lengths=lengths)
    if not result.same:
        subject = f"{result.live} does not rotate like {result.reference}"
        raise GateFailed(subject, map(str, result.differences))
    return result


def same_rotation(a: Any, b: Any, *, lengths: Sequence[int] = ()) -> RotationCheck:
    """Compare the rotations of two objects: live models, rotary modules, inverse frequencies,
    plans, folders or GGUF files. What cannot be read raises Unsupported."""
    if isinstance(b, str | Path) and (Path(b) / PLAN).is_file():
        b = Path(b) / PLAN
    live, reference = read(a), read(b)
    if live.plan is not None and reference.plan is not None:
        reference.plan.check_layer_types(live.plan.schedules)
        if reference.states_heads:
            heads = {each: live.plan.longest(each).geometry for each in live.plan.schedules}
            reference.plan.check_heads(heads)
    plans = [each.plan for each in (reference, live) if each.plan is not None]
    if isinstance(lengths, int):
        raise InvalidValue("lengths", lengths, "must be a list", f"write [{lengths}]")
    checked = tuple(lengths) or (plans[0].target_length if plans else _LENGTH,)
    for length in checked:
        check_between(whole_number(length, "lengths"), 2, MAX_LENGTH, "lengths", "give tokens")
    merged: dict[Difference, Difference] = {}  # of layers whose modules are alike
    for length in checked:
        for reading in live.readings:
            for each in _compared(reading, _partner(reading, reference), length, reference, live):
                kind = replace(each, layer="", layers=0)
                first = merged.get(kind, replace(each, layers=0))
                merged[kind] = replace(first, layers=first.layers + each.layers)
    return RotationCheck(
        *(live.name, reference.name, checked, tuple(merged.values())),
        tuple(dict.fromkeys((*live.unread, *reference.unread))),
    )


def _folder_plan(live: Any) -> Path:
    """The plan in the folder that a model came from."""
    name = str(getattr(getattr(unwrapped(live), "config", None), "_name_or_path", "") or "")
    file = Path(name) / PLAN
    if not name or not file.is_file():
        raise InputError(
            f"{name or type(live).__name__}: there is no {PLAN} in the folder of this model; give "
            "the plan that it must follow (`plan`)"
        )
    return file


def _partner(reading: Reading, reference: Live) -> Reading:
    """The rotation of the same layers, which a reading is compared with."""
    for other in reference.readings:
        shared = not other.layers or not reading.layers or set(other.layers) & set(reading.layers)
        if shared and (other.layer_type == reading.layer_type or len(reference.readings) == 1):
            return other
    raise Unsupported(
        f"{reference.name} has no rotation for {reading.place} ({reading.layer_type}); compare "
        "with a plan of this model, or with a model that has the same layers"
    )


def _compared(
    reading: Reading, other: Reading, length: int, reference: Live, live: Live
) -> Iterator[Difference]:
    """The first place where two readings differ, if they do."""
    rows, layout = int(min(reading.rows, other.rows, length)), reading.pair_layout
    positions, epsilon = _positions(rows), reading.epsilon + other.epsilon
    layer = f"layer {reading.layers[0]}" if reading.layers else reading.place
    plan, scaled = reference.plan, reading.scaled and other.scaled

    def difference(why: str, at: int, pair: int = 0, off: float = 1, to: float = 0) -> Difference:
        named, count = f"{layer} ({reading.layer_type})", max(1, len(reading.layers))
        return Difference(named, count, length, at, pair, off, to, why)

    got, wanted = (each.cos_sin(positions, length) for each in (reading, other))
    if not scaled:
        got, wanted = unit(got), unit(wanted)
    if got.shape != wanted.shape:
        turned, planned = 2 * got.shape[-1], 2 * wanted.shape[-1]
        yield difference(f"rotary dimension: {turned} of a head's turn instead of {planned}", 1)
        return
    allowed = tolerance(wanted, np.arctan2(*wanted[::-1, 1]), positions, epsilon)
    off = (np.abs(got - wanted) > allowed).any(axis=0)
    if off.any():
        # The first difference is named; its cause is sought where the other side follows its plan.
        at, pair = (int(each) for each in np.argwhere(off)[0])
        why = "unknown, since the other side follows no known plan"
        rows_off = off.any(axis=-1)  # a table may be right in its first rows
        kept = np.asarray(positions)[rows_off].tolist()
        if plan is not None and length <= plan.target_length:
            schedule = plan.schedule(length, other.layer_type)
            if SampledRotation(wanted, positions, epsilon, scaled).follows(schedule) <= 1:
                sample = SampledRotation(got[:, rows_off], kept, epsilon, scaled)
                why = sample.likely_cause(plan, other.layer_type, length, live.plan)
        error = float(np.abs(got - wanted)[:, at, pair].max())
        yield difference(why, positions[at], pair, error, float(allowed[:, at, pair].max()))
    elif layout and other.pair_layout and layout != other.pair_layout:
        yield difference(f"pairs: {layout} instead of {other.pair_layout}", 1)
    elif rows < length:
        yield difference(f"the table is too short: it ends after {rows:,} positions", rows)


def _positions(length: int) -> list[int]:
    """Positions spread over a length."""
    spread = np.geomspace(1, max(length - 1, 1), _SPREAD).round().astype(int)
    return sorted({0, *range(1, min(4, length)), length // 2, *spread.tolist()})
