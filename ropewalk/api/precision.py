"""`precision`: the effect of number formats on a model's relative positions, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from ropewalk.api.common import AllowDownload, CorpusToUse, Device, ModelToRun, Strict
from ropewalk.arguments import Length, as_length, as_list, as_path
from ropewalk.data.documents import as_documents
from ropewalk.errors import InvalidValue
from ropewalk.lengths import check_measured
from ropewalk.models.source import Loading, runnable
from ropewalk.number_formats.results import Precision
from ropewalk.options import Advanced, Option, RunFolder, called, command
from ropewalk.progress import Notice, Progress, log_notice, share, shown
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import CONFIGURATION, RESULTS, RunDirectory
from ropewalk.torchrun import check_alone
from ropewalk.untrusted import whole_number


@command(
    "precision",
    "On a model",
    example="ropewalk precision path/to/model --quick",
)
def precision(
    model: ModelToRun,
    *,
    quick: Annotated[bool, Option("Measure few shifts and sequences.")] = False,
    length: Annotated[
        Length | None,
        Option("Tokens per sequence (default: the window, up to 4k, or 512 with `quick`)."),
    ] = None,
    sequences: Annotated[
        int | None, Option("Number of sequences (default: 50, or 5 with `quick`).")
    ] = None,
    arms: Annotated[
        Sequence[str] | None,
        Option(
            "Number formats to compare, such as fp32 and bf16 (default: all; docs/precision.md has "
            "the list).",
        ),
    ] = None,
    shifts: Annotated[
        Sequence[int] | None,
        Advanced(
            "Shifts of all positions to measure, including 0; 16, which D is stated for, is always "
            "among them (default: those of the article)."
        ),
    ] = None,
    corpus: CorpusToUse = "held-out",
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep measurements here, and resume from here (default: keep nothing).",
            command="precision",
        ),
    ] = None,
    dtype: Annotated[
        str, Advanced("Number format to load in, whichever formats are compared.")
    ] = "float32",
    device: Device = "auto",
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Precision:
    """Measure how bf16 and other formats distort relative positions, and say what to do.

    The defaults are the grids of the BFloat16 article, as far as the model and the text allow. An
    interrupted measurement resumes in the directory `run`.
    """
    with called("precision", precision, locals()) as (_, progress):
        check_alone("precision")
        if sequences is not None and whole_number(sequences, "sequences") < 1:
            raise InvalidValue("sequences", sequences, "must be positive", "give 1 or more")
        chosen_arms = None if arms is None else as_list(arms, "arms")
        tokens = None if length is None else as_length(length)
        if tokens is not None:
            check_measured(tokens, "length")
        chosen_shifts = None
        if shifts is not None:
            chosen_shifts = tuple(
                sorted(whole_number(n, "shifts") for n in as_list(shifts, "shifts"))
            )
        run = None if run is None else as_path(run, "run")
        documents = as_documents(corpus, "text", notice)
        how = Loading(dtype, device, allow_download)
        source = runnable(model, how, strict=strict, notice=notice, run=run)
        from ropewalk.evaluation.forward_time import announce
        from ropewalk.models.load import load
        from ropewalk.number_formats.arms import named
        from ropewalk.number_formats.measurement import MEASUREMENTS, Measurement, settings_for

        for name in chosen_arms or ():
            named(name)
        loaded = load(model, **how._asdict())
        settings = settings_for(
            loaded,
            documents,
            quick=quick,
            length=tokens,
            sequences=sequences,
            arms=chosen_arms,
            shifts=chosen_shifts,
        )
        measurement = Measurement(loaded, documents, settings)

        def in_all(**fewer: Any) -> list[tuple[int, int]]:
            return [(settings.length, replace(settings, **fewer).forwards)]

        announce(
            loaded.model,
            loaded.present_plan.target_length,
            in_all(),
            notice,
            begun=None if run is None else run / CONFIGURATION,
            what="this measurement, without the slower arithmetic of its arms,",
            smaller=[
                (f"`sequences` {count}", in_all(sequences=count))
                for count in (20, 10, 5)
                if count < settings.sequences
            ],
            otherwise="`quick` measures a few shifts at a shorter `length`",
        )
        measuring = share(progress, "measuring")
        with ExitStack() as stack:
            journal = directory = None
            if run is not None:
                directory = stack.enter_context(
                    RunDirectory(run, "precision", measurement.identity(), apart_from=source.places)
                )
                journal = directory.journal(MEASUREMENTS)
            found = measurement.run(
                journal, lambda done, total: measuring(done / total if total else 1.0)
            )
            if directory is not None:
                directory.keep(RESULTS, found.to_json())
                keep_figures({"precision": found.charts()}, directory.path / "figures", notice)
        return found
