"""A run of `extend` from its request: the model loaded, all refused that can be, its stages run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ropewalk.data.corpora import corpus_digest
from ropewalk.evaluation.answerers.in_process import load_to_read
from ropewalk.evaluation.chat import chosen
from ropewalk.evaluation.forward_time import announce
from ropewalk.evaluation.verdict import TO_WORK
from ropewalk.lengths import format_length
from ropewalk.models.dividing import all_ranks
from ropewalk.models.load import LoadedModel
from ropewalk.models.source import Source
from ropewalk.options import is_preview
from ropewalk.pipeline.cost import forwards_of, within
from ropewalk.pipeline.extend import Done, Extended, check, run_stages, used
from ropewalk.pipeline.request import ExtendRequest, Texts
from ropewalk.pipeline.settings import ExtendSettings, parted
from ropewalk.pipeline.stage import Start, Work
from ropewalk.pipeline.stages import stages
from ropewalk.progress import Notice, Progress
from ropewalk.run_directory import CONFIGURATION, RunDirectory
from ropewalk.searching.model.readers import PlantedReader, in_llama_cpp, reader_of
from ropewalk.torchrun import Ranks, first


@dataclass(frozen=True)
class ExtendRun:
    """A run that may begin: everything that it depends on is loaded and checked."""

    start: Start
    settings: ExtendSettings
    path: Path
    """The run directory."""
    source: Source
    texts: Texts

    @property
    def identity(self) -> dict[str, object]:
        """All that the results depend on, for the run directory."""
        chat, to_train = self.start.chat, self.texts.to_train
        return {
            **self.start.reader.identity,
            "corpus_sha256": corpus_digest(self.texts.documents),
            **asdict(self.settings),
            "stages": [each.name for each in stages(self.settings)],
            **({} if chat is None else {"chat": chat.to_json()}),
            **({"train_corpus_sha256": corpus_digest(to_train)} if to_train else {}),
        }

    def extended(self, progress: Progress, notice: Notice, done: Done) -> Extended:
        """Run the stages; the first rank keeps their results."""
        start, settings, identity = self.start, self.settings, self.identity
        if start.ranks.size == 1:  # each rank would time its own
            _announce(start, settings, self.path, notice)
        else:
            start.ranks.check_same(identity)
        apart_from = self.source.places
        with (
            RunDirectory(self.path, "extend", identity, apart_from=apart_from)
            if first()
            else nullcontext()
        ) as directory:
            work = Work(**vars(start), held=directory, notice=notice)
            to_do = stages(settings)
            extended = run_stages(work, settings, to_do, progress=progress, done=done)
            if directory is not None:
                notice(used(directory, settings, start.present.target_length))
        return extended


@contextmanager
def prepared(
    request: ExtendRequest, model: object, source: Source, texts: Texts, notice: Notice
) -> Iterator[ExtendRun]:
    """Load the model and check the run; ranks leave together at the end."""
    settings = request.settings(source.present_plan)
    length, files = settings.target_length, source.files
    with (
        all_ranks(request.ranks_per_copy, "extend") as ranks,
        _read(request, model, source, length, ranks, notice) as loaded,
    ):
        name = f"extend-{source.short_name}-{format_length(length)}"
        path = request.run or Path("runs") / name
        reader = reader_of(loaded)
        if request.limit is not None:
            settings = within(request.limit, settings, reader, path, notice)
        start = Start(
            files,
            loaded,
            length,
            *parted(texts.documents),
            to_train=texts.to_train,
            chat=chosen(reader.encoder, request.chat, None, notice),
            place=None if is_preview() else path,
            ranks=ranks,
        )
        check(start, settings)
        yield ExtendRun(start, settings, path, source, texts)


@contextmanager
def _read(
    request: ExtendRequest,
    model: object,
    source: Source,
    length: int,
    ranks: Ranks,
    notice: Notice,
) -> Iterator[LoadedModel | PlantedReader]:
    """The loaded model, or the llama.cpp that runs a GGUF file."""
    if source.kind != "GGUF file":
        request.engine.refuse(request.cache)
        yield load_to_read(model, source, length, "to", ranks, request.how, notice)
        return
    opened = (source, request.engine, request.cache, length, request.how, ranks)
    with in_llama_cpp(*opened) as reader:
        yield reader


def _announce(start: Start, settings: ExtendSettings, run: Path, notice: Notice) -> None:
    """Say before the first forward of a long run what it takes and what would fit."""
    window = start.present.target_length
    fewer = replace(settings, documents=TO_WORK, evaluations=None)
    announce(
        start.reader.clock,
        window,
        forwards_of(settings, window),
        notice,
        begun=run / CONFIGURATION,
        what="this run",
        smaller=[
            (f"a `budget` of time or tokens with {TO_WORK} documents", forwards_of(fewer, window))
        ],
        otherwise="`plan` chooses a method without a forward, `evaluate` measures it on few "
        "`samples`, and `export` writes it",
    )
