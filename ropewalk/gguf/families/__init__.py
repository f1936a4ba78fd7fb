"""The model types that the export to GGUF writes, one per file, which has its `FAMILY`.

To add one, add a file with the model type's name: the command, the errors and the conformance tests
(tests/gguf/test_families.py) find it. What all have in common is in ropewalk/gguf/model.py.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan
from ropewalk.errors import Unsupported, shortened
from ropewalk.gguf.architectures import Architecture, architecture
from ropewalk.gguf.family import GGUFFamily
from ropewalk.gguf.settings import GGUFSetting, NoFactors, check_windows_unscaled, setting_in
from ropewalk.schedule import RotarySchedule


def family_names() -> tuple[str, ...]:
    """The model types that have a file here."""
    return tuple(m.name for m in pkgutil.iter_modules(__path__))


@cache
def family(model_type: str, outer: str = "") -> GGUFFamily:
    """The family that writes models of a type, or a refusal that names the known ones.

    `outer` is the type of the model that holds it as its language model.
    """
    if model_type not in family_names():
        raise Unsupported(
            f"model type {model_type!r}: the export to GGUF writes {', '.join(family_names())}; "
            "for another, convert it with llama.cpp's own converter and check the result "
            "(ropewalk verify)"
        )
    found: GGUFFamily = import_module(f"{__name__}.{model_type}").FAMILY
    if outer and outer not in found.inside:
        raise Unsupported(
            f"model type {shortened(outer)}: the export to GGUF does not write the language model "
            "inside it; give that in a folder of its own, or convert the model with llama.cpp's "
            "own converter and check the result (ropewalk verify)"
        )
    return found


@dataclass(frozen=True, eq=False)
class Rotation:
    """The rotation of a file, and the graph of llama.cpp that computes it."""

    architecture: Architecture
    setting: GGUFSetting
    sliding_base: float | None = None
    """The base of the layers with a sliding window, if they have their own."""


def check_reaches(plan: ContextPlan) -> None:
    """Refuse a model in which no layer attends to the whole text."""
    if FULL_ATTENTION not in plan.schedules:
        raise Unsupported(
            f"layer types {sorted(plan.schedules)}: the export to GGUF only writes models in which "
            "some layers attend to the whole text"
        )


def rotation_of(own: GGUFFamily, plan: ContextPlan) -> Rotation:
    """The rotation that makes a family follow a plan in llama.cpp, or a refusal by name."""
    check_reaches(plan)
    schedule = plan.longest()
    computed_as, setting = followed_by(own, schedule)
    return Rotation(computed_as, setting, _sliding_base(plan, setting))


def followed_by(own: GGUFFamily, schedule: RotarySchedule) -> tuple[Architecture, GGUFSetting]:
    """The first of the architectures that can follow a schedule, and by which setting."""
    *plainer, last = map(architecture, own.architectures)
    for computed_as in plainer:
        try:
            return computed_as, setting_in(computed_as, schedule, by_factors=True)
        except NoFactors:
            continue
    return last, setting_in(last, schedule, by_factors=True)


def _sliding_base(plan: ContextPlan, setting: GGUFSetting) -> float | None:
    """llama.cpp turns layers with a window by their own base, and never scales them."""
    steps = plan.schedules.get(SLIDING_ATTENTION)
    if steps is None:
        return None
    schedule = steps[-1].schedule
    base = schedule.geometric_base
    if len(steps) > 1 or base is None or schedule.attention_scaling != 1:
        raise Unsupported(
            f"layer type {SLIDING_ATTENTION}: llama.cpp turns it by a base of its own and does not "
            "scale it; plan for the other layers only"
        )
    check_windows_unscaled(setting)
    return base
