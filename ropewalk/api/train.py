"""`train`: continued training at a longer context, with a plan, and the trained model exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

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
from ropewalk.api.report import keep_report
from ropewalk.arguments import Length, as_length, as_list, as_members, as_path
from ropewalk.budget import Budget, as_budget
from ropewalk.context_plan import ContextPlan
from ropewalk.costs.machines import machine
from ropewalk.data.documents import Corpus, as_documents
from ropewalk.data.windows import Arrangement
from ropewalk.errors import InvalidValue
from ropewalk.models.dividing import all_ranks
from ropewalk.models.source import resolve, stated_assumptions
from ropewalk.options import (
    Advanced,
    Option,
    RunFolder,
    called,
    check_previewed,
    command,
    preview_ends,
    previewed_by,
    request,
    taken,
)
from ropewalk.progress import Notice, Progress, log_notice, shown
from ropewalk.reports.figures import keep_figures
from ropewalk.torchrun import first
from ropewalk.training import recipes
from ropewalk.training.execution import Execution
from ropewalk.training.preview import preview
from ropewalk.training.request import TrainRequest
from ropewalk.training.results import Trained
from ropewalk.training.settings import Decay, TrainingSettings
from ropewalk.training.text import TrainingText


def _plans(plan: PlanLike | Sequence[PlanLike], _: str) -> tuple[ContextPlan, ...]:
    """The plan of all stages, or of each."""
    several = isinstance(plan, Sequence) and not isinstance(plan, str)
    return tuple(map(as_plan, plan)) if several else (as_plan(plan),)  # type: ignore[arg-type]


def _in_turn(lengths: Sequence[Length], key: str) -> tuple[int, ...]:
    return tuple(as_length(length, key) for length in as_members(lengths, key))


def _search_budget(value: int | str, key: str) -> Budget:
    budget = as_budget(value, key)
    if budget.unit == "seconds":
        raise InvalidValue(
            key,
            value,
            "the search of a stage cannot be limited in time",
            "write evaluations (40) or tokens (1e9tok)",
        )
    return budget


@command(
    "train",
    "For training",
    example="ropewalk train path/to/model --recipe anchor --to 32k --corpus books.jsonl",
)
@previewed_by(preview)
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
        Length | None,
        Option("Target length, such as 32k (default: that of the plan).", convert=as_length),
    ] = None,
    plan: Annotated[
        PlanLike | Sequence[PlanLike] | None,
        Option(
            "A plan of `ropewalk plan`; one for each stage, or one for all.", "FILE", convert=_plans
        ),
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
        Option(
            "Use this paper's values for all options that are not given.",
            convert=lambda name, _: recipes.named(name),
        ),
    ] = None,
    steps: Annotated[
        int | Sequence[int] | None,
        Option("Steps, one number for all stages or for each (default: the recipe's).", "N[,N…]"),
    ] = None,
    stages: Annotated[
        Sequence[Length] | None,
        Option(
            "Train at these lengths in turn; each stage's plan builds on the one before.",
            convert=_in_turn,
        ),
    ] = None,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep everything here, and resume from here (default: runs/train-MODEL-LENGTH).",
            command="train",
            convert=as_path,
        ),
    ] = None,
    layout: Annotated[
        Arrangement | None,
        Advanced("How windows are made of documents (default: the recipe's, or anchor)."),
    ] = None,
    chunks: Annotated[
        int, Advanced("Parts of a document that the layouts interleaved and skip make.")
    ] = 2,
    domain_tags: Annotated[
        bool,
        Advanced("Begin each document with the name of its domain, which is not itself learnt."),
    ] = False,
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
        Advanced(
            "Tokens of a window (default: the length of the stage, or the recipe's).",
            convert=as_length,
        ),
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
            convert=_search_budget,
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
        Length,
        Advanced("The number of tokens from which a document counts as long.", convert=as_length),
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
        Advanced(
            "Also log to tensorboard or wandb, as transformers.Trainer does.",
            "NAME",
            convert=as_list,
        ),
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
    without a recipe, give `steps`. A `window` is as long as the stage's length unless it is given.

    The directory `run` (by default `runs/train-MODEL-LENGTH`) keeps everything; called again with
    the same arguments, an interrupted run resumes. Under `torchrun`, weights are sharded over all
    ranks but those that share a window (`sequence_parallel`) or hold a copy (`replicate`).

    `train.preview(…)` calculates what a run would take, here or `on` another machine, by the
    formulas of `cost`; a config is enough for it.
    """
    values = locals()
    with called("train", train, values) as (_, progress), all_ranks(1, "train") as ranks:
        check_previewed(on)
        # First: without text, nothing else matters.
        text = TrainingText.given(corpus, field, weights, allow_download=allow_download)
        source = resolve(model, allow_download=allow_download)
        if on is None:
            source.folder  # noqa: B018 - says why there are no weights
        stated_assumptions(source, notice, strict=strict)
        there = None if on is None else machine(on)
        execution = request(Execution, train, values, sequence=sequence_parallel, on=there)
        given = taken(TrainingSettings, train, values)
        derived = {"source": source, "text": text, "execution": execution, "given": given}
        options = request(TrainRequest, train, values, **derived)
        options.check(notice)
        preview_ends(options)  # a preview leaves the function here, with what it calculated
        searches = options.planner.searches
        search_texts = as_documents(search_corpus, field, notice, corpus) if searches else []
        from ropewalk.pipeline.trained import Training  # needs torch, which a preview does not

        trained = Training(options, search_texts, progress, notice).run(ranks)
        if first():  # of the ranks
            keep_figures({"training": trained.charts()}, options.path / "figures", notice)
            keep_report(options.path, notice)
        return trained
