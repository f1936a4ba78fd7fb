"""`rw.benchmarks` on a small local task: the scores are those of the installed plan."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import InputError, RopewalkError, UnknownName, Unsupported
from ropewalk.models.load import load
from tests.api.conformance import check_command, check_result

pytest.importorskip("lm_eval", reason="make test-lm-eval has it")
CHOICES = ("QX4821", "ZP7730", "KD1295", "MW6604")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task of the harness: which of four lines a long text continues with, beyond the window."""
    folder = tmp_path_factory.mktemp("tasks")
    lines = []
    for i in range(8):
        hidden = [
            f"# key {choice[:2]}{(int(choice[2:]) * (i + 3)) % 10000:04}" for choice in CHOICES
        ]
        text = "\n".join(
            hidden[j // 24] if j % 24 == 3 * i % 24 else f"    total += count[{i * 7 + j}]"
            for j in range(96)
        )
        choices = [line[6:] for line in hidden]
        lines.append({"text": text, "choices": choices, "answer": i % 4})
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "lines.yaml").write_text(
        "task: tiny_lines\n"
        "dataset_path: json\n"
        "dataset_kwargs:\n"
        f"  data_files: {{test: {folder / 'lines.jsonl'}}}\n"
        "test_split: test\n"
        "output_type: multiple_choice\n"
        'doc_to_text: "{{text}}\\n# key"\n'
        "doc_to_target: answer\n"
        'doc_to_choice: "{{choices}}"\n'
        "metric_list:\n"
        "  - {metric: acc, aggregation: mean, higher_is_better: true}\n"
        "  - {metric: acc_norm, aggregation: mean, higher_is_better: true}\n"
    )
    first, head = (folder / "lines.yaml").read_text(), "task: tiny_lines\n"
    (folder / "more.yaml").write_text(first.replace(head, "task: more_lines\ntag: tiny_tag\n"))
    (folder / "group.yaml").write_text(
        "group: tiny_group\n"
        "task: [tiny_tag, tiny_lines]\n"
        "aggregate_metric_list:\n"
        "  - {metric: acc, weight_by_size: false}\n"
    )
    return folder


def _own(model: Any, tokenizer: Any, folder: Path) -> list[float]:
    """The same accuracy with torch alone: the choice whose tokens are likeliest."""
    right = []
    for line in (folder / "lines.jsonl").read_text().splitlines():
        doc = json.loads(line)
        sums = []
        for choice in doc["choices"]:
            context = tokenizer(f"{doc['text']}\n# key")["input_ids"]
            whole = tokenizer(f"{doc['text']}\n# key {choice}")["input_ids"]
            with torch.no_grad():
                logits = model(torch.tensor([whole])).logits[0].log_softmax(-1)
            sums.append(
                sum(float(logits[i - 1, whole[i]]) for i in range(len(context), len(whole)))
            )
        right.append(float(max(range(4), key=sums.__getitem__) == doc["answer"]))
    return right


def test_the_scores_are_those_of_the_installed_plan(folder: Path) -> None:
    before = os.environ.get("HF_DATASETS_TRUST_REMOTE_CODE")
    found = check_result(
        rw.benchmarks(
            "bundled", ["tiny_lines"], methods=["none", "ntk"], to="4k", tasks_folder=folder
        )
    )
    assert os.environ.get("HF_DATASETS_TRUST_REMOTE_CODE") == before
    loaded = load("bundled")
    values = {(r.method, r.metric): r for r in found.results}
    plain = _own(loaded.model, loaded.tokenizer, folder)
    with rw.applied(loaded.model, rw.plan("bundled", "4k", "ntk").plan, by_current_length=True):
        extended = _own(loaded.model, loaded.tokenizer, folder)
    assert plain != extended, "else the test says nothing of the plan"
    assert values["none", "acc"].value == pytest.approx(sum(plain) / 8)
    assert values["ntk", "acc"].value == pytest.approx(sum(extended) / 8)
    [compared] = [c for c in found.comparisons if c.metric == "acc"]
    assert compared.comparison.difference == pytest.approx((sum(plain) - sum(extended)) / 8)
    assert (compared.first, compared.second, compared.comparison.pairs) == ("none", "ntk", 8)
    assert all(math.isfinite(r.value) and r.samples == 8 for r in found.results)


def test_the_command_prints_what_the_function_returns(folder: Path) -> None:
    found = rw.benchmarks("bundled", ["tiny_lines"], tasks_folder=folder, limit=3)
    assert {r.samples for r in found.results} == {3}
    words = ("bundled", "--names", "tiny_lines", "--tasks-folder", folder, "--limit", 3)
    check_command(found, "benchmarks", *words)


def test_a_group_is_compared_as_a_whole(folder: Path) -> None:
    found = rw.benchmarks(
        "bundled",
        ["tiny_lines", "tiny_group"],
        methods=["none", "ntk"],
        to="4k",
        tasks_folder=folder,
        limit=4,
    )
    rows = [(r.task, r.metric, r.samples) for r in found.results if r.method == "none"]
    tasks = ("more_lines", "tiny_lines")
    assert rows[0] == ("tiny_group", "acc", 8)
    assert sorted(rows[1:]) == [(task, m, 4) for task in tasks for m in ("acc", "acc_norm")]
    values = {(r.method, r.task): r for r in found.results if r.metric == "acc"}
    whole = values["none", "tiny_group"]
    assert whole.value == pytest.approx(values["none", "tiny_lines"].value)
    assert whole.low is not None
    compared = [(c.task, c.metric) for c in found.comparisons]
    assert compared == [("tiny_group", "acc"), ("tiny_lines", "acc"), ("tiny_lines", "acc_norm")]


def test_no_task_with_remote_code_escapes() -> None:
    from lm_eval.tasks import TaskManager

    from ropewalk.evaluation.public_benchmarks import asked, leaves

    index = TaskManager().task_index
    refusing = {"ruler", "babilong"}
    own = {name for name, entry in index.items() if refusing & {*Path(entry.yaml_path or "").parts}}
    assert "niah_single_1" in own
    for name in (*own, "longcxt"):
        with pytest.raises(Unsupported, match="trusts remote"):
            asked(index, ["hellaswag", name])
    assert len(leaves(index, "mmlu")) == 57


def test_what_is_not_run_is_refused(folder: Path) -> None:
    with pytest.raises(Unsupported, match="niah_single_1: its code in the harness trusts remote"):
        rw.benchmarks("bundled", ["niah_single_1"])
    with pytest.raises(Unsupported, match=r"part of longcxt\): its code in the harness trusts"):
        rw.benchmarks("bundled", ["longcxt"])
    with pytest.raises(UnknownName, match="hellaswag"):
        rw.benchmarks("bundled", ["hellaswagg"])
    with pytest.raises(InputError, match=r"hellaswag: its data are not in the local cache"):
        rw.benchmarks("bundled", ["hellaswag"], limit=1)
    with pytest.raises(RopewalkError, match="limit"):
        rw.benchmarks("bundled", ["hellaswag"], limit=0)
