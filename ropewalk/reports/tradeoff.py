"""Long context against short text: what each method changes at each length, on the same samples."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.evaluation.results import MethodComparison, compare_pairs, grouped, labels
from ropewalk.records import NLL, EvalRecord, is_compared, is_main_answer
from ropewalk.reports.evaluation import Curve, Panel, Point

ALL_TASKS = "all tasks"


def tradeoffs(records: Sequence[EvalRecord], original_length: int, as_it_is: str) -> list[Panel]:
    """By loss and by answers, each method less the model under the label `as_it_is`.

    Only what was measured on both sides: within the original length, and beyond it.
    """
    own = grouped((r for r in records if is_compared(r)), lambda r: r.subject)
    base = next((subject for subject in own if subject.method == as_it_is), None)
    if base is None:
        return []
    names = labels(own)
    pairs = [(each, own[each], base, own[base]) for each in own if each != base]
    tasks = _answered_everywhere([r for group in own.values() for r in group])
    groups = {ALL_TASKS: tasks} if len(tasks) > 1 else {}
    shown = {ALL_TASKS, *(tasks if len(tasks) == 1 else ())}
    found: dict[tuple[str, str, str], dict[str, list[Point]]] = {}
    for c in compare_pairs(pairs, groups):
        if c.metric == NLL.name or c.task in shown:
            curves = found.setdefault((c.task, c.mode, c.metric), {})
            curves.setdefault(names[c.first], []).append(_point(c))
    return [
        Panel(task, mode, metric, "", tuple(Curve(name, tuple(sorted(p))) for name, p in both))
        for (task, mode, metric), curves in found.items()
        if (both := [(n, p) for n, p in curves.items() if _on_both_sides(p, original_length)])
    ]


def is_loss(panel: Panel) -> bool:
    return panel.metric == NLL.name


def _answered_everywhere(records: Sequence[EvalRecord]) -> tuple[str, ...]:
    """The tasks with answers at every length: a mean over others would change with the length."""
    by_task = grouped(filter(is_main_answer, records), lambda r: r.task)
    lengths = {task: {r.length for r in group} for task, group in by_task.items()}
    everywhere = set().union(*lengths.values())
    return tuple(task for task, own in lengths.items() if own == everywhere)


def _point(found: MethodComparison) -> Point:
    c = found.comparison
    return Point(found.length, c.difference, c.low, c.high)


def _on_both_sides(points: Sequence[Point], length: int) -> bool:
    return any(p.length <= length for p in points) and any(p.length > length for p in points)
