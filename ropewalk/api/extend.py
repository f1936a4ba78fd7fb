"""`extend`: search, evaluate, export and verify in one resumable run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.api.common import (
    Corpus,
    Length,
    as_documents,
    as_length,
    as_lengths,
    as_path,
    runnable,
)
from ropewalk.api.report import keep_report
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError
from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.models.config import BUNDLED
from ropewalk.models.source import Model, Source
from ropewalk.pipeline.settings import (
    BATCH,
    EVALUATIONS,
    LEARNING_RATE,
    SAMPLES,
    TIMES,
    Settings,
    parted,
    settings_for,
)
from ropewalk.progress import Notice, Progress, log_notice, silent
from ropewalk.run_directory import RunDirectory

if TYPE_CHECKING:
    from ropewalk.pipeline.cost import Estimate
    from ropewalk.pipeline.extend import Done, Extended
    from ropewalk.pipeline.stage import Start


@required_by("extend")
def extend(
    model: Model = BUNDLED,
    to: Length | None = None,
    *,
    run: str | Path | None = None,
    corpus: Corpus = "held-out",
    field: str = "text",
    evaluations: int = EVALUATIONS,
    samples: int = SAMPLES,
    lengths: Sequence[Length] = (),
    train_steps: int = 0,
    train_corpus: Corpus | None = None,
    learning_rate: float = LEARNING_RATE,
    batch: int = BATCH,
    seed: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    allow_download: bool = False,
    strict: bool = False,
    progress: Progress = silent,
    notice: Notice = log_notice,
    done: Done = lambda *_: None,
) -> Extended:
    """Extend a model: search, train if asked to, evaluate, export, verify.

    The default of `to` is eight times the length that the model serves now. The directory `run` (by
    default `runs/extend-MODEL-LENGTH`) keeps everything; called again with the same arguments, an
    interrupted run resumes. With `train_steps`, the model is also trained under the chosen
    schedule, on `train_corpus` (by default the text of the search), and evaluated before and after;
    documents that share text with the evaluation are left out of training. `done` is called with
    each stage and its result. `strict` refuses a config that leaves open how the model rotates,
    instead of warning.
    """
    run = None if run is None else as_path(run, "run")
    asked = _ask(
        run, model, to, corpus, field, evaluations, samples, lengths,
        _Training(train_steps, train_corpus, learning_rate, batch), seed, dtype, device,
        allow_download, strict, notice,
    )  # fmt: skip
    from ropewalk.data.corpora import fingerprint
    from ropewalk.evaluation.identity import run_identity
    from ropewalk.pipeline import extend as pipeline
    from ropewalk.pipeline.stage import Work
    from ropewalk.pipeline.stages import stages

    start, settings, path = asked.start, asked.settings, asked.path
    identity = {
        **run_identity(start.loaded, asked.documents),
        **asdict(settings),
        "stages": [each.name for each in stages(settings)],
    }
    if start.to_train:
        identity["train_corpus_sha256"] = fingerprint(start.to_train)
    with RunDirectory(path, "extend", identity, apart_from=asked.source.places) as directory:
        work = Work(**vars(start), directory=directory, notice=notice)
        extended = pipeline.extend(work, settings, progress=progress, done=done)
    keep_report(path, notice)
    return extended


@required_by("extend")
def extend_preview(
    model: Model = BUNDLED,
    to: Length | None = None,
    *,
    corpus: Corpus = "held-out",
    field: str = "text",
    evaluations: int = EVALUATIONS,
    samples: int = SAMPLES,
    lengths: Sequence[Length] = (),
    train_steps: int = 0,
    train_corpus: Corpus | None = None,
    learning_rate: float = LEARNING_RATE,
    batch: int = BATCH,
    seed: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    allow_download: bool = False,
    strict: bool = False,
    notice: Notice = log_notice,
) -> Estimate:
    """List the stages of `extend` with these arguments, with their estimated cost here."""
    asked = _ask(
        None, model, to, corpus, field, evaluations, samples, lengths,
        _Training(train_steps, train_corpus, learning_rate, batch), seed, dtype, device,
        allow_download, strict, notice, preview=True,
    )  # fmt: skip
    from ropewalk.pipeline.cost import estimate

    return estimate(asked.start.source, asked.start.loaded, asked.settings)


@dataclass(frozen=True)
class _Training:
    """The arguments of a training, as they are given."""

    steps: int
    corpus: Corpus | None
    learning_rate: float
    batch: int


@dataclass(frozen=True)
class _Asked:
    """The arguments of a run, found and checked."""

    source: Source
    start: Start
    documents: Sequence[Document]
    settings: Settings
    path: Path
    """The run directory, which a preview does not make."""


def _ask(
    run: Path | None,
    model: Model,
    to: Length | None,
    corpus: Corpus,
    field: str,
    evaluations: int,
    samples: int,
    lengths: Sequence[Length],
    training: _Training,
    seed: int,
    dtype: str,
    device: str,
    allow_download: bool,
    strict: bool,
    notice: Notice,
    *,
    preview: bool = False,
) -> _Asked:
    documents = as_documents(corpus, field, notice)
    found = runnable(
        model,
        dtype=dtype,
        device=device,
        allow_download=allow_download,
        strict=strict,
        notice=notice,
        run=run,
    )
    # Export reads files: of a hub id, those that were fetched.
    source = found.name if found.kind == "bundled" else str(found.folder)
    present = found.present_plan
    settings = settings_for(
        present,
        TIMES * present.target_length if to is None else as_length(to, "to"),
        evaluations=evaluations,
        samples=samples,
        lengths=as_lengths(lengths),
        seed=seed,
        train_steps=training.steps,
        learning_rate=training.learning_rate,
        batch=training.batch,
    )
    to_train: Sequence[Document] = ()
    if training.corpus is not None:
        if not training.steps:
            raise InputError("`train_corpus` is for a training: give its steps (`train_steps`)")
        to_train = as_documents(training.corpus, field, notice)
    from ropewalk.models.load import load
    from ropewalk.pipeline import extend as pipeline
    from ropewalk.pipeline.stage import Start

    loaded = load(found, dtype=dtype, device=device, allow_download=allow_download)
    length = format_length(settings.target_length)
    path = run or Path("runs") / f"extend-{found.short_name}-{length}"
    start = Start(
        *(source, loaded, settings.target_length, *parted(documents)),
        to_train=to_train,
        place=None if preview else path,
    )
    pipeline.check(start, settings)
    return _Asked(found, start, documents, settings, path)
