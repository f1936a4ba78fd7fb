"""`precision`: the effect of number formats on a model's relative positions, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from ropewalk.api.common import AllowDownload, CorpusToUse, Device, ModelToRun, Strict
from ropewalk.arguments import Length, as_list, as_measured, as_path
from ropewalk.data.documents import as_documents
from ropewalk.models.source import Loading, runnable
from ropewalk.number_formats.request import PrecisionRequest
from ropewalk.number_formats.results import Precision
from ropewalk.options import Advanced, Option, RunFolder, called, command, request
from ropewalk.progress import Notice, Progress, log_notice, shown
from ropewalk.reports.figures import keep_figures
from ropewalk.torchrun import check_alone
from ropewalk.untrusted import whole_number


@command("precision", "On a model", example="ropewalk precision path/to/model --quick")
def precision(
    model: ModelToRun,
    *,
    quick: Annotated[bool, Option("Measure few shifts and sequences.")] = False,
    length: Annotated[
        Length | None,
        Option(
            "Tokens per sequence (default: the window, up to 4k, or 512 with `quick`).",
            convert=as_measured,
        ),
    ] = None,
    sequences: Annotated[
        int | None, Option("Number of sequences (default: 50, or 5 with `quick`).")
    ] = None,
    arms: Annotated[
        Sequence[str] | None,
        Option(
            "Number formats to compare, such as fp32 and bf16 (default: all; docs/precision.md has "
            "the list).",
            convert=as_list,
        ),
    ] = None,
    shifts: Annotated[
        Sequence[int] | None,
        Advanced(
            "Shifts of all positions to measure, including 0; 16, which D is stated for, is always "
            "among them (default: those of the article).",
            convert=lambda value, key: tuple(
                sorted(whole_number(each, key) for each in as_list(value, key))
            ),
        ),
    ] = None,
    corpus: CorpusToUse = "held-out",
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep measurements here, and resume from here (default: keep nothing).",
            command="precision",
            convert=as_path,
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
    values = locals()
    with called("precision", precision, values) as (_, progress):
        check_alone("precision")
        options = request(PrecisionRequest, precision, values)
        documents = as_documents(corpus, "text", notice)
        how = Loading(dtype, device, allow_download)
        source = runnable(model, how, strict=strict, notice=notice, run=options.run)
        from ropewalk.models.load import load
        from ropewalk.number_formats.arms import named
        from ropewalk.number_formats.measurement import Measurement, settings_for

        for name in options.arms or ():
            named(name)  # says which there are
        loaded = load(model, **how._asdict())
        measurement = Measurement(loaded, documents, settings_for(loaded, documents, options))
        measurement.announce(options.run, notice)
        return measurement.kept_in(options.run, source.places, progress, keep_figures, notice)
