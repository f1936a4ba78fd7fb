"""`howlong`: up to which length a model, or a server, answers as well as at its own short one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.common import (
    AllowDownload,
    CorpusToUse,
    Device,
    Dtype,
    ServedName,
    Strict,
    TextField,
    Timeout,
)
from ropewalk.api.fingerprint import TIMEOUT
from ropewalk.api.report import keep_report
from ropewalk.arguments import Length, as_length, as_path
from ropewalk.budget import as_budget
from ropewalk.data.documents import as_documents
from ropewalk.evaluation.usable.request import HowLong, ReadingPlan, planned
from ropewalk.evaluation.usable.result import STATUS, UsableLength
from ropewalk.models.source import Loading, Model
from ropewalk.options import (
    Argument,
    Option,
    RunFolder,
    called,
    command,
    preview_ends,
    previewed_by,
    request,
)
from ropewalk.progress import Notice, Progress, log_notice, shown
from ropewalk.reports.figures import keep_figures
from ropewalk.torchrun import check_alone

if TYPE_CHECKING:
    from ropewalk.evaluation.usable.readers import Askable


def _preview(options: HowLong, subject: Askable) -> ReadingPlan:
    """The lengths that would be read, and the most tokens."""
    return planned(options, subject)


@command(
    "howlong",
    "On a model",
    example="ropewalk howlong http://localhost:8080 --need 32k",
    more="Exit code with --need: 0 met, 1 not met, 3 undecided.",
    preview="Only show which lengths would be read, and how many tokens that takes at most.",
    status=lambda result: STATUS[result.status],
)
@previewed_by(_preview)
def howlong(
    model: Annotated[
        Model,
        Argument(
            "A model's folder, `bundled`, a GGUF file (run in llama.cpp), or the URL of an "
            "OpenAI-compatible server. A server's key, if any, comes from the environment variable "
            "ROPEWALK_API_KEY.",
            "MODEL_OR_URL",
        ),
    ],
    *,
    need: Annotated[
        Length | None,
        Option("The length that you need; no longer one is read.", convert=as_length),
    ] = None,
    claimed: Annotated[
        Length | None,
        Option(
            "The length that the model is said to serve (default: what its files or the server "
            "say).",
            convert=as_length,
        ),
    ] = None,
    against: Annotated[
        str | Path | None,
        Option(
            "For a server: the folder of the model that it should run, or its "
            "fingerprint, to find lost settings.",
            "DIR",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        Option(
            "The most tokens to read, such as 2e6tok (default: a quarter of a sweep over all "
            "lengths). For a server on another machine, the most to send; required above 1M.",
            "TOKENS",
            convert=as_budget,
        ),
    ] = None,
    model_name: ServedName = None,
    timeout: Timeout = TIMEOUT,
    corpus: CorpusToUse = "held-out",
    field: TextField = "text",
    seed: Annotated[int, Option("Seed of the documents.")] = 0,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep documents, page and badge here, and resume from here (default: keep nothing).",
            command="howlong",
            convert=as_path,
        ),
    ] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> UsableLength:
    """Find up to which length a model or a server answers as well as at its own short length.

    Documents with eight facts each are read, at lengths that the answers before decide, and a
    length works if at most ten points fewer are found than at the short one: the rule of `extend`.
    Where almost all facts are found, harder questions are asked, and where few are, easier ones.
    If it is shorter than it claims, the result says why, as far as the answers show it; `against`
    compares a server with the model that it should run.

    `howlong.preview(…)` says which lengths would be read and how many tokens that takes at most.
    The directory `run` keeps all answers, a page and a badge, and an interrupted run resumes there.
    """
    values = locals()
    with called("howlong", howlong, values) as (_, progress):
        check_alone("howlong")
        documents = as_documents(corpus, field, notice)
        how = Loading(dtype, device, allow_download)
        options = request(HowLong, howlong, values, documents=documents, how=how, progress=progress)
        from ropewalk.evaluation.usable.readers import subject_of

        subject = subject_of(options)
        preview_ends(options, subject)
        plan = planned(options, subject)
        from ropewalk.evaluation.usable.run import measured

        result = measured(options, subject, plan)
        if options.run is not None:
            keep_figures({"usable": result.charts()}, options.run / "figures", notice)
            keep_report(options.run, notice)
        return result
