"""The cost of evaluating RULER's tasks in ropewalk and in lm-evaluation-harness.

    python -m benchmarks.evaluation    needs the extra eval, and wonderwords, which its RULER needs

One process, one thread, the bundled model under NTK, and those six of RULER's tasks whose text the
harness makes offline (the others download essays or questions). Making: the harness's generators
against ours, with the same tokenizer, length and number of samples; on a tokenizer as small as the
bundled model's, our samples have their terse form. Answering: the same samples and rules in both,
written greedily with as many tokens allowed, the harness reading them from the folder that
`rw.export_tasks` writes. Model: the decoder layers and the head. Overhead: all else.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import ropewalk as rw
from benchmarks.machine import machine
from docs.figures import paragraph
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation import samples, tasks
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.lengths import format_length, parse_length
from ropewalk.outputs import write_atomically

RESULTS = Path(__file__).with_name("results") / "evaluation.json"
TASKS = (
    *("niah-single-1-syn", "niah-multikey-2-syn", "niah-multikey-3-syn"),
    *("vt-syn", "cwe-syn", "fwe-syn"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", default="2k")
    parser.add_argument("--samples", type=int, default=20)
    asked = parser.parse_args()
    found = measure(parse_length(asked.length), asked.samples)
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(block(found))
    return 0


def blocks() -> dict[str, str]:
    return {"docs/evaluation.md": block(json.loads(RESULTS.read_text(encoding="utf-8")))}


def measure(length: int, count: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    loaded = rw.load("bundled")
    plan = rw.plan("bundled", length, "ntk").plan
    encoder, haystack = Encoder(loaded.tokenizer), Haystack(list(read_documents(HELD_OUT)))
    makers = _makers(loaded.tokenizer, length, count)
    rows: list[dict[str, Any]] = []
    # What is loaded or compiled once is nobody's.
    list(samples.generate(tasks.named(TASKS[0]), encoder, haystack, 512, 1, 1))
    for name in TASKS:

        def make(name: str = name) -> object:
            return list(samples.generate(tasks.named(name), encoder, haystack, length, count, 0))

        made = _cost(make)
        random.seed(42)
        rows.append({"task": name, "made": made, "harness_made": _cost(makers[name])})
        print(rows[-1], file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "tasks"
        rw.export_tasks(written, loaded, tasks=TASKS, lengths=[length], samples=count)
        rw.evaluate(loaded, tasks=TASKS[:1], lengths=[512], samples=1, mode="generate")
        for row in rows:
            row.update(_answered(loaded, plan, row["task"], length, count, written))
            row["overhead"] = row.pop("total") - row["model"] - row["made"]
            row["harness_overhead"] = row.pop("harness_total") - row["harness_model"]
            print(row, file=sys.stderr, flush=True)
    return {
        "machine": machine(),
        "harness": version("lm_eval"),
        "length": length,
        "samples": count,
        "tasks": rows,
    }


def _answered(
    loaded: Any, plan: Any, name: str, length: int, count: int, folder: Path
) -> dict[str, float]:
    """Both on the same samples of a task: processor time in all and in the model, and scores."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    with _timed(loaded.model) as spent:
        begin = time.process_time()
        own = rw.evaluate(
            loaded, plans=[plan], tasks=[name], lengths=[length], samples=count, mode="generate"
        )
        total = time.process_time() - begin
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    task = f"ropewalk-{name}-{length}"
    with rw.applied(loaded.model, plan), _timed(loaded.model) as harness_spent:
        begin = time.process_time()
        harness = HFLM(
            pretrained=loaded.model,
            tokenizer=loaded.tokenizer,
            max_length=2 * length,
            batch_size=1,
        )
        results = lm_eval.simple_evaluate(
            model=harness, tasks=[task], bootstrap_iters=0, task_manager=manager
        )
        harness_total = time.process_time() - begin
    metric = tasks.named(name).metric
    return {
        "total": total,
        "model": sum(spent),
        "score": next(r.value for r in own.results if r.metric == metric),
        "harness_total": harness_total,
        "harness_model": sum(harness_spent),
        "harness_score": float(results["results"][task]["score,none"]),
    }


