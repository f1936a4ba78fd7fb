"""Export to vLLM and SGLang: the folder of transformers, with the names that their code reads.

Their engines do not run here. transformers proves the folder's weights and factors; that their
rotary modules make of this config the cos and sin of the plan is shown for the released wheels by
tests/external/serving_rotary.py.

    longrope    both take the attention scaling from short_mscale and long_mscale only. SGLang
                looks up the wrong row for the one position at the original length, so there the
                original length stands at the target: with equal lists, nothing else depends on it
    yarn        vLLM reads attention_factor; SGLang multiplies its own by attn_factor
    linear      both multiply max_position_embeddings by the factor, so it stays at the original
"""

from __future__ import annotations

import json
import math
import shlex
from functools import partial
from pathlib import Path
from typing import Any

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import UnknownName
from ropewalk.exporting.folder import Job, export_folder, prepare
from ropewalk.exporting.parity import Exported
from ropewalk.exporting.transformers import complete_config, rope_settings
from ropewalk.models.config import Config, text_config
from ropewalk.progress import Progress, silent
from ropewalk.untrusted import read_json

ENGINES = ("vllm", "sglang")


def export(
    source: str,
    plan: ContextPlan,
    out: str | Path,
    *,
    engine: str = "vllm",
    dtype: str = "auto",
    overwrite: bool = False,
    fold: bool = False,
    approximate: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write a folder for vLLM or SGLang, with the command that serves it."""
    if engine not in ENGINES:
        raise UnknownName("engine", engine, ENGINES)
    job = prepare(
        source,
        plan,
        engine,
        partial(serving_config, engine=engine),
        dtype=dtype,
        fold=fold,
        approximate=approximate,
    )
    serve = SERVE[engine]
    command = serve(str(job.checkpoint.folder), plan.target_length, _overrides(job))
    if _tokenizer_limit(job.checkpoint.folder) < plan.target_length:
        command = ""  # the source's own files would be held against it
    return export_folder(
        engine,
        job,
        out,
        overwrite=overwrite,
        load=serve(str(out), plan.target_length, None),
        overrides=command,
        progress=progress,
        caveats=(
            f"not verified in {engine} itself, whose engine does not run here: compared in "
            "transformers, and its rotary modules by tests/external/serving_rotary.py",
        ),
    )


def serving_config(config: Config, plan: ContextPlan, *, engine: str) -> Config:
    """The config that makes the engine follow the plan."""
    written = complete_config(config, plan)
    inner = text_config(written)
    for layer_type, setting in rope_settings(inner).items():
        schedule = plan.longest(layer_type or next(iter(plan.schedules)))
        kind = setting["rope_type"]
        if kind == "longrope" and engine == "sglang":
            setting["original_max_position_embeddings"] = plan.target_length
            if "original_max_position_embeddings" in inner:
                inner["original_max_position_embeddings"] = plan.target_length
        if kind == "yarn" and engine == "sglang":
            setting["attn_factor"] = schedule.attention_scaling / _sglang_yarn_scaling(setting)
    return written


def _sglang_yarn_scaling(setting: dict[str, Any]) -> float:
    """What SGLang multiplies cos and sin by before `attn_factor`."""

    def growth(mscale: float) -> float:
        return 0.1 * mscale * math.log(setting["factor"]) + 1.0 if setting["factor"] > 1 else 1.0

    if setting.get("mscale") is not None and setting.get("mscale_all_dim") is not None:
        return growth(setting["mscale"]) / growth(setting["mscale_all_dim"])
    return growth(1.0)


def _tokenizer_limit(folder: Path) -> float:
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else {}
    limit = settings.get("model_max_length") if isinstance(settings, dict) else None
    return float(limit) if isinstance(limit, int | float) else math.inf


def _overrides(job: Job) -> dict[str, Any]:
    """What of the config has changed, as both engines take it on the command line."""
    before, after = text_config(job.checkpoint.config), text_config(job.config)
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    return {"text_config": changed} if "text_config" in job.config else changed


def _vllm_command(folder: str, length: int, overrides: dict[str, Any] | None) -> str:
    extra = f" --hf-overrides {shlex.quote(json.dumps(overrides))}" if overrides else ""
    return f"vllm serve {shlex.quote(folder)} --max-model-len {length}{extra}"


def _sglang_command(folder: str, length: int, overrides: dict[str, Any] | None) -> str:
    extra = f" --json-model-override-args {shlex.quote(json.dumps(overrides))}" if overrides else ""
    return (
        f"python -m sglang.launch_server --model-path {shlex.quote(folder)} "
        f"--context-length {length}{extra}"
    )


SERVE = {"vllm": _vllm_command, "sglang": _sglang_command}
