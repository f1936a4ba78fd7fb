"""`ropewalk evaluate`: a model's retrieval and prediction at a length, under several plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.api.evaluate import evaluate
from ropewalk.api.evaluate_checkpoints import EvaluatedCheckpoints, evaluate_checkpoints
from ropewalk.cli.cost import show_cost
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    HOW_COMPARED,
    DryRunOption,
    JsonOption,
    console,
    say,
    show_result,
    table,
)
from ropewalk.errors import InputError, printable
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.evaluation.results import Spread, labels
from ropewalk.lengths import format_length
from ropewalk.records import (
    AS_SERVED,
    NEXT_TOKEN_ACCURACY,
    NLL,
    PERPLEXITY,
    EvalResult,
    is_main,
    is_main_answer,
)
from ropewalk.torchrun import first

if TYPE_CHECKING:
    from rich.text import Text

    from ropewalk.cli.terminal import Terminal

EXAMPLE = "ropewalk evaluate path/to/model --to 32k --method none --method yarn"


@command_of(evaluate)
def command(
    call: Call[Evaluated],
    *,
    checkpoints: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Take MODEL as a trainer's folder, evaluate its last N checkpoints, and show the "
            "mean and range of each score.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval and perplexity at several context lengths, with intervals."""
    if dry_run:
        if checkpoints is not None:
            raise InputError("a preview covers one model: leave out --checkpoints, or --dry-run")
        show_cost(call.preview(), as_json=as_json)
        return
    if checkpoints is None:
        show_result(call(), _show, as_json=as_json)
    else:
        several = Call(evaluate_checkpoints, {"model": None, **call.given}, call.quiet)
        show_result(several(last=checkpoints), _show_checkpoints, as_json=as_json)
    if "run" in call.given and first() and not as_json:
        say(f"records, results and figures are in {printable(str(call.given['run']))}")


def _show_checkpoints(found: EvaluatedCheckpoints) -> None:
    terminal = console(found.folder, f": {', '.join(found.checkpoints)}")
    methods = list(dict.fromkeys(s.method for s in found.spreads))
    cells = {(s.task, s.metric, s.length, s.method): s for s in found.spreads}
    rows = table("task", "length", *methods)
    for task, metric in dict.fromkeys((s.task, s.metric) for s in found.spreads):
        name = "next token" if metric == NEXT_TOKEN_ACCURACY.name else task
        for length in sorted({n for t, m, n, _ in cells if (t, m) == (task, metric)}):
            own = [cells.get((task, metric, length, method)) for method in methods]
            rows.add_row(name, format_length(length), *map(_spread_cell, own))
            name = ""
        rows.add_section()
    terminal.print(rows)
    say(
        f"mean and range of {len(found.checkpoints)} checkpoints; the range is no interval, and "
        "the results of each checkpoint (--json, --run) have intervals"
    )


def _spread_cell(spread: Spread | None) -> str | Text:
    if spread is None:
        return "–"
    return _with_ends(spread.metric, spread.mean, (spread.lowest, spread.highest), 3)


def _show(found: Evaluated) -> None:
    terminal = console(found.model, f", {found.dtype} on {found.device}")
    verdict = getattr(found, "verdict", None)
    if verdict is not None:
        say(verdict.summary())
    show_results(terminal, (*found.results, *found.means))
    _show_effective_lengths(terminal, found)
    _show_grids(terminal, found)
    _show_comparisons(terminal, found)


def show_results(terminal: Terminal, results: Sequence[EvalResult]) -> None:
    """One table with a row per task and length, and a column per subject."""
    names = labels(result.subject for result in results)
    results = list(filter(is_main, results))
    cells = {(r.task, r.mode, r.metric, r.length, r.subject): r for r in results}
    rows = table("task", "length", *names.values())
    counts = {r.samples for r in results}
    for task, mode, metric in dict.fromkeys((r.task, r.mode, r.metric) for r in results):
        name = "next token" if metric == NEXT_TOKEN_ACCURACY.name else task
        for length in sorted({r.length for r in results if (r.task, r.metric) == (task, metric)}):
            found = [cells.get((task, mode, metric, length, subject)) for subject in names]
            rows.add_row(name, format_length(length), *map(_cell, found))
            name = ""
        rows.add_section()
    terminal.print(rows)
    mode = next((r.mode for r in results if is_main_answer(r)), "teacher_forced")
    fewest, most = min(counts), max(counts)
    span = str(most) if fewest == most else f"{fewest} to {most}"
    few = (
        ", none where there are too few for an interval"
        if any(not _ends(r) for r in results)
        else ""
    )
    terminal.print(
        f"95% intervals: Wilson for rates, Student's t for losses{few}; {span} samples "
        f"per cell; retrieval {_MODES[mode]}",
        soft_wrap=True,
    )


