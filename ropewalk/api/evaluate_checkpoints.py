"""`evaluate_checkpoints`: the last checkpoints of a training, with each score's mean and range.

One checkpoint may be lucky. The range is the lowest and the highest of the checkpoints: it says
how much the choice of one matters. It is not an interval of their mean, since checkpoints of one
training are not independent; each checkpoint's own results have intervals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.api.evaluate import evaluate
from ropewalk.arguments import as_list, as_path
from ropewalk.blocks import Block, Title
from ropewalk.budget import share_of
from ropewalk.data.documents import as_documents
from ropewalk.errors import InputError
from ropewalk.evaluation.charts import by_checkpoint, of_spreads
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.evaluation.results import Spread, spreads
from ropewalk.evaluation.tables import spreads as spreads_table
from ropewalk.lengths import format_length
from ropewalk.outputs import write_atomically
from ropewalk.progress import Notice, Progress, log_notice, of_a_call, shown
from ropewalk.records import PERPLEXITY
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import CONFIGURATION
from ropewalk.untrusted import check_count
from ropewalk.values import Charts, Drawn

LAST = 5
RESULTS = "checkpoints.json"
_NUMBERED = re.compile(r"(?:.*\D)?(\d+)")


@dataclass(frozen=True, eq=False)
class EvaluatedCheckpoints(Drawn):
    """The mean and range of each score over checkpoints, and the measurements of each."""

    rows_in = "spreads"
    never_empty = ("evaluated", "spreads")

    folder: str
    checkpoints: tuple[str, ...]
    """The names of the checkpoints' folders, in the order of training."""
    spreads: tuple[Spread, ...]
    evaluated: tuple[Evaluated, ...]

    def summary(self) -> str:
        longest = max(s.length for s in self.spreads)
        parts = [f"{s.method} {s.task} {_in_words(s)}" for s in self.spreads if s.length == longest]
        return (
            f"{self.folder}, mean and range of {len(self.checkpoints)} checkpoints at "
            f"{format_length(longest)} tokens: {', '.join(parts)}."
        )

    def blocks(self) -> Iterator[Block]:
        yield Title(self.folder, f": {', '.join(self.checkpoints)}")
        yield spreads_table(self.spreads, len(self.checkpoints))
        yield from self.charts()

    def charts(self) -> Charts:
        """Each score over the steps of training, and the means by context length."""
        steps = [_step(name) or 0 for name in self.checkpoints]
        scores = [(*each.results, *each.means) for each in self.evaluated]
        over = by_checkpoint([*zip(steps, scores, strict=True)])
        original = self.evaluated[0].original_length
        return [*over, *of_spreads(self.spreads, original_length=original)]


def _step(name: str) -> int | None:
    """The number that a checkpoint's name ends in."""
    number = _NUMBERED.fullmatch(name)
    return None if number is None else int(number[1])


def _in_words(spread: Spread) -> str:
    form = ".3g" if spread.metric == PERPLEXITY.name else ".0%"
    return f"{spread.mean:{form}} ({spread.lowest:{form}} to {spread.highest:{form}})"


def _naming(progress: Progress, name: str) -> Progress:
    """The progress of one checkpoint, with its name."""
    return lambda status: progress(status._replace(stage=f"{name}: {status.stage}"))


def checkpoints_of(folder: Path, last: int, notice: Notice) -> list[Path]:
    """The last checkpoints of a training by the number that their names end in."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; give one that holds checkpoints")
    checkpoints = [
        (step, path)
        for path in folder.iterdir()
        if (step := _step(path.name)) is not None and (path / "config.json").is_file()
    ]
    if not checkpoints:
        raise InputError(
            f"{folder}: holds no checkpoints; they are folders with a config.json whose names end "
            "in a number, such as checkpoint-500"
        )
    if len(checkpoints) < last:
        notice(f"{folder} holds {len(checkpoints)} checkpoints, not {last}")
    return [path for _, path in sorted(checkpoints)][-last:]


def evaluate_checkpoints(
    model: str | Path,
    *,
    last: int = LAST,
    run: str | Path | None = None,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
    **settings: Any,
) -> EvaluatedCheckpoints:
    """Evaluate the last checkpoints of a training, each as `evaluate` does with the same settings.

    `model` is the folder that a trainer writes: it holds folders such as checkpoint-500. The
    directory `run` gets a run directory for each of them.
    """
    check_count(last, "last")
    if settings.get("server") is not None:
        raise InputError("checkpoints are evaluated in this process; leave out `server`")
    place = as_path(model, "model")
    checkpoints = checkpoints_of(place, last, notice)
    runs = None if run is None else as_path(run, "run")
    if runs is not None and (runs / CONFIGURATION).exists():
        raise InputError(f"{runs}: is itself a run directory; give a new folder for the runs")
    # Each checkpoint takes all of them, and an iterator can be used once only.
    for key in ("plans", "methods", "tasks", "lengths"):
        if settings.get(key) is not None:
            settings[key] = as_list(settings[key], key)
    if (corpus := settings.get("corpus")) is not None:
        settings["corpus"] = as_documents(corpus, settings.get("field", "text"), notice)
    with of_a_call(progress) as progress:
        evaluated = _each(checkpoints, runs, progress, notice, settings)
    names = tuple(path.name for path in checkpoints)
    shared = tuple(spreads((*each.results, *each.means) for each in evaluated))
    if not shared:
        raise InputError(
            f"{place}: no task was scored at the same length and under the same method for all of "
            f"{', '.join(names)}, so there is no mean; give lengths that all of them can be "
            "measured at, or fewer checkpoints"
        )
    result = EvaluatedCheckpoints(str(model), names, shared, evaluated)
    if runs is not None:
        write_atomically(runs / RESULTS, json.dumps(result.to_json(), indent=2) + "\n")
        keep_figures({"checkpoints": result.charts()}, runs / "figures", notice)
    return result


def _each(
    checkpoints: Sequence[Path],
    runs: Path | None,
    progress: Progress,
    notice: Notice,
    settings: dict[str, Any],
) -> tuple[Evaluated, ...]:
    """Evaluate one checkpoint after another, all on the same samples."""
    evaluated: list[Evaluated] = []
    if (budget := settings.get("budget")) is not None:
        settings["budget"] = share_of(budget, len(checkpoints))
    for path in checkpoints:
        if evaluated and settings.pop("budget", None) is not None:
            settings["samples"] = max(each.samples for each in evaluated[0].results)
        folder = None if runs is None else runs / path.name
        report = _naming(progress, path.name)
        evaluated.append(evaluate(path, run=folder, progress=report, notice=notice, **settings))
    return tuple(evaluated)
