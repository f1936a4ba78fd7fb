"""Train: the model under the chosen schedule, at the target, on text that no evaluation reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ropewalk.costs.forwards import Forwards, Needs
from ropewalk.data.corpora import Document, apart_from
from ropewalk.data.store import TokenStore, build
from ropewalk.data.windows import SpecialTokens
from ropewalk.errors import InputError
from ropewalk.exporting.manifest import check_unchanged
from ropewalk.models.source import resolve
from ropewalk.pipeline.results import TrainingResult, final
from ropewalk.pipeline.stage import Stage, Start, Work
from ropewalk.progress import Progress
from ropewalk.training.execution import TRAINED, Execution, bytes_on_disk, check_step
from ropewalk.training.settings import StageSettings, TrainingSettings

FOLDER = "train"
"""In the run directory: tokens, checkpoints and the trained weights."""
_BACKWARD = 3
"""The cost of a step, in forwards."""


@dataclass(frozen=True)
class Train(Stage[TrainingResult]):
    target_length: int
    steps: int
    learning_rate: float
    batch: int
    seed: int = 0

    name = "train"
    does = "the model under the chosen schedule, on text that the verdict does not read"
    result_type = TrainingResult

    @property
    def settings(self) -> TrainingSettings:
        stage = StageSettings(self.target_length, self.target_length, self.steps)
        return TrainingSettings(
            (stage,), batch=self.batch, learning_rate=self.learning_rate, seed=self.seed
        )

    def needs(self, window: int) -> Needs:
        return Needs((Forwards(self.target_length, _BACKWARD * self.steps * self.batch),))

    def check(self, start: Start) -> None:
        settings = self.settings
        _texts(start)
        execution = Execution(start.reader.model.device.type)
        execution.accumulated(settings.batch)
        check_step(start.reader.model.config.to_dict(), settings.stages[0], settings, execution)

    def bytes_to_write(self, start: Start, place: Path) -> int:
        if _trained_in(place):
            return 0
        import torch

        from ropewalk.models.checkpoint import Checkpoint
        from ropewalk.training.stage import written_bytes

        whole = Checkpoint.open(str(resolve(start.source).folder)).bytes(torch.float32)
        most = bytes_on_disk(whole, self.settings, keeps=False) - whole  # exported later
        return max(0, most - written_bytes(place / FOLDER))

    def recalled(self, work: Work, result: TrainingResult) -> TrainingResult | None:
        """The weights, if they are still there, and unchanged; the run directory may have moved."""
        place = work.directory.path
        if not _trained_in(place):
            return None
        check_unchanged(place / FOLDER / TRAINED)
        return replace(result, folder=place / FOLDER / TRAINED)

    def model_after(self, result: TrainingResult) -> str:
        return str(result.folder)

    def run(self, work: Work, progress: Progress) -> TrainingResult:
        from ropewalk.pipeline.training import check_documents, job_of, train_in, trained_stage

        place, settings = work.directory.path / FOLDER, self.settings
        place.mkdir(exist_ok=True)
        texts, left_out = _texts(work)
        encoder = work.reader.encoder
        store: TokenStore = build(
            place / "tokens",
            {"text": texts},
            encoder.batch,
            tokenizer=encoder.sha256,
            progress=progress,
        )
        job = job_of(
            resolve(work.source).folder,
            final(work.results).plan,
            (store, SpecialTokens.of(encoder.tokenizer)),
            settings.stages[0],
            settings,
            Execution(work.reader.model.device.type),
            place,
            keeps=False,
        )
        check_documents(store, work.present.target_length, job, work.notice)
        train_in(work.directory, job, 1, progress, work.notice)
        return TrainingResult(place / TRAINED, trained_stage(job, work.directory, 1), left_out)


def _trained_in(run: Path) -> bool:
    return (run / FOLDER / TRAINED / "config.json").is_file()


def _texts(start: Start) -> tuple[list[Document], int]:
    """The text to train on, and how much of it the evaluation reads too."""
    documents = list(start.to_train or start.to_search)
    texts = apart_from(documents, start.to_report)
    if not texts:
        raise InputError(
            "each training document shares text with the documents of the verdict, so none is "
            "left; give other text (`train_corpus`)"
        )
    return texts, len(documents) - len(texts)
