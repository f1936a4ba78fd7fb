"""`precision`: the effect of number formats on a model's relative positions, and the remedy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.api.common import (
    Corpus,
    Length,
    as_documents,
    as_length,
    as_lengths,
    as_list,
    as_path,
    runnable,
)
from ropewalk.errors import InvalidValue
from ropewalk.extras import required_by
from ropewalk.lengths import check_measured, format_length
from ropewalk.models.source import Model
from ropewalk.number_formats.results import GIVEN, Findings
from ropewalk.progress import Notice, Progress, log_notice, share, silent
from ropewalk.reports.figures import keep_figures
from ropewalk.reports.precision import figures
from ropewalk.run_directory import RunDirectory
from ropewalk.untrusted import whole_number
from ropewalk.values import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = "results.json"


@dataclass(frozen=True, eq=False)
class Precision(Findings, Result):
    """The effect of a shift of all positions under each number format, and a diagnosis in words."""

    def summary(self) -> str:
        given = [arm for arm in self.arms if arm.weights == GIVEN]
        shown = ", ".join(f"{arm.arm} {arm.strays}" for arm in given)
        if any(arm.strays.low is None for arm in given):
            shown += " (no intervals: they need five sequences)"
        traps = "; ".join(f"{gain.path}: {gain.trap}" for gain in self.traps)
        return (
            f"{self.model} on {self.sequences} sequences of {format_length(self.length)} tokens: "
            f"a shift by {self.reference} positions changes attention by D = {shown}. "
            + (f"Traps of loading: {traps}." if traps else "No trap of loading.")
        )

    def figure(self) -> Figure:
        """The attention difference by shift and by token, and the logit difference by length."""
        return figures(self)["shifts"]


@required_by("precision")
def precision(
    model: Model,
    *,
    quick: bool = False,
    length: Length | None = None,
    sequences: int | None = None,
    arms: Sequence[str] | None = None,
    shifts: Sequence[int] | None = None,
    lengths: Sequence[Length] | None = None,
    frozen: bool = False,
    corpus: Corpus = "held-out",
    seed: int = 0,
    run: str | Path | None = None,
    dtype: str = "float32",
    device: str = "auto",
    allow_download: bool = False,
    strict: bool = False,
    progress: Progress = silent,
    notice: Notice = log_notice,
) -> Precision:
    """Measure the effect of bf16 and other formats on relative positions, and name the remedy.

    The defaults are the grids of the BFloat16 article, as far as the model and the text allow;
    `quick` uses few shifts and sequences, and no random weights. `frozen` keeps the hidden states,
    so that each layer shows its own error. The directory `run` keeps measurements, results and
    figures, and an interrupted measurement resumes there. `strict` refuses a config that leaves
    open how the model rotates, instead of warning.
    """
    if sequences is not None and whole_number(sequences, "sequences") < 1:
        raise InvalidValue("sequences", sequences, "must be positive", "give 1 or more")
    chosen_arms = None if arms is None else as_list(arms, "arms")
    tokens = None if length is None else as_length(length)
    if tokens is not None:
        check_measured(tokens, "length")
    chosen_lengths = None if lengths is None else as_lengths(lengths)
    chosen_shifts = None
    if shifts is not None:
        chosen_shifts = tuple(sorted(whole_number(n, "shifts") for n in as_list(shifts, "shifts")))
    run = None if run is None else as_path(run, "run")
    documents = as_documents(corpus, "text", notice)
    source = runnable(
        model,
        dtype=dtype,
        device=device,
        allow_download=allow_download,
        strict=strict,
        notice=notice,
        run=run,
    )
    from ropewalk.models.load import load
    from ropewalk.number_formats.arms import named
    from ropewalk.number_formats.runner import MEASUREMENTS, Measurement, settings_for

    for name in chosen_arms or ():
        named(name)
    loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
    settings = settings_for(
        loaded,
        documents,
        quick=quick,
        length=tokens,
        sequences=sequences,
        arms=chosen_arms,
        shifts=chosen_shifts,
        lengths=chosen_lengths,
        frozen=frozen,
        seed=seed,
    )
    measurement = Measurement(loaded, documents, settings)
    measuring = share(progress, "measuring")
    with ExitStack() as stack:
        journal = directory = None
        if run is not None:
            directory = stack.enter_context(
                RunDirectory(run, "precision", measurement.identity(), apart_from=source.places)
            )
            journal = directory.journal(MEASUREMENTS)
        findings = measurement.run(
            journal, lambda done, total: measuring(done / total if total else 1.0)
        )
        found = Precision(**vars(findings))
        if directory is not None:
            directory.write(RESULTS, json.dumps(found.to_json(), indent=2) + "\n")
            keep_figures(lambda: figures(found), directory.path / "figures", notice)
    return found
