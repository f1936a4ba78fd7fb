"""`ropewalk export`: a model with its plan, in the form that a stock runtime loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.export import Preview, export, export_preview
from ropewalk.cli.help import ADVANCED
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    DownloadOption,
    JsonOption,
    RunnableModel,
    StrictOption,
    notify,
    print_json,
    say,
    table,
)
from ropewalk.errors import InputError
from ropewalk.exporting.features import RUNTIMES
from ropewalk.exporting.parity import Exported, NotTheSame

EXAMPLE = "ropewalk export path/to/model --plan plan.json --runtime vllm -o extended"


def command(
    model: RunnableModel,
    plan: Annotated[
        Path, typer.Option(metavar="FILE", help="A plan of `ropewalk plan` or `search`.")
    ],
    runtime: Annotated[
        str | None,
        typer.Option(metavar="RUNTIME", help="transformers, vllm, sglang or llama.cpp."),
    ] = None,
    former_runtime: Annotated[
        str | None, typer.Option("--to", hidden=True, help="--runtime, until 1.0.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="The folder, or GGUF file, to write. A split GGUF file becomes one file where OUT "
            "ends in .gguf, and else a folder of its parts.",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="float32, bfloat16 or float16 (default: the checkpoint's own); for llama.cpp F32, "
            "F16, BF16 or Q8_0 (default: F32). A GGUF file keeps its own.",
        ),
    ] = None,
    fold: Annotated[
        bool,
        typer.Option(
            "--fold",
            help="Multiply the query weights by the attention scaling.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate",
            help="Allow an approximation where the runtime cannot express the plan exactly.",
        ),
    ] = False,
    v4_keys: Annotated[
        bool,
        typer.Option(
            "--v4-keys",
            help="Write the keys of transformers 4: rope_theta, rope_scaling.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT if it exists.")
    ] = False,
    allow_download: DownloadOption = False,
    strict: StrictOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what each runtime makes of the plan.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a model with its plan for a runtime, load it back, and compare it with the plan."""
    if dry_run:
        with progress_bar() as progress:
            preview = export_preview(
                *(model, plan),
                allow_download=allow_download,
                strict=strict,
                progress=progress,
                notice=notify,
            )
        if as_json:
            print_json(preview)
        else:
            _show_preview(preview)
        return
    runtime = runtime or former_runtime
    if runtime is None or output is None:
        raise InputError(
            "an export needs --runtime RUNTIME and -o OUT; without them, --dry-run shows what each "
            "runtime makes of the plan"
        )
    try:
        with progress_bar() as progress:
            exported = export(
                *(model, plan, output, runtime),
                dtype=dtype,
                fold=fold,
                approximate=approximate,
                v4_keys=v4_keys,
                overwrite=overwrite,
                allow_download=allow_download,
                strict=strict,
                progress=progress,
                notice=notify,
            )
    except NotTheSame as error:
        if as_json:
            print_json(error.exported)
        raise
    if as_json:
        print_json(exported)
    else:
        _show(exported)


def _show(exported: Exported) -> None:
    say(f"wrote {exported.path}")
    if exported.parity is not None:
        say(f"  {exported.parity.runtime} computes what the plan says: {exported.parity}")
    for warning in exported.warnings:
        say(f"  {warning}")
    if exported.load:
        say(f"  {exported.load}")
    if exported.elsewhere:
        say("or, in Ollama (by its rules, not run):")
    for line in exported.elsewhere:
        say(f"  {line}")
    if exported.overrides:
        say(f"or, on the source itself:\n  {exported.overrides}")


def _show_preview(preview: Preview) -> None:
    from ropewalk.cli.terminal import Terminal

    rows = table("", *RUNTIMES)
    for feature, row in preview.matrix.items():
        rows.add_row(feature, *(row[runtime].fit for runtime in RUNTIMES))
    console = Terminal()
    console.print(rows)
    for feature, row in preview.matrix.items():
        hows: dict[str, list[str]] = {}
        for runtime, cell in row.items():
            if cell.how:
                hows.setdefault(str(cell), []).append(runtime)
        for said, runtimes in hows.items():
            console.print(f"  {feature}, {', '.join(runtimes)}: {said}", soft_wrap=True)
    for runtime, loss in preview.losses.items():
        cost = loss or "not measured: its weights or torch are not here"
        console.print(f"  approximated in {runtime}: {cost}", soft_wrap=True)
