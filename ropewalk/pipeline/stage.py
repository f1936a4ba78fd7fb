"""A stage of `extend`, and the values that it works with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from ropewalk.context_plan import ContextPlan
from ropewalk.costs.forwards import Needs
from ropewalk.data.corpora import Document
from ropewalk.progress import Notice, Progress
from ropewalk.run_directory import Journal, RunDirectory
from ropewalk.torchrun import Ranks
from ropewalk.values import Result

if TYPE_CHECKING:
    from ropewalk.evaluation.chat import Chat
    from ropewalk.models.load import LoadedModel
    from ropewalk.searching.model.readers import PlantedReader

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Start:
    """The start of a run, before it has a directory."""

    source: str
    """The source of an export: a folder, or `bundled`."""
    loaded: LoadedModel | PlantedReader
    """A loaded model, or whoever else reads."""
    target_length: int
    to_search: Sequence[Document]
    to_report: Sequence[Document]
    """The documents of the evaluation, which share no text with those of the search."""
    to_train: Sequence[Document] = field(default=(), kw_only=True)
    """The documents of training; if there are none, it reads those of the search."""
    chat: Chat | None = field(default=None, kw_only=True)
    """The template that the questions of all documents go through."""
    place: Path | None = field(default=None, kw_only=True)
    """The place of the run directory; None for a preview."""
    ranks: Ranks = field(default_factory=Ranks, kw_only=True)
    """The ranks of torchrun; each loads its part of the model."""

    @property
    def present(self) -> ContextPlan:
        return self.loaded.present_plan

    @property
    def reader(self) -> PlantedReader:
        """Whoever reads documents."""
        from ropewalk.searching.model.readers import reader_of

        return reader_of(self.loaded)


@dataclass(frozen=True)
class Work(Start):
    """The values that every stage of one run shares."""

    held: RunDirectory | None
    """None on a rank that helps the first one."""
    notice: Notice
    results: Mapping[str, Result] = field(default_factory=lambda: MappingProxyType({}))
    """The results of earlier stages, by their names."""

    @property
    def directory(self) -> RunDirectory:
        assert self.held is not None, "the first rank keeps what there is"
        return self.held

    def journal(self, name: str) -> Journal | None:
        return None if self.held is None else self.held.journal(name)

    def result(self, stage: type[Stage[R]]) -> R:
        """The result of an earlier stage."""
        return cast(R, self.results[stage.name])


class Stage(Generic[R]):
    """One step of `extend`. A subclass is a frozen dataclass whose fields are its settings."""

    name: ClassVar[str]
    """Also that of its file in the run directory."""
    does: ClassVar[str]
    result_type: ClassVar[type[Result]]
    early: ClassVar[str] = ""
    """Why it may take less than it needs at most."""
    over_ranks: ClassVar[bool] = False
    """True if all ranks run it; else the first one does, and the others wait."""
    conditional: ClassVar[bool] = False
    """True if what earlier stages found decides whether it is needed."""

    def needs(self, window: int) -> Needs:
        """What it will take; `window` is the length that the model serves now."""
        return Needs()

    def check(self, start: Start) -> None:
        """Refuse a run that this stage could not finish, before anything is computed or kept."""

    def bytes_to_write(self, start: Start, place: Path) -> int:
        """The room on disk that it still needs for models, in a run directory at `place`."""
        return 0

    def needed(self, work: Work) -> bool:
        """True if there is anything to do, by the results so far; if not, it is left out."""
        return True

    def run(self, work: Work, progress: Progress) -> R | None:
        """Do the work; what is on disk already is not done again. None if this rank helped."""
        raise NotImplementedError

    def recalled(self, work: Work, result: R) -> R | None:
        """An earlier result as it holds now; None to have the stage and all later ones redone."""
        return result

    def model_after(self, result: R) -> str | None:
        """The folder of the model that later stages continue with, if this one changed it."""
        return None
