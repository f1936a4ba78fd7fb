"""`ropewalk benchmarks`: public benchmarks under several plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.benchmarks import NAMES, Benchmarked, benchmarks
from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    MethodsOption,
    PlansOption,
    RunnableModel,
    StrictOption,
    TargetOption,
    notify,
    print_json,
    table,
)
from ropewalk.evaluation.statistics import is_significant

EXAMPLE = "ropewalk benchmarks path/to/model --to 32k --method yarn --allow-download"


def command(
    model: RunnableModel,
    names: Annotated[
        str,
        typer.Option(
            metavar="A,B,…",
            help="Some of hellaswag, mmlu, arc-c, truthfulqa, longbench, longbench2, or other "
            "tasks of lm-evaluation-harness.",
        ),
    ] = ",".join(NAMES),
    plans: PlansOption = None,
    methods: MethodsOption = None,
    target: TargetOption = None,
    tasks_folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder with further tasks of the harness, as YAML."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Only the first N questions of each task.")
    ] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    allow_download: Annotated[
        bool, typer.Option("--allow-download", help="Fetch MODEL and the questions from the hub.")
    ] = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score public benchmarks, such as HellaSwag, with a plan installed.

    They run through lm-evaluation-harness, which the extra `eval` brings.
    """
    with progress_bar() as progress:
        found = benchmarks(
            model,
            [name.strip() for name in names.split(",")],
            plans=plans or (),
            methods=methods or (),
            to=target,
            tasks_folder=tasks_folder,
            limit=limit,
            dtype=dtype,
            device=device,
            allow_download=allow_download,
            strict=strict,
            progress=progress,
            notice=notify,
        )
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: Benchmarked) -> None:
    from ropewalk.cli.terminal import Terminal, headed

    console = Terminal()
    console.print(headed(found.model, f", by lm-evaluation-harness {found.harness}"))
    rows = table("task", "metric", "method", "value", "95% interval", "questions")
    for r in found.results:
        sure = r.low is not None and r.high is not None
        interval = f"{r.low:.3f} to {r.high:.3f}" if sure else "–"
        rows.add_row(r.task, r.metric, r.method, f"{r.value:.3f}", interval, str(r.samples))
    console.print(rows)
    for c in found.comparisons:
        own = c.comparison
        sure = own.low is not None and own.high is not None
        interval = f" ({own.low:+.3f} to {own.high:+.3f})" if sure else ""
        told = "differ" if is_significant(c.adjusted_p) else "undecided"
        p = "" if c.adjusted_p is None else f", p = {c.adjusted_p:.2g}"
        console.print(
            f"  {c.task} {c.metric}: {c.first} − {c.second} = {own.difference:+.3f}{interval}{p}: "
            f"{told}",
            soft_wrap=True,
        )
