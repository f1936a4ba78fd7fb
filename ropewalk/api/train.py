"""`train`: continued training at a longer context, with a plan, and the trained model exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np

from ropewalk.api.common import (
    AllowDownload,
    Device,
    ModelToRun,
    OnMachine,
    PlanLike,
    Strict,
    TextField,
    WeightsField,
    as_plan,
)
from ropewalk.api.cost import config_of
from ropewalk.api.report import keep_report
from ropewalk.arguments import Length, as_length, as_list, as_members, as_path
from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.budget import Budget, as_budget, counted
from ropewalk.context_plan import ContextPlan
from ropewalk.costs.estimates import GIB, SINGLE, duration
from ropewalk.costs.machines import machine
from ropewalk.costs.sizes import sizes_of
from ropewalk.data.corpora import MANIFEST, corpus_digest
from ropewalk.data.documents import Corpus, as_documents, documents_in
from ropewalk.data.mixtures import check_domains
from ropewalk.data.published_mixtures import shares_of
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import Arrangement, SpecialTokens, Windows
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.extras import check_installed
from ropewalk.lengths import format_length
from ropewalk.models.placement import check_dtype, check_placement
from ropewalk.models.source import Source, resolve, stated_assumptions
from ropewalk.options import (
    Advanced,
    Option,
    RunFolder,
    called,
    check_previewed,
    command,
    preview_ends,
    previewed_by,
)
from ropewalk.progress import Notice, Progress, log_notice, shown, silent, unheard
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import RESULTS, RunDirectory, check_run_place
from ropewalk.scaling import stacked
from ropewalk.torchrun import first, started
from ropewalk.training import recipes
from ropewalk.training.recipes import SEARCH, TrainingRecipe
from ropewalk.training.results import Trained
from ropewalk.training.settings import Decay, StageSettings, TrainingSettings, stages_of
from ropewalk.untrusted import check_count
from ropewalk.values import Result

if TYPE_CHECKING:
    from ropewalk.models.ranks import Ranks
    from ropewalk.training.execution import Execution

TOKENS = "tokens"
_TRAINED_IN = ("float32", "bfloat16")
_RECIPES = ("layout", "batch", "learning_rate", "decay", "weight_decay", "betas", "filling")
"""Settings that a recipe has values for."""


class PreviewStage(NamedTuple):
    """The work of a stage."""

    length: int
    window: int
    steps: int
    method: str
    tokens: int
    epochs: float | None
    """None if the text is not tokenised yet."""
    petaflops: float
    """10¹⁵ multiplications and additions, of forwards and backwards together."""
    seconds: float | None = None
    """By the formulas of `ropewalk cost`; None if the speed of the machine is not known."""


@dataclass(frozen=True, eq=False)
class TrainPreview(Result):
    """The steps and cost of a training run. Nothing was computed or written."""

    rows_in = "stages"

    model: str
    stages: tuple[PreviewStage, ...]
    bytes_on_disk: int
    """The most that checkpoints and models take."""
    peak_bytes: int | None = None
    """The peak memory of each rank, by the formulas of `ropewalk cost`; None if these know too
    little."""
    machine: str = "this machine"
    caution: str = ""
    """A warning if nothing of ours was measured on that machine."""

    def summary(self) -> str:
        peak = "" if self.peak_bytes is None else f"; {self.peak_bytes / GIB:.3g} GiB a rank"
        tokens = sum(stage.tokens for stage in self.stages)
        seconds = [stage.seconds for stage in self.stages if stage.seconds is not None]
        time = f"; {duration(sum(seconds))}" if seconds else ""
        return (
            f"{self.model}: {sum(stage.steps for stage in self.stages):,} steps, {tokens:,} tokens,"
            f" {sum(stage.petaflops for stage in self.stages):,.3g} PFLOP; up to "
            f"{self.bytes_on_disk / GIB:.3g} GiB of checkpoints and models on disk{peak}, on "
            f"{self.machine}{time}.{self.caution and f' {self.caution}.'}"
        )

    def blocks(self) -> Iterator[Block]:
        yield Table(
            "",
            ("length", "steps", "windows of", "tokens", "epochs", "PFLOP", "time", "method"),
            tuple(
                cells(
                    format_length(stage.length),
                    f"{stage.steps:,}",
                    format_length(stage.window),
                    f"{stage.tokens:,}",
                    "unknown" if stage.epochs is None else f"{stage.epochs:.2f}",
                    f"{stage.petaflops:,.3g}",
                    duration(stage.seconds),
                    stage.method,
                )
                for stage in self.stages
            ),
        )
        yield Paragraph(self.summary())


def _preview(asked: _Asked) -> TrainPreview:
    """The steps of a run, and their cost."""
    from ropewalk.training.execution import bytes_on_disk, step_cost

    batch, config = asked.settings.batch, config_of(asked.source)
    sizes, on = sizes_of(config), asked.execution.on
    planner = _Planner(asked, (), None, silent, unheard)
    rows, peak = [], 0.0
    for number, stage in enumerate(asked.settings.stages, start=1):
        tokens = stage.steps * batch * stage.window
        cost = step_cost(config, stage, asked.settings, asked.execution)
        # A step of the formula is one window of each reader; a step of ours is a batch of windows.
        steps = stage.steps * asked.execution.accumulated(batch) * asked.execution.windows_at_once
        step = None if cost is None else cost[1].seconds
        rows.append(
            PreviewStage(
                stage.length,
                stage.window,
                stage.steps,
                planner.method_of(number, stage),
                tokens,
                asked.epochs(stage),
                3 * sizes.operations(stage.window) * (tokens / stage.window) / 1e15,
                None if step is None else step * steps,
            )
        )
        peak = max(peak, 0.0 if cost is None else cost[1].bytes)
    on_disk = bytes_on_disk(SINGLE * sizes.weights, asked.settings)
    where = TrainPreview.machine if on is None else str(on)
    caution = "" if on is None else on.caution
    return TrainPreview(asked.source.name, tuple(rows), on_disk, int(peak) or None, where, caution)


@command(
    "train",
    "For training",
    example="ropewalk train path/to/model --recipe anchor --to 32k --corpus books.jsonl",
)
@previewed_by(_preview)
def train(
    model: ModelToRun,
    *,
    corpus: Annotated[
        Corpus | Mapping[str, Corpus] | None,
        Option(
            "Text to train on, as `ropewalk data build` takes it, or the folder that it built. "
            "With several domains, name the domain of each.",
            "[DOMAIN=]FILE",
        ),
    ] = None,
    to: Annotated[
        Length | None, Option("Target length, such as 32k (default: that of the plan).")
    ] = None,
    plan: Annotated[
        PlanLike | Sequence[PlanLike] | None,
        Option("A plan of `ropewalk plan`; one for each stage, or one for all.", "FILE"),
    ] = None,
    method: Annotated[
        str | None,
        Option(
            "Plan by a method of `ropewalk methods`, or by `search` (default: that of the recipe, "
            "or the one that ranks first for use after training).",
            "METHOD",
        ),
    ] = None,
    recipe: Annotated[
        Literal["anchor", "base-bound", "longrope-llama", "longrope-mistral"] | None,
        Option("Use this paper's values for all options that are not given."),
    ] = None,
    steps: Annotated[
        int | Sequence[int] | None,
        Option("Steps, one number for all stages or for each (default: the recipe's).", "N[,N…]"),
    ] = None,
    stages: Annotated[
        Sequence[Length] | None,
        Option("Train at these lengths in turn; each stage's plan builds on the one before."),
    ] = None,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep everything here, and resume from here (default: runs/train-MODEL-LENGTH).",
            command="train",
        ),
    ] = None,
    layout: Annotated[
        Arrangement | None,
        Advanced("How windows are made of documents (default: the recipe's, or anchor)."),
    ] = None,
    batch: Annotated[
        int | None,
        Option("Windows of a step, on all ranks together (default: the recipe's, or 8)."),
    ] = None,
    learning_rate: Annotated[
        float | None, Option("Learning rate (default: the recipe's, or 2e-5).", "RATE")
    ] = None,
    lora: Annotated[
        int | None,
        Option(
            "Train LoRA adapters of this rank instead of the weights; the export merges them.",
            "RANK",
        ),
    ] = None,
    decay: Annotated[
        Decay | None,
        Advanced("Learning-rate schedule after the warm-up (default: the recipe's, or constant)."),
    ] = None,
    warmup: Annotated[
        int, Advanced("Steps until the learning rate has its full value.", "STEPS")
    ] = 0,
    weight_decay: Annotated[
        float | None, Advanced("Weight decay of AdamW (default: the recipe's, or 0.1).", "RATE")
    ] = None,
    window: Annotated[
        Length | None,
        Advanced("Tokens of a window (default: the length of the stage, or the recipe's)."),
    ] = None,
    mixed_windows: Annotated[
        bool,
        Advanced(
            "Every second step reads documents of at most the original length, each by itself, "
            "under the original frequencies."
        ),
    ] = False,
    search_between: Annotated[
        bool,
        Advanced(
            "Search the schedule of each stage after the first, on the model as trained so far."
        ),
    ] = False,
    search_corpus: Annotated[Corpus, Advanced("Text of searches.", "FILE")] = "held-out",
    budget: Annotated[
        int | str | None,
        Advanced(
            "Limit of each search: evaluations (40) or tokens (1e9tok) (default: the strategy's "
            "own number of evaluations).",
            "BUDGET",
        ),
    ] = None,
    shares: Annotated[
        Mapping[str, float] | str | None,
        Advanced(
            "The share of a domain in the tokens that are read; or the mixture of a "
            "paper, such as prolong-64k.",
            "DOMAIN=SHARE",
            shell=("--share",),
        ),
    ] = None,
    long_share: Annotated[
        float | None, Advanced("The share of long documents in the tokens of each domain.", "SHARE")
    ] = None,
    long_from: Annotated[
        Length, Advanced("The number of tokens from which a document counts as long.")
    ] = 4096,
    sequence_parallel: Annotated[
        int,
        Advanced(
            "Under torchrun: number of ranks that share each window, one stretch each (Ulysses)."
        ),
    ] = 1,
    replicate: Annotated[
        int,
        Advanced(
            "Under torchrun: number of copies of the weights, each shared by an equal part of the "
            "ranks."
        ),
    ] = 1,
    windows_at_once: Annotated[int, Advanced("Windows that a rank computes at the same time.")] = 1,
    recompute: Annotated[
        bool, Advanced("Compute activations again in the backward pass, which saves memory.")
    ] = False,
    save_every: Annotated[int, Advanced("Steps between checkpoints.", "STEPS")] = 100,
    report_to: Annotated[
        Sequence[str],
        Advanced("Also log to tensorboard or wandb, as transformers.Trainer does.", "NAME"),
    ] = (),
    field: TextField = "text",
    weights: WeightsField = None,
    seed: Annotated[int, Option("Seed of windows and of training.")] = 0,
    dtype: Annotated[
        str,
        Option(
            "Number format in which weights are trained and written: float32 or bfloat16; auto "
            "trains in float32, with bfloat16 products on an accelerator, and writes the model's "
            "own format.",
            "FORMAT",
        ),
    ] = "auto",
    device: Device = "auto",
    on: OnMachine = None,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Trained:
    """Train a model further at a longer context, and export it with its plan. Resumable.

    `corpus` is text as `build_data` takes it, or the folder that it built. `to` is the target
    length, `stages` are lengths to train at in turn. A stage follows `plan` (one for all stages, or
    one for each), or the plan of `method`, or the one that `plan` would choose, each from the model
    that the stage before left. `search` as a method searches each stage's schedule,
    `search_between` those after the first. `recipe` has a paper's values for what is not given;
    `steps` has none without one. A `window` is as long as the stage's length unless it is given.

    The directory `run` (by default `runs/train-MODEL-LENGTH`) keeps everything; called again with
    the same arguments, an interrupted run resumes. Under `torchrun`, weights are sharded over the
    ranks that `sequence_parallel` and `replicate` leave.

    `train.preview(…)` calculates what a run would take, here or `on` another machine, by the
    formulas of `cost`; a config is enough for it.
    """
    with called("train", train, locals()) as (_, progress), _together() as ranks:
        check_previewed(on)
        # First: without text, nothing else matters.
        text = _Text.of(corpus, field, weights, allow_download)
        shares = shares_of(shares, text.domains)
        known = None if recipe is None else recipes.named(recipe)
        plans = _plans(plan)
        if plans and method is not None:
            raise InputError("give a plan or a method, not both (`plan`, `method`)")
        lengths = _lengths(to, stages, plans)
        _check_plans(plans, len(lengths))
        if method is not None and method != SEARCH:
            stacked(method, SEARCH)  # says which names there are
        source = resolve(model, allow_download=allow_download)
        if on is None:
            source.folder  # noqa: B018 - says why there are no weights
        stated_assumptions(source, notice, strict=strict)
        settings = _settings(
            known,
            stages=stages_of(
                lengths, _steps(steps, known, len(lengths)), _window(window, known, lengths)
            ),
            layout=layout,
            batch=batch,
            learning_rate=learning_rate,
            decay=decay,
            warmup=warmup,
            weight_decay=weight_decay,
            shares=shares,
            long_share=long_share,
            long_from=as_length(long_from, "long_from"),
            mixed_windows=mixed_windows,
            lora=lora,
            seed=seed,
        )
        served = source.present_plan.target_length
        if lengths[0] < served:
            raise InvalidValue(
                "to",
                lengths[0],
                f"the model serves {format_length(served)} already",
                "train at that length, or at a longer one",
            )
        if lengths[0] == served and not plans:
            _check_method(method, known, len(lengths), served, notice)
        check_domains(shares or {}, text.domains)
        check_placement("auto", device)
        if on is None:
            check_installed("train", "torch", "accelerate", *(["peft"] if lora else []))
        if on is None and device not in ("auto", "cpu"):  # only torch knows what is there
            from ropewalk.models.load import placement

            placement("auto", device, {})
        check_dtype(dtype, _TRAINED_IN)
        check_count(sequence_parallel, "sequence_parallel", usual=1)
        check_count(replicate, "replicate", usual=1)
        check_count(windows_at_once, "windows_at_once", usual=1)
        check_count(save_every, "save_every", usual=100)
        from ropewalk.training.execution import Execution, check_reports

        reports = as_list(report_to, "report_to")
        check_reports(reports)
        execution = Execution(
            device,
            dtype,
            sequence_parallel,
            replicate,
            windows_at_once,
            recompute,
            save_every,
            reports,
            None if on is None else machine(on),
        )
        default = Path("runs") / f"train-{source.short_name}-{format_length(lengths[-1])}"
        asked = _Asked(
            source,
            text,
            known,
            plans,
            method or (None if plans or known is None else known.method),
            settings,
            execution,
            as_path(run, "run") if run else default,
            search_between,
            _budget(budget),
        )
        asked.check()
        preview_ends(asked)
        search_texts = as_documents(search_corpus, field, notice, corpus) if asked.searches else []
        path = asked.path
        with _held(asked, search_texts, ranks) as (folder, directory):
            from ropewalk.pipeline.training import TrainingRun, check_store
            from ropewalk.training.ranks import on_first

            on_first(lambda: text.tokenise(folder, path / TOKENS, progress, notice))
            store = TokenStore(text.tokens or path / TOKENS)
            from ropewalk.models.load import load_tokenizer

            tokens_of = load_tokenizer(folder)
            on_first(lambda: check_store(store, tokens_of, folder, progress))
            planner = _Planner(asked, search_texts, directory, progress, notice)
            found = TrainingRun(
                source=folder,
                name=asked.source.name,
                store=store,
                special=SpecialTokens.of(tokens_of),
                settings=asked.settings,
                execution=execution,
                path=path,
                plan_of=planner.plan_of,
                directory=directory,
                progress=progress if first() else silent,
                notice=notice if first() else unheard,
            ).run()
            trained = Trained(
                **vars(found),
                model=asked.source.short_name,
                recipe=recipe,
                run=str(path),
            )
            if directory is not None:
                directory.keep(RESULTS, trained.to_json())
                keep_figures({"training": trained.charts()}, path / "figures", notice)
        if directory is not None:
            keep_report(path, notice)
        return trained


@dataclass(frozen=True)
class _Asked:
    """The arguments of a run, found and checked."""

    source: Source
    text: _Text
    recipe: TrainingRecipe | None
    plans: tuple[ContextPlan, ...]
    method: str | None
    settings: TrainingSettings
    execution: Execution
    path: Path
    """The run directory, which a preview does not make."""
    search_between: bool
    budget: Budget | None
    """The budget of each search."""

    def searched(self, number: int) -> bool:
        """True if the plan of a stage is searched."""
        if self.plans:
            return False
        return self.method == SEARCH or (self.search_between and number > 1)

    @property
    def searches(self) -> bool:
        return any(map(self.searched, range(1, len(self.settings.stages) + 1)))

    @property
    def apart_from(self) -> list[Path]:
        """Files and folders that are read, which nothing may be written to."""
        return [*self.source.places, *self.text.places]

    def epochs(self, stage: StageSettings) -> float | None:
        """The number of times that a stage reads the tokens of a folder."""
        if self.text.tokens is None:
            return None
        # Of a tokenizer that has both; which tokens they are does not matter.
        store = TokenStore(self.text.tokens)
        epoch = Windows(store, self.settings.windows(stage), SpecialTokens(0, 0))
        return stage.steps * self.settings.batch / len(epoch)

    def check(self) -> None:
        """Refuse what a later stage would, before there is a run directory."""
        from ropewalk.runtimes.configs import stock_config
        from ropewalk.training.execution import check_stage, with_original

        self.execution.accumulated(self.settings.batch)
        self._check_search()
        planner = _Planner(self, (), None, silent, unheard)
        config = config_of(self.source)
        for number, stage in enumerate(self.settings.stages, start=1):
            if self.searched(number):
                break  # from here on, plans depend on weights
            plan = planner.planned(number, resolve(config), stage)
            if self.settings.mixed_windows:
                plan = with_original(plan)
            check_stage(config, plan, stage, self.settings, self.execution)
            config = stock_config(config, plan)
        check_run_place(self.path, self.apart_from)

    def plan(self, number: int) -> ContextPlan:
        """The given plan of a stage."""
        return self.plans[min(number, len(self.plans)) - 1]

    def _check_search(self) -> None:
        if self.search_between and len(self.settings.stages) == 1:
            raise InputError("`search_between` is for several stages: name them (`stages`)")
        if self.budget is not None and not self.searches:
            raise InputError("`budget` is for a search, and no stage is searched; leave it out")
        if self.searches and self.execution.ranks > 1:
            raise Unsupported(
                "training under torchrun does not search; search first (`ropewalk search`, which "
                "can run under torchrun), and give the plan of each stage (`plan`)"
            )


@dataclass(frozen=True)
class _Text:
    """The training text: by domain, or a folder of tokens. Nothing of it is read yet."""

    corpora: Mapping[str, Corpus]
    field: str
    weights: str | None
    tokens: Path | None
    domains: tuple[str, ...]
    allow_download: bool

    @classmethod
    def of(
        cls,
        corpus: Corpus | Mapping[str, Corpus] | None,
        field: str,
        weights: str | None,
        allow_download: bool,
    ) -> _Text:
        from ropewalk.api.data import ALONE

        if corpus is None:
            raise InputError("give text to train on, or a folder of tokens (`corpus`)")
        if isinstance(corpus, str | Path) and (as_path(corpus, "corpus") / MANIFEST).is_file():
            store = TokenStore(Path(corpus))
            if weights is not None and not store.weighted:
                raise InvalidValue(
                    "weights",
                    weights,
                    f"{corpus} was built without weights",
                    "build it with them (`ropewalk data build`), or leave `weights` out",
                )
            return cls({}, field, weights, Path(corpus), store.with_text, allow_download)
        corpora = corpus if isinstance(corpus, Mapping) else {ALONE: corpus}
        for own in corpora.values():
            # This refuses what is no corpus.
            documents_in(own, field, weights, allow_download=allow_download, notice=unheard)
        return cls(corpora, field, weights, None, tuple(corpora), allow_download)

    @property
    def places(self) -> list[Path]:
        if self.tokens is not None:
            return [self.tokens]
        paths = [Path(own) for own in self.corpora.values() if isinstance(own, str | Path)]
        return [path for path in paths if path.exists()]

    def tokenise(self, model: Path, place: Path, progress: Progress, notice: Notice) -> None:
        """Tokenise text into a folder of the run; a build that was killed goes on."""
        if self.tokens is None:
            from ropewalk.api.data import build_data

            build_data(
                model,
                self.corpora,
                place,
                field=self.field,
                weights=self.weights,
                allow_download=self.allow_download,
                progress=progress,
                notice=notice,
            )


def _check_plans(plans: Sequence[ContextPlan], stages: int) -> None:
    if len(plans) not in (0, 1, stages):
        raise InvalidValue(
            "plan",
            f"{len(plans)} plans",
            f"there {'is 1 stage' if stages == 1 else f'are {stages} stages'}",
            "give one plan for all stages, or one for each",
        )
    targets = [plan.target_length for plan in plans]
    if any(after <= before for before, after in pairwise(targets)):
        raise InvalidValue(
            "plan",
            ", ".join(map(format_length, targets)),
            "each plan must serve a longer context than the one before",
            "give them in the order of their stages",
        )


def _check_method(
    method: str | None, recipe: TrainingRecipe | None, stages: int, served: int, notice: Notice
) -> None:
    """A stage at the length that the model serves is trained as the model rotates."""
    if method is not None and stages == 1:
        raise InvalidValue(
            "method",
            method,
            f"the model serves {format_length(served)} already, so there is nothing to plan",
            "leave the method out, give a plan (`plan`), or train at a longer length",
        )
    if method is not None or recipe is not None:
        notice(
            f"the model serves {format_length(served)} already: training at that length uses its "
            f"own frequencies, not {method or (recipe and recipe.method)}"
        )


def _window(
    window: Length | None, recipe: TrainingRecipe | None, lengths: Sequence[int]
) -> int | None:
    if window is None:
        return None if recipe is None else recipe.window
    window = as_length(window, "window")
    if window > lengths[-1]:
        raise InvalidValue(
            "window",
            window,
            f"must be at most {lengths[-1]}, the length that is trained for",
            "give shorter windows, or a longer target (`to`)",
        )
    return window


def _settings(recipe: TrainingRecipe | None, **given: Any) -> TrainingSettings:
    """The settings that are given, with the recipe's values for the others."""
    values = {} if recipe is None else {key: getattr(recipe, key) for key in _RECIPES}
    return TrainingSettings(
        **values | {key: value for key, value in given.items() if value is not None}
    )


