"""vLLM and SGLang refuse to start with another rotation than the plan's: their own files, run.

Each engine is one process for all cases (engine_process.py): the engine's plugin loader finds and
calls ropewalk's entry point, and the model comes through the engine's class that loads models.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from ropewalk.context_plan import ContextPlan
from ropewalk.models.config import present_plan
from tests.forks import Forks
from tests.rotation import engine_process
from tests.rotation.planted import LISTS, YARN, plan_of

PLAIN = {"rope_type": "default", "rope_theta": YARN["rope_theta"]}
MSCALE = plan_of(LISTS).longest().attention_scaling
TWO_LISTS = {**LISTS, "short_mscale": MSCALE, "long_mscale": MSCALE}
GEMMA = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 2,
    "head_dim": 64,
    "hidden_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
    },
}
SLIDING, FULL = GEMMA["rope_parameters"].values()  # type: ignore[attr-defined]
FINE = "loaded; ropewalk: Module rotates like plan [0-9a-f]+ at length 32k$"


def differs(cause: str, layer: str = r"layer 0 \(full_attention\) and 1 more") -> str:
    return rf"GateFailed: Module does not rotate like plan [0-9a-f]+: {layer}.*: {cause}"


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "as planned": ({"ropes": [YARN, YARN]}, FINE),
    "a table in bfloat16": ({"ropes": [YARN, YARN], "changes": {"dtype": "bfloat16"}}, FINE),
    "factor lost": ({"ropes": [PLAIN, PLAIN]}, differs("no scaling")),
    "factor lost in a table of bfloat16": (
        {"ropes": [PLAIN, PLAIN], "changes": {"dtype": "bfloat16"}},
        differs("no scaling"),
    ),
    "another base": (
        {"ropes": [{**YARN, "rope_theta": 123000.0}] * 2},
        differs("base: .* 123,000 instead of 500,000"),
    ),
    "another base in one layer": (
        {"ropes": [YARN, {**YARN, "rope_theta": 10000.0}]},
        differs("base: .* 10,000 instead of 500,000", r"layer 1 \(full_attention\), "),
    ),
    "wrong original length": (
        {"ropes": [{**YARN, "original_max_position_embeddings": 8192}] * 2},
        differs("original length: .* 8,192"),
    ),
    "pairs interleaved": (
        {"ropes": [YARN, YARN], "changes": {"is_neox_style": False}},
        differs("pairs: interleaved instead of half"),
    ),
    "wrong rotary dimension": (
        {"ropes": [YARN, YARN], "changes": {"rotary_dim": 32}},
        differs("rotary dimension: 32 of a head's turn instead of 64"),
    ),
    "applied twice": (
        {"ropes": [YARN] * 2, "damage": "twice"},
        differs("applied twice", "layer 1"),
    ),
    "rounded": (
        {"ropes": [YARN] * 2, "damage": "rounded"},
        differs("inverse frequencies rounded to bfloat16", "layer 1"),
    ),
    "attention factor dropped": (
        {"ropes": [YARN] * 2, "damage": "dropped"},
        differs("attention factor: like the plan without its attention factor", "layer 1"),
    ),
    "attention factor squared": (
        {"ropes": [YARN] * 2, "damage": "squared"},
        differs("attention factor: like the plan with its attention factor twice", "layer 1"),
    ),
    "table too short": (
        {"ropes": [YARN] * 2, "damage": "short"},
        differs("the table is too short: it ends after 4,096 positions", "layer 1"),
    ),
    "long list": ({"ropes": [TWO_LISTS], "plan": "lists"}, FINE),
    "short list in place of the long one": (
        {"ropes": [{**TWO_LISTS, "long_factor": LISTS["short_factor"]}], "plan": "lists"},
        differs("list: the factors up to length 4,096", "layer 0"),
    ),
    "short list, served no further": (
        {"ropes": [TWO_LISTS], "plan": "lists", "served": 4096},
        FINE.replace("32k", "4k"),
    ),
    "M-RoPE": ({"ropes": [{**PLAIN, "mrope_section": [16, 8, 8]}] * 2, "plan": "plain"}, FINE),
    # vLLM 0.33 makes a table four times as long, and lays the ramp as if that were the original.
    "M-RoPE under YaRN": (
        {"ropes": [{**YARN, "mrope_section": [16, 8, 8]}] * 2},
        {
            "vllm": differs("original length: like the plan with original length 16,384"),
            "sglang": FINE,
        },
    ),
    "M-RoPE without its factor": (
        {"ropes": [{**PLAIN, "mrope_section": [16, 8, 8]}] * 2},
        differs("no scaling"),
    ),
    "layer types": ({"ropes": [SLIDING, FULL], "config": GEMMA, "plan": "gemma"}, FINE),
    "layers swapped": (
        {"ropes": [FULL, SLIDING], "config": GEMMA, "plan": "gemma"},
        differs(
            "layers swapped: the rotation of full_attention layers; "
            r"layer 1 \(full_attention\).*: layers swapped: the rotation of sliding_attention",
            r"layer 0 \(sliding_attention\)",
        ),
    ),
    "only warned": (
        {"ropes": [PLAIN], "env": {"ROPEWALK_ROTATION": "warn"}},
        "loaded; ropewalk: Module does not rotate like plan .*: no scaling",
    ),
    "a drafter": ({"ropes": [PLAIN], "drafter": True}, "loaded$"),
    "no plan": ({"ropes": [PLAIN], "plan": None}, "loaded$"),
    "a plan that is not there": (
        {"ropes": [YARN], "env": {"ROPEWALK_PLAN": "/nowhere/plan.json"}},
        "InputError: /nowhere/plan.json: ",
    ),
    "the folder's plan": (
        {"ropes": [PLAIN], "plan": None, "folder": True},
        differs("no scaling", "layer 0"),
    ),
    "a folder's plan for other layers": (
        {"ropes": [PLAIN], "plan": None, "folder": True, "config": GEMMA},
        r"loaded; ropewalk: plan.schedules = \['full_attention'\]: this model has the layer types",
    ),
}


@pytest.mark.parametrize("engine", engine_process.VERSIONS)
def test_each_fault_ends_the_start_with_its_cause(
    engine: str, fresh: Forks, tmp_path: Path
) -> None:
    plans = {
        "yarn": plan_of(),
        "plain": plan_of(PLAIN),
        "lists": plan_of(LISTS),
        "gemma": gemma(),
    }
    for name, plan in plans.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text(plan.dumps(), encoding="utf-8")
    cases = {}
    for name, (case, _) in CASES.items():
        plan = case.get("plan", "yarn")
        file = {"ROPEWALK_PLAN": str(tmp_path / plan / "plan.json")} if plan else {}
        folder = str(tmp_path / "yarn") if case.get("folder") else ""
        cases[name] = {**case, "folder": folder, "env": {**file, **case.get("env", {})}}
    (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    room = tmp_path / "room"
    room.mkdir()
    words = ["-m", engine_process.__name__, engine, tmp_path / "cases.json", room]
    done = fresh.run(words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    wrong = [
        f"{name}: {told[name]}"
        for name, (_, said) in CASES.items()
        if not re.match(said[engine] if isinstance(said, dict) else said, told[name])
    ]
    assert not wrong, "\n".join(wrong)


def gemma() -> ContextPlan:
    return present_plan(AutoConfig.for_model(**GEMMA))


@pytest.mark.parametrize("engine", engine_process.VERSIONS)
def test_an_entry_point_imports_nothing_heavy(engine: str) -> None:
    """And nothing of the engine, which has not begun to load a model."""
    code = (
        "import sys; from ropewalk.rotation import engines; "
        f"engines.{engine}(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"numpy", "torch", "transformers", "vllm", "sglang"}.isdisjoint(loaded)
    assert [name for name in done.stdout.split() if name.startswith("ropewalk.")] == [
        "ropewalk.rotation",
        "ropewalk.rotation.engines",
    ]
