"""Public benchmarks through lm-evaluation-harness, on the model that ropewalk follows a plan in.

The harness gets the loaded model itself, so its scores are those of the installed plan. It brings
tasks as Python code and data from the hub. Remote code stays off, and so do its caches of requests
and answers, which it unpickles. Without `allow_download`, data come from the local cache alone.
"""

from __future__ import annotations

import fnmatch
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ropewalk.errors import InputError, UnknownName, Unsupported
from ropewalk.models.load import LoadedModel


class Benchmark(NamedTuple):
    """A task of the harness, and the number of examples in its prompts in papers."""

    task: str
    examples: int | None = None


BENCHMARKS = {
    "hellaswag": Benchmark("hellaswag", 10),
    "mmlu": Benchmark("mmlu", 5),
    "arc-c": Benchmark("arc_challenge", 25),
    "truthfulqa": Benchmark("truthfulqa_mc2", 0),
    "longbench": Benchmark("longbench_fewshot"),
    "longbench2": Benchmark("longbench2"),
}
"""By our name; every other task or group of the harness goes by its own."""

# Their code loads the tokenizer with remote code allowed.
REFUSED = ("ruler*", "niah_*", "babilong*")


Weighting = Literal["questions", "tasks"]


class BenchmarkScores(NamedTuple):
    """One metric of one task, or of a group of tasks."""

    task: str
    metric: str
    """With the harness's filter after a comma, unless that is `none`."""
    value: float
    """The value as the harness aggregates it."""
    scores: dict[str, dict[int, float]]
    """By task, by the number of the question. Only a group has several tasks."""
    weighting: Weighting | None
    """The unit of equal weight in the mean; None if the value is no mean of the scores."""
    compared: bool = True
    """False for a part of what was asked for: conditions are compared on the whole."""


def check_names(names: Sequence[str]) -> None:
    """Refuse what is not run, before a model loads."""
    for name in names:
        _check_code(name, name)


def _check_code(task: str, name: str) -> None:
    if any(fnmatch.fnmatch(task, pattern) for pattern in REFUSED):
        within = "" if task == name else f" (part of {name})"
        raise Unsupported(
            f"{task}{within}: its code in the harness trusts remote code of the tokenizer; use "
            "`evaluate --tasks ruler-syn`, or another benchmark"
        )


