"""`export_tasks`: retrieval tasks as a folder for lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ropewalk.api.common import Corpus, Length, as_documents, as_lengths, as_list, as_path
from ropewalk.errors import InputError
from ropewalk.extras import required_by
from ropewalk.models.source import Model
from ropewalk.outputs import write_atomically
from ropewalk.progress import Notice, log_notice
from ropewalk.values import Result

GROUP = "ruler-syn"


@dataclass(frozen=True, eq=False)
class ExportedTasks(Result):
    """A folder of tasks, and how the harness runs it."""

    folder: str
    tasks: tuple[str, ...]
    """Their names in the harness; `ropewalk` stands for all of them."""

    def summary(self) -> str:
        return (
            f"{len(self.tasks)} tasks are in {self.folder}: "
            f"lm_eval run --include_path {self.folder} --tasks ropewalk …"
        )


def export_tasks(
    folder: str | Path,
    model: Model,
    *,
    lengths: Sequence[Length],
    tasks: Sequence[str] = (GROUP,),
    samples: int = 20,
    seed: int = 0,
    corpus: Corpus = "held-out",
    field: str = "text",
    allow_download: bool = False,
    notice: Notice = log_notice,
) -> ExportedTasks:
    """Write tasks as a folder that lm-evaluation-harness runs without ropewalk.

    The samples are those of `evaluate` with the same settings, fitted to the tokenizer of `model`,
    and scored by the same rules. `folder` must be new or empty.
    """
    with required_by("export_tasks"):
        from ropewalk.evaluation.encoding import Encoder
        from ropewalk.evaluation.harness_folder import check_exportable, files
        from ropewalk.evaluation.haystack import Haystack
        from ropewalk.evaluation.settings import EvaluationSettings, expanded
        from ropewalk.models.load import load

        chosen = as_lengths(lengths)
        names = expanded(as_list(tasks, "tasks"))
        EvaluationSettings(names, chosen, samples, seed)
        check_exportable(names)
        place = as_path(folder, "folder")
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InputError(f"{place}: is not empty; give a new folder")
        documents = as_documents(corpus, field, notice)
        loaded = load(model, allow_download=allow_download)
        encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
        written = dict(files(names, chosen, encoder, Haystack(documents), samples, seed))
        place.mkdir(parents=True, exist_ok=True)
        for name, content in written.items():
            write_atomically(place / name, content)
        made = [f"ropewalk-{Path(name).stem}" for name in written if name.endswith(".yaml")]
        return ExportedTasks(folder=str(folder), tasks=tuple(made))
