"""The class of a runtime, through which every command asks; one that exports are written for.

Whether a runtime follows a config under a plan has one answer, `Runtime.judge`, so `plan`,
`export`, `verify`, the reports and `fingerprint` cannot contradict each other. A config is read as
the runtime reads it, and the reading is searched for traps: if none is wrong in this runtime, it
follows. `verify` does the same with more eyes: it measures transformers and runs the model, and has
several runtimes in one `ExaminedModel`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import InputError, RopewalkError, Unsupported, shortened
from ropewalk.exporting.exported import Exported, Lines, Loss
from ropewalk.exporting.tokens import TOKENIZER_LIMITS
from ropewalk.gguf.header import GGUFHeader
from ropewalk.models.config import DUAL_CHUNK, Config, ConfigReader, text_config
from ropewalk.models.families import FAMILIES
from ropewalk.models.placement import AUTO, STORED
from ropewalk.models.source import Source
from ropewalk.runtimes import traps
from ropewalk.runtimes.features import (
    AS_WRITTEN,
    EXACT,
    Feature,
    Support,
    features_of,
    nearest_in_stock,
    without_approximated,
)
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.model_classes import architecture
from ropewalk.runtimes.reading import RotaryReading, number
from ropewalk.runtimes.serving import Serving
from ropewalk.runtimes.trials import Trial
from ropewalk.untrusted import read_json

if TYPE_CHECKING:
    from ropewalk.exporting.folder import Job


class Connection(Protocol):
    """A connection to a server."""

    def get(self, path: str) -> object: ...

    def post(self, path: str, body: dict[str, object]) -> object: ...


@dataclass(frozen=True)
class Dialect:
    """How one runtime's server says what it is. Of one that no runtime claims, little is known."""

    kind: str
    """The runtime's name in words."""
    owner: str
    """Its `owned_by` of each of its models."""
    describe: Callable[[Connection, Mapping[str, Any], str], dict[str, object]]
    """From its entry of a model, and that model's name: its `version`, the `length` that it serves,
    and whatever else it says of its settings."""
    takes_tokens: bool = True
    """Prompts may be tokens; else they are text alone."""
    asked: Mapping[str, object] = field(default_factory=dict)
    """Fields of a request besides OpenAI's own, for a greedy answer."""
    asked_for_top: Mapping[str, object] = field(default_factory=dict)
    """Fields that make the server name the alternatives of a token by number."""


def members(value: object) -> dict[str, Any]:
    """The members of an object; none for any other value."""
    return value if isinstance(value, dict) else {}


def plain(value: Mapping[str, object]) -> dict[str, object]:
    """The members that are a number, a text or a truth value."""
    return {k: v for k, v in value.items() if isinstance(v, str | int | float | bool)}


LIMITS = ("tokenizer-limit", "generation-limit")


@dataclass(frozen=True)
class Judgement:
    """One runtime's treatment of a config under a plan."""

    wrong: tuple[Finding, ...] = ()
    """The traps in which this runtime does something other than the plan."""
    limits: tuple[Finding, ...] = ()
    """The limits of length in files beside the config."""
    unknown: str = ""
    """Why nothing is known of it."""

    @property
    def follows(self) -> bool:
        return not self.wrong and not self.unknown

    def __str__(self) -> str:
        return self.unknown or "; ".join(finding.what for finding in self.wrong)


def judged(
    reading: RotaryReading, config: Config, plan: ContextPlan, folder: Path | None, *, planned: bool
) -> Judgement:
    """The judgement of a runtime's reading of a config under a plan."""
    if reading.unread:
        return Judgement(unknown=reading.unread)
    facts = facts_of(config, folder)
    subject = ExaminedModel(
        (reading,), plan.target_length, plan, planned=planned, asked=True, **facts
    )
    findings = traps.find(subject)
    wrong = [each for each in findings if each.wrong and each.concerns(reading.runtime)]
    limits = tuple(each for each in wrong if each.trap in LIMITS)
    return Judgement(tuple(each for each in wrong if each not in limits), limits)


