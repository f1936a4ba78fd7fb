"""The model types that the export to GGUF writes, one per file, which has its `FAMILY`.

To add one, add a file with the model type's name: the command, the errors and the conformance tests
(tests/gguf/test_families.py) find it. What all have in common is in ropewalk/gguf/model.py.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.gguf.architectures import Architecture, architecture
from ropewalk.gguf.settings import GGUFSetting, NoFactors, check_windows_unscaled, setting_in
from ropewalk.schedule import RotarySchedule

if TYPE_CHECKING:
    from torch import Tensor


Keys = Mapping[str, int | float | str | Sequence[float] | Sequence[bool]]
"""Values of the metadata, by names in which `{arch}` stands for the architecture's."""
Weights = Callable[[str], "Tensor"]
"""A tensor of the checkpoint by its name."""


@dataclass(frozen=True)
class TensorPart:
    """The part of a checkpoint's tensor that goes into one tensor of the file."""

    name: str
    """The name for which gguf's table has the tensor of the file."""
    take: Callable[..., Tensor] | None = None
    """Takes the part from the tensor; None takes all of it, unmodified."""
    beside: str | None = None
    """Another tensor of the checkpoint, which `take` gets as well."""
    packed: str | None = None
    """GGML's type, whose bytes `take` gives, of weights that stay as they are quantised."""
    expert: int | None = None
    """The number of the expert, if the file has one tensor for all of them."""

    def of(self, source: str, weights: Weights) -> Tensor:
        """Take the part from a tensor of the checkpoint."""
        whole = weights(source)
        if self.take is None:
            return whole
        return self.take(whole) if self.beside is None else self.take(whole, weights(self.beside))


@dataclass(frozen=True)
class GGUFFamily:
    """Writes models of one type; families/ has a file for each, with its `FAMILY`."""

    architectures: tuple[str, ...]
    """Its names in llama.cpp, the plainest first; a later one takes more plans."""
    activations: tuple[str, ...] = ("silu", "swish")
    """The allowed values of `hidden_act`: llama.cpp computes this one, whatever the file says."""
    inside: tuple[str, ...] = ()
    """Model types that hold it as their language model, and that transformers runs on text."""
    windows: bool = False
    """True if its graph has the sliding windows of some layers."""
    tolerance: float = 0.0
    """The error of its log-probabilities in llama.cpp even in F32, if above that of sums in another
    order."""
    parts: Callable[[str], tuple[TensorPart, ...]] = lambda source: (TensorPart(source),)
    """The parts that a tensor of the checkpoint becomes, by its name; none for some."""
    keys: Callable[[Any, Weights], Keys] = lambda config, weights: {}
    """Its metadata, apart from what all families have."""
    check: Callable[[Any], None] = lambda config: None
    """Refuse a config, by name, that its graph in llama.cpp would compute differently. What a
    config does not state is None."""

    def check_config(self, config: Any) -> None:
        """Refuse what llama.cpp computes differently, whatever a file says."""
        stated = getattr(config, "hidden_act", None) or getattr(config, "hidden_activation", None)
        if stated is not None and stated not in self.activations:
            raise Unsupported(
                f"hidden_act = {stated!r}: llama.cpp computes this model type with "
                f"{self.activations[0]}, whatever a file says; run it in transformers"
            )
        self.check(config)


class StatedConfig:
    """A config.json as its class would have it, without what the class fills in."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = config

    def __getattr__(self, name: str) -> object:
        return self._config.get(name)


def expert_keys(config: Any, weights: Weights) -> Keys:
    """The number of experts, and of those that each token is given to."""
    return {
        "{arch}.expert_count": config.num_local_experts,
        "{arch}.expert_used_count": config.num_experts_per_tok,
    }


def window_keys(config: Any, *, every: int) -> Keys:
    """The window, and which layers have it.

    With `every` = 6, llama.cpp takes it for all layers but each sixth. Former builds know only this
    pattern, so it is left unsaid where it is the model's.
    """
    kinds = list(config.layer_types)
    if others := sorted({*kinds} - {FULL_ATTENTION, SLIDING_ATTENTION}):
        raise Unsupported(
            f"layer_types: {', '.join(map(str, others))}, which llama.cpp does not have for this "
            "model type"
        )
    windowed = [kind == SLIDING_ATTENTION for kind in kinds]
    if not any(windowed):
        return {}
    if not isinstance(config.sliding_window, int) or config.sliding_window < 1:
        raise InvalidValue(
            "sliding_window",
            config.sliding_window,
            "must be a positive number, since layer_types has layers with a window",
            "restore the config",
        )
    keys: dict[str, Any] = {"{arch}.attention.sliding_window": config.sliding_window}
    if windowed != [(i + 1) % every != 0 for i in range(len(kinds))]:
        keys["{arch}.attention.sliding_window_pattern"] = windowed
    return keys


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
            f"model type {model_type!r}: the export to GGUF supports {', '.join(family_names())}; "
            "convert this model with llama.cpp's own converter, and check the result (ropewalk "
            "verify)"
        )
    result: GGUFFamily = import_module(f"{__name__}.{model_type}").FAMILY
    if outer and outer not in result.inside:
        raise Unsupported(
            f"model type {shortened(outer)}: the export to GGUF does not write the language model "
            "inside it; give that in a folder of its own, or convert the model with llama.cpp's "
            "own converter and check the result (ropewalk verify)"
        )
    return result


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


def rotation_of(family: GGUFFamily, plan: ContextPlan) -> Rotation:
    """The rotation that makes a family follow a plan in llama.cpp, or a refusal by name."""
    check_reaches(plan)
    schedule = plan.longest()
    computed_as, setting = followed_by(family, schedule)
    return Rotation(computed_as, setting, _sliding_base(plan, setting))


def followed_by(family: GGUFFamily, schedule: RotarySchedule) -> tuple[Architecture, GGUFSetting]:
    """The first of the architectures that can follow a schedule, and by which setting."""
    *plainer, last = map(architecture, family.architectures)
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
            f"layer type {SLIDING_ATTENTION}: llama.cpp rotates these layers with a separate base "
            "and does not scale them; plan for the other layers only"
        )
    check_windows_unscaled(setting)
    return base
