"""Launches a search for the command: its limits, the model over ranks, and the run directory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ropewalk.context_plan import PLAN
from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.evaluation.answerers.in_process import load_to_read
from ropewalk.evaluation.forward_time import Timed
from ropewalk.gguf.llama_cpp_run import Engine
from ropewalk.models.dividing import all_ranks, by_heads
from ropewalk.models.load import LoadedModel, load, load_stock_config
from ropewalk.models.source import Loading, Model, Source
from ropewalk.progress import Notice, Progress, unheard
from ropewalk.run_directory import CONFIGURATION, RESULTS, RunDirectory, read_configuration
from ropewalk.searching.model.forwards import announce_search
from ropewalk.searching.model.readers import PlantedReader, in_llama_cpp, reader_of
from ropewalk.searching.model.results import Searched, SearchResult
from ropewalk.searching.model.run import check_search, search_model
from ropewalk.searching.model.settings import SearchSettings
from ropewalk.torchrun import Ranks, device_of_rank, first
from ropewalk.values import decode


@dataclass(frozen=True)
class SearchLaunch:
    """A search that may begin: all is checked that can be checked without the model."""

    model: Model
    source: Source
    texts: Sequence[Document]
    settings: SearchSettings
    seconds: float | None
    """The time that forwards may take; None if evaluations or tokens limit the search."""
    run: Path | None
    how: Loading
    ranks_per_copy: int
    engine: Engine
    """The llama.cpp that runs a GGUF file."""
    cache: str

    def searched(self, progress: Progress, notice: Notice) -> Searched:
        """Load the model on all ranks, search, and keep the results. All ranks return the same."""
        began = time.monotonic()
        with (
            all_ranks(self.ranks_per_copy, "search") as ranks,
            self._reader(ranks, notice) as reader,
        ):
            settings, model = self.settings, reader.loaded
            if self.seconds is not None:
                settings = replace(settings, tokens=self._tokens_in(self.seconds, reader))
            result = self._result(reader, settings, ranks, progress, notice)
        return Searched(
            *(result.plan, result.legs),
            model=model.name,
            dtype=model.dtype,
            device=model.device,
            seconds=round(time.monotonic() - began, 3),
        )

    @contextmanager
    def _reader(self, ranks: Ranks, notice: Notice) -> Iterator[PlantedReader]:
        """The model in this process, or the llama.cpp that runs a GGUF file."""
        if self.source.kind == "GGUF file":
            length = self.settings.target_length
            opened = (self.source, self.engine, self.cache, length, self.how, ranks)
            with in_llama_cpp(*opened) as reader:
                yield reader
            return
        self.engine.refuse(self.cache)
        _divide(ranks, self.source, notice if first() else unheard)
        yield reader_of(self._loaded(ranks, notice))

    def _loaded(self, ranks: Ranks, notice: Notice) -> LoadedModel:
        """The model, or this rank's part: of the heads, or else of every layer."""
        if not ranks.by_layers:
            length = self.settings.target_length
            return load_to_read(self.model, self.source, length, "to", ranks, self.how, notice)
        how = self.how._replace(device=device_of_rank(self.how.device))
        return load(self.model, **how._asdict(), place=ranks.place)

    def _tokens_in(self, seconds: float, reader: PlantedReader) -> int:
        """The tokens that can be read at the target in a time, or those that a run began with."""
        if self.run is not None and (self.run / CONFIGURATION).is_file():
            _, kept = read_configuration(self.run)
            if kept.get("tokens") is not None:
                return int(decode(int, kept["tokens"], "tokens"))
        length = self.settings.target_length
        timed = Timed.of(reader.clock, reader.present_plan.target_length, length)
        return max(1, int(seconds / timed.range([(length, 1)]).high * length))

    def _result(
        self,
        reader: PlantedReader,
        settings: SearchSettings,
        ranks: Ranks,
        progress: Progress,
        notice: Notice,
    ) -> SearchResult:
        """Search; the first rank keeps the result in the run directory, if there is one."""
        # All refusals come before anything is kept.
        check_search(reader, self.texts, settings, ranks)
        if ranks.size == 1:  # each rank would time its own
            begun = None if self.run is None else self.run / CONFIGURATION
            announce_search(reader, settings, begun, notice)
        held: AbstractContextManager[RunDirectory | None] = nullcontext()
        if self.run is not None or ranks.size > 1:
            # On every rank: reading shared weights takes all that share them.
            texts = {"corpus_sha256": corpus_digest(self.texts)}
            identity = {**reader.identity, **texts, **asdict(settings)}
            if self.seconds is not None:
                identity["seconds"] = self.seconds
            ranks.check_same(identity)
            if self.run is not None and first():
                apart_from = self.source.places
                held = RunDirectory(self.run, "search", identity, apart_from=apart_from)
        with held as directory:
            result = search_model(
                reader,
                self.texts,
                settings,
                journal=(lambda name: None) if directory is None else directory.journal,
                ranks=ranks,
                progress=progress,
                notice=notice,
            )
            if directory is not None:
                directory.seal(PLAN, result.plan.dumps())
                directory.keep(RESULTS, result.to_json())
        return result


def _divide(ranks: Ranks, source: Source, notice: Notice) -> None:
    """Decide how the ranks of a copy share it: by heads if the class allows it."""
    if ranks.per_copy == 1:
        return
    ranks.by_layers = not by_heads(load_stock_config(source.folder), ranks.per_copy)
    notice(
        "this model cannot be divided by heads, so each rank holds a part of every layer and reads "
        "a whole document in one forward, without a cache"
        if ranks.by_layers
        else "each rank holds its share of the heads, and their part of the cache"
    )
