"""`verify`: how each runtime will really rotate a folder or a GGUF file on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from ropewalk.api.common import PlanLike, Strict, as_plan
from ropewalk.arguments import Length, as_length, as_list
from ropewalk.audit.files.check import Verdict
from ropewalk.audit.result import Audit
from ropewalk.models.source import resolve, stated_assumptions
from ropewalk.options import Argument, Option, called, command
from ropewalk.progress import Progress, log_notice, shown
from ropewalk.runtimes.drafters import drafter_of, drafting

EXIT: Mapping[Verdict, int] = {"OK": 0, "wrong": 1, "not established": 3}


@command(
    "verify",
    "For a runtime",
    example="ropewalk verify extended --plan plan.json",
    more="Exit code: 0 passed, 1 failed, 3 inconclusive.",
    status=lambda result: EXIT[result.verdict],
)
def verify(
    model_on_disk: Annotated[str | Path, Argument("A transformers folder or a GGUF file.", "OUT")],
    *,
    plan: Annotated[
        PlanLike | None,
        Option("The plan that the model should follow (default: the settings in its files)."),
    ] = None,
    length: Annotated[
        Length | None,
        Option("The length that the model should serve, such as 128k (default: as stated)."),
    ] = None,
    runtimes: Annotated[
        Sequence[str],
        Option(
            "Judge by this runtime only, such as vllm, vllm==0.33.0 or llama.cpp; an unknown name "
            "lists all (default: the one that the export was written for; without a manifest "
            "transformers, vllm and sglang; for a GGUF file, llama.cpp).",
            "RUNTIME",
            shell=("--runtime",),
        ),
    ] = (),
    run: Annotated[
        bool,
        Option(
            "Also run the model, if its weights and its runtime are here; its files are checked in "
            "any case."
        ),
    ] = True,
    drafter: Annotated[
        str | Path | None,
        Option("Judge a drafter too: its folder, or the model's own for MTP layers.", "DRAFTER"),
    ] = None,
    strict: Strict = False,
    progress: Progress | None = shown,
) -> Audit:
    """Check an exported model, from any tool, for silent long-context faults.

    It is compared with `plan`, with the plan.json in its folder, or with its own settings, for
    `length` or its own length. `runtimes` are transformers, vllm, sglang, llama.cpp and ollama
    (after their own converters), mlx-lm, transformers-4 and vllm-2025. By default an export is
    judged by the runtime that it was written for, and others that would misread it are only named;
    other folders by the first three, and a GGUF file by llama.cpp. If weights and runtime are
    available, the model is run, unless `run` is False. Its files are always checked. `drafter`
    adds the rows `drafting`: what vLLM, SGLang and llama.cpp do with it at the plan's length, and
    the lines for both.
    `strict` refuses a config that leaves open how the model rotates, instead of informing about it.

    The result's `verdict` is "OK", "wrong" or "not established"; `verdict_in(runtime)` is that
    of one runtime, and `misread_by` are other runtimes than that of an export.
    """
    with called("verify", verify, locals()) as (_, progress):
        from ropewalk.audit.examination import audit

        followed = None if plan is None else as_plan(plan)
        needed = None if length is None else as_length(length)
        named = as_list(runtimes, "runtimes")
        source = resolve(model_on_disk)
        if strict:
            stated_assumptions(source, log_notice, strict=True)
        drafts = None if drafter is None else drafter_of(source, resolve(drafter))
        result = audit(
            model_on_disk, plan=followed, length=needed, runtimes=named, run=run, progress=progress
        )
        if drafts is None:
            return result
        return result.with_drafting(drafting(source, drafts, followed or source.present_plan))