def _budget(given: int | str | None) -> Budget | None:
    budget = None if given is None else as_budget(given)
    if budget is not None and budget.unit == "seconds":
        raise InvalidValue(
            "budget",
            given,
            "the search of a stage cannot be limited in time",
            "write evaluations (40) or tokens (1e9tok)",
        )
    return budget


def _plans(plan: PlanLike | Sequence[PlanLike] | None) -> tuple[ContextPlan, ...]:
    if plan is None:
        return ()
    several = isinstance(plan, Sequence) and not isinstance(plan, str)
    return tuple(map(as_plan, plan)) if several else (as_plan(plan),)  # type: ignore[arg-type]


def _lengths(
    to: Length | None, stages: Sequence[Length] | None, plans: Sequence[ContextPlan]
) -> tuple[int, ...]:
    """The length of each stage; rising order is checked with the settings."""
    target = None if to is None else as_length(to, "to")
    if stages is not None:
        lengths = tuple(as_length(length, "stages") for length in as_members(stages, "stages"))
        if target is not None and lengths and lengths[-1] != target:
            raise InvalidValue(
                "stages",
                ", ".join(map(format_length, lengths)),
                f"the last must be the target, {format_length(target)}",
                "end with it, or leave out `to`",
            )
        return lengths
    if target is None and plans:
        target = plans[-1].target_length
    if target is None:
        raise InputError("give the length to train for (`to`), `stages`, or a `plan`")
    return (target,)


