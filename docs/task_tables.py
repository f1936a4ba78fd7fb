"""The table of retrieval tasks of docs/evaluation.md, from what each task declares."""

from __future__ import annotations

from ropewalk.evaluation import tasks


def blocks() -> dict[str, str]:
    rows = [
        f"| `{task.name}` | {task.summary.rstrip('.')} | `{task.metric}` | "
        f"{', '.join(f'`{group}`' for group in task.groups)} |"
        for task in sorted(tasks.built_in().values(), key=lambda task: (task.groups, task.name))
    ]
    lines = ["| task | asked for | score | group, which has a mean |", "|---|---|---|---|", *rows]
    return {"docs/evaluation.md": "\n".join(lines)}
