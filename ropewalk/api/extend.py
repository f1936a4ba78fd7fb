"""`extend`: judge a schedule, choose another where it fails, export and verify, resumably."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from ropewalk.api.common import (
    MOST_CHARACTERS,
    AllowDownload,
    Corpus,
    Device,
    Dtype,
    Length,
    ModelToRun,
    OnMachine,
    RanksPerCopy,
    ShortLimit,
    Strict,
    TextField,
    ThroughChat,
    as_documents,
    as_length,
    as_path,
)
from ropewalk.api.cost import Cost, calculated, check_divided
from ropewalk.api.report import keep_report
from ropewalk.budget import Budget, as_budget, check_over_ranks
from ropewalk.costs.estimates import Way, Work, duration
from ropewalk.costs.machines import machine
from ropewalk.data.corpora import HELD_OUT, STANDARD_LIBRARY, Document, corpus_digest
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.evaluation.verdict import LOOKS, TO_WORK
from ropewalk.lengths import format_length
from ropewalk.models.source import Loading, Source, runnable
from ropewalk.options import (
    Option,
    RunFolder,
    called,
    check_previewed,
    command,
    is_preview,
    preview_ends,
    previewed_by,
)
from ropewalk.pipeline.settings import (
    BATCH,
    CHARACTERS,
    LEARNING_RATE,
    SEARCH_SHARE,
    SHIPPED_UP_TO,
    TIMES,
    ExtendSettings,
    parted,
    settings_for,
)
from ropewalk.progress import Notice, Progress, log_notice, shown, silent, unheard
from ropewalk.run_directory import CONFIGURATION, RunDirectory, read_configuration
from ropewalk.torchrun import check_alone, check_ranks, first, started

if TYPE_CHECKING:
    from ropewalk.pipeline.cost import Estimate
    from ropewalk.pipeline.extend import Done, Extended
    from ropewalk.pipeline.stage import Start


def _estimate(asked: _Asked | _Elsewhere) -> Estimate | Cost:
    """The stages of a run, with their cost: timed on this machine, or calculated for another."""
    if isinstance(asked, _Asked):
        from ropewalk.pipeline.cost import estimate

        return estimate(asked.start.source, asked.start.loaded, asked.settings)

    from ropewalk.pipeline.cost import ways

    def of_stages(work: Work, *, least: bool = False) -> dict[str, Callable[[Work], Iterator[Way]]]:
        check_divided(work, asked.ranks_per_copy)
        return ways(asked.settings, work, asked.ranks_per_copy, least=least)

    where = (asked.source, asked.settings.target_length, asked.on)
    found = calculated(*where, of_stages, asked.dtype)
    early = calculated(*where, partial(of_stages, least=True), asked.dtype)
    told = (f"{row.what.partition(',')[0]} {duration(row.seconds)}" for row in early.rows)
    least = f"these are the most; if each stage ends as early as it can: {', '.join(told)}"
    return replace(found, assumptions=(*found.assumptions, least, WHOLE))


@command(
    "extend",
    "All in one run",
    example="ropewalk extend path/to/model --to 32k --run runs/extend",
    kept="",
)
@previewed_by(_estimate)
def extend(
    model: ModelToRun = "bundled",
    to: Annotated[
        Length | None,
        Option("Target length, such as 32k (default: four times what the model serves)."),
    ] = None,
    *,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep everything here, and resume from here (default: runs/extend-MODEL-LENGTH).",
            "DIR",
            command="extend",
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

    `extend.preview(…)` times the model here; `on` another machine, it calculates by the formulas of
    `cost`, and a config is enough for it.
    """
    with called("extend", extend, locals()) as (_, progress):
        check_previewed(on)
        there = None if on is None else machine(on).devices
        check_ranks(ranks_per_copy, "extend", there)
        if is_preview():
            check_alone("the estimate of extend")
        if not first():
            progress, notice, done = silent, unheard, lambda *_: None
        given = None if run is None else as_path(run, "run")
        limit = None if budget is None else as_budget(budget)
        if started() > 1 or (on is not None and ranks_per_copy > 1):
            _check_over_ranks(limit, train_steps)
        how = Loading(dtype, device, allow_download)
        found = runnable(model, how, strict=strict, notice=notice, run=given, weights=on is None)
        present = found.present_plan
        target = TIMES * present.target_length if to is None else as_length(to, "to")
        settings = settings_for(
            present,
            target,
            search=search,
            seed=seed,
            train_steps=train_steps,
            learning_rate=learning_rate,
            batch=batch,
            short_limit=short_limit,
        )
        to_train: Sequence[Document] = ()
        if train_corpus is not None:
            if not train_steps:
                raise InputError(
                    "`train_corpus` is read only for training: give its steps (`train_steps`)"
                )
            to_train = as_documents(train_corpus, field, notice, corpus)
        if on is not None:
            if limit is not None and limit.unit != "evaluations":
                raise InvalidValue(
                    "budget",
                    str(limit),
                    "settings that fit tokens or a time are found only on the machine of the run, "
                    "not for another (`on`)",
                    "give documents, or leave `budget` out",
                )
            if limit is not None:
                settings = replace(settings, documents=int(limit.amount))
            preview_ends(_Elsewhere(found, settings, dtype, on, ranks_per_copy))
        documents = _texts(corpus, target, field, notice, train_corpus)
        from ropewalk.evaluation.answerers.in_process import load_to_read
        from ropewalk.evaluation.chat import chosen
        from ropewalk.evaluation.encoding import Encoder
        from ropewalk.evaluation.identity import run_identity
        from ropewalk.evaluation.scoring import end_tokens
        from ropewalk.pipeline import extend as pipeline
        from ropewalk.pipeline import stage
        from ropewalk.pipeline.cost import within
        from ropewalk.pipeline.results import check_version
        from ropewalk.pipeline.stage import Start
        from ropewalk.pipeline.stages import stages

        # Export reads files: of a hub id, those that were fetched.
        files = found.name if found.kind == "bundled" else str(found.folder)
        with ExitStack() as stack:
            ranks = None
            if started() > 1:
                from ropewalk.searching.model.ranks import SearchRanks

                ranks = stack.enter_context(SearchRanks.of_environment(ranks_per_copy))
                ranks.by_heads = ranks_per_copy > 1
            loaded = load_to_read(model, found, settings.target_length, "to", ranks, how, notice)
            length = format_length(settings.target_length)
            path = given or Path("runs") / f"extend-{found.short_name}-{length}"
            if (path / CONFIGURATION).is_file():
                check_version(read_configuration(path)[1], path)
            if limit is not None:
                settings = within(limit, settings, loaded, path, notice)
            encoder = Encoder(loaded.tokenizer, loaded.vocabulary, end_tokens(loaded.model))
            start = Start(
                *(files, loaded, settings.target_length, *parted(documents)),
                to_train=to_train,
                chat=chosen(encoder, chat, None, notice),
                place=None if is_preview() else path,
                ranks=ranks,
            )
            pipeline.check(start, settings)
            preview_ends(_Asked(start, settings))
            if ranks is None:  # each rank would time its own
                _announce(start, settings, path, notice)
            to_do = stages(settings)
            identity = {
                **run_identity(loaded, documents),
                **asdict(settings),
                "stages": [each.name for each in to_do],
            }
            if start.chat is not None:
                identity["chat"] = start.chat.to_json()
            if to_train:
                identity["train_corpus_sha256"] = corpus_digest(to_train)
            if ranks is not None:
                ranks.check_same(identity)
            directory = None
            if first():
                directory = stack.enter_context(
                    RunDirectory(path, "extend", identity, apart_from=found.places)
                )
            work = stage.Work(**vars(start), held=directory, notice=notice)
            extended = pipeline.run_stages(work, settings, to_do, progress=progress, done=done)
            if directory is not None:
                notice(pipeline.used(directory, settings, present.target_length))
        if first():
            keep_report(path, notice)
        return extended