@contextmanager
def _timed(model: Any) -> Iterator[list[float]]:
    """The processor time of each call of the decoder and of the head."""
    spent: list[float] = []
    begun: list[float] = []
    handles = []
    for part in (model.model, model.lm_head):
        handles.append(part.register_forward_pre_hook(lambda *_: begun.append(time.process_time())))
        handles.append(
            part.register_forward_hook(lambda *_: spent.append(time.process_time() - begun.pop()))
        )
    try:
        yield spent
    finally:
        for handle in handles:
            handle.remove()


def _cost(make: Callable[[], object]) -> float:
    """The processor time of the fastest of three times."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        with redirect_stdout(sys.stderr):  # the harness prints each length that it tries
            make()
        times.append(time.process_time() - begin)
    return min(times)


def _makers(tokenizer: Any, length: int, count: int) -> dict[str, Callable[[], object]]:
    """The harness's generators, which fix the number of samples at 500 one level further out."""
    import nltk

    # Its sentence splitter is downloaded, and only essays need it.
    nltk.download = lambda *_, **__: False
    from lm_eval.tasks.ruler import cwe_utils, fwe_utils, niah_utils, prepare_niah, vt_utils

    def needles(hay: str, key: str, value: str) -> Callable[[], object]:
        return lambda: prepare_niah.generate_samples(
            prepare_niah.get_haystack(type_haystack=hay),
            TOKENIZER=tokenizer,
            max_seq_length=length,
            template=niah_utils.TEMPLATE,
            type_haystack=hay,
            type_needle_k=key,
            type_needle_v=value,
            num_samples=count,
        )

    def tracked() -> object:
        [example] = vt_utils.sys_vartrack_w_noise_random(
            tokenizer=tokenizer, num_samples=1, max_seq_length=500, incremental=5
        )
        return vt_utils.sys_vartrack_w_noise_random(
            tokenizer=tokenizer, num_samples=count, max_seq_length=length, icl_example=example
        )

    return {
        "niah-single-1-syn": needles("repeat", "words", "numbers"),
        "niah-multikey-2-syn": needles("needle", "words", "numbers"),
        "niah-multikey-3-syn": needles("needle", "uuids", "uuids"),
        "vt-syn": tracked,
        "cwe-syn": lambda: cwe_utils.sys_word_pair_random(
            num_samples=count, max_seq_length=length, tokenizer=tokenizer
        ),
        "fwe-syn": lambda: fwe_utils.sys_kwext(
            tokenizer=tokenizer, max_seq_length=length, num_samples=count
        ),
    }


def block(found: dict[str, Any]) -> str:
    """All tasks together, ropewalk's seconds before the harness's."""
    keys = ("made", "model", "overhead")
    total = {
        key: sum(row[key] for row in found["tasks"])
        for own in keys
        for key in (own, f"harness_{own}")
    }
    cells = [f"{key} {total[key]:.1f} / {total[f'harness_{key}']:.1f} s" for key in keys]
    equal = sum(row["score"] == row["harness_score"] for row in found["tasks"])
    own, other = (total[f"{whose}made"] + total[f"{whose}overhead"] for whose in ("", "harness_"))
    told = (
        f"{found['samples']} samples of {len(found['tasks'])} tasks at "
        f"{format_length(found['length'])}, processor time on one thread, ropewalk / "
        f"lm-evaluation-harness {found['harness']}: {', '.join(cells)}. Without the model: "
        f"{own:.1f} / {other:.1f} s, a share of {own / other:.2f}. Scores are equal in {equal} of "
        f"{len(found['tasks'])} tasks."
    )
    return paragraph(told)


if __name__ == "__main__":
    sys.exit(main())
