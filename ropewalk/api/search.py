"""`search`: the rescale factors and the attention scaling that score best on the model itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ropewalk.api.common import (
    GGUF,
    AllowDownload,
    CorpusToUse,
    Device,
    Dtype,
    GpuLayers,
    LlamaServer,
    OnMachine,
    RanksPerCopy,
    ShortLimit,
    Strict,
    TargetLength,
    TextField,
    Threads,
)
from ropewalk.api.cost import Cost, by_length, calculated, of_file
from ropewalk.arguments import as_length, as_path
from ropewalk.budget import Budget, as_budget, check_over_ranks, counted
from ropewalk.context_plan import PLAN
from ropewalk.costs.estimates import searching
from ropewalk.costs.machines import HERE, machine
from ropewalk.data.corpora import corpus_digest
from ropewalk.data.documents import as_documents
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.gguf.llama_cpp_run import CACHES, Engine
from ropewalk.lengths import format_length
from ropewalk.models.source import Loading, Model, resolve, runnable
from ropewalk.options import (
    Advanced,
    Argument,
    Option,
    RunFolder,
    called,
    check_previewed,
    command,
    is_preview,
    preview_ends,
    previewed_by,
    request,
)
from ropewalk.progress import Notice, Progress, log_notice, shown, unheard
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import CONFIGURATION, RESULTS, RunDirectory, read_configuration
from ropewalk.searching.objective import Own
from ropewalk.torchrun import check_ranks, first, own_device, started
from ropewalk.values import decode

if TYPE_CHECKING:
    from ropewalk.data.corpora import Document
    from ropewalk.models.load import LoadedModel
    from ropewalk.models.source import Source
    from ropewalk.searching.model.ranks import SearchRanks
    from ropewalk.searching.model.readers import PlantedReader
    from ropewalk.searching.model.results import Searched, SearchResult
    from ropewalk.searching.model.settings import SearchSettings


def _preview(
    source: Source, settings: SearchSettings, ranks_per_copy: int, dtype: str, on: str | None
) -> Cost:
    """The largest cost of the forwards at each length."""
    from ropewalk.searching.model.forwards import forwards_of

    present = source.present_plan
    forwards = forwards_of(present.longest(present.extended_layer), settings)
    longest = max(length for length, _ in forwards)
    if source.kind == "GGUF file":
        return of_file(source, longest, machine(on or HERE), {"search": forwards})
    return calculated(
        source, longest, on, lambda _: by_length(searching, forwards, ranks_per_copy), dtype
    )


def _usual_run(given: Mapping[str, Any]) -> Path:
    """The place where a shell keeps a search."""
    source = resolve(given["model"], allow_download=given.get("allow_download", False))
    length = format_length(as_length(given["to"], "to"))
    return Path("runs") / f"search-{source.short_name}-{length}"


@command(
    "search",
    "On a model",
    example="ropewalk search path/to/model --to 32k --run runs/search",
    output="the plan here too; - prints it alone",
    kept=f"wrote {{run}}/{PLAN}",
    usual_run=_usual_run,
)
@previewed_by(_preview)
def search(
    model: Annotated[
        Model, Argument("A model's folder, a GGUF file (run in llama.cpp), or `bundled`.", "MODEL")
    ],
    to: TargetLength,
    *,
    corpus: CorpusToUse = "held-out",
    field: TextField = "text",
    strategy: Annotated[
        str | None,
        Advanced(
            "adaptive, ropewalk's own search (default); yarn, over YaRN's own parameters (default "
            "for a GGUF file, which takes no other); or evolution, LongRoPE's algorithm in "
            "ropewalk's space."
        ),
    ] = None,
    budget: Annotated[
        int | str | None,
        Option(
            "Limit of the search: evaluations on all documents (40), tokens (1e9tok) or time of "
            "scoring (30m) (default: the strategy's own number of evaluations).",
            "BUDGET",
        ),
    ] = None,
    short_limit: ShortLimit = SHORT_LIMIT,
    objective: Annotated[
        str | Own,
        Advanced(
            "Minimise the loss on the text (perplexity), on the answers (needle) or on both "
            "(mixed), or with an objective of your own.",
            "NAME",
        ),
    ] = "mixed",
    stock_runtimes: Annotated[
        bool, Advanced("Search only schedules that stock runtimes can express.")
    ] = True,
    beyond_critical: Annotated[
        bool,
        Advanced(
            "Search only factors of at least s, the extension factor, for pairs without a full "
            "turn in the trained length, as LongRoPE2 does."
        ),
    ] = False,
    as_published: Annotated[
        bool,
        Advanced("Run LongRoPE's search as published: its objective, documents, space and sizes."),
    ] = False,
    recover: Annotated[
        bool, Advanced("Also search factors for sequences within the original context length.")
    ] = False,
    documents: tuple[int, int, int] | None = None,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep plan, journal and figures here, and resume from here (default: "
            "runs/search-MODEL-LENGTH).",
            command="search",
        ),
    ] = None,
    seed: Annotated[int, Option("Seed of the documents and of the search.")] = 0,
    dtype: Dtype = "auto",
    device: Device = "auto",
    ranks_per_copy: RanksPerCopy = 1,
    cache: Annotated[
        str, Option("Type of llama.cpp's cache, such as f16, q8_0 or q4_0.", "TYPE", group=GGUF)
    ] = CACHES[0],
    llama_server: LlamaServer = None,
    threads: Threads = None,
    gpu_layers: GpuLayers = None,
    on: OnMachine = None,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Searched:
    """Search the rescale factors for a longer context, by perplexity and retrieval together.

    `budget` is a number of evaluations (scores over all search documents), of tokens (`"1e9tok"`),
    or a time (`"30m"`), which becomes tokens by forwards timed here and depends on the machine; a
    run that resumes keeps the tokens that it began with. `recover` also searches a schedule for
    sequences within the original context length. The directory `run` keeps plan, journal and
    figures, and an interrupted search resumes there. Under `torchrun`, all ranks work on the same
    search, and each returns its result. `strict` refuses a config that leaves open how the model
    rotates, instead of warning. `as_published` runs the search of Ding et al. 2024 with its own
    strategy, objective, documents and space, which no other setting may then change. `objective`
    may be a function of a document's text loss, answer loss (nats a token) and share of answers
    retrieved: the search minimises its mean.

    A `model` that is a GGUF file is read by llama.cpp, started anew for each schedule with other
    flags. These give YaRN's ramp, and neither a factor for each pair nor another attention factor
    of YaRN, so the search is over the ramp alone (`strategy` yarn).

    `search.preview(…)` calculates what the forwards would take, here or `on` another machine, by
    the formulas of `cost`; a config is enough for it.
    """
    values = locals()
    with called("search", search, values) as (_, progress):
        check_previewed(on)
        from ropewalk.searching.model.results import Searched
        from ropewalk.searching.model.settings import SearchSettings, check_target, published

        limit = None if budget is None else as_budget(budget)
        settings = request(
            SearchSettings,
            search,
            values,
            target_length=as_length(to, "to"),
            strategy=strategy or "adaptive",
            objective=_named(objective),
            evaluations=counted(limit, "evaluations"),
            tokens=counted(limit, "tokens"),
            as_published=False,
        )
        if as_published:
            settings = published(settings)
        run = None if run is None else as_path(run, "run")
        began = time.monotonic()
        check_ranks(ranks_per_copy, "search", None if on is None else machine(on).devices)
        if started() > 1:
            check_over_ranks(limit)
        how, real = Loading(dtype, device, allow_download), not is_preview()
        source = runnable(
            model, how, strict=strict, notice=notice, run=run, weights=real, by_llama_cpp=True
        )
        if source.kind == "GGUF file" and strategy is None and not as_published:
            settings = replace(settings, strategy="yarn")
        present = source.present_plan
        check_target(present.longest(present.extended_layer), settings)
        # A preview cannot time forwards, for the machine may be another.
        if is_preview() and limit is not None and limit.unit == "seconds":
            raise InvalidValue(
                "budget",
                str(limit),
                "how many forwards fit into a time is only known on the machine that runs them",
                "give evaluations (40), or tokens such as 1e9tok",
            )
        texts = as_documents(corpus, field, notice)
        preview_ends(source, settings, ranks_per_copy, dtype, on)
        from ropewalk.searching.model.ranks import SearchRanks

        ranks = None if started() == 1 else SearchRanks.of_environment(ranks_per_copy)
        with ExitStack() as stack:
            if ranks is not None:
                stack.enter_context(ranks)
                _divide(ranks, source, notice if first() else unheard)
            program = None if llama_server is None else as_path(llama_server, "llama_server")
            engine = Engine(program, threads, gpu_layers)
            read = _reader(model, source, settings, ranks, how, engine, cache, notice)
            reader = stack.enter_context(read)
            in_time = limit if limit is not None and limit.unit == "seconds" else None
            if in_time is not None:
                settings = replace(settings, tokens=_tokens_in(in_time, settings, reader, run))
            found = _found(
                *(reader, source, texts, settings, in_time),
                *(run, stack, ranks, progress, notice),
            )
        return Searched(
            *(found.plan, found.legs),
            model=reader.loaded.name,
            dtype=reader.loaded.dtype,
            device=reader.loaded.device,
            seconds=round(time.monotonic() - began, 3),
        )


@contextmanager
def _reader(
    model: Model,
    source: Source,
    settings: SearchSettings,
    ranks: SearchRanks | None,
    how: Loading,
    engine: Engine,
    cache: str,
    notice: Notice,
) -> Iterator[PlantedReader]:
    """The model in this process, or the llama.cpp that runs a GGUF file."""
    from ropewalk.searching.model.readers import in_llama_cpp, reader_of

    if source.kind == "GGUF file":
        length = settings.target_length
        with in_llama_cpp(source, engine, cache, length, how, ranks=ranks is not None) as reader:
            yield reader
        return
    engine.refuse(cache)
    yield reader_of(_loaded(model, source, settings, ranks, how, notice))


def _loaded(
    model: Model,
    source: Source,
    settings: SearchSettings,
    ranks: SearchRanks | None,
    how: Loading,
    notice: Notice,
) -> LoadedModel:
    """The model, or this rank's part: of the heads, or else of every layer."""
    from ropewalk.evaluation.answerers.in_process import load_to_read
    from ropewalk.models.load import load

    if ranks is None or ranks.per_copy == 1 or ranks.by_heads:
        return load_to_read(model, source, settings.target_length, "to", ranks, how, notice)
    how = how._replace(device=own_device(how.device))
    return load(model, **how._asdict(), place=ranks.place)


