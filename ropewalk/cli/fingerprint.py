"""`ropewalk fingerprint`: how a planned model answers, and whether a server answers so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.api.fingerprint import TIMEOUT, check_server, fingerprint
from ropewalk.cli.help import ADVANCED
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    DtypeOption,
    FieldOption,
    JsonOption,
    OverwriteOption,
    StrictOption,
    check_outputs,
    notify,
    print_json,
    say,
    show_written,
    table,
)
from ropewalk.errors import InputError
from ropewalk.outputs import STANDARD_OUTPUT, write_atomically

if TYPE_CHECKING:
    from ropewalk.evaluation.served.fingerprint import Verdict

EXAMPLE = "ropewalk fingerprint path/to/model --plan plan.json -o fingerprint.json"
NOT_SAME = {"same": 0, "deviates": 1, "unknown": 3}
"""The exit status by what is found."""

ServedName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The model's name on the server (default: the only one it lists)."
    ),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder with the tokenizer of the planned model."),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="The longest time for one request.", rich_help_panel=ADVANCED
    ),
]


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A model's folder, `bundled`, or a fingerprint's file."
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The plan that is served (default: the model as it stands)."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the fingerprint here."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Compare this OpenAI-compatible server with the fingerprint. Its key, if any, "
            "comes from the environment variable ROPEWALK_API_KEY.",
        ),
    ] = None,
    tokenizer: TokenizerOption = None,
    model_name: ServedName = None,
    corpus: CorpusOption = "held-out",
    field: FieldOption = "text",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the probes.")] = 0,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    timeout: TimeoutOption = TIMEOUT,
    overwrite: OverwriteOption = False,
    allow_download: DownloadOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute how a planned model answers, or compare a server with it.

    The exit status with --server is 0 where the server answers like the plan, 1 where it does not,
    and 3 where that cannot be established.
    """
    if output is None and server is None:
        raise InputError("give -o FILE to keep the fingerprint, or --server URL to compare with it")
    if output == STANDARD_OUTPUT:
        raise InputError("output = '-': a fingerprint is not printed; give the name of a file")
    if server is not None:
        from ropewalk.evaluation.served.client import address

        address(server)
    made = Path(model)
    file = made if made.is_file() else None
    if file is not None and (plan is not None or output is not None):
        raise InputError(f"{file}: is a file, made with its plan; give only --server URL with it")
    check_outputs(output=output, sources=() if not made.is_dir() else (made,), overwrite=overwrite)
    with progress_bar() as progress:
        own = file or fingerprint(
            model,
            plan=plan,
            corpus=corpus,
            field=field,
            seed=seed,
            dtype=dtype,
            device=device,
            allow_download=allow_download,
            strict=strict,
            progress=progress,
            notice=notify,
        )
        if output is not None and not isinstance(own, Path):
            write_atomically(output, own.dumps())
        verdict = None
        if server is not None:
            if tokenizer is None and made.is_dir():
                tokenizer = made
            verdict = check_server(
                *(server, own),
                tokenizer=tokenizer,
                model_name=model_name,
                timeout=timeout,
                progress=progress,
            )
    if verdict is None:
        assert not isinstance(own, Path)
        if as_json:
            print_json(own)
        else:
            say(own.summary())
        show_written(output, as_json=as_json)
        return
    show_written(output, as_json=as_json)
    if as_json:
        print_json(verdict)
    else:
        show_verdict(verdict)
    if NOT_SAME[verdict.status]:
        raise typer.Exit(NOT_SAME[verdict.status])


def show_verdict(verdict: Verdict) -> None:
    """What a server made of each probe, and what that comes to."""
    from ropewalk.cli.terminal import Terminal

    console = Terminal()
    rows = table("probe", "tokens", "read", "distance", "by rounding")
    for probe in verdict.probes:
        read = "refused" if probe.read is None else f"{probe.read:,}"
        distance = "–" if probe.distance is None else f"{probe.distance:.2g}"
        rows.add_row(probe.kind, f"{probe.length:,}", read, distance, f"{probe.spread:.2g}")
    console.print(rows)
    console.print(
        f"distance in all {verdict.distance:.3g}; a server deviates above {verdict.threshold:.3g}",
        soft_wrap=True,
    )
    console.print(verdict.summary(), soft_wrap=True)
