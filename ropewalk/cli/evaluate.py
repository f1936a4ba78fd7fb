"""`ropewalk evaluate`: what a model retrieves and predicts at a length, under several plans."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    DtypeOption,
    FieldOption,
    JsonOption,
    RunnableModel,
    corpus_documents,
    print_json,
    table,
)
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue
from ropewalk.lengths import format_length, parse_length
from ropewalk.records import EvalRecord, EvalResult, Mode

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.evaluation.results import MethodComparison
    from ropewalk.evaluation.runner import Condition
    from ropewalk.models.load import LoadedModel

DEFAULT_TASKS = "perplexity,passkey,needle,lines,kv"
AS_IT_IS = "none"


def command(
    model: RunnableModel,
    plans: Annotated[
        list[Path] | None,
        typer.Option("--plan", metavar="FILE", help="A plan of `ropewalk plan`; repeatable."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help="A method of `ropewalk methods`, or `none` for the model as it is; repeatable.",
        ),
    ] = None,
    target: Annotated[
        int | None,
        typer.Option("--to", metavar="LENGTH", parser=parse_length, help="How far methods extend."),
    ] = None,
    tasks: Annotated[
        str,
        typer.Option(help="Of passkey, needle, lines, kv, perplexity, repetition, perplexity-hf …"),
    ] = DEFAULT_TASKS,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…", help="Context lengths; from a quarter of the window in doublings."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples a task, length and method.")] = 20,
    mode: Annotated[
        Mode, typer.Option(help="Feed the answer and see whether it was expected, or write it.")
    ] = "teacher_forced",
    corpus: CorpusOption = "held-out",
    field: FieldOption = "text",
    seed: Annotated[int, typer.Option(help="Other samples of the same kind.")] = 0,
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep records and figures here, and resume from here."),
    ] = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    allow_download: DownloadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval and perplexity at several context lengths, with intervals."""
    wanted = _methods(methods, plans, target)
    given = [ContextPlan.read(path) for path in plans or ()]
    chosen_lengths = _parse_lengths(lengths) if lengths is not None else None
    chosen_tasks = tuple(dict.fromkeys(name.strip() for name in tasks.split(",")))

    from ropewalk.evaluation.results import compare_methods, summarise
    from ropewalk.evaluation.runner import Evaluation, Settings
    from ropewalk.models.load import load

    # Everything that can be refused without a model is, before one is loaded.
    Settings(chosen_tasks, chosen_lengths or (2,), samples, seed, mode)
    documents = corpus_documents(corpus, field)
    loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
    conditions = _conditions(loaded, wanted, given, target)
    window = loaded.present_plan.target_length
    chosen_lengths = chosen_lengths or _default_lengths(window, conditions, target)
    _check_reach(conditions, chosen_lengths)
    evaluation = Evaluation(
        loaded.model,
        loaded.tokenizer,
        documents,
        Settings(chosen_tasks, chosen_lengths, samples, seed, mode),
        trained_length=loaded.present_plan.original_length,
        notice=lambda text: print(text, file=sys.stderr),
    )
    with ExitStack() as stack:
        journal = directory = None
        if run is not None:
            from ropewalk.run_directory import RECORDS, RunDirectory

            configuration = {
                "model": model,
                "conditions": [
                    {
                        "method": condition.method,
                        "plan_id": condition.plan_id,
                        "plan": condition.plan and condition.plan.to_json(),
                    }
                    for condition in conditions
                ],
                **evaluation.identity(),
            }
            directory = stack.enter_context(RunDirectory(run, "evaluate", configuration))
            journal = directory.journal(RECORDS)
        with progress_bar("scoring") as advance:
            records = evaluation.run(conditions, journal, advance)
        results = summarise(records)
        longest = max(chosen_lengths)
        comparisons = compare_methods(
            r for r in records if r.length == longest and r.metric != "next_token_accuracy"
        )
        answer = {"model": model, "results": [result.to_json() for result in results]}
        if directory is not None:
            import json

            from ropewalk.reports.evaluation import draw_all

            directory.write("results.json", json.dumps(answer, indent=2) + "\n")
            draw_all(
                *(results, records, directory.path / "figures"),
                trained_length=evaluation.trained_length,
            )
    if as_json:
        print_json(answer)
    else:
        _show(model, loaded, results, records, comparisons)
        if directory is not None:
            print(f"records, results and figures are in {directory.path}")


def _methods(
    methods: Sequence[str] | None, plans: Sequence[Path] | None, target: int | None
) -> list[str]:
    """The methods to compare, each once; the model as it is where nothing was named."""
    wanted = list(dict.fromkeys(methods or ([] if plans else [AS_IT_IS])))
    extending = [method for method in wanted if method != AS_IT_IS]
    if extending and target is None:
        raise InputError(f"--method {extending[0]} needs a length to extend to; add --to LENGTH")
    from ropewalk.scaling import named

    for method in extending:
        for name in method.split("+"):
            named(name)
    return wanted


def _conditions(
    loaded: LoadedModel, methods: Sequence[str], plans: Sequence[ContextPlan], target: int | None
) -> list[Condition]:
    from ropewalk.evaluation.runner import Condition
    from ropewalk.planning.extension import extend_plan

    present = loaded.present_plan
    conditions = []
    for method in methods:
        if method == AS_IT_IS:
            conditions.append(Condition(AS_IT_IS, present.id, None))
        else:
            assert target is not None
            plan = extend_plan(present, target, method, layer_types=(present.extended_layer,))
            conditions.append(Condition(method, plan.id, plan))
    for plan in plans:
        label = plan.provenance.get("methods") or plan.longest(next(iter(plan.schedules))).method
        if any(label == condition.method for condition in conditions):
            label = f"{label} ({plan.id[:6]})"
        conditions.append(Condition(label, plan.id, plan))
    return conditions


