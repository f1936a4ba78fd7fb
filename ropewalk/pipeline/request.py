"""A request to `extend`: its options, checked, and the settings and texts that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple

from ropewalk.budget import Budget, check_over_ranks
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import HELD_OUT, STANDARD_LIBRARY, TEXT_FIELD, Document
from ropewalk.data.documents import MOST_CHARACTERS, Corpus, as_documents
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.evaluation.verdict import LOOKS
from ropewalk.gguf.llama_cpp_run import Engine
from ropewalk.models.source import Loading
from ropewalk.pipeline.settings import (
    CHARACTERS,
    SEARCH_SHARE,
    SHIPPED_UP_TO,
    TIMES,
    ExtendSettings,
    settings_for,
)
from ropewalk.progress import Notice, unheard
from ropewalk.torchrun import started

_AS_GIVEN = ("seed", "train_steps", "learning_rate", "batch", "short_limit")
"""Options that are settings themselves."""


class Texts(NamedTuple):
    """The documents of a run."""

    documents: Sequence[Document]
    """Those of the race or search, and of the verdict."""
    to_train: Sequence[Document] = ()


@dataclass(frozen=True)
class ExtendRequest:
    """The options of `extend`; settings follow from them and the model."""

    how: Loading
    to: int | None
    run: Path | None
    corpus: Corpus | None
    field: str
    chat: Literal["auto", "on", "off"]
    search: bool
    budget: Budget | None
    train_steps: int
    train_corpus: Corpus | None
    learning_rate: float
    batch: int
    short_limit: float
    seed: int
    ranks_per_copy: int
    on: str | None
    cache: str
    engine: Engine
    """The llama.cpp that runs a GGUF file."""

    def __post_init__(self) -> None:
        if started() > 1 or (self.on is not None and self.ranks_per_copy > 1):
            check_over_ranks(self.budget)
            if self.train_steps:
                raise Unsupported(
                    "extend does not train under torchrun; leave `train_steps` out, and train "
                    "under the plan that it finds: torchrun … ropewalk train MODEL --plan "
                    "RUN/plan.json"
                )
        if self.train_corpus is not None and not self.train_steps:
            raise InputError(
                "`train_corpus` is read only for training: give its steps (`train_steps`)"
            )
        if self.on is not None and self.limit is not None:
            raise InvalidValue(
                "budget",
                str(self.limit),
                "settings that fit tokens or a time are found only on the machine of the run, not "
                "for another (`on`)",
                "give documents, or leave `budget` out",
            )

    @property
    def limit(self) -> Budget | None:
        """The tokens or the time that the whole run may take, if they are limited."""
        return None if self.documents is not None else self.budget

    @property
    def documents(self) -> int | None:
        """The documents that a verdict may read, if they are limited."""
        budget = self.budget
        return int(budget.amount) if budget and budget.unit == "evaluations" else None

    def settings(self, present: ContextPlan) -> ExtendSettings:
        """The settings for a model, before they are planned to fit a limit."""
        options = {name: getattr(self, name) for name in _AS_GIVEN}
        if self.documents is not None:
            options["documents"] = self.documents
        target = TIMES * present.target_length if self.to is None else self.to
        return settings_for(present, target, search=self.search, **options)

    def texts(self, target: int, notice: Notice) -> Texts:
        """The corpora, as far as they are needed."""
        to_train: Sequence[Document] = ()
        if self.train_corpus is not None:
            to_train = as_documents(self.train_corpus, self.field, notice, self.corpus)
        if self.on is not None:
            return Texts((), to_train)  # what is calculated depends on no text
        corpus, most = self.corpus, characters_for(target, self.documents)
        if corpus is None and target > SHIPPED_UP_TO:
            return Texts([standard_library(most, self.field, self.train_corpus)], to_train)
        corpus, most = HELD_OUT if corpus is None else corpus, max(most, MOST_CHARACTERS)
        return Texts(as_documents(corpus, self.field, notice, self.train_corpus, most), to_train)


def characters_for(target: int, documents: int | None = None) -> float:
    """The characters that hold enough documents of a target, as many as a verdict may read."""
    return CHARACTERS * (documents or LOOKS[-1]) * target / (1 - SEARCH_SHARE)


def standard_library(most: float, field: str = TEXT_FIELD, also: Corpus | None = None) -> Document:
    """The modules of Python, and of two packages if it has too few: none is as long as a target,
    so they count as one text."""
    modules: list[Document] = []
    packages = [str(resources.files(name)) for name in ("transformers", "torch")]
    for source in (STANDARD_LIBRARY, *packages):
        if sum(len(each.text) for each in modules) < most:
            modules += as_documents(source, field, unheard, also, most)
    return Document(STANDARD_LIBRARY, "\n".join(each.text for each in modules))
