"""Whoever reads planted documents under schedules: a model in this process, or llama.cpp.

A search, a race and a verdict know a reader alone: what it may be asked, and how it measures.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.in_llama_cpp import (
    FileClock,
    FileInLlamaCpp,
    LlamaCppSetting,
    check_own_types,
)
from ropewalk.evaluation.planted import Planted
from ropewalk.gguf.llama_cpp_run import Engine
from ropewalk.models.load import LoadedModel
from ropewalk.models.source import Loading, Source
from ropewalk.progress import Notice
from ropewalk.scaling import log_growth
from ropewalk.searching.model.measure import DocumentMeasure, LlamaCppMeasure, LocalMeasure, PlanOf
from ropewalk.searching.space import Space
from ropewalk.searching.strategies import yarn
from ropewalk.torchrun import Ranks

_SHORT = 256
"""The context of a llama.cpp that only makes tokens."""


class PlantedReader(Protocol):
    """A model that reads documents under one schedule after the other."""

    loaded: LoadedModel | FileInLlamaCpp
    """The model, with its name, dtype and device."""

    @property
    @abstractmethod
    def present_plan(self) -> ContextPlan:
        """The plan that the model follows now."""

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """Its tokenizer."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, object]:
        """The part of a run's configuration that says whose answers they are."""

    @abstractmethod
    def check_memory(self, length: int, ranks: Ranks) -> None:
        """Refuse a length that it cannot read."""

    @abstractmethod
    def check_follows(self, plan: ContextPlan) -> None:
        """Refuse a plan that it cannot follow."""

    @abstractmethod
    def followed(self, space: Space, strategy: str) -> Space:
        """The part of a strategy's space that it can follow; refused if there is none."""

    @abstractmethod
    def measure(
        self,
        documents: Sequence[Planted],
        plan_of: PlanOf,
        notice: Notice,
        ranks: Ranks,
    ) -> DocumentMeasure:
        """A measurement of schedules on these documents."""

    @property
    @abstractmethod
    def clock(self) -> Any:
        """A model, or a clock, whose forwards can be timed."""

    @abstractmethod
    def counting(self) -> Any:
        """A context whose value, called, tells the tokens that were read within."""

    @property
    @abstractmethod
    def model(self) -> Any:
        """The model of torch, which is trained; what has none refuses by name."""

    def follows(self, plan: ContextPlan) -> bool:
        """True if it can follow a plan."""
        try:
            self.check_follows(plan)
        except Unsupported:
            return False
        return True


def reader_of(model: LoadedModel | PlantedReader) -> PlantedReader:
    """The reader that a loaded model is, in this process."""
    return ModelReader(model) if isinstance(model, LoadedModel) else model


@dataclass(frozen=True, eq=False)
class ModelReader(PlantedReader):
    """A model in this process, or the part of it that this rank holds."""

    loaded: LoadedModel

    @property
    def present_plan(self) -> ContextPlan:
        return self.loaded.present_plan

    @property
    def encoder(self) -> Encoder:
        from ropewalk.evaluation.scoring import end_tokens

        loaded = self.loaded
        return Encoder(loaded.tokenizer, loaded.vocabulary, end_tokens(loaded.model))

    @property
    def identity(self) -> Mapping[str, object]:
        from ropewalk.evaluation.identity import digest_of_weights, identity_of

        return identity_of(self.loaded, digest_of_weights(self.loaded.model))

    def check_memory(self, length: int, ranks: Ranks) -> None:
        from ropewalk.costs.refusals import check_memory

        heads, parts = ranks.by_heads, ranks.per_copy if ranks.by_heads else 1
        check_memory(self.loaded.model, length, "to", in_chunks=heads, ranks=parts)

    def check_follows(self, plan: ContextPlan) -> None:
        return  # installing any is proven when the first one is measured

    def followed(self, space: Space, strategy: str) -> Space:
        return space

    def measure(
        self,
        documents: Sequence[Planted],
        plan_of: PlanOf,
        notice: Notice,
        ranks: Ranks,
    ) -> DocumentMeasure:
        return LocalMeasure(
            *(self.loaded.model, documents, plan_of, notice),
            in_step=ranks.per_copy > 1,
            in_chunks=ranks.by_heads,
        )

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        read = 0

        def note(_: object, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            nonlocal read
            read += named["input_ids"].numel() if "input_ids" in named else args[0].numel()

        hook = self.model.base_model.register_forward_pre_hook(note, with_kwargs=True)
        try:
            yield lambda: read
        finally:
            hook.remove()

    @property
    def model(self) -> Any:
        return self.loaded.model

    clock = model


class LlamaCppReader(PlantedReader):
    """A GGUF file in a llama.cpp of its own, which is started anew for another schedule."""

    def __init__(self, file: FileInLlamaCpp, length: int, cache: str) -> None:
        self.loaded = self._file = file
        self._length, self._cache = length, cache
        file.run(LlamaCppSetting(None, cache), _SHORT)

    @property
    def present_plan(self) -> ContextPlan:
        return self._file.present_plan

    @cached_property
    def encoder(self) -> Encoder:
        return self._file.encoder

    @property
    def identity(self) -> Mapping[str, object]:
        return {**self._file.identity, "present_plan": self.present_plan.id, "cache": self._cache}

    def check_memory(self, length: int, ranks: Ranks) -> None:
        self._file.check_memory(length, self._cache, "to")

    def check_follows(self, plan: ContextPlan) -> None:
        self._file.setting(plan, self._length, self._cache, plan.methods)

    def followed(self, space: Space, strategy: str) -> Space:
        # With its ramp, llama.cpp takes YaRN's own attention factor, whatever the flag says.
        fixed = replace(space, attention_scaling=log_growth(space.scale))
        if strategy == "yarn" and yarn.candidates(fixed):
            return fixed
        raise Unsupported(
            f"{self._file.name}: with llama.cpp's flags, only YaRN's ramp can be searched, and "
            "only in a file that is not extended; search the unmodified file with the strategy "
            "yarn, or search the folder of safetensors that it was converted from"
        )

    def measure(
        self,
        documents: Sequence[Planted],
        plan_of: PlanOf,
        notice: Notice,
        ranks: Ranks,
    ) -> DocumentMeasure:
        def running(plan: ContextPlan) -> Any:
            setting = self._file.setting(plan, self._length, self._cache, plan.methods)
            return self._file.run(setting, self._length)

        return LlamaCppMeasure(documents, plan_of, running)

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        before = self._file.read
        yield lambda: self._file.read - before

    @cached_property
    def clock(self) -> FileClock:
        return FileClock(self._file, self._length, self._cache)

    @property
    def model(self) -> Any:
        raise Unsupported(
            f"{self._file.name}: llama.cpp runs this GGUF file, and does not train it; training "
            "needs the folder of safetensors that it was converted from"
        )


@contextmanager
def in_llama_cpp(
    source: Source, engine: Engine, cache: str, length: int, how: Loading, ranks: Ranks
) -> Iterator[LlamaCppReader]:
    """The llama.cpp that reads a GGUF file up to a length, until the end of the `with` block."""
    if ranks.size > 1:
        raise Unsupported(
            "ranks cannot share a GGUF file, which llama.cpp runs; leave torchrun out"
        )
    check_own_types(how)
    with FileInLlamaCpp(source, engine) as file:
        yield LlamaCppReader(file, length, cache)