def _found(
    reader: PlantedReader,
    source: Source,
    texts: Sequence[Document],
    settings: SearchSettings,
    in_time: Budget | None,
    run: Path | None,
    stack: ExitStack,
    ranks: SearchRanks | None,
    progress: Progress,
    notice: Notice,
) -> SearchResult:
    """Search, and keep what is found in the run directory, if there is one."""
    from ropewalk.searching.model.forwards import announce_search
    from ropewalk.searching.model.run import check_search, search_model

    # All refusals come before anything is kept.
    check_search(reader, texts, settings, ranks)
    if ranks is None:  # each rank would time its own
        announce_search(reader, settings, None if run is None else run / CONFIGURATION, notice)
    directory = None
    if run is not None:
        # On every rank: reading shared weights takes all that share them.
        own = {**reader.identity, "corpus_sha256": corpus_digest(texts)}
        identity = own | asdict(settings)
        if in_time is not None:
            identity["seconds"] = in_time.amount
        if first():
            directory = stack.enter_context(
                RunDirectory(run, "search", identity, apart_from=source.places)
            )
    found = search_model(
        reader,
        texts,
        settings,
        journal=(lambda name: None) if directory is None else directory.journal,
        ranks=ranks,
        progress=progress,
        notice=notice,
    )
    if directory is not None:
        directory.seal(PLAN, found.plan.dumps())
        directory.keep(RESULTS, found.to_json())
        keep_figures(found.pictures(), directory.path / "figures", notice)
    return found