_MODES = {
    "teacher_forced": "by teacher forcing (exact match: every answer token and the end of the "
    "answer were the top-1 prediction)",
    "generate": "by generation, as each task scores it",
    "shared_context": "by generation with several questions on each context, as each task scores "
    "it; not comparable with other modes",
}


def _cell(result: EvalResult | None) -> str | Text:
    return "–" if result is None else _with_ends(result.metric, result.value, _ends(result), 2)


def _with_ends(metric: str, value: float, ends: Sequence[float], digits: int) -> Text:
    """A value with the ends of its interval or range; of a perplexity, to so many digits."""
    from rich.text import Text

    is_share = metric != PERPLEXITY.name
    shown = f"{value:.0%}" if is_share else _figure(value, 3)
    told = (f"{100 * end:.0f}" if is_share else _figure(end, digits) for end in ends)
    return Text.assemble(f"{shown} ", ("–".join(told), "dim"))


def _ends(result: EvalResult) -> tuple[float, ...]:
    """The interval, if there is one."""
    return () if result.low is None or result.high is None else (result.low, result.high)


def _figure(value: float, digits: int) -> str:
    """So many significant digits, but never fewer than before the point."""
    whole = len(str(int(value)))
    return f"{value:.{max(0, digits - whole)}f}"


def _show_effective_lengths(terminal: Terminal, found: Evaluated) -> None:
    """Show each subject's effective length, by each mean over tasks and threshold."""
    if not found.means:
        return
    names = labels(result.subject for result in found.results)
    window = format_length(found.original_length)
    say(
        "\nEffective length: a length passes where the whole 95% interval reaches the threshold, "
        "and fails where all of it is below"
    )
    if not any(e.criterion == "own" for e in found.effective_lengths):
        needs = f"--method none at {window}"
        if all(result.method.endswith(AS_SERVED) for result in found.results):
            needs = (
                f"the unmodified model's at {window}: evaluate the file or server of that at this "
                "length too, and `ropewalk compare` sets two runs side by side"
            )
        say(f"  85% of the model's own score: not measured (needs {needs})")
    own = f"85% of unmodified at {window}"
    for e in found.effective_lengths:
        threshold = "85.6% (RULER)" if e.criterion == "ruler" else f"{e.threshold:.1%} ({own})"
        say(f"  {names[e.subject]}, {e.group}, threshold {threshold}: {e}")


def _show_grids(terminal: Terminal, found: Evaluated) -> None:
    """A small heatmap of the needle, or of the first retrieval task there is."""
    from rich.text import Text

    if not found.depth_grids:
        return
    tasks = [grid.task for grid in found.depth_grids]
    task = "needle" if "needle" in tasks else tasks[0]
    terminal.print(f"\n{task} by depth (grey: the interval is wider than 40 points)")
    for grid in (grid for grid in found.depth_grids if grid.task == task):
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
        terminal.print(rows)


def _show_comparisons(terminal: Terminal, found: Evaluated) -> None:
    """The significant differences at the longest length, and how many are not."""
    if not found.comparisons:
        return
    names = labels(result.subject for result in found.results)
    say(
        f"\nPaired on the same samples at {format_length(found.comparisons[0].length)}; p "
        f"adjusted by Holm over all {len(found.comparisons)} pairs:"
    )
    for c in found.significant:
        low, high = c.comparison.low, c.comparison.high
        interval = "" if low is None or high is None else f" ({low:+.2f} to {high:+.2f})"
        loss = " (loss)" if c.metric == NLL.name else ""
        say(
            f"  {c.task}{loss}: {names[c.first]} − {names[c.second]} = "
            f"{c.comparison.difference:+.2f}{interval}, p = {c.adjusted_p:.2g}"
        )
    if found.undecided:
        terminal.print(f"  {found.undecided} pairs show no significant difference")
    if found.untested:
        terminal.print(f"  {found.untested} pairs have too few samples for an interval or a test")
    say(HOW_COMPARED)
