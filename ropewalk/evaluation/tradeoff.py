"""Long context against short text: each method's change at each length, on the same samples."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.chart import Chart, Guide, Mark, Series
from ropewalk.evaluation.charts import IN_MODE, LENGTH, original
from ropewalk.evaluation.gains import gain_of, gains
from ropewalk.evaluation.results import compare_pairs, grouped, labels
from ropewalk.records import AS_IT_IS, NLL, EvalRecord, is_compared, is_main_answer

ALL_TASKS = "all tasks"
_SIDES = (
    "The gain over the unmodified model, on the same samples: up to the original length, values "
    "below zero are the cost on short text; beyond it, values above zero what long context gains. "
    "Above zero is better. Bars are 95% intervals."
)


def tradeoffs(records: Sequence[EvalRecord], original_length: int) -> list[Chart]:
    """By loss and by answers, the gain of each method over the unmodified model.

    Only what was measured on both sides: within the original length, and beyond it. Each method
    looks as in the charts where the unmodified model is one of the series.
    """
    rows = grouped((r for r in records if is_compared(r)), lambda r: r.subject)
    base = next((subject for subject in rows if subject.method == AS_IT_IS), None)
    if base is None:
        return []
    # Looks count the unmodified model, so that a method looks alike in every chart.
    names = labels(rows)
    order = list(labels(r.subject for r in records).values())
    pairs = [(each, rows[each], base, rows[base]) for each in rows if each != base]
    # Answers are drawn as one mean over tasks, or as the only task.
    tasks = _answered_everywhere([r for group in rows.values() for r in group])
    groups = {ALL_TASKS: tasks} if len(tasks) > 1 else {}
    shown = {ALL_TASKS, *(tasks if len(tasks) == 1 else ())}
    charts: dict[tuple[str, str, str], dict[str, list[Mark]]] = {}
    for c in compare_pairs(pairs, groups):
        if c.metric == NLL.name or c.task in shown:
            series = charts.setdefault((c.task, c.mode, c.metric), {})
            series.setdefault(names[c.first], []).append(Mark.of(c.length, gain_of(c)))
    return [
        Chart(
            f"{task}{IN_MODE[mode]}: {gains(metric).label}",
            LENGTH,
            gains(metric),
            tuple(
                Series(name, tuple(sorted(marks)), look=order.index(name)) for name, marks in both
            ),
            original(original_length),
            (Guide(0, "unmodified"),),
            _SIDES,
        )
        for (task, mode, metric), series in charts.items()
        if (both := [(n, m) for n, m in series.items() if _on_both_sides(m, original_length)])
    ]


def _answered_everywhere(records: Sequence[EvalRecord]) -> tuple[str, ...]:
    """The tasks with answers at every length: a mean over others would change with the length."""
    by_task = grouped(filter(is_main_answer, records), lambda r: r.task)
    lengths = {task: {r.length for r in group} for task, group in by_task.items()}
    everywhere = set().union(*lengths.values())
    return tuple(task for task, measured in lengths.items() if measured == everywhere)


def _on_both_sides(marks: Sequence[Mark], length: int) -> bool:
    return any(m.x <= length for m in marks) and any(m.x > length for m in marks)
