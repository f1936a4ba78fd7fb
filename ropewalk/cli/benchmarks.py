"""`ropewalk benchmarks`: public benchmarks under several plans."""

from __future__ import annotations

from ropewalk.api.benchmarks import Benchmarked, benchmarks
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, show_result, table
from ropewalk.evaluation.statistics import is_significant

EXAMPLE = "ropewalk benchmarks path/to/model --to 32k --method yarn --allow-download"


@command_of(benchmarks)
def command(call: Call[Benchmarked], *, as_json: JsonOption = False) -> None:
    """Score public benchmarks, such as HellaSwag, with a plan installed.

    They run through lm-evaluation-harness, which the extra `eval` brings.
    """
    found = call()
    show_result(found, _show, as_json=as_json)


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
