"""`ropewalk export`: a model with its plan, in the form that a stock runtime loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.shared import (
    DownloadOption,
    JsonOption,
    RunnableModel,
    load_model_config,
    print_json,
    table,
)
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, RopewalkError, UnknownName
from ropewalk.exporting.features import RUNTIMES, Matrix, matrix
from ropewalk.models.config import Config

if TYPE_CHECKING:
    from ropewalk.exporting.parity import Exported


def command(
    model: RunnableModel,
    plan_file: Annotated[
        Path, typer.Option("--plan", metavar="FILE", help="A plan of `ropewalk plan` or `search`.")
    ],
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="RUNTIME", help="transformers, vllm, sglang or llama.cpp."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="The folder, or GGUF file, to write."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16 or float16; for llama.cpp F32, F16, BF16 or Q8_0. "
            "The checkpoint's own without it (llama.cpp: F32)."
        ),
    ] = None,
    fold: Annotated[
        bool, typer.Option("--fold", help="Take the attention scaling into the query weights.")
    ] = False,
    approximate: Annotated[
        bool,
        typer.Option("--approximate", help="Allow what the runtime only has something near."),
    ] = False,
    v4_keys: Annotated[
        bool,
        typer.Option("--v4-keys", help="A config of transformers 4: rope_theta, rope_scaling."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what stands at OUT.")
    ] = False,
    allow_download: DownloadOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what each runtime makes of the plan.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a model with its plan for a runtime, load it back, and compare before it is done."""
    if target is not None and target not in RUNTIMES:
        raise UnknownName("runtime", target, RUNTIMES)
    plan = ContextPlan.read(plan_file)
    if dry_run:
        _dry_run(model, plan, as_json)
        return
    if target is None or output is None:
        raise InputError(
            "an export needs --to RUNTIME and -o OUT; without them, --dry-run shows what each "
            "runtime makes of the plan"
        )
    if v4_keys and target != "transformers":
        raise InputError("--v4-keys goes with --to transformers: the others read today's keys")
    if fold and target == "llama.cpp":
        raise InputError("--fold is not for llama.cpp, which has an attention factor of its own")
    from ropewalk.exporting.parity import NotTheSame
    from ropewalk.models.load import model_folder

    try:
        exported = _export(
            *(str(model_folder(model, allow_download)), plan, target, output, dtype),
            overwrite=overwrite,
            fold=fold,
            approximate=approximate,
            v4_keys=v4_keys,
        )
    except NotTheSame as error:
        if as_json:
            print_json(error.exported.to_json())
        raise
    if as_json:
        print_json(exported.to_json())
    else:
        _show(exported)


def _export(
    model: str,
    plan: ContextPlan,
    target: str,
    output: Path,
    dtype: str | None,
    *,
    overwrite: bool,
    fold: bool,
    approximate: bool,
    v4_keys: bool,
) -> Exported:
    if target == "llama.cpp":
        from ropewalk.exporting import llama_cpp
        from ropewalk.exporting.folder import nearest

        followed, caveats = nearest(model, plan, target, approximate=approximate)
        exported = llama_cpp.export(
            model, followed, output, dtype=dtype or "F32", overwrite=overwrite
        )
        return exported.with_warnings(caveats)
    if target == "transformers":
        from ropewalk.exporting import transformers

        return transformers.export(
            *(model, plan, output),
            dtype=dtype or "auto",
            overwrite=overwrite,
            fold=fold,
            approximate=approximate,
            v4_keys=v4_keys,
        )
    from ropewalk.exporting import vllm

    return vllm.export(
        *(model, plan, output),
        engine=target,
        dtype=dtype or "auto",
        overwrite=overwrite,
        fold=fold,
        approximate=approximate,
    )


def _show(exported: Exported) -> None:
    parity = exported.parity
    print(f"wrote {exported.path}")
    if parity is not None:
        print(
            f"  {parity.runtime} computes what the plan says: logits within "
            f"{parity.max_logit_difference:.2g} over {parity.tokens} tokens "
            f"(allowed: {parity.tolerance:.2g})"
        )
    for warning in exported.warnings:
        print(f"  {warning}")
    if exported.load:
        print(f"  {exported.load}")
    if exported.overrides:
        print(f"or, on the source itself:\n  {exported.overrides}")


def _dry_run(model: str, plan: ContextPlan, as_json: bool) -> None:
    config = load_model_config(model)
    cells = matrix(plan, config)
    losses = _losses(model, plan, config)
    if as_json:
        print_json(
            {
                "model": model,
                "plan_id": plan.id,
                "matrix": {
                    feature: {
                        runtime: {"fit": cell.fit, "how": cell.how} for runtime, cell in row.items()
                    }
                    for feature, row in cells.items()
                },
                "losses": losses,
            }
        )
    else:
        _show_matrix(cells, losses)


def _losses(model: str, plan: ContextPlan, config: Config) -> dict[str, str]:
    """What each approximation costs, measured where the weights are here."""
    from ropewalk.exporting.features import expressible

    found: dict[str, str] = {}
    for runtime in RUNTIMES:
        try:
            followed, near = expressible(plan, config, runtime, approximate=True)
        except RopewalkError:
            continue
        if not near:
            continue
        if not (Path(model).is_dir() or model == "bundled"):
            found[runtime] = "not measured: the weights are not here"
            continue
        from ropewalk.exporting.folder import approximation_loss

        found[runtime] = str(approximation_loss(model, plan, followed))
    return found


def _show_matrix(cells: Matrix, losses: dict[str, str]) -> None:
    from rich.console import Console

    rows = table("", *RUNTIMES)
    for feature, row in cells.items():
        rows.add_row(feature, *(row[runtime].fit for runtime in RUNTIMES))
    console = Console(highlight=False)
    console.print(rows)
    for feature, row in cells.items():
        hows: dict[str, list[str]] = {}
        for runtime, cell in row.items():
            if cell.how:
                hows.setdefault(str(cell), []).append(runtime)
        for said, runtimes in hows.items():
            console.print(f"  {feature}, {', '.join(runtimes)}: {said}", soft_wrap=True)
    for runtime, loss in losses.items():
        console.print(f"  approximated in {runtime}: {loss}", soft_wrap=True)
