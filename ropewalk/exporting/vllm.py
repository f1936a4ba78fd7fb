"""Export to vLLM and SGLang: the folder of transformers, with the names that their code reads.

Their engines do not run here. transformers proves the folder's weights and factors; that their
rotary modules make of this config the cos and sin of the plan is shown for the released wheels by
tools/observatory/serving_rotary.py. What they read is in configs.py.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Unpack

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import UnknownName
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.folder import Job, Options, Served, export_folder
from ropewalk.runtimes import engines, every
from ropewalk.runtimes.configs import ENGINES, override, serving_config
from ropewalk.runtimes.features import untold


def export(
    source: str,
    plan: ContextPlan,
    out: str | Path,
    *,
    engine: str = "vllm",
    **options: Unpack[Options],
) -> Exported:
    """Write a folder for vLLM or SGLang, with the command that serves it."""
    if engine not in ENGINES:
        raise UnknownName("engine", engine, ENGINES)
    written = partial(serving_config, engine=engine)
    return export_folder(engine, written, partial(_served, engine), source, plan, out, **options)


def _served(engine: str, job: Job, out: str) -> Served:
    line, length, config = every()[engine].line, job.asked.target_length, job.checkpoint.config
    assert line is not None, "engines are served by a command"
    overrides = override(config, job.config, engine)
    command = line(str(job.checkpoint.folder), length, overrides)
    return Served(
        line(out, length, None),
        "" if overrides is None else command,
        (
            *(f"unknown: {said}" for said in untold(job.asked, config, engine)),
            *engines.caveats(job.followed, job.config, engine),
            f"not verified in {engine} itself, whose engine does not run here: compared in "
            "transformers, and its rotary modules by tools/observatory/serving_rotary.py",
        ),
    )


to_sglang = partial(export, engine="sglang")
