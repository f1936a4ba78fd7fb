"""Calls of every verb for a type checker, which strict mypy reads with all tests; nothing runs.

The first call of each is right. Each wrong one is an error that its `ignore` names, and an `ignore`
that nothing needs is an error too.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import ropewalk as rw
from ropewalk.api.export import ExportPreview
from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.exporting.exported import Exported
from ropewalk.training.preview import TrainPreview
from ropewalk.training.results import Trained


def on_a_model(plan: ContextPlan) -> None:
    assert_type(rw.train("m", corpus={"books": Path("b")}, to="32k", steps=[4, 6]), Trained)
    assert_type(rw.train.preview("m", corpus="b", stages=["8k", 32768]), TrainPreview)
    rw.train("m", stpes=3)  # type: ignore[call-arg]
    rw.train("m", recipe="ancor")  # type: ignore[arg-type]
    rw.train("m", shares=["a=0.5"])  # type: ignore[arg-type]
    rw.train.preview("m", warmup="few")  # type: ignore[arg-type]

    rw.extend("m", "32k", search=True, done=lambda stage, result: None)
    rw.extend.preview("m", 32768, budget=24)
    rw.extend("m", steps=3)  # type: ignore[call-arg]
    rw.extend.preview("m", budget=[3])  # type: ignore[arg-type]

    assert_type(rw.evaluate("m", methods=["none"], plans=[plan, "p.json"], to="8k"), Evaluated)
    rw.evaluate("m", method="yarn")  # type: ignore[call-arg]
    rw.evaluate("m", mode="generated")  # type: ignore[arg-type]
    rw.evaluate_checkpoints("m", last=3, tasks=["kv"])
    rw.evaluate_checkpoints("m", last="3")  # type: ignore[arg-type]

    rw.search("m", "32k", strategy="evolution", budget=40)
    rw.search("m")  # type: ignore[call-arg]
    rw.search("m", "32k", evaluations=40)  # type: ignore[call-arg]

    rw.precision("m", arms=["bf16"], quick=True)
    rw.precision("m", arms=3)  # type: ignore[arg-type]
    rw.load("m")
    rw.load("m", dtyp="auto")  # type: ignore[call-arg]


def from_a_config(plan: ContextPlan) -> None:
    rw.inspect("m", strict=True)
    rw.inspect("m", stric=True)  # type: ignore[call-arg]
    rw.plan("m", "32k", "yarn", parameters={"beta_fast": 16.0}, log_n="beyond")
    rw.plan("m", 32.5)  # type: ignore[arg-type]
    rw.plan("m", "32k", log_n="always")  # type: ignore[arg-type]
    rw.plan("m", "32k", beta_fast=16)  # type: ignore[arg-type]
    rw.bound("32k", only="safe")
    rw.bound(["8k", 32768], only="least")  # type: ignore[arg-type]
    rw.methods()
    rw.methods("yarn")  # type: ignore[call-arg]


def for_a_runtime(plan: ContextPlan) -> None:
    assert_type(rw.export("m", plan, "out", "vllm"), Exported)
    assert_type(rw.export.preview("m", "plan.json"), ExportPreview)
    rw.export("m", plan, "out", to="vllm")  # type: ignore[call-arg]
    rw.export.preview("m", 3)  # type: ignore[arg-type]
    rw.verify("out", plan=plan, runtimes=["vllm", "sglang"], run=False)
    rw.verify("out", runtime="vllm")  # type: ignore[call-arg]
    rw.check_server("http://localhost:8000", rw.fingerprint("m", plan=plan), timeout=3)
    rw.fingerprint("m", server="http://localhost:8000")  # type: ignore[call-arg]
    rw.check_server("http://localhost:8000")  # type: ignore[call-arg]


def of_runs_and_data() -> None:
    rw.report("runs/a", "runs/b", out="page.html")
    rw.report("runs/a", output="page.html")  # type: ignore[call-arg]
    rw.compare_runs("runs/a", Path("runs/b"))
    rw.compare_runs("runs/a")  # type: ignore[call-arg]
    rw.build_data("m", {"books": "b.jsonl"}, "tokens")
    rw.build_data("m", 3, "tokens")  # type: ignore[arg-type]
    rw.describe_data("tokens", length="32k", layout="reset")
    rw.describe_data("tokens", layout="anchors")  # type: ignore[arg-type]
