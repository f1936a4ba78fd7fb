"""`fingerprint`: how a planned model answers, in a file; and whether a server answers so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.common import (
    AllowDownload,
    CorpusToUse,
    Device,
    Dtype,
    OwnTokenizer,
    PlanLike,
    RanksPerCopy,
    ServedName,
    Strict,
    TextField,
    Timeout,
    as_plan,
)
from ropewalk.arguments import Length, as_length, as_name, as_path
from ropewalk.data.documents import as_documents
from ropewalk.errors import InvalidValue
from ropewalk.lengths import check_measured
from ropewalk.models.dividing import all_ranks
from ropewalk.models.source import Loading, Model, Source, runnable
from ropewalk.options import Argument, Option, called, command
from ropewalk.progress import Notice, Progress, log_notice, share, shown, silent, unheard
from ropewalk.torchrun import check_alone, check_ranks, first
from ropewalk.untrusted import check_seed

if TYPE_CHECKING:
    from ropewalk.evaluation.served.fingerprint import Fingerprint, Verdict

TIMEOUT = 600.0
"""Seconds for a request to a server."""


@command(
    "fingerprint",
    "For a runtime",
    example="ropewalk fingerprint path/to/model --plan plan.json -o fingerprint.json",
    more="Exit code with --server: 0 same answers, 1 different, 3 inconclusive.",
)
def fingerprint(
    model: Annotated[
        Model, Argument("A model's folder, `bundled`, or a fingerprint's file.", "MODEL")
    ],
    *,
    plan: Annotated[
        PlanLike | None,
        Option("The plan that the server follows (default: none, the unmodified model)."),
    ] = None,
    length: Annotated[
        Length | None,
        Option("Length of the longest probe, in tokens (default: at most the target of the plan)."),
    ] = None,
    corpus: CorpusToUse = "held-out",
    field: TextField = "text",
    seed: Annotated[int, Option("Seed of the probes.")] = 0,
    dtype: Dtype = "auto",
    device: Device = "auto",
    ranks_per_copy: RanksPerCopy = 1,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Fingerprint:
    """Compute how a planned model answers, or compare a server with it.

    The probes are beginnings of one text of `corpus` up to the plan's target, single tokens and
    short texts. They are answered as planned, as healthy servers round, and under each known cause
    of deviation: about sixty forwards over `length`. What a server does to longer prompts alone is
    not seen. `check_server` compares a server with
    the result, on any machine: no weights are needed then.

    Under torchrun, `ranks_per_copy` ranks hold one copy of the model, as in `evaluate`; copies
    share the causes, and every rank returns the result.
    """
    with called("fingerprint", fingerprint, locals()) as (_, progress):
        _check_place(model, ranks_per_copy)
        check_seed(seed)
        followed = None if plan is None else as_plan(plan)
        if followed is not None:
            check_measured(followed.target_length, "plan")
        longest = None if length is None else as_length(length)
        documents = as_documents(corpus, field, notice)
        notice = notice if first() else unheard
        how = Loading(dtype, device, allow_download)
        source = runnable(model, how, strict=strict, notice=notice)
        if source.kind == "folder" and followed in (None, source.present_plan):
            warn_of_engines(source, notice)
        from ropewalk.evaluation.answerers.in_process import load_to_read
        from ropewalk.evaluation.served import reference

        with all_ranks(ranks_per_copy, "fingerprint") as ranks:
            key = "plan" if longest is None else "length"
            target = (followed or source.present_plan).target_length
            loaded = load_to_read(
                model, source, min(target, longest or target), key, ranks, how, notice
            )
            shown = share(progress if first() else silent, "fingerprint")
            return reference.fingerprint(
                loaded, followed, documents, seed, longest, shown, notice, ranks
            )


def _check_place(model: Model, ranks_per_copy: int) -> None:
    """Refuse to share a model in memory over ranks, each of which would have to read it."""
    if not isinstance(model, str | Path):
        check_alone("fingerprint of a model in memory")
        if ranks_per_copy != 1:
            rule = "needs a model that is read from files"
            raise InvalidValue("ranks_per_copy", ranks_per_copy, rule, "give them")
    check_ranks(ranks_per_copy, "fingerprint")


def warn_of_engines(source: Source, notice: Notice) -> None:
    """The servers that would not answer so from this very folder."""
    from ropewalk.runtimes import engines

    for name, engine in engines().items():
        plan = source.present_plan
        verdict = engine.judge(source.config, plan, folder=source.path, own_plan=True)
        if verdict.wrong:
            notice(
                f"warning: {name} would misread this folder: {verdict}; serve it with the line of "
                f"`ropewalk plan`, or export it with --runtime {name}"
            )


def check_server(
    server: Annotated[
        str,
        Option(
            "Compare this OpenAI-compatible server with the fingerprint. Its key, if any, comes "
            "from the environment variable ROPEWALK_API_KEY.",
            "URL",
        ),
    ],
    fingerprint: Fingerprint | str | Path,
    *,
    tokenizer: OwnTokenizer = None,
    model_name: ServedName = None,
    timeout: Timeout = TIMEOUT,
    progress: Progress | None = shown,
) -> Verdict:
    """Compare a server with the fingerprint of a planned model, and name the cause of a deviation.

    `server` is the URL of an OpenAI-compatible server of completions. `fingerprint` is a result of
    `fingerprint`, or its file. A key, where one is needed, comes from the environment variable
    ROPEWALK_API_KEY. `tokenizer` is the planned model's folder, for servers that take no tokens.
    """
    with called("check_server", check_server, locals()) as (_, progress):
        from ropewalk.evaluation.answerers.server import encoder_of
        from ropewalk.evaluation.served.check import check
        from ropewalk.evaluation.served.client import Client
        from ropewalk.evaluation.served.server import Server

        client = Client.of(server, timeout)
        wanted = as_fingerprint(fingerprint)
        encoder = None if tokenizer is None else encoder_of(as_path(tokenizer, "tokenizer"))
        name = None if model_name is None else as_name(model_name, "model_name")
        trial = wanted.sequence[: min(16, len(wanted.sequence))]
        opened = Server.open(client, encoder, trial, name)
        return check(opened, wanted, share(progress, "asking"))


def as_fingerprint(value: object) -> Fingerprint:
    """The fingerprint itself, or that of a file."""
    from ropewalk.evaluation.served.fingerprint import Fingerprint

    if isinstance(value, Fingerprint):
        return value
    if isinstance(value, str | Path):
        return Fingerprint.read(as_path(value, "fingerprint"))
    raise InvalidValue(
        "fingerprint", value, "must be a fingerprint", "give the result of fingerprint(), or a file"
    )
