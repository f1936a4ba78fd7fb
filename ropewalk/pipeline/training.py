"""A training run, stage after stage: plan, train, export, and start the next from the export.

    RUN/
      training.jsonl     every step of every stage
      start/             random weights, where the run begins with a config alone
      tokens/            the corpus as tokens
      stage-1/           each stage but the last; the last has its places in RUN itself
        plan.json        what the stage is trained with
        model/           the trained model, proven to follow the plan
        export.json      the proof

A stage begins with the export of the one before, so its plan composes on that one's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import SpecialTokens
from ropewalk.errors import InputError
from ropewalk.evaluation.encoding import Encoder
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.manifest import check_unchanged
from ropewalk.lengths import format_length
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.load import load_stock_config
from ropewalk.models.source import resolve
from ropewalk.outputs import check_room
from ropewalk.progress import Notice, Progress, Status
from ropewalk.run_directory import RunDirectory, check_kept
from ropewalk.runtimes import targets
from ropewalk.runtimes.reading import STOCK
from ropewalk.torchrun import local_rank
from ropewalk.training.callback import KEPT, TERMINATED
from ropewalk.training.checkpoint import checkpoints_in
from ropewalk.training.execution import (
    TRAINED,
    Execution,
    bytes_on_disk,
    check_stage,
    with_original,
)
from ropewalk.training.journal import JOURNAL
from ropewalk.training.ranks import on_first
from ropewalk.training.recording import StepJournal
from ropewalk.training.request import TrainRequest
from ropewalk.training.results import Trained, TrainedStage
from ropewalk.training.settings import StageSettings, TrainingSettings
from ropewalk.training.stage import ADAPTER, StageJob, train_stage, written_bytes
from ropewalk.untrusted import read_json

MODEL, EXPORT = "model", "export.json"
_ALONE = Lock()
"""The Trainer keeps its state in the process, so the trainings of several threads take turns."""
_FEW = 0.05
"""The share of the tokens in documents longer than the model serves, below which a notice is
given."""

Planner = Callable[[int, Path, StageSettings], ContextPlan]
"""The plan of a stage, by its number and the model that it starts from."""


@dataclass(frozen=True)
class TrainingRun:
    """A whole run, once its text is tokens."""

    request: TrainRequest
    settings: TrainingSettings
    """Those of the request, with the tags of domains as tokens."""
    store: TokenStore
    special: SpecialTokens
    plan_of: Planner
    directory: RunDirectory | None
    """Held by the first rank, or the only process."""
    progress: Progress
    notice: Notice
    """Both unheard on all ranks but the first."""

    @property
    def path(self) -> Path:
        return self.request.path

    def run(self) -> Trained:
        """Train every stage that is not done. All ranks return the same."""
        trained, source, stages = [], self.request.source.folder, self.settings.stages
        on_first(self._check_kept)
        for number, stage in enumerate(stages, start=1):
            last = number == len(stages)
            place = self.path if last else self.path / f"stage-{number}"
            job = self._job(number, stage, source, place, last=last)
            exported = self._exported(job, number)
            trained.append(self._stage(job, number))
            source = place / MODEL
        adapter = self.path / ADAPTER
        return Trained(
            model=self.request.source.short_name,
            recipe=None if self.request.recipe is None else self.request.recipe.name,
            run=str(self.path),
            plan=job.plan,
            stages=tuple(trained),
            exported=exported,
            kept=tuple(path.name for path in self._kept()),
            adapter=str(adapter) if adapter.is_dir() else None,
        )

    def _kept(self) -> list[Path]:
        """The models that are kept for evaluation, in the order of training."""
        folders = (self.path / KEPT / f"step-{step}" for step in self.settings.stages[-1].kept)
        return [folder for folder in folders if folder.is_dir()]

    def _check_kept(self) -> None:
        for folder in self._kept():
            check_unchanged(folder, "go on without it")

    def _job(
        self, number: int, stage: StageSettings, source: Path, place: Path, *, last: bool
    ) -> StageJob:
        """The plan of a stage is written once all that can be refused beforehand has not been."""
        job: StageJob | None = None

        def of(plan: ContextPlan) -> StageJob:
            settings, execution = self.settings, self.request.execution
            if settings.mixed_windows:
                plan = with_original(plan)
            texts = self.store, self.special
            return job_of(source, plan, texts, stage, settings, execution, place, keeps=last)

        def decide() -> None:
            nonlocal job
            file = place / PLAN
            if file.is_file():
                check_kept(file, self.path)
                plan = ContextPlan.read(file)
            else:
                plan = replace(self.plan_of(number, source, stage), model=self.request.source.name)
            job = of(plan)
            if not (job.done or _is_exported(job)):
                self._check_before(job, number)
            if not file.is_file():
                assert self.directory is not None, "the first rank holds it"
                self.directory.seal(str(file.relative_to(self.path)), plan.dumps())

        on_first(decide)
        return job or of(ContextPlan.read(place / PLAN))

    def _exported(self, job: StageJob, number: int) -> Exported:
        """Train, and prove that the trained model follows its plan in stock transformers."""
        whole, proof = job.place / MODEL, job.place / EXPORT
        if not _is_exported(job):
            if not job.done:
                self._train(job, number)
            on_first(lambda: self._export(job, whole, proof))
        else:
            on_first(lambda: check_unchanged(whole))
        on_first(lambda: _clean(job))
        on_first(lambda: check_kept(proof, self.path))
        return replace(Exported.from_json(read_json(proof), f"{proof}: "), path=whole)

    def _export(self, job: StageJob, whole: Path, proof: Path) -> None:
        self.progress(Status("export", 0.0))
        stock = targets()[STOCK]
        exported = stock.write(str(job.place / TRAINED), job.plan, whole, overwrite=True)
        if job.rounding:
            exported = exported.with_warnings((job.rounding,))
        assert self.directory is not None, "the first rank holds it"
        self.directory.keep(str(proof.relative_to(self.path)), exported.to_json())

    def _train(self, job: StageJob, number: int) -> None:
        try:
            train_in(self.directory, job, number, self.progress, self.notice)
        except SystemExit as ended:
            if ended.code == TERMINATED:
                self.notice(f"terminated; saved in {self.path}; run the same command to continue")
            raise

    def _stage(self, job: StageJob, number: int) -> TrainedStage:
        """The stage as its journal has it, which only the first rank holds."""
        message: list[object] = [None]
        if self.directory is not None:
            message = [trained_stage(job, self.directory, number).to_json()]
        if dist.is_initialized():
            dist.broadcast_object_list(message)
        return TrainedStage.from_json(message[0], "stage")

    def _check_before(self, job: StageJob, number: int) -> None:
        """Refuse faults that would be found late, or not at all."""
        read = job.reading
        present = resolve(str(job.source)).present_plan
        check_documents(self.store, present.target_length, job, self.notice)
        if number == 1:
            whole = Checkpoint.open(str(job.source)).bytes(torch.float32)
            needed = bytes_on_disk(whole, self.settings) - written_bytes(self.path)
            check_room(self.path, needed, "training")
        if read.epochs > 1:
            self.notice(
                f"the text fills {read.available:,} windows of {format_length(job.stage.window)}, "
                f"and the {job.stage.steps:,} steps at {format_length(job.stage.length)} read each "
                f"{read.epochs:.1f} times"
            )


def _is_exported(job: StageJob) -> bool:
    return (job.place / EXPORT).is_file() and (job.place / MODEL / "config.json").is_file()


def _clean(job: StageJob) -> None:
    """Remove what an exported stage needs no more; a kill may have come before."""
    shutil.rmtree(job.place / TRAINED, ignore_errors=True)
    if not job.keeps:
        for folder in checkpoints_in(job.place):
            shutil.rmtree(folder, ignore_errors=True)


def check_documents(store: TokenStore, served: int, job: StageJob, notice: Notice) -> None:
    """Refuse text from which nothing can be learnt about a longer context."""
    across = job.settings.layout in ("full", "bookends", "skip")
    if across or job.stage.window <= served:
        return
    long = store.lengths > served
    share = float(store.lengths[long].sum() / store.lengths.sum())
    text = (
        f"{int(long.sum()):,} of {len(store):,} documents are longer than "
        f"{format_length(served)}, which the model serves already (the longest has "
        f"{int(store.lengths.max()):,} tokens)"
    )
    if not long.any():
        raise InputError(
            f"{text}, and with the layout {job.settings.layout} no token sees beyond its document, "
            "so nothing about longer contexts would be trained; give longer documents (`corpus`), "
            "or train across documents with the layout full or skip (`layout`)"
        )
    if share < _FEW:
        notice(
            f"{text}; they hold only {share:.1%} of the tokens, so the model sees little text at "
            f"the new length; `long_share` with `long_from` {served + 1} reads them more often"
        )


def check_store(store: TokenStore, tokenizer: Any, model: Path, progress: Progress) -> None:
    """Refuse tokens of another tokenizer, changed ones, and ids that the model does not know."""
    if store.tokenizer_sha256 != Encoder(tokenizer).sha256:
        raise InputError(
            f"{store.folder}: its tokens come from a tokenizer other than the model's; build it "
            "again with this model (`ropewalk data build`), or give the model that it was built "
            "for"
        )
    config = load_stock_config(model).get_text_config()
    store.check(progress, vocabulary=config.vocab_size)


@contextmanager
def joined(execution: Execution) -> Iterator[None]:
    """All processes of torchrun in one group."""
    if execution.ranks == 1 or dist.is_initialized():
        yield
        return
    if not execution.on_cpu:
        torch.cuda.set_device(local_rank())
    dist.init_process_group("gloo" if execution.on_cpu else "nccl", timeout=timedelta(days=1))
    try:
        yield
    finally:
        dist.destroy_process_group()


def job_of(
    source: Path,
    plan: ContextPlan,
    texts: tuple[TokenStore, SpecialTokens],
    stage: StageSettings,
    settings: TrainingSettings,
    execution: Execution,
    place: Path,
    *,
    keeps: bool,
) -> StageJob:
    """A stage of training, put together once all that can be refused beforehand has not been."""
    check_stage(source, plan, stage, settings, execution)
    return StageJob(source, plan, *texts, stage, settings, execution, place, keeps=keeps)


def train_in(
    directory: RunDirectory | None, job: StageJob, number: int, progress: Progress, notice: Notice
) -> None:
    """Train a stage; a run directory keeps every step."""
    with _ALONE:
        train_stage(
            job,
            journal=None if directory is None else _journal(directory, number),
            progress=progress,
            event=(lambda kind, **_: None) if directory is None else directory.event,
            notice=notice,
        )


def _journal(directory: RunDirectory, number: int) -> StepJournal:
    return StepJournal(directory.journal(JOURNAL), number)


def trained_stage(job: StageJob, directory: RunDirectory, number: int) -> TrainedStage:
    """A stage that is done, as its journal has it."""
    plan, journal = job.plan, _journal(directory, number)
    return TrainedStage(
        length=job.stage.length,
        window=job.stage.window,
        method=plan.provenance.get("methods") or plan.longest(plan.extended_layer).method,
        plan_id=plan.id,
        epochs=round(job.reading.epochs, 4),
        steps=journal.whole(job.stage.steps),
    )