def leaves(index: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The tasks that a task, tag or group of the harness's index comes down to, each once.

    From the index alone: to build a task is to run its code.
    """
    entry = index[name]
    if entry.kind.name == "TAG":
        found = [leaf for task in sorted(entry.tags) for leaf in _known(index, task, task)]
    elif entry.kind.name == "GROUP":
        found = _members(index, name, entry.cfg.get("task"))
    else:
        found = [name]
    return tuple(dict.fromkeys(found))


def _members(index: Mapping[str, Any], group: str, members: object) -> list[str]:
    found: list[str] = []
    for member in members if isinstance(members, list) else ():
        own = member if isinstance(member, dict) else {"task": member}
        if "group" not in own:
            found += _known(index, own["task"], f"{group}::{own['task']}")
        elif own["group"] in index:
            found += leaves(index, own["group"])
        else:
            found += _members(index, f"{group}::{own['group']}", own.get("task"))
    return found


def _known(index: Mapping[str, Any], name: str, written_out: str) -> tuple[str, ...]:
    """The tasks of a name; `written_out` is the harness's name of a task defined in place."""
    return leaves(index, name) if name in index else (written_out,)


class BenchmarksAsked(NamedTuple):
    """A benchmark to run, and which of its tasks and groups are compared."""

    name: str
    benchmark: Benchmark
    compared: frozenset[str]
    """Names that were asked for, and the tasks of those that are tags."""


def asked(index: Mapping[str, Any], names: Sequence[str]) -> list[BenchmarksAsked]:
    """The tasks of these names, each once: one that another name includes runs with it."""
    own = {}
    for name in names:
        benchmark = BENCHMARKS.get(name, Benchmark(name))
        if benchmark.task not in index:
            raise UnknownName("benchmark", name, BENCHMARKS)
        own[name] = benchmark, leaves(index, benchmark.task)
        for task in own[name][1]:
            _check_code(task.rpartition("::")[2], name)
    found: list[BenchmarksAsked] = []
    covered: dict[str, tuple[str, int | None]] = {}
    within: set[str] = set()
    compared = frozenset(
        member
        for benchmark, tasks in own.values()
        for member in (
            [benchmark.task] if _has_score(index[benchmark.task]) else [benchmark.task, *tasks]
        )
    )
    # The largest first. `sorted` keeps the order of names that have as many tasks.
    for name in sorted(own, key=lambda name: -len(own[name][1])):
        benchmark, tasks = own[name]
        for task in tasks:
            other, examples = covered.get(task, (name, benchmark.examples))
            if benchmark.examples not in (None, examples):
                raise InputError(
                    f"{name} and {other} both include {task}, with different numbers of examples "
                    "in the prompt; score them in two runs"
                )
        scored_apart = _has_score(index[benchmark.task]) and benchmark.task not in within
        if scored_apart or not covered.keys() >= set(tasks):
            within |= _groups(index, {"group": benchmark.task})
            found.append(BenchmarksAsked(name, benchmark, compared))
            covered = dict.fromkeys(tasks, (name, benchmark.examples)) | covered
    order = list(own)
    return sorted(found, key=lambda one: order.index(one.name))


def _groups(index: Mapping[str, Any], member: Any) -> set[str]:
    """The names of the index within a member of a group."""
    own = member if isinstance(member, dict) else {"task": member}
    name = str(own["group"] if "group" in own else own["task"])
    inner = index[name].cfg if name in index and index[name].cfg else own
    members = inner.get("task")
    nested = [_groups(index, m) for m in (members if isinstance(members, list) else ())]
    return {name}.union(*nested)


def _has_score(entry: Any) -> bool:
    return bool(entry.kind.name == "GROUP" and entry.cfg.get("aggregate_metric_list"))


def run_benchmarks(
    loaded: LoadedModel,
    names: Sequence[str],
    *,
    length: int,
    tasks_folder: Path | None = None,
    limit: int | None = None,
    allow_download: bool = False,
) -> list[BenchmarkScores]:
    """Score a loaded model, as it is now, on benchmarks; `length` is the most tokens it is fed."""
    with _offline(not allow_download):
        import lm_eval
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager

        manager = TaskManager(include_path=tasks_folder and str(tasks_folder))
        wanted = asked(manager.task_index, names)
        model = HFLM(
            pretrained=loaded.model,
            tokenizer=loaded.tokenizer,
            max_length=length,
            batch_size=1,
            trust_remote_code=False,
        )
        found: dict[tuple[str, str], BenchmarkScores] = {}
        for name, benchmark, compared in wanted:
            try:
                results = lm_eval.simple_evaluate(
                    model=model,
                    tasks=[benchmark.task],
                    num_fewshot=benchmark.examples,
                    limit=limit,
                    bootstrap_iters=0,
                    use_cache=None,
                    cache_requests=False,
                    confirm_run_unsafe_code=False,
                    task_manager=manager,
                )
            except (ConnectionError, FileNotFoundError) as error:
                if allow_download:
                    raise
                raise InputError(
                    f"{name}: its data are not in the local cache ({str(error)[:120]}); allow the "
                    "download, or fetch them first"
                ) from error
            for own in scores_of(results, manager.task_index, compared):
                # Groups can overlap: the first one's prompts count.
                found.setdefault((own.task, own.metric), own)
        return list(found.values())


def scores_of(
    results: Any, index: Mapping[str, Any], compared: frozenset[str]
) -> list[BenchmarkScores]:
    """Every metric of every group, the largest first, then of every task with one score a question.

    A group is as the harness aggregates it, and has a score only where its definition asks for one.
    """
    subtasks = results.get("group_subtasks", {})
    below = {name: _tasks_below(subtasks, name) for name in results.get("groups", {})}
    below = {name: below[name] for name in sorted(below, key=lambda name: -len(below[name]))}
    below |= {task: [task] for task in results["samples"]}
    found = []
    for name, tasks in below.items():
        for key, value in results["results"][name].items():
            metric, _, chosen = key.partition(",")
            own = {task: _by_question(results["samples"][task], metric, chosen) for task in tasks}
            own = {task: scores for task, scores in own.items() if scores}
            if not own or not isinstance(value, int | float):
                continue
            weighting = _weighting(index.get(name), metric)
            if not math.isclose(_mean(own, weighting), value, rel_tol=1e-6, abs_tol=1e-9):
                weighting = None
            label = metric if chosen == "none" else key
            scores = BenchmarkScores(name, label, float(value), own, weighting, name in compared)
            found.append(scores)
    return found


def _tasks_below(subtasks: Mapping[str, Sequence[str]], name: str) -> list[str]:
    if name not in subtasks:
        return [name]
    found = [task for member in subtasks[name] for task in _tasks_below(subtasks, member)]
    return list(dict.fromkeys(found))


def _by_question(samples: Sequence[Any], metric: str, chosen: str) -> dict[int, float]:
    return {
        int(sample["doc_id"]): float(sample[metric])
        for sample in samples
        if sample.get("filter", "none") == chosen and isinstance(sample.get(metric), int | float)
    }


def _weighting(entry: Any, metric: str) -> Weighting | None:
    """The harness's weighting of a group's mean; of a single task, every question counts alike."""
    listed = (entry is not None and entry.cfg.get("aggregate_metric_list")) or ()
    for own in [listed] if isinstance(listed, dict) else listed:
        if own["metric"] == metric and not own.get("weight_by_size", True):
            return "tasks"
    return "questions"


def _mean(scores: Mapping[str, Mapping[int, float]], weighting: Weighting | None) -> float:
    sums = [(sum(own.values()), len(own)) for own in scores.values()]
    if weighting == "tasks":
        return sum(total / count for total, count in sums) / len(sums)
    return sum(total for total, _ in sums) / sum(count for _, count in sums)


@contextmanager
def _offline(offline: bool) -> Iterator[None]:
    """The hub's libraries without network, and never with remote code."""
    import datasets
    import huggingface_hub.constants as hub

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    before = hub.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    remote = os.environ.get("HF_DATASETS_TRUST_REMOTE_CODE")
    hub.HF_HUB_OFFLINE = before[0] or offline
    datasets.config.HF_HUB_OFFLINE = before[1] or offline
    os.environ["HF_DATASETS_TRUST_REMOTE_CODE"] = "0"
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
        if remote is None:
            del os.environ["HF_DATASETS_TRUST_REMOTE_CODE"]
        else:
            os.environ["HF_DATASETS_TRUST_REMOTE_CODE"] = remote