def _parse_lengths(text: str) -> tuple[int, ...]:
    return tuple(sorted({parse_length(part) for part in text.split(",")}))


def _default_lengths(
    window: int, conditions: Sequence[Condition], target: int | None
) -> tuple[int, ...]:
    """A quarter of the window, then doublings up to where all plans reach."""
    reaches = [c.plan.target_length for c in conditions if c.plan is not None]
    end = min(reaches) if reaches else target or window
    length = max(2, min(window, end) // 4)
    lengths = []
    while length < end:
        lengths.append(length)
        length *= 2
    return (*lengths, end)


def _check_reach(conditions: Sequence[Condition], lengths: Sequence[int]) -> None:
    for condition in conditions:
        if condition.plan is not None and max(lengths) > condition.plan.target_length:
            raise InvalidValue(
                "--lengths",
                max(lengths),
                f"{condition.method} is planned for {condition.plan.target_length} tokens",
                "extend further (--to), or give shorter lengths",
            )


def _show(
    model: str,
    loaded: LoadedModel,
    results: Sequence[EvalResult],
    records: Sequence[EvalRecord],
    comparisons: Sequence[MethodComparison],
) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"[bold]{model}[/bold], {loaded.dtype} on {loaded.device}")
    show_results(console, results)
    _show_grid(console, results, records)
    _show_comparisons(console, comparisons)


def show_results(console: Console, results: Sequence[EvalResult]) -> None:
    methods = list(dict.fromkeys(result.method for result in results))
    cells = {(r.task, r.mode, r.metric, r.length, r.method): r for r in results}
    rows = table("task", "length", *methods)
    counts = {r.samples for r in results}
    for task, mode, metric in dict.fromkeys((r.task, r.mode, r.metric) for r in results):
        name = "next token" if metric == "next_token_accuracy" else task
        for length in sorted({r.length for r in results if (r.task, r.metric) == (task, metric)}):
            found = [cells.get((task, mode, metric, length, method)) for method in methods]
            rows.add_row(name, format_length(length), *map(_cell, found))
            name = ""
        rows.add_section()
    console.print(rows)
    console.print(
        f"95% intervals: Wilson for rates, bootstrap for means; {_span(counts)} samples a cell; "
        f"retrieval {_MODES[_mode(results)]}",
        soft_wrap=True,
    )


_MODES = {
    "teacher_forced": "by teacher forcing (the whole answer was the model's first choice)",
    "generate": "by generation",
}


def _mode(results: Sequence[EvalResult]) -> str:
    modes = [r.mode for r in results if r.metric == "exact_match"]
    return modes[0] if modes else "teacher_forced"


def _span(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _cell(result: EvalResult | None) -> str:
    if result is None:
        return "–"
    if result.metric == "perplexity":
        value, ends = _figure(result.value, 3), [_figure(end, 2) for end in _ends(result)]
    else:
        value, ends = f"{result.value:.0%}", [f"{100 * end:.0f}" for end in _ends(result)]
    return f"{value} [dim]{'–'.join(ends)}[/dim]"


def _ends(result: EvalResult) -> tuple[float, ...]:
    """The interval, where there is one."""
    return () if result.low is None or result.high is None else (result.low, result.high)


def _figure(value: float, digits: int) -> str:
    """So many significant digits, but never fewer than stand before the point."""
    whole = len(str(int(value)))
    return f"{value:.{max(0, digits - whole)}f}"


def _show_grid(
    console: Console, results: Sequence[EvalResult], records: Sequence[EvalRecord]
) -> None:
    """A small heatmap of the needle, or of the first retrieval task there is."""
    from rich.text import Text

    from ropewalk.reports.evaluation import depth_grids

    retrieved = [result.task for result in results if result.metric == "exact_match"]
    if not retrieved:
        return
    task = "needle" if "needle" in retrieved else retrieved[0]
    console.print(f"\n{task} by depth (grey: the interval is wider than 40 points)")
    for grid in depth_grids(records, task):
        rows = table(grid.method, *(format_length(length) for length in grid.lengths))
        for low, high, row in zip(grid.edges, grid.edges[1:], grid.rows, strict=False):
            shades = []
            for cell in row:
                if cell is None:
                    shades.append(Text("–"))
                    continue
                red, green = round(200 * (1 - cell.rate)) + 40, round(160 * cell.rate) + 40
                color = "rgb(128,128,128)" if cell.is_vague else f"rgb({red},{green},60)"
                shades.append(Text(f" {cell.rate:4.0%} ", style=f"white on {color}"))
            rows.add_row(f"{low:.0%}–{high:.0%}", *shades)
        console.print(rows)


def _show_comparisons(console: Console, comparisons: Sequence[MethodComparison]) -> None:
    """The pairs at the longest length that are told apart, and how many are not."""
    if not comparisons:
        return
    apart = [c for c in comparisons if c.adjusted_p < 0.05]
    console.print(
        f"\nPaired on the same samples at {format_length(comparisons[0].length)}; p by McNemar or "
        f"sign flips, Holm over all {len(comparisons)} pairs:",
        soft_wrap=True,
    )
    for c in apart:
        low, high = c.comparison.low, c.comparison.high
        interval = "" if low is None or high is None else f" ({low:+.2f} to {high:+.2f})"
        what = " (loss)" if c.metric == "nll" else ""
        console.print(
            f"  {c.task}{what}: {c.first} − {c.second} = {c.comparison.difference:+.2f}{interval}, "
            f"p = {c.adjusted_p:.2g}",
            soft_wrap=True,
        )
    if len(apart) < len(comparisons):
        console.print(f"  {len(comparisons) - len(apart)} pairs are not told apart")
