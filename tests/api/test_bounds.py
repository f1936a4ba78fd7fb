"""What comes from anywhere is refused or answered at once, whatever it asks for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.data.corpora import read_documents
from ropewalk.errors import InputError, InvalidValue
from ropewalk.models.source import resolve
from ropewalk.runtimes.features import approximation
from ropewalk.schedule import LogN

ROOT = Path(__file__).parents[2]
LONG = "n" * 5000

Edit = Callable[[dict[str, Any]], object]


def last_step(plan: dict[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = plan["schedules"][FULL_ATTENTION][-1]
    return step


def set_kept(plan: dict[str, Any]) -> None:
    last_step(plan)["schedule"]["kept_initial_positions"] = 10**9


def add_steps(plan: dict[str, Any]) -> None:
    step = last_step(plan)
    steps = [{**step, "up_to_length": step["up_to_length"] + i} for i in range(3000)]
    plan["schedules"][FULL_ATTENTION] = steps


def add_methods(plan: dict[str, Any]) -> None:
    last_step(plan)["schedule"]["recipe"] *= 30_000


def add_factors(plan: dict[str, Any]) -> None:
    last_step(plan)["schedule"]["rescale_factors"] = [1.0] * 700_000


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (set_kept, "kept_initial_positions = 1000000000: keeps all of the 4096 positions"),
        (add_steps, "schedules.full_attention = '3000 steps': must be at most 64"),
        (add_methods, "recipe = '30000 methods': must be at most 64"),
        (add_factors, "rescale_factors = '700000 values'"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*has been edited since")
def test_a_plan_that_asks_for_too_much_is_refused_by_its_key(
    edit: Edit, text: str, tmp_path: Path
) -> None:
    value = json.loads(rw.plan("bundled", "4k", "linear").plan.dumps())
    edit(value)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(value))
    with pytest.raises(InvalidValue, match=text):
        rw.export.preview("bundled", file)


def test_log_n_is_averaged_over_any_length_at_once() -> None:
    for form in ("everywhere", "beyond"):
        log_n = LogN(form, 512)
        for count in (1, 511, 512, 513, 5000):
            mean = float(log_n.scaling(np.arange(count)).mean())
            assert log_n.mean_scaling(count) == pytest.approx(mean, rel=1e-12)
    plan = rw.plan("bundled", "4k", "linear", log_n="beyond").plan
    (step,) = plan.schedules[FULL_ATTENTION]
    long = ContextPlan("m", {FULL_ATTENTION: (PlanStep(2**40, step.schedule),)})
    nearest = approximation(long, resolve("bundled").config)
    assert nearest.longest().attention_scaling > step.schedule.attention_scaling


@pytest.mark.parametrize("head_dim", [8194, 10**8, 10**9, 10**30])
def test_heads_are_bounded_before_a_table_is_made(head_dim: int) -> None:
    with pytest.raises(InvalidValue, match=f"head_dim = {head_dim}: must be at most 8192"):
        rw.bound("8k", head_dim=head_dim)


@pytest.mark.parametrize("factor", [1e13, 1e308])
def test_factors_of_methods_are_bounded(factor: float) -> None:
    for method in ("linear", "yarn", "llama3", "dynamic_ntk", "ntk"):
        with pytest.raises(InputError, match="factor"):
            rw.plan("bundled", "4k", method, parameters={"factor": factor})


def test_a_config_of_a_megabyte_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({f"key {i}": 1 for i in range(100_000)}))
    with pytest.raises(InputError, match="larger than the limit of 1,048,576 bytes"):
        rw.inspect(tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rw.inspect(LONG),
        lambda: rw.inspect(f"{LONG}.json"),
        lambda: rw.inspect(f"folder/{LONG}/config.json"),
        lambda: rw.verify(LONG),
        lambda: rw.ContextPlan.read(LONG),
        lambda: rw.plan("bundled", "1k", LONG),
        lambda: rw.plan("bundled", LONG, "yarn"),
        lambda: rw.plan("bundled", "1k", "yarn", layers=[LONG]),
        lambda: rw.export("bundled", LONG, "out", "vllm"),
        lambda: rw.evaluate("bundled", corpus=LONG),
        lambda: rw.evaluate("bundled", plans=[LONG]),
        lambda: list(read_documents(f"{LONG}/x.jsonl")),
    ],
)
def test_long_names_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        call()


def test_a_model_of_a_long_name_is_planned_and_described() -> None:
    rope = {LONG: {"rope_type": "default", "rope_theta": 1e4}}
    config = {
        "model_type": LONG,
        "_name_or_path": LONG,
        "rope_parameters": rope,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
    }
    planned = rw.plan(config, "1k", "yarn")
    assert list(planned.plan.schedules) == [LONG]
    assert len(planned.assumptions[0]) < 400


PROGRAM = """
import json, re, sys, time
from pathlib import Path
import ropewalk as rw

began = time.process_time()
try:
    rw.inspect(sys.argv[1]) if sys.argv[2] == "config" else rw.ContextPlan.read(sys.argv[1])
except rw.RopewalkError as error:
    pass
spent = time.process_time() - began
status = Path("/proc/self/status")  # getrusage counts the process that this was forked from
peak = re.search(r"VmHWM:\\s*(\\d+)", status.read_text()) if status.exists() else None
print(json.dumps([spent, 1024 * int(peak[1]) if peak else 0]))
"""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("config", '{"a":' * 150_000),
        ("config", '{"a": [' + ",".join(["{}"] * 340_000) + "]}"),
        ("config", '{"model_type": "llama", "a": [' + ",".join(["1.5"] * 260_000) + "]}"),
        ("plan", '{"format": "ropewalk-plan-1", "schedules": {' + '"a": [[[[' * 100_000),
        ("plan", '{"format": "ropewalk-plan-1", "model": "' + "n" * 4_000_000 + '"}'),
    ],
)
def test_json_from_anywhere_takes_little_time_and_memory(
    kind: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "any.json"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), kind],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds, memory = json.loads(done.stdout)
    assert seconds < 4  # under one on a machine of its own
    assert memory < 300 * 2**20
