"""`extend`: judge a schedule, choose another where it fails, export and verify, resumably."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.card import keep_card
from ropewalk.api.common import (
    AllowDownload,
    CacheType,
    Device,
    Dtype,
    GpuLayers,
    LlamaServer,
    OnMachine,
    RanksPerCopy,
    ShortLimit,
    Strict,
    TextField,
    Threads,
    ThroughChat,
)
from ropewalk.api.cost import Cost, calculated, check_divided, of_file, read_by_extend
from ropewalk.api.report import keep_report
from ropewalk.arguments import Length, as_length, as_path
from ropewalk.budget import as_budget
from ropewalk.costs.machines import HERE, machine
from ropewalk.costs.memory_and_time import Way, Workload, duration
from ropewalk.data.documents import Corpus
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.verdict import LOOKS, TO_WORK
from ropewalk.gguf.llama_cpp_run import CACHES, Engine
from ropewalk.lengths import format_length
from ropewalk.models.source import Loading, Model, Source, runnable
from ropewalk.options import (
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
from ropewalk.pipeline.request import ExtendRequest
from ropewalk.pipeline.settings import (
    BATCH,
    LEARNING_RATE,
    SHIPPED_UP_TO,
    ExtendSettings,
)
from ropewalk.progress import Notice, Progress, log_notice, shown, silent, unheard
from ropewalk.torchrun import check_alone, check_ranks, first

if TYPE_CHECKING:
    from ropewalk.pipeline.cost import Estimate
    from ropewalk.pipeline.extend import Done, Extended
    from ropewalk.pipeline.stage import Start


def _estimate(
    setup: ExtendRequest,
    source: Source,
    settings: ExtendSettings,
    start: Start | None = None,
) -> Estimate | Cost:
    """The stages of a run, with their cost: timed on this machine, or calculated for another."""
    # Here, a few forwards of the loaded model are timed.
    if start is not None:
        from ropewalk.pipeline.cost import estimate

        return estimate(start.source, start.reader, settings)

    # llama.cpp's forwards have formulas of their own.
    if source.kind == "GGUF file":
        reading = read_by_extend(source.present_plan, settings)
        return of_file(source, settings.target_length, machine(setup.on or HERE), reading)

    # For another machine: the most that the stages may take, and the least, as some may end early.
    from ropewalk.pipeline.cost import ways

    def of_stages(
        work: Workload, *, least: bool = False
    ) -> dict[str, Callable[[Workload], Iterator[Way]]]:
        check_divided(work, setup.ranks_per_copy)
        return ways(settings, work, setup.ranks_per_copy, least=least)

    where = (source, settings.target_length, setup.on)
    most = calculated(*where, of_stages, setup.how.dtype)
    least = calculated(*where, partial(of_stages, least=True), setup.how.dtype)
    rows = (f"{row.what.partition(',')[0]} {duration(row.seconds)}" for row in least.rows)
    early = f"these are the most; if each stage ends as early as it can: {', '.join(rows)}"
    return replace(most, assumptions=(*most.assumptions, early, WHOLE))


@command(
    "extend",
    "All in one run",
    example="ropewalk extend path/to/model --to 32k --run runs/extend",
    kept="",
)
@previewed_by(_estimate)
def extend(
    model: Annotated[
        Model, Argument("A model's folder, a GGUF file (run in llama.cpp), or `bundled`.", "MODEL")
    ] = "bundled",
    to: Annotated[
        Length | None,
        Option(
            "Target length, such as 32k (default: four times what the model serves).",
            convert=as_length,
        ),
    ] = None,
    *,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep everything here, and resume from here (default: runs/extend-MODEL-LENGTH).",
            command="extend",
            convert=as_path,
        ),
    ] = None,
    corpus: Annotated[
        Corpus | None,
        Option(
            "Text of the documents: a file, a folder, .jsonl, .parquet, `python` (its standard "
            f"library; beyond {format_length(SHIPPED_UP_TO)}, the default) or `held-out` (text "
            "that ships with ropewalk).",
            "FILE",
        ),
    ] = None,
    field: TextField = "text",
    chat: ThroughChat = "auto",
    search: Annotated[
        bool, Option("Also search YaRN's parameters; a limit that covers it does so too.")
    ] = False,
    budget: Annotated[
        int | str | None,
        Option(
            f"Documents that a verdict may read ({TO_WORK}), or a limit of the whole run: 1e9tok, "
            f"60m (default: {LOOKS[-1]}).",
            "BUDGET",
            convert=as_budget,
        ),
    ] = None,
    train_steps: Annotated[
        int, Option("Also train so many steps under the chosen schedule.", "N")
    ] = 0,
    train_corpus: Annotated[
        Corpus | None,
        Option(
            "Training text; what shares text with the verdict is left out (default: the text of "
            "the race or search).",
            "FILE",
        ),
    ] = None,
    learning_rate: Annotated[
        float, Option("Learning rate of the training.", "RATE")
    ] = LEARNING_RATE,
    batch: Annotated[int, Option("Windows of a training step.")] = BATCH,
    short_limit: ShortLimit = SHORT_LIMIT,
    seed: Annotated[int, Option("Seed of documents and samples.")] = 0,
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
    done: Done = lambda *_: None,
) -> Extended:
    """Extend a model: judge, choose, train if asked to, export, verify. Resumable.

    The default of `to` is four times the length that the model serves now. First the vendor's
    schedule for this target, or else YaRN, is judged: documents of the target hold eight facts
    each, and are read until they show whether the model retrieves at most ten points less than
    unmodified within its own window. If it fails, or costs more text than `short_limit`, the
    hand-designed methods race on other documents, and the winner is judged. `search` also
    searches. The directory `run` (by default `runs/extend-MODEL-LENGTH`) keeps everything; called
    again with the same arguments, an interrupted run resumes. With `train_steps`, the model is also
    trained under the chosen schedule, on `train_corpus` (by default the text of the race), and
    judged again; documents that share text with the verdict are left out of training. With `chat`,
    the questions of a verdict go through the model's own template.

    `budget` is a number of documents, or what the whole run may take, in tokens (`"1e9tok"`) or
    time (`"60m"`); the run is then planned to fit, with a search if there is room. A budget in
    tokens leads to the same plan everywhere. One in time depends on the machine, and a run that
    resumes keeps the plan that it began with.

    Under torchrun, `ranks_per_copy` ranks hold one copy of the model, each with its heads and their
    part of the cache; copies share the documents, and every rank returns the result. The other
    stages run on rank 0 alone. Training (`train_steps`) is refused there: train the exported model
    with `train`, and evaluate it.

    `done` is called with each stage and its result. `strict` refuses a config that leaves open how
    the model rotates, instead of warning.

    `extend.preview(…)` times the model here; `on` another machine, or of a GGUF file, it calculates
    by the formulas of `cost`, and a config is enough for it.
    """
    values = locals()
    with called("extend", extend, values) as (_, progress):
        # The ranks of torchrun, or of the other machine (`on`), must divide into whole copies.
        check_previewed(on)
        check_ranks(ranks_per_copy, "extend", None if on is None else machine(on).devices)
        if is_preview():
            check_alone("the estimate of extend")
        if not first():
            progress, notice, done = silent, unheard, lambda *_: None
        # The options as one frozen value, the model's files, and the texts: all that can be refused
        # without loading the model is refused here.
        how = Loading(dtype, device, allow_download)
        engine = request(Engine, extend, values)
        setup = request(ExtendRequest, extend, values, how=how, engine=engine)
        load = on is None  # another machine needs a config alone
        source = runnable(
            model, how, strict=strict, notice=notice, run=setup.run, weights=load, by_llama_cpp=True
        )
        settings = setup.settings(source.present_plan)
        texts = setup.texts(settings.target_length, notice)
        if on is not None or source.kind == "GGUF file":  # llama.cpp is calculated, not timed
            preview_ends(setup, source, settings)
        from ropewalk.pipeline.run import prepared

        with prepared(setup, model, source, texts, notice) as run_of_stages:
            preview_ends(setup, source, run_of_stages.settings, run_of_stages.start)
            extended = run_of_stages.extended(progress, notice, done)
        # Pages and cards describe a finished run, and are written once.
        if first():
            keep_card(run_of_stages.path, source, notice)
            keep_report(run_of_stages.path, notice)
        return extended


WHOLE = "export and verify run on the CPU of the first rank, in room for the whole model"
