"""`search`: the rescale factors and the attention scaling that score best on the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ropewalk.api.common import (
    AllowDownload,
    CacheType,
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
from ropewalk.costs.machines import HERE, machine
from ropewalk.costs.memory_and_time import searching
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
from ropewalk.progress import Notice, Progress, log_notice, shown
from ropewalk.reports.figures import keep_figures
from ropewalk.searching.objective import Own
from ropewalk.torchrun import check_ranks, first, started

if TYPE_CHECKING:
    from ropewalk.models.source import Source
    from ropewalk.searching.model.results import Searched
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


def _usual_run(arguments: Mapping[str, Any]) -> Path:
    """The place where a shell keeps a search."""
    source = resolve(arguments["model"], allow_download=arguments.get("allow_download", False))
    length = format_length(as_length(arguments["to"], "to"))
    return Path("runs") / f"search-{source.short_name}-{length}"


@command(
    "search",
    "On a model",
    example="ropewalk search path/to/model --to 32k --run runs/search",
    output="the plan here too; - prints only the plan",
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
    cache: CacheType = CACHES[0],
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
        from ropewalk.searching.model.settings import check_target

        # The limits and settings, before any file is read.
        limit = None if budget is None else as_budget(budget)
        settings = _settings(values, limit)
        engine = request(Engine, search, values)
        run = None if run is None else as_path(run, "run")
        check_ranks(ranks_per_copy, "search", None if on is None else machine(on).devices)
        # The model's files, which a preview needs no weights of, and the texts.
        how, real = Loading(dtype, device, allow_download), not is_preview()
        source = runnable(
            model, how, strict=strict, notice=notice, run=run, weights=real, by_llama_cpp=True
        )
        if source.kind == "GGUF file" and strategy is None and not as_published:
            settings = replace(settings, strategy="yarn")
        check_target(source.present_plan.longest(source.present_plan.extended_layer), settings)
        seconds = _seconds(limit)
        texts = as_documents(corpus, field, notice)
        preview_ends(source, settings, ranks_per_copy, dtype, on)
        from ropewalk.searching.model.launch import SearchLaunch

        ran = (run, how, ranks_per_copy, engine, cache)
        launch = SearchLaunch(model, source, texts, settings, seconds, *ran)
        result = launch.searched(progress, notice)
        if run is not None and first():
            keep_figures(result.pictures(), run / "figures", notice)
        return result


def _settings(values: Mapping[str, Any], limit: Budget | None) -> SearchSettings:
    """The settings that the arguments ask for; those of the published search, if that is asked."""
    from ropewalk.searching.model.settings import SearchSettings, published

    settings = request(
        SearchSettings,
        search,
        values,
        target_length=as_length(values["to"], "to"),
        strategy=values["strategy"] or "adaptive",
        objective=_named(values["objective"]),
        evaluations=counted(limit, "evaluations"),
        tokens=counted(limit, "tokens"),
        as_published=False,
    )
    return published(settings) if values["as_published"] else settings


def _seconds(limit: Budget | None) -> float | None:
    """The time that a search may take; refused where no forward can be timed, or many clocks
    run."""
    if started() > 1:
        check_over_ranks(limit)
    if limit is None or limit.unit != "seconds":
        return None
    if is_preview():
        raise InvalidValue(
            "budget",
            str(limit),
            "how many forwards fit into a time is only known on the machine that runs them",
            "give evaluations (40), or tokens such as 1e9tok",
        )
    return limit.amount


def _named(objective: str | Own) -> str:
    """The name of an objective; a function is registered by its own."""
    if not callable(objective):
        return objective
    from ropewalk.api.register import register

    register("objective")(objective)
    return objective.__name__
