"""One stage of a training run: a model, a plan and windows of one length to trained weights.

    STAGE/
      checkpoint-100/    where it goes on after a kill
      evaluate/step-…/   models of the last steps, with the plan in their config
      trained/           the weights at the end, with the config that the model came with

`trained` is written last and whole: where it is, the stage is done. Its config is as it was, so
that whoever exports it with the plan compares the result with the plan installed.
"""

from __future__ import annotations

import gc
import hashlib
import json
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
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import (
    MixedWindows,
    SpecialTokens,
    Window,
    Windows,
    WindowStream,
    long_steps,
)
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.exporting.manifest import Manifest
from ropewalk.exporting.staging import staged
from ropewalk.exporting.writing import copy_companions, write_json
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.load import checked_weights, load, quiet
from ropewalk.models.renamed import recompute_name
from ropewalk.models.slices import Empty, without_weights
from ropewalk.models.stock_config import stock_config
from ropewalk.progress import Notice, Progress, log_notice
from ropewalk.run_directory import versions
from ropewalk.torchrun import first
from ropewalk.training import checkpoint
from ropewalk.training.callback import KEPT, RopewalkCallback
from ropewalk.training.execution import CHECKPOINTS, TRAINED, Execution
from ropewalk.training.mixers import apart, shortened
from ropewalk.training.ranks import check_seen, on_first
from ropewalk.training.recording import KeepModels, Recorder, StepJournal
from ropewalk.training.saving import causal_of, plain_weights, save_whole, with_adapter
from ropewalk.training.settings import StageSettings, TrainingSettings
from ropewalk.training.trainer import RopewalkTrainer
from ropewalk.untrusted import read_json

ADAPTER = "adapter"
_DAY = 86_400


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
    """The place that it writes to."""
    keeps: bool = True
    """True if models of the last steps are kept for evaluation."""

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
    def reading(self) -> StageInput:
        """The windows of all steps. Packing a large store takes a while."""
        batch, steps = self.settings.batch, self.stage.steps
        epochs = self._epochs()
        available, count = len(epochs(0)), steps * batch
        windows: Sequence[Window] = WindowStream(epochs, count)
        if self.settings.mixed_windows:
            original = self.plan.original_length
            if original >= self.stage.window:
                raise InvalidValue(
                    "mixed_windows",
                    True,
                    f"documents of the original length ({original}) would be as long as windows of "
                    f"{self.stage.window}",
                    "train at a longer length",
                )
            short = WindowStream(self._epochs(original), count)
            windows = MixedWindows(windows, short, batch, steps)
            count = long_steps(steps) * batch
        return StageInput(windows, count / available, available)

    def _epochs(self, short: int | None = None) -> Callable[[int], Windows]:
        """Makes the windows of an epoch."""
        return partial(Windows, self.store, self.settings.windows(self.stage, short), self.special)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class StageInput:
    """The input of a stage."""

    windows: Sequence[Window]
    epochs: float
    """The epochs of the windows of its layout."""
    available: int
    """Windows of an epoch."""


def written_bytes(place: Path) -> int:
    """The bytes of checkpoints and models that a run holds already."""
    patterns = (f"{checkpoint.PREFIX}*", KEPT, "model", TRAINED, ADAPTER)
    folders = [folder for pattern in patterns for folder in place.glob(pattern)]
    folders += [folder for pattern in patterns for folder in place.glob(f"stage-*/{pattern}")]
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
    lora = job.settings.lora
    if lora is not None:
        with nullcontext() if parts is None else parts.standing_in():
            model = with_adapter(model, lora, seed=job.settings.seed)
    keep = job.stage.kept if job.keeps else ()
    callbacks: list[Any] = [
        RopewalkCallback(
            job.plan, data=_identity(job), by_current_length=job.settings.mixed_windows
        ),
        Recorder(job.stage, job.settings.batch, journal=journal, progress=progress, event=event),
        KeepModels(
            keep, lambda net, name: write_trained(net, job, job.place / KEPT / name, plan=job.plan)
        ),
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
        if lora is not None:
            save_whole(trainer.model, job.place / ADAPTER)
        write_trained(trainer.model, job, job.place / TRAINED)
        if job.rounding and first():
            notice(job.rounding)
    # They refer to each other, and a device does not ask for garbage before it says it is full.
    del trainer, model, parts, callbacks
    gc.collect()


def _check_seen(job: StageJob) -> None:
    """Refuse ranks that would train on different files, or for different settings."""
    if job.execution.ranks == 1:
        return
    weights = [job.source / "config.json", *checked_weights(job.source)]
    files = {path.name: path for path in weights}
    files |= {f"tokens/{path.name}": path for path in sorted(job.store.folder.glob("*-[0-9]*"))}
    values = {
        "data": _identity(job),
        "special tokens": asdict(job.special),
        "plan": job.plan.id,
        "settings": asdict(replace(job.settings, shares=None)),
        "stage": asdict(job.stage),
        "execution": asdict(job.execution),
        **{f"version of {name}": version for name, version in versions().items()},
    }
    check_seen(values, files)


def _parts(job: StageJob, notice: Notice) -> Empty | None:
    """The model without its weights, of which each of several ranks then reads its part; None if
    it is loaded whole."""
    if job.execution.ranks == 1:
        return None
    result = without_weights(job.source, getattr(torch, job.execution.trained_in))
    if isinstance(result, str):
        if first():
            notice(f"each rank loads the whole model before it is cut: {result}")
        return None
    return result


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
            notice(f"resuming from {whole[-2].name}, since {error}")
            whole.pop()
    trained = int(whole[-1].name.removeprefix(checkpoint.PREFIX))
    on_first(lambda: journal.whole(trained) if journal is not None else None)
    return str(whole[-1])


def _arguments(job: StageJob) -> TrainingArguments:
    settings, execution = job.settings, job.execution
    warms_up = settings.decay == "constant" and settings.warmup
    try:
        return TrainingArguments(
            output_dir=str(job.place),
            max_steps=job.stage.steps,
            per_device_train_batch_size=execution.windows_at_once,
            gradient_accumulation_steps=execution.accumulated(settings.batch),
            learning_rate=settings.learning_rate,
            lr_scheduler_type="constant_with_warmup" if warms_up else settings.decay,
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
            **({recompute_name(TrainingArguments): True} if execution.recompute else {}),
            dataloader_pin_memory=not execution.on_cpu,
            ddp_timeout=_DAY,
        )
    except ImportError as error:
        raise Unsupported(str(error)) from None


def _identity(job: StageJob) -> dict[str, object]:
    """The identity of the input, for the check at a resume."""
    return {
        "tokens_sha256": digest_of(job.store),
        "special_tokens": asdict(job.special),
        "windows_per_step": job.settings.batch,
        "settings": asdict(job.settings),
        "stage": asdict(job.stage),
    }


def digest_of(store: TokenStore) -> str:
    """A digest of all tokens, by the checksums of the shards, and of what their domains are called,
    if there are several."""
    identity = "".join("".join(shard.checksums.values()) for shard in store.shards)
    if len(store.domains) > 1:
        identity += json.dumps(store.domains)
    return hashlib.sha256(identity.encode()).hexdigest()


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
            Manifest.of(staging, runtime="transformers").write(staging)

    on_first(write)


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
