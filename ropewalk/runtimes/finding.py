"""An examination: a subject and its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError
from ropewalk.models.assumptions import Assumption, assumptions
from ropewalk.models.config import Config, ConfigReader
from ropewalk.runtimes.model_classes import ENGINE_NAMES, ModelClass, model_class
from ropewalk.runtimes.reading import RotaryReading
from ropewalk.values import Value

TOLERANCE = 2.0**-20
"""The relative tolerance of frequencies and scalings: a stock module computes both in float32."""


@dataclass(frozen=True, eq=False)
class Finding(Value):
    """Something that a user would not see until the model fails."""

    trap: str
    """Its name, for scripts and for docs/verify.md."""
    runtimes: tuple[str, ...]
    """The runtimes concerned; empty for all that use the file."""
    what: str
    consequence: str
    remedy: str
    wrong: bool = True
    """True if it fails the verification of these runtimes; else it only informs."""

    def concerns(self, runtime: str) -> bool:
        return not self.runtimes or runtime in self.runtimes


@dataclass(frozen=True, eq=False)
class ExaminedModel:
    """A folder or file under examination."""

    readings: tuple[RotaryReading, ...]
    length: int
    """The length that it should serve."""
    plan: ContextPlan | None = None
    """The expected plan: the user's, else that of its own config; None if unknown."""
    planned: bool = False
    """The plan is the user's."""
    asked: bool = False
    """The length is the user's or the plan's, not read from the config."""
    config: Config = field(default_factory=dict)
    """Without `chunks`, which its reader would refuse; empty for a GGUF file."""
    chunks: object = None
    """Its setting of dual chunk attention."""
    tokenizer_limit: int | None = None
    generation_limit: int | None = None
    """The length at which `generate()` stops, by the folder's generation config."""
    generation: object = field(default_factory=dict)
    """That config, as its file holds it."""

    def served(self, runtime: str) -> ModelClass | None:
        """The class that serves the model in an engine."""
        return model_class(self.config, runtime) if runtime in ENGINE_NAMES else None

    @property
    def ropes(self) -> dict[str, Config]:
        return self.reader.layer_settings() if self.config else {}

    @property
    def reader(self) -> ConfigReader:
        return ConfigReader(self.config)

    @property
    def inner(self) -> Config:
        """The part of the config that speaks of the language model."""
        return self.reader.config

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Those made in reading the config; what cannot be read is named by its readers."""
        try:
            return assumptions(self.config) if self.config else ()
        except RopewalkError:
            return ()

    @property
    def stated_settings(self) -> list[Config]:
        """The rope settings as the file writes them, before anything is filled in."""
        stated = [self.inner.get(key) for key in ("rope_parameters", "rope_scaling")]
        return [dict(rope) for rope in stated if isinstance(rope, Mapping)]


Trap = Callable[[ExaminedModel], Iterator[Finding]]