def _check_over_ranks(limit: Budget | None, train_steps: int) -> None:
    """Refuse what ranks cannot do together, before anything is loaded."""
    check_over_ranks(limit)
    if train_steps:
        raise Unsupported(
            "extend does not train under torchrun; leave `train_steps` out, and train under the "
            "plan that it finds: torchrun … ropewalk train MODEL --plan RUN/plan.json"
        )


def _texts(
    corpus: Corpus | None, target: int, field: str, notice: Notice, also: Corpus | None
) -> list[Document]:
    """The corpus, as far as it is needed; by default one that holds enough documents of the target.

    No module of Python is as long as that, so they count as one text.
    """
    needed = CHARACTERS * LOOKS[-1] * target / (1 - SEARCH_SHARE)
    if corpus is not None or target <= SHIPPED_UP_TO:
        most = max(needed, MOST_CHARACTERS)
        return as_documents(HELD_OUT if corpus is None else corpus, field, notice, also, most)
    modules: list[Document] = []
    packages = [str(resources.files(name)) for name in ("transformers", "torch")]
    for source in (STANDARD_LIBRARY, *packages):
        if sum(len(each.text) for each in modules) < needed:
            modules += as_documents(source, field, unheard, also, needed)
    return [Document(STANDARD_LIBRARY, "\n".join(each.text for each in modules))]


def _announce(start: Start, settings: ExtendSettings, run: Path, notice: Notice) -> None:
    """Say before the first forward of a long run what it takes and what would fit."""
    from ropewalk.evaluation.forward_time import announce
    from ropewalk.pipeline.cost import forwards_of

    window = start.loaded.present_plan.target_length
    fewer = replace(settings, documents=TO_WORK, evaluations=None)
    announce(
        start.loaded.model,
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


WHOLE = "export and verify run on the CPU of the first rank, in room for the whole model"


class _Elsewhere(NamedTuple):
    """Everything that a run on another machine depends on."""

    source: Source
    settings: ExtendSettings
    dtype: str
    on: str
    ranks_per_copy: int


class _Asked(NamedTuple):
    """The arguments of a run, found and checked."""

    start: Start
    settings: ExtendSettings
