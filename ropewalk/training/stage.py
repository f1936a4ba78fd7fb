"""One stage of a training run: a model, a plan and windows of one length to trained weights.

    STAGE/
      checkpoint-100/    where it goes on after a kill
      evaluate/step-…/   models of the last steps, with the plan in their config
      trained/           the weights at the end, with the config that the model came with

`trained` is written last and whole: where it is, the stage is done. Its config is as it was, so
that whoever exports it with the plan compares the result with the plan installed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, TrainingArguments

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.costs.estimates import HALF, Way, Work, step
from ropewalk.costs.here import check_training, memory_of, sizes_where_known
from ropewalk.costs.machines import Machine
from ropewalk.data.mixed import MixedWindows, long_steps
from ropewalk.data.store import TokenStore
from ropewalk.data.stream import Stream
from ropewalk.data.windows import SpecialTokens, Window, Windows, WindowSettings
from ropewalk.errors import InputError, InvalidValue, UnknownName, Unsupported
from ropewalk.exporting.manifest import Manifest
from ropewalk.exporting.staging import staged
from ropewalk.exporting.writing import copy_companions, write_json
from ropewalk.lengths import format_length
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import Config, load_config
from ropewalk.models.load import checked_weights, load, quiet
from ropewalk.models.slices import Empty, without_weights
from ropewalk.progress import Notice, Progress, log_notice
from ropewalk.runtimes.configs import stock_config
from ropewalk.runtimes.features import check_plan, matrix
from ropewalk.torchrun import first, neighbours, started
from ropewalk.training import checkpoint
from ropewalk.training.adapters import plain_weights, with_adapter
from ropewalk.training.callback import KEPT, RopewalkCallback
from ropewalk.training.mixers import apart, shortened
from ropewalk.training.parallel import Division
from ropewalk.training.ranks import check_seen, on_first
from ropewalk.training.recording import KeepModels, Recorder, StepJournal
from ropewalk.training.saving import causal_of, save_whole
from ropewalk.training.settings import StageSettings, TrainingSettings
from ropewalk.training.trainer import RopewalkTrainer
from ropewalk.untrusted import read_json

TRAINED, ADAPTER = "trained", "adapter"
CHECKPOINTS = 2
"""Whole checkpoints that are kept: one could be damaged."""
_DAY = 86_400
# What transformers before 5.23 calls it is deprecated.
_RECOMPUTE = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in TrainingArguments.__dataclass_fields__
)


@dataclass(frozen=True)
class Execution:
    """The execution of a training; none of it changes the results, but for rounding."""

    device: str = "auto"
    dtype: str = "auto"
    """Of the weights, while they are trained and as they are written: float32, or bfloat16. `auto`
    trains float32 weights, computes in bfloat16 on an accelerator, and writes in the model's own
    type."""
    sequence: int = 1
    replicate: int = 1
    windows_at_once: int = 1
    recompute: bool = False
    """Compute activations again in the backward pass, which saves memory."""
    save_every: int = 100
    report_to: tuple[str, ...] = ()

    @property
    def trained_in(self) -> str:
        """The number format of the weights while they are trained."""
        return "float32" if self.dtype == "auto" else self.dtype

    @property
    def on_cpu(self) -> bool:
        if self.device == "auto":
            return not torch.cuda.is_available()
        return self.device == "cpu"

    @property
    def ranks(self) -> int:
        return started()

    def division(self) -> Division:
        return Division.of_world(self.ranks, replicate=self.replicate, sequence=self.sequence)

    def accumulated(self, batch: int) -> int:
        """The number of batches that are read for a step."""
        readers = self.division().readers * self.windows_at_once
        if batch % readers:
            raise InvalidValue(
                "batch",
                batch,
                f"must be a multiple of {readers}: {self.division().readers} readers, "
                f"{self.windows_at_once} windows at once",
                "choose another number of windows for a step, or of ranks",
            )
        return batch // readers


def check_reports(names: Sequence[str]) -> None:
    """Refuse what transformers cannot log to, before anything is computed."""
    if not names:
        return
    from transformers.integrations import integration_utils as known

    present = known.get_available_reporting_integrations()
    for name in names:
        if name not in known.INTEGRATION_TO_CALLBACK:
            raise UnknownName("report_to", name, known.INTEGRATION_TO_CALLBACK)
        if name not in present:
            raise InvalidValue(
                "report_to", name, "is not installed here", f"install {name}, or leave it out"
            )


@dataclass(frozen=True)
class StageJob:
    """All that one stage works on."""

    source: Path
    """The model that it starts from."""
    plan: ContextPlan
    store: TokenStore
    special: SpecialTokens
    stage: StageSettings
    settings: TrainingSettings
    execution: Execution
    place: Path
    """Where it writes."""
    keeps: bool = True
    """Whether models of the last steps are kept for evaluation."""

    @property
    def done(self) -> bool:
        return (self.place / TRAINED / "config.json").is_file()

    @cached_property
    def stored_in(self) -> torch.dtype:
        """The number format of the weights that it starts from."""
        return Checkpoint.open(str(self.source)).dtype

    @property
    def written_in(self) -> torch.dtype:
        """The number format of the trained weights on disk."""
        auto = self.execution.dtype == "auto"
        return self.stored_in if auto else getattr(torch, self.execution.dtype)

    @property
    def rounding(self) -> str:
        """A sentence on what writing does to the trained weights; empty if it keeps them."""
        if self.execution.trained_in == _name_of(self.written_in):
            return ""
        return (
            f"the weights were trained in {self.execution.trained_in} and are written in "
            f"{_name_of(self.written_in)}, the model's own format; this rounds them, and moves "
            f"logits. To keep them as trained, set `dtype` to {self.execution.trained_in}"
        )

    @cached_property
    def reading(self) -> Reading:
        """Packing a large store takes a while."""
        return _reading(self)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Reading:
    """The input of a stage."""

    windows: Sequence[Window]
    epochs: float
    """Of the windows of its layout."""
    available: int
    """Windows of an epoch."""


def _reading(job: StageJob) -> Reading:
    """The windows of all steps of a stage."""
    stage, settings = job.stage, job.settings
    batch = settings.batch
    long = _stream(job, settings.windows(stage), batch * stage.steps)
    available = len(long.first_epoch)
    count = stage.steps * batch
    windows: Sequence[Window] = long.windows
    if settings.mixed_windows:
        original = job.plan.original_length
        if original >= stage.window:
            raise InvalidValue(
                "mixed_windows",
                True,
                f"documents of the original length ({original}) would be as long as windows of "
                f"{stage.window}",
                "train at a longer length",
            )
        short = _stream(job, settings.windows(stage, original), count)
        windows = MixedWindows(windows, short.windows, batch, stage.steps)
        count = long_steps(stage.steps) * batch
    return Reading(windows, count / available, available)


@dataclass(frozen=True)
class _Streamed:
    windows: Stream
    first_epoch: Windows


def _stream(job: StageJob, settings: WindowSettings, count: int) -> _Streamed:
    make = partial(_epoch, job.store, settings, job.special)
    return _Streamed(Stream(make, count), make(0))


def _epoch(
    store: TokenStore, settings: WindowSettings, special: SpecialTokens, epoch: int
) -> Windows:
    return Windows(store, settings, special, epoch)


def check_stage(
    source: Path | Config,
    plan: ContextPlan,
    stage: StageSettings,
    settings: TrainingSettings,
    execution: Execution,
) -> None:
    """Refuse what could not be trained or exported at the end, before anything is computed.

    `source` is the model that the stage begins with, or the config that it will have.
    """
    if plan.target_length < stage.window:
        raise InvalidValue(
            "plan",
            f"up to {format_length(plan.target_length)}",
            f"is shorter than the windows of {format_length(stage.window)}",
            "give a plan for that length, or shorter windows (`window`)",
        )
    if plan.target_length < stage.length:
        raise InvalidValue(
            "plan",
            f"up to {format_length(plan.target_length)}",
            f"is shorter than the {format_length(stage.length)} that is trained for",
            "give a plan for that length, or a shorter target (`to`)",
        )
    if settings.mixed_windows and execution.sequence > 1:
        raise Unsupported(
            "mixed windows choose a schedule by the positions at hand, and ranks of a sequence "
            "group hold different ones (`sequence_parallel`); use one rank for each window, or "
            "leave out `mixed_windows`"
        )
    config = load_config(source)
    check_plan(plan, config, str(source) if isinstance(source, Path) else "the stage's model")
    check_step(config, stage, settings, execution)
    _check_exportable(plan, config, mixed=settings.mixed_windows)
    execution.accumulated(settings.batch)


def check_step(
    config: Config, stage: StageSettings, settings: TrainingSettings, execution: Execution
) -> None:
    """Refuse one whose memory is not here."""
    if (cost := step_cost(config, stage, settings, execution)) is not None:
        check_training(*cost)


def step_cost(
    config: Config, stage: StageSettings, settings: TrainingSettings, execution: Execution
) -> tuple[Work, Way] | None:
    """What a step takes on each rank, by the formulas of `ropewalk cost`; None where these do not
    know the model or the machine."""
    sizes, ranks = sizes_where_known(config), execution.ranks
    there = memory_of(torch.device("cpu" if execution.on_cpu else "cuda"))
    if sizes is None or there is None:
        return None
    trained = getattr(torch, execution.trained_in).itemsize
    computed = trained if execution.on_cpu else HALF
    each = Machine("rank", ranks, there // neighbours() if execution.on_cpu else there)
    work = Work(sizes, stage.window, each, stage.window, computed)
    own = step(
        work,
        ranks // execution.replicate,
        execution.sequence,
        recompute=execution.recompute,
        lora=settings.lora is not None,
        window=stage.window,
        at_once=execution.windows_at_once,
        trained=trained,
    )
    return work, own


def _check_exportable(plan: ContextPlan, config: Config, *, mixed: bool) -> None:
    """A trained model follows its plan to the digit: nothing is approximated for it."""
    cells = {feature: row["transformers"] for feature, row in matrix(plan, config).items()}
    bad = {key: cell for key, cell in cells.items() if cell.fit in ("refused", "approximated")}
    if mixed and bad.keys() & {"switching by length", "dynamic NTK"}:
        raise Unsupported(
            "mixed windows need a method whose plan fits short and long factors, with one "
            "attention scaling (linear, ntk, llama3, base_change, longrope, a search); choose "
            "another method than YaRN or dynamic NTK, or leave out `mixed_windows`"
        )
    if bad:
        told = "; ".join(f"{key}: {cell}" for key, cell in bad.items())
        raise Unsupported(
            f"stock transformers cannot follow this plan exactly, as a trained model must "
            f"({told}); plan without that, or by another method"
        )


def bytes_on_disk(whole: int, settings: TrainingSettings, *, keeps: bool = True) -> int:
    """What a run writes at most: checkpoints of one stage, models to evaluate, the trained one, and
    the export of each stage.

    `whole` is the size of the weights in float32; `keeps`, whether there are models to evaluate.
    """
    # Weights and two moments of each.
    checkpoints = (CHECKPOINTS + 1) * (3 if settings.lora is None else 1)
    kept = len(settings.stages[-1].kept) if keeps else 0
    return whole * (checkpoints + kept + 1 + len(settings.stages))


def written_bytes(place: Path) -> int:
    """The bytes of checkpoints and models that a run holds already."""
    patterns = (f"{checkpoint.PREFIX}*", KEPT, "model", TRAINED, ADAPTER)
    folders = [own for pattern in patterns for own in place.glob(pattern)]
    folders += [own for pattern in patterns for own in place.glob(f"stage-*/{pattern}")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def train_stage(
    job: StageJob,
    *,
    journal: StepJournal | None,
    progress: Progress,
    event: Callable[..., None],
    notice: Notice = log_notice,
) -> None:
    """Train, from the last whole checkpoint on. All ranks take part."""
    if job.done:
        return
    _check_seen(job)
    read, parts = job.reading, _parts(job, notice)
    model = (
        load(str(job.source), dtype=job.execution.trained_in, device="cpu").model
        if parts is None
        else parts.model
    )
    if job.settings.lora is not None:
        with nullcontext() if parts is None else parts.standing_in():
            model = with_adapter(model, job.settings.lora, seed=job.settings.seed)
    adapted = job.settings.lora is not None
    keep = job.stage.kept if job.keeps else ()
    callbacks: list[Any] = [
        RopewalkCallback(
            job.plan,
            data=_identity(job),
            by_current_length=job.settings.mixed_windows,
        ),
        Recorder(job.stage, job.settings.batch, journal=journal, progress=progress, event=event),
        KeepModels(keep, partial(_keep, job)),
    ]
    with quiet(), _places_of(job):
        trainer = RopewalkTrainer(
            model,
            _arguments(job),
            train_dataset=read.windows,
            division=job.execution.division(),
            weights=parts,
            callbacks=callbacks,
        )
        trainer.remove_callback(PrinterCallback)
        if (mixers := apart(trainer.model)) and first():
            notice(
                f"{len(mixers)} parts of layers mix tokens outside attention, and read each "
                f"document by itself: {shortened(mixers)}"
            )
        trainer.train(resume_from_checkpoint=_resumed(job, journal, notice))
        if adapted:
            save_whole(trainer.model, job.place / ADAPTER)
        write_trained(trainer.model, job, job.place / TRAINED)
        if job.rounding and first():
            notice(job.rounding)


def _check_seen(job: StageJob) -> None:
    """Refuse ranks that would train on different files, or for different settings."""
    if job.execution.ranks == 1:
        return
    weights = [job.source / "config.json", *checked_weights(job.source)]
    files = {path.name: path for path in weights}
    files |= {f"tokens/{path.name}": path for path in sorted(job.store.folder.glob("*-[0-9]*"))}
    told = {
        "data": _identity(job),
        "special tokens": asdict(job.special),
        "plan": job.plan.id,
        "settings": asdict(replace(job.settings, shares=None)),
        "stage": asdict(job.stage),
        "execution": asdict(job.execution),
    }
    check_seen(told, files)


def _parts(job: StageJob, notice: Notice) -> Empty | None:
    """The model without its weights, of which each of several ranks then reads its part; None where
    it is loaded whole."""
    if job.execution.ranks == 1:
        return None
    found = without_weights(job.source, getattr(torch, job.execution.trained_in))
    if isinstance(found, str):
        if first():
            notice(f"each rank loads the whole model before it is cut: {found}")
        return None
    return found


def _resumed(job: StageJob, journal: StepJournal | None, notice: Notice) -> str | None:
    """The last checkpoint that is not damaged, with a line of the journal for each of its steps."""
    checkpoint.remove_leftovers(job.place)
    whole = checkpoint.checkpoints_in(job.place)
    if not whole:
        return None
    while len(whole) > 1:
        try:
            checkpoint.check(whole[-1])
            break
        except InputError as error:
            notice(f"{error}: the run resumes from {whole[-2].name}")
            whole.pop()
    trained = int(whole[-1].name.removeprefix(checkpoint.PREFIX))
    on_first(lambda: journal.whole(trained) if journal is not None else None)
    return str(whole[-1])


def _arguments(job: StageJob) -> TrainingArguments:
    settings, execution = job.settings, job.execution
    try:
        return TrainingArguments(
            output_dir=str(job.place),
            max_steps=job.stage.steps,
            per_device_train_batch_size=execution.windows_at_once,
            gradient_accumulation_steps=execution.accumulated(settings.batch),
            learning_rate=settings.learning_rate,
            lr_scheduler_type=_decay(settings),
            warmup_steps=settings.warmup,
            weight_decay=settings.weight_decay,
            adam_beta1=settings.betas[0],
            adam_beta2=settings.betas[1],
            max_grad_norm=settings.clip,
            optim="adamw_torch",
            logging_steps=1,
            save_strategy="steps",
            save_steps=execution.save_every,
            save_total_limit=CHECKPOINTS,
            seed=settings.seed,
            report_to=list(execution.report_to),
            run_name=job.place.name,
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=execution.on_cpu,
            bf16=execution.dtype == "auto" and not execution.on_cpu,
            **({_RECOMPUTE: True} if execution.recompute else {}),
            dataloader_pin_memory=not execution.on_cpu,
            ddp_timeout=_DAY,
        )
    except ImportError as error:
        raise Unsupported(str(error)) from None


def _decay(settings: TrainingSettings) -> str:
    if settings.decay == "constant" and settings.warmup:
        return "constant_with_warmup"
    return settings.decay


def _identity(job: StageJob) -> dict[str, object]:
    """The identity of the input, for the check at a resume."""
    windows, short = asdict(job.settings.windows(job.stage)), None
    del windows["longest"]  # always None here; older checkpoints do not have it
    if job.settings.mixed_windows:
        short = asdict(job.settings.windows(job.stage, job.plan.original_length))
    return {
        "tokens_sha256": digest_of(job.store),
        "windows": windows,
        "windows_per_step": job.settings.batch,
        "mixed_windows": short or False,
    }


def digest_of(store: TokenStore) -> str:
    """Of all tokens, by the checksums of the shards."""
    sums = "".join("".join(shard.checksums.values()) for shard in store.shards)
    return hashlib.sha256(sums.encode()).hexdigest()


def write_trained(
    model: Any, job: StageJob, folder: Path, *, plan: ContextPlan | None = None
) -> None:
    """Write whole plain weights with all else that the model came with, on all ranks together.

    With `plan`, the config follows it.
    """
    source, weights = job.source, {}
    for name, weight in plain_weights(model):
        if first():
            weights[name] = weight.to("cpu", job.written_in, copy=True)

    def write() -> None:
        size = sum(weight.nbytes for weight in weights.values())
        with staged(folder, needs_bytes=size, overwrite=True) as staging:
            causal_of(model).save_pretrained(str(staging), state_dict=weights)
            copy_companions(source, staging)
            config = read_json(source / "config.json")
            assert isinstance(config, dict)
            if job.written_in != job.stored_in:
                config.pop("torch_dtype", None)  # transformers 4's key
                config["dtype"] = _name_of(job.written_in)
            if plan is not None:
                config = stock_config(config, plan)
                write_json(staging / PLAN, plan.to_json())
            write_json(staging / "config.json", config)
            Manifest.of(staging).write(staging)

    on_first(write)


def _keep(job: StageJob, model: Any, name: Path) -> None:
    write_trained(model, job, job.place / KEPT / name, plan=job.plan)


@contextmanager
def _places_of(job: StageJob) -> Iterator[None]:
    """TensorBoard writes into the run."""
    key = "TENSORBOARD_LOGGING_DIR"
    former = os.environ.get(key)
    os.environ.setdefault(key, str(job.place / "tensorboard"))
    try:
        yield
    finally:
        if former is None:
            os.environ.pop(key, None)
