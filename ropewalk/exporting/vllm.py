"""Export to vLLM and SGLang: the folder of transformers, with the names that their code reads.

Their engines do not run here. transformers proves the folder's weights and factors; that their
rotary modules make of this config the cos and sin of the plan is shown for the released wheels by
tools/observatory/serving_rotary.py. What they read is in configs.py.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import UnknownName
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.folder import export_folder, prepare
from ropewalk.models.config import text_config
from ropewalk.progress import Progress, silent
from ropewalk.runtimes import every
from ropewalk.runtimes.configs import (
    ENGINES,
    changes,
    loses_a_position,
    rope_settings,
    serving_config,
)
from ropewalk.runtimes.engines import two_servers
from ropewalk.runtimes.features import untold

ONE_POSITION = (
    "SGLang, when decoding, rotates the token at the original length as the first one: where "
    "queries grow with their position, its longrope cannot avoid that; plan with ntk, linear or "
    "yarn and --from-original"
)


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
    serve = every()[engine].line
    assert serve is not None, "engines are served by a command"
    command = serve(
        str(job.checkpoint.folder),
        plan.target_length,
        changes(job.checkpoint.config, job.config),
    )
    ropes = rope_settings(text_config(job.config)).values()
    return export_folder(
        engine,
        job,
        out,
        overwrite=overwrite,
        load=serve(str(out), plan.target_length, None),
        overrides=command,
        progress=progress,
        caveats=(
            *(f"unknown: {said}" for said in untold(plan, job.checkpoint.config, engine)),
            *((ONE_POSITION,) if engine == "sglang" and any(map(loses_a_position, ropes)) else ()),
            *two_servers(job.followed, engine),
            f"not verified in {engine} itself, whose engine does not run here: compared in "
            "transformers, and its rotary modules by tools/observatory/serving_rotary.py",
        ),
    )


to_sglang = partial(export, engine="sglang")
