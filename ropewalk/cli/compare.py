"""`ropewalk compare`: the difference of two evaluations, on the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.api.compare_runs import compare_runs
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    HOW_COMPARED,
    JsonOption,
    OverwriteOption,
    console,
    drawn,
    say,
    show_with_plot,
    table,
)
from ropewalk.evaluation.compared import ComparedRuns
from ropewalk.evaluation.statistics import Comparison, p_in_words
from ropewalk.lengths import format_length
from ropewalk.records import NLL, PERPLEXITY, EvalResult

if TYPE_CHECKING:
    from rich.text import Text

EXAMPLE = "ropewalk compare runs/tuned runs/base --plot difference.png"


@command_of(compare_runs)
def command(
    call: Call[ComparedRuns],
    *,
    plot: Annotated[Path | None, drawn("the differences by length")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two evaluations task by task and length by length, on the same samples.

    Differences are the first run minus the second.
    """
    show_with_plot(call, _show, plot, overwrite=overwrite, as_json=as_json)


def _show(found: ComparedRuns) -> None:
    changes = ", ".join(found.changes) or "nothing that is recorded"
    terminal = console(found.title, f"; the runs differ in {changes}")
    values = [
        {(r.subject, r.task, r.mode, r.metric, r.length): r for r in results}
        for results in (found.first_results, found.second_results)
    ]
    for label in dict.fromkeys(map(found.label, found.comparisons)):
        own = [c for c in found.comparisons if found.label(c) == label]
        rows = table(label, "length", "first", "second", "difference", "p")
        for task, metric in dict.fromkeys((c.task, c.metric) for c in own):
            shown = PERPLEXITY.name if metric == NLL.name else metric
            name = f"{task} (loss)" if metric == NLL.name else task
            for c in (c for c in own if (c.task, c.metric) == (task, metric)):
                key = (task, c.mode, shown, c.length)
                rows.add_row(
                    name,
                    format_length(c.length),
                    _value(values[0][c.first, *key]),
                    _value(values[1][c.second, *key]),
                    _difference(c.comparison),
                    p_in_words(c.adjusted_p),
                )
                name = ""
            rows.add_section()
        terminal.print(rows)
    say(found.summary())
    say(f"{HOW_COMPARED}. 95% intervals; p-values are adjusted by Holm")


def _value(result: EvalResult) -> str:
    return f"{result.value:{'.3g' if result.metric == PERPLEXITY.name else '.0%'}}"


def _difference(own: Comparison) -> Text:
    from rich.text import Text

    sure = own.low is not None and own.high is not None
    interval = f" {own.low:+.2f} to {own.high:+.2f}" if sure else " too few samples"
    return Text.assemble(f"{own.difference:+.2f}", (interval, "dim"))