def facts_of(config: Config, folder: Path | None) -> dict[str, Any]:
    """The facts that an `ExaminedModel` knows of a config, and of the files beside it."""
    return {
        "config": without_chunks(config),
        "chunks": text_config(config).get(DUAL_CHUNK),
        "tokenizer_limit": _limit_in(folder, "tokenizer_config.json", *TOKENIZER_LIMITS),
        "generation_limit": _limit_in(folder, GENERATION, "max_length"),
        "generation": _json_in(folder, GENERATION),
    }


def of_known_type(reading: RotaryReading, config: Config, *, by_model_type: bool) -> RotaryReading:
    """A runtime's rules are those of its classes: of an unknown model type nothing is known."""
    if reading.unread:
        return reading
    kind = ConfigReader(config).model_type
    if kind in FAMILIES:
        other = "" if by_model_type else _other_class(config, kind)
        return replace(reading, unread=other) if other else reading
    return replace(
        reading,
        unread=f"model type {kind[:40]!r} is not in ropewalk's table of model types; "
        "run the model there to see",
    )


def _other_class(config: Config, kind: str) -> str:
    """Why nothing is known of the class that is chosen by `architectures`, if it is another."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        return ""
    kinds = (kind, str(config.get("model_type")))
    if names[0] in (architecture({"model_type": model_type}) for model_type in kinds):
        return ""
    for name in names:
        for stem in (each.removesuffix("_text") for each in kinds):
            rest = _letters(name).removeprefix(_letters(stem))
            if rest != _letters(name) and rest.startswith(("for", "model", "lmhead")):
                return ""
    return (
        f"chooses its class by the architecture {shortened(names[0])}, which is not known for "
        f"model type {kind!r}; run the model there to see"
    )


def _letters(name: object) -> str:
    """A name as model types and classes have it in common: Ernie4_5 is ernie4_5."""
    return re.sub("[^a-z0-9]", "", str(name)[:200].lower())


def without_chunks(config: Config) -> Config:
    """Dual chunk attention is a finding of its own; all else is read as the runtimes do today."""
    return {
        key: without_chunks(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key != DUAL_CHUNK
    }


def _limit_in(path: Path | None, name: str, *keys: str) -> int | None:
    value = _json_in(path, name)
    stated = (value[key] for key in keys if key in value) if isinstance(value, dict) else ()
    limit = number(next(iter(stated), None))
    return None if limit is None else int(limit)


def _json_in(path: Path | None, name: str) -> object:
    """What a file beside a config holds: nothing without the file, None where it is not JSON."""
    file = None if path is None else (path if path.is_dir() else path.parent) / name
    if file is None or not file.is_file():
        return {}
    try:
        return read_json(file, max_bytes=64 * 2**20)
    except InputError:
        return None


Form = Literal["folder", "GGUF file"]
GENERATION = "generation_config.json"
_NOT_FROM_FILE = "a GGUF file is exported to GGUF only; give the model's folder"


class Runtime(ABC):
    """A stock runtime: the rules by which it reads a model, and its server."""

    name: ClassVar[str]
    place: ClassVar[int] = 99
    """The place in tables; runtimes of one place are in the order of their files."""
    loads: ClassVar[Form] = "folder"
    """The form of a model that it loads as it is."""
    is_target: ClassVar[bool] = False
    """True if exports are written for it (`Target`)."""
    is_engine: ClassVar[bool] = False
    """True if it is vLLM or SGLang (`ServingEngine`)."""
    by_model_type: ClassVar[bool] = False
    """True if it chooses its class by the model type; else by `architectures`."""
    run_here: ClassVar[str] = ""
    """The programs that run, in words, where a model is run in it; empty if it never runs here."""
    preferred: ClassVar[str] = ""
    """Weights of this pattern it loads in place of others, and params.json as their config."""
    dialect: ClassVar[Dialect | None] = None
    """The answers by which its server is recognised, and the fields that it takes."""

    @abstractmethod
    def read(self, config: Config) -> RotaryReading:
        """The rotation of a folder with this config, by its rules."""

    def read_file(self, header: GGUFHeader) -> RotaryReading:
        """The rotation of a GGUF file, by its rules."""
        raise NotImplementedError(f"{self.name} loads no GGUF file")

    def measured(self, config: Config, lengths: Sequence[int], *, run: bool) -> RotaryReading:
        """Its reading of a folder: measured at these lengths if that can be done here."""
        return self.known_reading(config)

    def try_folder(self, folder: Path, plan: ContextPlan, *, tokenizer: bool) -> Trial:
        """Run a folder and compare it with its plan; and load its tokenizer, if that is whole."""
        raise NotImplementedError(f"{self.name} does not run here")

    def try_file(self, header: GGUFHeader, plan: ContextPlan | None, *, wrong: bool) -> Trial:
        """Run a GGUF file, and compare it with a plan unless it is wrong already."""
        raise NotImplementedError(f"{self.name} does not run here")

    def release(self) -> str:
        """The release whose rules are recorded; empty if it is measured or run as installed."""
        return ""

    def accepts(self, config: Config) -> int | None:
        """The longest sequence that it accepts, by its own rule; None without one."""
        return None

    def growth_key(self, config: Config) -> str | None:
        """The key by which it reads how queries grow; empty if none is read; None if not known."""
        return None

    def serve(self, plan: ContextPlan, source: Source) -> Serving | None:
        """The lines that serve a plan; None if it cannot be told to follow one."""
        return None

    def judge(
        self,
        config: Config,
        plan: ContextPlan,
        *,
        folder: Path | None = None,
        own_plan: bool = False,
    ) -> Judgement:
        """Judge whether it follows a config under a plan.

        `folder`: its other files may limit the length. `own_plan`: the plan is the folder's own, or
        if it has none, what the config means.
        """
        planned = not own_plan or (folder is not None and (folder / PLAN).is_file())
        return judged(self.known_reading(config), config, plan, folder, planned=planned)

    def known_reading(self, config: Config) -> RotaryReading:
        """The reading of a config, as far as its class of the model is known."""
        config = without_chunks(config)
        try:
            read = self.read(config)
        except ArithmeticError:
            unread = "the numbers in its config are too large to compute with"
            return RotaryReading.unknown(self.name, unread)
        return of_known_type(read, config, by_model_type=self.by_model_type)

    def unchecked(self, version: str = "") -> str:
        """Why its rules may not be those of a release: of the named one, or of the installed one.

        Empty if they are, or if there is none.
        """
        recorded = self.release()
        if not recorded:
            return ""
        if not version:
            try:
                version = metadata.version(self.name)
            except metadata.PackageNotFoundError:
                return ""
        version = version.partition("+")[0]
        if f"{recorded}.".startswith(f"{version}."):
            return ""
        return f"recorded up to {recorded}; not checked for {version}"


class Target(Runtime):
    """A runtime that exports are written for."""

    is_target = True
    dtypes: ClassVar[tuple[str, ...]]
    """The formats that the weights of its exports may have."""
    other_options: ClassVar[Mapping[str, str]] = {}
    """The options of `export` that are not for it, and why."""

    @abstractmethod
    def support(self, feature: Feature) -> Support:
        """Its support of a feature of a plan."""

    @abstractmethod
    def support_as_written(self, config: Config, plan: ContextPlan) -> Support:
        """Its support of the export of a plan that it can follow, as a whole."""

    @abstractmethod
    def serve(self, plan: ContextPlan, source: Source) -> Serving:
        """The lines that serve a plan."""

    @abstractmethod
    def write(self, source: str, plan: ContextPlan, out: str | Path, **options: Any) -> Exported:
        """Write a folder's model under a plan, and prove it."""

    def support_of_file(self, source: Source, plan: ContextPlan) -> tuple[Support, Loss | None]:
        """Its support of a plan in a GGUF file, and the cost of an approximation, if measured."""
        return Support("refused", _NOT_FROM_FILE), None

    def write_file(self, source: Source, plan: ContextPlan, out: Path, **options: Any) -> Exported:
        """Write a GGUF file under a plan, and prove it."""
        raise NotImplementedError(f"{self.name} loads no GGUF file")

    @abstractmethod
    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        """The line that serves a model up to a length, with changes to its config."""

    def support_of(self, plan: ContextPlan, config: Config) -> dict[str, Support]:
        """Its support of each part of a plan, and of the export as a whole."""
        supports = {
            name: part if isinstance(part, Support) else self.support(part)
            for name, part in features_of(plan, config).items()
        }
        fits = {support.fit for support in supports.values()}
        whole = EXACT
        if not {"refused", "unknown"} & fits:  # else they tell already
            try:
                near = "approximated" in fits
                followed = self.nearest(plan, config, supports) if near else plan
                whole = self.support_as_written(config, followed)
            except RopewalkError as error:
                whole = Support("refused", str(error))
        return {**supports, AS_WRITTEN: whole}

    def expressible(
        self, plan: ContextPlan, config: Config, *, approximate: bool
    ) -> tuple[ContextPlan, tuple[str, ...]]:
        """The plan that it can be made to follow, and the differences from the given one.

        Refused by name: what it has nothing for, and, without `approximate`, what it only has
        something near.
        """
        supports = self.support_of(plan, config)
        for feature, support in supports.items():
            if support.fit == "refused":
                raise Unsupported(f"{self.name}: {feature} is refused: {support.how}")
        near = tuple(f"{n}: {s.how}" for n, s in supports.items() if s.fit == "approximated")
        if not near:
            return plan, ()
        if not approximate:
            raise Unsupported(
                f"{self.name} can only approximate this plan ({'; '.join(near)}); allow that "
                "(`approximate`) to export the approximation with its measured cost, or create a "
                "plan without these parts"
            )
        return self.nearest(plan, config, supports), near

    def nearest(
        self, plan: ContextPlan, config: Config, supports: Mapping[str, Support]
    ) -> ContextPlan:
        """The plan that it follows instead of one that it can only approximate."""
        return without_approximated(nearest_in_stock(plan, config), supports)

    def follows_by(self, feature: str, support: Support) -> bool:
        """True if such support of a feature lets it follow the plan."""
        written = feature == AS_WRITTEN and self.loads == "GGUF file"  # by no export of ropewalk
        return written or support.fit in ("exact", "equivalent")

    def unknowns(self, plan: ContextPlan, config: Config) -> tuple[str, ...]:
        """Open questions about it and this plan."""
        supports = self.support_of(plan, config).values()
        return tuple(dict.fromkeys(support.how for support in supports if support.fit == "unknown"))


class FolderTarget(Target):
    """A runtime that loads a folder with a stock config, proven in stock transformers."""

    dtypes = (AUTO, *STORED)

    @abstractmethod
    def written_config(self, config: Config, plan: ContextPlan, *, v4_keys: bool = False) -> Config:
        """The config that makes it follow the plan; `v4_keys`: with the keys of transformers 4."""

    def support_as_written(self, config: Config, plan: ContextPlan) -> Support:
        judged = self.judge(self.written_config(config, plan), plan)
        if judged.follows:
            return EXACT
        return Support("unknown" if judged.unknown else "refused", str(judged))

    @abstractmethod
    def lines(self, job: Job, out: str) -> Lines:
        """The lines that serve an export, and what its user should know."""

    def write(self, source: str, plan: ContextPlan, out: str | Path, **options: Any) -> Exported:
        from ropewalk.exporting.folder import export_folder

        return export_folder(self, source, plan, out, **options)