def _named(objective: str | Own) -> str:
    """The name of an objective; a function is registered by its own."""
    if not callable(objective):
        return objective
    from ropewalk.api.register import register

    register("objective")(objective)
    return objective.__name__


def _divide(ranks: SearchRanks, source: Source, notice: Notice) -> None:
    """Decide how the ranks of a copy share it: by heads if the class allows it."""
    if ranks.per_copy == 1:
        return
    from ropewalk.models.dividing import by_heads
    from ropewalk.models.load import load_stock_config

    if by_heads(load_stock_config(source.folder), ranks.per_copy):
        ranks.by_heads = True
        notice("each rank holds its share of the heads, and their part of the cache")
    else:
        notice(
            "this model cannot be divided by heads, so each rank holds a part of every layer and "
            "reads a whole document in one forward, without a cache"
        )


def _tokens_in(
    budget: Budget, settings: SearchSettings, reader: PlantedReader, run: Path | None
) -> int:
    """The tokens that can be read at the target in a time, or those that a run began with."""
    if run is not None and (run / CONFIGURATION).is_file():
        _, kept = read_configuration(run)
        if kept.get("tokens") is not None:
            return int(decode(int, kept["tokens"], "tokens"))
    from ropewalk.evaluation.forward_time import Timed

    length = settings.target_length
    timed = Timed.of(reader.clock, reader.present_plan.target_length, length)
    return max(1, int(budget.amount / timed.range([(length, 1)]).high * length))
