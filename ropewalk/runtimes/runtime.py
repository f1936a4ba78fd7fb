"""The class of a runtime, through which every command asks; one that exports are written for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.exporting.exported import Exported, Lines, Loss
from ropewalk.gguf.header import GGUFHeader
from ropewalk.models.config import Config
from ropewalk.models.placement import AUTO, STORED
from ropewalk.models.source import Source
from ropewalk.runtimes import judgement
from ropewalk.runtimes.features import (
    AS_WRITTEN,
    EXACT,
    Feature,
    Support,
    features_of,
    nearest_in_stock,
    without_approximated,
)
from ropewalk.runtimes.judgement import Judgement
from ropewalk.runtimes.reading import RotaryReading
from ropewalk.runtimes.servers import Dialect
from ropewalk.runtimes.serving import Serving
from ropewalk.runtimes.trials import Trial

if TYPE_CHECKING:
    from ropewalk.exporting.folder import Job

Form = Literal["folder", "GGUF file"]
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
    dialect: ClassVar[Dialect | None] = None
    """The answers by which its server is recognised, and the fields that it takes."""

    @abstractmethod
    def read(self, config: Config) -> RotaryReading:
        """The rotation of a folder with this config, by its rules."""

    def read_file(self, header: GGUFHeader) -> RotaryReading:
        """The rotation of a GGUF file, by its rules."""
        raise NotImplementedError(f"{self.name} loads no GGUF file")

    def measured(self, config: Config, lengths: Sequence[int]) -> RotaryReading:
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
        return judgement.judged(self.known_reading(config), config, plan, folder, planned=planned)

    def known_reading(self, config: Config) -> RotaryReading:
        """The reading of a config, as far as its class of the model is known."""
        config = judgement.without_chunks(config)
        try:
            read = self.read(config)
        except ArithmeticError:
            unread = "the numbers in its config are too large to compute with"
            return RotaryReading.unknown(self.name, unread)
        return judgement.of_known_type(read, config, by_model_type=self.by_model_type)

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
        near = tuple(f"{n}: {own.how}" for n, own in supports.items() if own.fit == "approximated")
        if not near:
            return plan, ()
        if not approximate:
            raise Unsupported(
                f"{self.name} can only approximate this plan ({'; '.join(near)}); allow that "
                "(`approximate`) to export the approximation with its measured cost, or create a "
                "plan without it"
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
        return tuple(dict.fromkeys(own.how for own in supports if own.fit == "unknown"))


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
