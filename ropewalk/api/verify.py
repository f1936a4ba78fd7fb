"""`verify`: how each runtime will really rotate a folder or a GGUF file on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ropewalk.api.common import (
    Length,
    PlanLike,
    as_length,
    as_list,
    as_plan,
    stated_assumptions,
)
from ropewalk.audit.result import Audit
from ropewalk.extras import required_by
from ropewalk.models.source import resolve
from ropewalk.progress import Progress, log_notice, silent


@required_by("verify")
def verify(
    model_on_disk: str | Path,
    *,
    plan: PlanLike | None = None,
    length: Length | None = None,
    runtimes: Sequence[str] = (),
    run: bool = True,
    strict: bool = False,
    progress: Progress = silent,
) -> Audit:
    """Examine an exported model, whoever made it, for settings that a runtime silently misreads.

    It is compared with `plan`, with the plan.json in its folder, or with its own settings, for
    `length` or its own length. `runtimes` are transformers, vllm, sglang, llama.cpp (after its
    stock converter), transformers-4 and vllm-2025; the default is the first three. If weights and
    runtime are available, the model is run, unless `run` is False. Its files are always checked.
    `strict` refuses a config that leaves open how the model rotates, instead of informing about it.

    The result's `verdict` is "well", "wrong" or "not established"; `verdict_in(runtime)` is that
    of one runtime.
    """
    from ropewalk.audit.examination import audit

    if strict:
        stated_assumptions(resolve(model_on_disk), log_notice, strict=True)
    return audit(
        model_on_disk,
        plan=None if plan is None else as_plan(plan),
        length=None if length is None else as_length(length),
        runtimes=as_list(runtimes, "runtimes"),
        run=run,
        progress=progress,
    )
