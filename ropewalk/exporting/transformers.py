"""Export to transformers: a folder with a stock config, and nothing else to install.

A native rope type where one says exactly the plan, any other factors as `longrope` with equal
lists. Keys that other runtimes read and transformers only warns about are left out.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Unpack

from ropewalk.context_plan import ContextPlan
from ropewalk.exporting import gate
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.folder import Job, Options, Served, export_folder
from ropewalk.runtimes.configs import stock_config
from ropewalk.runtimes.features import is_dynamic

BY_BATCH = (
    "short and long factors are chosen by the longest position of a batch at every forward: a long "
    "row changes short ones, and decoding past the original length through the cache differs from "
    "computing anew"
)


def export(
    source: str,
    plan: ContextPlan,
    out: str | Path,
    *,
    v4_keys: bool = False,
    **options: Unpack[Options],
) -> Exported:
    """Write a folder that stock transformers loads, proven in a fresh process.

    `v4_keys` writes the config as transformers 4 did (5 reads it too).
    """
    written = partial(stock_config, v4_keys=v4_keys)
    return export_folder("transformers", written, _served, source, plan, out, **options)


def _served(job: Job, out: str) -> Served:
    two_lists = gate.switches(job.followed) and not is_dynamic(job.followed)
    load = f"AutoModelForCausalLM.from_pretrained({out!r})"
    return Served(load, caveats=(BY_BATCH,) if two_lists else ())