def _steps(
    steps: int | Sequence[int] | None, recipe: TrainingRecipe | None, stages: int
) -> tuple[int, ...]:
    if steps is None:
        if recipe is None:
            raise InputError("give the number of steps (`steps`), or a recipe (`recipe`)")
        return recipe.steps[:stages]
    if isinstance(steps, int):
        return (steps,)
    if not isinstance(steps, list | tuple) or not steps:
        raise InvalidValue("steps", steps, "must be a number or a list", "write [400, 600]")
    return tuple(steps)


@contextmanager
def _together() -> Iterator[Ranks | None]:
    """The ranks under torchrun, else None; one that fails tells those that wait for it."""
    if started() == 1:
        yield None
        return
    from ropewalk.models.ranks import Ranks

    with Ranks.of_environment() as ranks:
        yield ranks


@contextmanager
def _held(
    asked: _Asked, search_texts: Sequence[Any], ranks: Ranks | None
) -> Iterator[tuple[Path, RunDirectory | None]]:
    """The folder that training begins with, and the run directory, which the first rank holds."""
    from ropewalk.pipeline.training import joined
    from ropewalk.training.ranks import check_shared, on_first

    path = asked.path
    if ranks is not None:
        ranks.share("all came so far")  # or one has failed
    with ExitStack() as stack:
        stack.enter_context(joined(asked.execution))
        directory: RunDirectory | None = None

        def hold() -> None:
            nonlocal directory
            directory = stack.enter_context(
                RunDirectory(
                    path, "train", _identity(asked, search_texts), apart_from=asked.apart_from
                )
            )

        on_first(hold)
        if ranks is not None:
            check_shared(path)
        assert directory is not None or not first()
        yield asked.source.folder, directory


