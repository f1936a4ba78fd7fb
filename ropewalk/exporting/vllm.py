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
from ropewalk.progress import Progress, silent
from ropewalk.runtimes import engines, every
from ropewalk.runtimes.configs import ENGINES, override, serving_config
from ropewalk.runtimes.features import untold


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
    overrides = override(job.checkpoint.config, job.config, engine)
    command = serve(str(job.checkpoint.folder), plan.target_length, overrides)
    return export_folder(
        engine,
        job,
        out,
        overwrite=overwrite,
        load=serve(str(out), plan.target_length, None),
        overrides="" if overrides is None else command,
        progress=progress,
        caveats=(
            *(f"unknown: {said}" for said in untold(plan, job.checkpoint.config, engine)),
            *engines.caveats(job.followed, job.config, engine),
            f"not verified in {engine} itself, whose engine does not run here: compared in "
            "transformers, and its rotary modules by tools/observatory/serving_rotary.py",
        ),
    )


to_sglang = partial(export, engine="sglang")
