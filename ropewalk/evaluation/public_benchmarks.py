"""Public benchmarks through lm-evaluation-harness, on the model that ropewalk follows a plan in.

The harness gets the loaded model itself, so its scores are those of the installed plan. It brings
tasks as Python code and data from the hub. Remote code stays off, and so do its caches of requests
and answers, which it unpickles. Without `allow_download`, data come from the local cache alone.
"""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.errors import InputError, UnknownName, Unsupported
from ropewalk.models.load import LoadedModel


class Benchmark(NamedTuple):
    """A task of the harness, and how many examples stand in a prompt where papers report it."""

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


class BenchmarkScores(NamedTuple):
    """One metric of one task, by the number of the question."""

    task: str
    metric: str
    value: float
    """As the harness aggregates it."""
    scores: dict[int, float]


def check_names(names: Sequence[str]) -> None:
    """Refuse what is not run, before a model loads."""
    for name in names:
        if any(fnmatch.fnmatch(name, pattern) for pattern in REFUSED):
            raise Unsupported(
                f"{name}: its code in the harness trusts remote code of the tokenizer; use "
                "`evaluate --tasks ruler-syn`, or another benchmark"
            )


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
        model = HFLM(
            pretrained=loaded.model,
            tokenizer=loaded.tokenizer,
            max_length=length,
            batch_size=1,
            trust_remote_code=False,
        )
        found = []
        for name in names:
            benchmark = BENCHMARKS.get(name, Benchmark(name))
            if benchmark.task not in manager.all_tasks:
                raise UnknownName("benchmark", name, BENCHMARKS)
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
            found += _scores(results)
        return found


def _scores(results: Any) -> list[BenchmarkScores]:
    """Every metric of every task that has one score a question."""
    found = []
    for task, samples in results["samples"].items():
        for key, value in results["results"][task].items():
            metric, _, chosen = key.partition(",")
            own = {
                int(sample["doc_id"]): float(sample[metric])
                for sample in samples
                if sample.get("filter", "none") == chosen
                and isinstance(sample.get(metric), int | float)
            }
            if own and isinstance(value, int | float):
                found.append(BenchmarkScores(task, metric, float(value), own))
    return found


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