def _identity(asked: _Asked, search_texts: Sequence[Any]) -> dict[str, object]:
    """The identity of a run's computation; the texts are checked by the store."""
    from ropewalk.training.stage import digest_of
    from ropewalk.training.start import config_sha256, weights_sha256

    recipe = None if asked.recipe is None else asked.recipe.name
    chosen: dict[str, object] = {
        "plans": [plan.id for plan in asked.plans],
        "method": asked.method,
        "recipe": recipe,
    }
    if asked.searches:
        chosen |= {
            "search_between": asked.search_between,
            "budget": None if asked.budget is None else list(asked.budget),
            "search_corpus_sha256": corpus_digest(search_texts),
        }
    tokens = asked.text.tokens
    return {
        "config_sha256": config_sha256(asked.source),
        "weights_sha256": weights_sha256(asked.source.folder),
        "present_plan": asked.source.present_plan.id,
        "tokens_sha256": None if tokens is None else digest_of(TokenStore(tokens)),
        **chosen,
        **asdict(asked.settings),
        "dtype": asked.execution.dtype,
        "device": "cpu" if asked.execution.on_cpu else "accelerator",
    }


@dataclass(frozen=True)
class _Planner:
    """Plans the stages of a run."""

    asked: _Asked
    search_texts: Sequence[Any]
    directory: RunDirectory | None
    progress: Progress
    notice: Notice

    def plan_of(self, number: int, folder: Path, stage: StageSettings) -> ContextPlan:
        source = resolve(str(folder))
        longer = stage.length != source.present_plan.target_length
        if longer and self.asked.searched(number):
            return self._searched(number, folder, stage.length)
        return self.planned(number, source, stage)

    def planned(self, number: int, source: Source, stage: StageSettings) -> ContextPlan:
        """The plan of a stage that is not searched, for the model or config that it begins with."""
        asked, present = self.asked, source.present_plan
        if asked.plans:
            given = asked.plan(number)
            # One plan for all stages: the later ones begin with a model that follows it.
            same = len(asked.plans) == 1 < number and _follows(present, given)
            return present if same else given
        if stage.length == present.target_length:
            return present
        from ropewalk.api.plan import plan

        now = present.longest(present.extended_layer).geometric_base
        parameters = {}
        if asked.method == "base_change" and asked.recipe is not None:
            base = asked.recipe.base(stage.length)
            if base is not None:
                parameters["base"] = max(base, now or base)
        # Such a method starts from the plain frequencies again, as YaRN's authors do.
        anew = now is None and any(each.geometric_start for each in stacked(asked.method or "ntk"))
        return plan(
            source,
            stage.length,
            asked.method,
            parameters=parameters,
            from_original=anew and asked.method is not None,
            after_training=True,
            progress=self.progress,
            notice=self.notice,
        ).plan

    def method_of(self, number: int, stage: StageSettings) -> str:
        """The method of a stage, for a preview."""
        asked = self.asked
        if asked.plans:
            return asked.plan(number).provenance.get("methods", "plan")
        if asked.searched(number):
            return SEARCH
        if stage.length == asked.source.present_plan.target_length:
            return "unmodified"
        return asked.method or "ranked first by plan"

    def _searched(self, number: int, folder: Path, length: int) -> ContextPlan:
        from ropewalk.models.load import load
        from ropewalk.searching.model.forwards import FEWER, announce_search
        from ropewalk.searching.model.run import check_search, search_model
        from ropewalk.searching.model.settings import SearchSettings

        directory = self.directory
        assert directory is not None  # under torchrun nothing is searched
        settings = SearchSettings(
            target_length=length,
            evaluations=counted(self.asked.budget, "evaluations"),
            tokens=counted(self.asked.budget, "tokens"),
            seed=self.asked.settings.seed,
        )
        loaded = load(str(folder))
        check_search(loaded, self.search_texts, settings)
        begun = directory.path / f"search-{number}-search-measured.jsonl"
        announce_search(loaded, settings, begun, self.notice, FEWER)
        found = search_model(
            loaded,
            self.search_texts,
            settings,
            journal=lambda name: directory.journal(f"search-{number}-{name}"),
            progress=self.progress,
            notice=self.notice,
        )
        return found.plan


def _follows(present: ContextPlan, plan: ContextPlan) -> bool:
    """True if a model follows a plan up to its length, in whatever form its config says it."""
    now, own = (each.longest(each.extended_layer) for each in (present, plan))
    return (
        present.target_length == plan.target_length
        and now.attention_scaling == own.attention_scaling
        and bool(np.allclose(now.inverse_frequencies, own.inverse_frequencies, rtol=1e-6, atol=0))
    )
