"""The context plan: which schedule serves which sequence length, for every kind of layer.

A schedule never depends on the current length. A plan holds anything that does as steps of rising
length: one step for most methods, two for LongRoPE's short and long factors, a ladder for dynamic
NTK.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from ropewalk.errors import InvalidValue, Unsupported, printable
from ropewalk.lengths import MAX_LENGTH, format_length
from ropewalk.outputs import UNSIGNED, is_signed, signed
from ropewalk.schedule import RotaryGeometry, RotarySchedule
from ropewalk.untrusted import Fields, check_between, parse_json, read_text, whole_number
from ropewalk.values import Members, decode, encode, frozen

FORMAT = "ropewalk-plan-1"
PLAN = "plan.json"
"""The file of a plan in a run, and in an exported folder, where `verify` compares with it."""
EDITED, EDITED_SINCE = "edited", "the plan has been edited since ropewalk wrote it"
"""The provenance of a plan whose file does not match its checksum."""
APPROXIMATES = "approximates"
"""The key of the provenance that names the plan which a runtime cannot follow exactly."""
MAX_STEPS = 64
MAX_BYTES = 16 * 2**20  # of a file
FULL_ATTENTION = "full_attention"
SLIDING_ATTENTION = "sliding_attention"


@dataclass(frozen=True)
class PlanStep(Members):
    """One schedule, and the longest sequence that it is used for."""

    up_to_length: int
    schedule: RotarySchedule

    def __post_init__(self) -> None:
        length, remedy = self.up_to_length, "give the longest sequence of this step, in tokens"
        check_between(whole_number(length, key := "up_to_length"), 1, MAX_LENGTH, key, remedy)


@dataclass(frozen=True)
class ContextPlan:
    """The schedules of a model up to a length. Immutable, compares by content."""

    model: str
    schedules: Mapping[str, tuple[PlanStep, ...]]
    """Steps by layer type; just `full_attention` for a model whose layers all rotate alike."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """The origin of the schedules: method, model type, search settings."""

    def __post_init__(self) -> None:
        _check_label("model", self.model)
        for key, text in self.provenance.items():
            _check_label("provenance", key)
            _check_label(f"provenance.{key}", text)
        for name in self.schedules:
            _check_label("schedules", name)
        if not self.schedules:
            raise InvalidValue("schedules", {}, "must contain at least one layer type", "add one")
        # The steps of a layer type rise in length and share the pretrained geometry.
        for layer_type, steps in self.schedules.items():
            key = f"schedules.{layer_type}"
            if not steps:
                raise InvalidValue(key, (), "must contain at least one step", "add one")
            if len(steps) > MAX_STEPS:
                raise InvalidValue(
                    key,
                    f"{len(steps)} steps",
                    f"must be at most {MAX_STEPS}: the doublings from 1 token to the longest "
                    "length are 41",
                    "plan fewer lengths",
                )
            for i, (shorter, longer) in enumerate(pairwise(steps)):
                if longer.up_to_length <= shorter.up_to_length:
                    raise InvalidValue(
                        f"{key}[{i + 1}].up_to_length",
                        longer.up_to_length,
                        f"lengths must increase, and the step before serves {shorter.up_to_length}",
                        "sort the steps by length",
                    )
            if len({step.schedule.geometry for step in steps}) > 1:
                raise InvalidValue(
                    key,
                    [step.up_to_length for step in steps],
                    "must all have the same pretrained geometry",
                    "create all of them from the same model",
                )
        # A sequence passes through every layer, so all types must serve its length.
        ends = {name: steps[-1].up_to_length for name, steps in self.schedules.items()}
        if len(set(ends.values())) > 1:
            raise InvalidValue(
                "schedules",
                ends,
                "must end at the same length for all layer types",
                "end each at the target",
            )
        steps_by_layer = {name: tuple(steps) for name, steps in self.schedules.items()}
        object.__setattr__(self, "schedules", frozen(steps_by_layer))
        object.__setattr__(self, "provenance", frozen(self.provenance))

    def __repr__(self) -> str:
        method, length = self.longest(self.main_layer).method, format_length(self.target_length)
        return f"<ContextPlan {self.id}: {self.model} up to {length} by {method}>"

    def __hash__(self) -> int:
        return hash((self.model, self.id))

    @property
    def target_length(self) -> int:
        """The longest sequence that the plan serves."""
        return next(iter(self.schedules.values()))[-1].up_to_length

    @property
    def original_length(self) -> int:
        """The original length: that of pretraining, before any extension."""
        return max(steps[-1].schedule.geometry.original_length for steps in self.schedules.values())

    @property
    def methods(self) -> str:
        """The methods that it was made with, by name."""
        return self.provenance.get("methods") or self.longest(self.main_layer).method

    @property
    def main_layer(self) -> str:
        """The layer type that summaries describe: full attention if it rotates."""
        return FULL_ATTENTION if FULL_ATTENTION in self.schedules else next(iter(self.schedules))

    @property
    def extended_layer(self) -> str:
        """The layer type that an extension changes: full attention, or the only one that rotates.

        Layers with a sliding window see no larger distance, and keep their schedule.
        """
        if FULL_ATTENTION not in self.schedules and len(self.schedules) > 1:
            raise Unsupported(
                f"{self.model} has no full attention, and several layer types that rotate: "
                f"{', '.join(self.schedules)}; name the layer type to extend"
            )
        return self.main_layer

    def with_steps(self, layer_type: str, steps: tuple[PlanStep, ...]) -> ContextPlan:
        """The plan with other steps for a layer type; other types reach the same target."""
        end = steps[-1].up_to_length
        length = min(end, self.target_length)
        schedules = {name: (PlanStep(end, self.schedule(length, name)),) for name in self.schedules}
        return ContextPlan(self.model, {**schedules, layer_type: steps})

    def approximating(self, other: ContextPlan) -> ContextPlan:
        """The same plan, as the nearest to another that its runtime can follow."""
        return replace(self, provenance={**self.provenance, APPROXIMATES: other.id})

    def keeps(self, layer_type: str, schedule: RotarySchedule) -> bool:
        """True if a layer type turns by this schedule throughout, whatever its original length."""

        def turning(schedule: RotarySchedule) -> RotarySchedule:
            geometry = replace(schedule.geometry, original_length=1)
            return replace(schedule, geometry=geometry, length=1, recipe=())

        return all(turning(e.schedule) == turning(schedule) for e in self.steps(layer_type))

    def rotates_like(self, other: ContextPlan) -> bool:
        """True if each layer type has the same steps, apart from their lengths and recipes."""
        return self._rotations() == other._rotations()

    def _rotations(self) -> dict[str, list[RotarySchedule]]:
        return {
            name: [replace(step.schedule, length=1, recipe=()) for step in steps]
            for name, steps in self.schedules.items()
        }

    @property
    def id(self) -> str:
        """A short identifier of exactly these schedules, whatever their provenance."""
        import hashlib  # slow, and `--help` signs nothing

        value = encode(dict(sorted(self.schedules.items())))
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]

    def schedule(self, length: int, layer_type: str = FULL_ATTENTION) -> RotarySchedule:
        """The schedule of a sequence that will grow to `length` tokens in total."""
        for step in self.steps(layer_type):
            if length <= step.up_to_length:
                return step.schedule
        raise InvalidValue(
            "length",
            length,
            f"the plan serves sequences up to {self.target_length}",
            "create a plan for a longer target",
        )

    def check_layer_types(self, layer_types: Iterable[str]) -> None:
        """Refuse a plan for other layer types than those of the model that is to follow it."""
        if set(self.schedules) != set(layer_types):
            rule = f"this model has the layer types {sorted(layer_types)}"
            raise _of_another_model("plan.schedules", sorted(self.schedules), rule)

    def check_pairs(self, present: ContextPlan) -> None:
        """Refuse a plan for other layer types or numbers of rotary pairs than a model has."""
        self.check_layer_types(present.schedules)
        for layer_type in self.schedules:
            # The steps of a layer type share their geometry.
            planned, pairs = (e.longest(layer_type).geometry.pairs for e in (self, present))
            if planned != pairs:
                rule = f"the heads of this model have {pairs} rotary pairs"
                raise _of_another_model(f"plan.schedules.{layer_type}", f"{planned} pairs", rule)

    def check_heads(self, geometries: Mapping[str, RotaryGeometry]) -> None:
        """Refuse a plan of other heads: with the same frequencies, they turn other pairs."""
        for layer_type, geometry in geometries.items():
            for key in ("head_dim", "pair_layout"):
                planned = getattr(self.longest(layer_type).geometry, key)
                if planned != (value := getattr(geometry, key)):
                    name = f"plan.schedules.{layer_type}: {key}"
                    raise _of_another_model(name, planned, f"this model has {value}")

    def steps(self, layer_type: str = FULL_ATTENTION) -> tuple[PlanStep, ...]:
        if layer_type not in self.schedules:
            rule = f"the model has layers of type {layer_type}, which the plan does not cover"
            raise _of_another_model("schedules", sorted(self.schedules), rule)
        return self.schedules[layer_type]

    def longest(self, layer_type: str = FULL_ATTENTION) -> RotarySchedule:
        """The schedule at the target, from which a further extension starts."""
        return self.steps(layer_type)[-1].schedule

    def to_json(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "model": self.model,
            "schedules": encode(self.schedules),
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "plan") -> ContextPlan:
        fields = Fields(value, path)
        if (form := fields.text("format")) != FORMAT:
            raise InvalidValue(
                fields.of("format"),
                form,
                f"must be {FORMAT!r}",
                "create the plan again",
            )
        fields.ignore("checksum")  # of the file, for whoever would replace it
        schedules = {}
        for name, steps in fields.mapping("schedules").items():
            key = f"{fields.of('schedules')}.{name}"
            if not isinstance(steps, list):
                raise InvalidValue(key, steps, "must be a list of steps", "write [{…}, …]")
            schedules[name] = decode(tuple[PlanStep, ...], steps, key)
        return fields.build(
            cls,
            model=fields.text("model"),
            schedules=schedules,
            provenance=fields.texts("provenance"),
        )

    def dumps(self) -> str:
        """The plan as a file, with a checksum of its own content."""
        value = {**self.to_json(), "checksum": UNSIGNED}
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return signed(text.encode()).decode()

    @classmethod
    def loads(cls, text: str, source: str = "plan") -> ContextPlan:
        """The plan in a file. One that was edited by hand is used, and says so from then on."""
        value = parse_json(text, source=source)
        plan = cls.from_json(value, f"{source}: ")
        if not isinstance(value, dict) or "checksum" not in value or is_signed(text.encode()):
            return plan
        warnings.warn(f"{printable(source)}: {EDITED_SINCE}; what it says is used", stacklevel=2)
        return replace(plan, provenance={**plan.provenance, EDITED: EDITED_SINCE})

    @classmethod
    def read(cls, path: str | Path) -> ContextPlan:
        return cls.loads(read_text(path, max_bytes=MAX_BYTES), str(path))


def _of_another_model(key: str, value: object, rule: str) -> InvalidValue:
    return InvalidValue(key, value, rule, "create the plan from this model's config")


def _check_label(key: str, text: object) -> None:
    """Labels are shown in tables, figures and terminals."""
    if not isinstance(text, str) or not text.isprintable():
        raise InvalidValue(
            key,
            text,
            "must be one line of printable characters",
            "remove line breaks and control characters",
        )


def ladder(
    method: Callable[[RotarySchedule, int], RotarySchedule],
    start: RotarySchedule,
    lengths: Iterable[int],
) -> tuple[PlanStep, ...]:
    """Return one step per length: the same method at rising lengths, from the same start.

    Lengths that the start already serves keep its schedule.
    """
    return tuple(
        PlanStep(length, start if length <= start.length else method(start, length))
        for length in lengths
    )
