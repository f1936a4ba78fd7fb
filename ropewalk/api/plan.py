"""`plan`: a schedule for a longer context, from a model's config alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Never

from ropewalk.api.common import (
    AfterTraining,
    AllowDownload,
    FromOriginal,
    Layers,
    ModelToRead,
    Strict,
    TargetLength,
    TrainedLength,
)
from ropewalk.arguments import as_length
from ropewalk.blocks import LIST, Details
from ropewalk.context_plan import PLAN
from ropewalk.errors import InputError
from ropewalk.models.source import resolve, stated_assumptions
from ropewalk.options import Option, called, command, request
from ropewalk.planning.request import PlanRequest, planned
from ropewalk.planning.results import Planned
from ropewalk.progress import Notice, Progress, log_notice, shown
from ropewalk.scaling import parameter_names
from ropewalk.schedule import LogNForm


def _saved_as(result: Planned, output: Path) -> Planned:
    """The same result, with the name of the saved plan in its lines to paste."""
    usual, saved = (f"--plan {shlex.quote(str(path))}" for path in (PLAN, output))
    rows = (
        replace(row, lines=tuple(line.replace(usual, saved) for line in row.lines))
        for row in result.serving
    )
    return replace(result, serving=tuple(rows))


def _hints(result: Planned, details: bool, saved: bool) -> Iterator[str]:
    """Options of the command that would show or write more."""
    lines = [line for row in result.serving for line in row.lines]
    if not (details or saved) and any(LIST.search(line) for line in lines):
        yield f"lists of factors are left out of these lines: add -o {PLAN} or --details"
    if not saved and any(PLAN in line for line in lines):
        yield f"{PLAN} is this plan: add -o {PLAN} to write it"
    if not details and any(isinstance(block, Details) for block in result.blocks()):
        yield "the theory of each method, and those not listed: --details"


@command(
    "plan",
    "From a config alone",
    example="ropewalk plan llama-3-8b --to 32k --method yarn -o plan.json",
    output="the plan here; - prints only the plan",
    plot="the factors",
    details="Show every list of factors whole, all pairs of a method, and without --method the "
    "theory of each, and those left out.",
    saved=_saved_as,
    hints=_hints,
)
def plan(
    model: ModelToRead,
    to: TargetLength,
    method: Annotated[
        str | None,
        Option(
            "A method of `ropewalk methods`, or several joined by +, as in yarn+resonance; vendor "
            "is the extension that the model's vendor documents. Without a method, all are "
            "compared, and the plan is the one that ranks first.",
            "METHOD",
        ),
    ] = None,
    *,
    parameters: Annotated[
        Mapping[str, object] | None,
        Option("A parameter of the method.", "KEY=VALUE", shell=("--set",)),
    ] = None,
    log_n: Annotated[
        LogNForm | None,
        Option("Scale queries by log n: everywhere, or only beyond the original length."),
    ] = None,
    kept_initial_positions: Annotated[
        int | None,
        Option("Keep the plain angles at positions below N (no stock runtime supports this).", "N"),
    ] = None,
    layers: Layers = None,
    from_original: FromOriginal = False,
    trained_length: TrainedLength = None,
    after_training: AfterTraining = False,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
    **unknown: Never,
) -> Planned:
    """Plan a longer context: the factors of a method, ready for a runtime's config.

    Without a method, all are compared, and the plan is the one that ranks
    first, for the model as it is or for use after fine-tuning (`after_training`). A method that
    failed on most of the small models that it was measured on is planned with a warning.
    `base_change` without a base uses the safe base of the target. `layers` are the layer types to
    extend (default: full attention). Positions below `kept_initial_positions` keep the plain
    angles, which no stock runtime can do. `from_original` ignores the model's present scaling and
    starts from the pretrained frequencies; so does a method that cannot go on from the present
    scaling, with a notice. `trained_length` is the length that the model was trained at, where its
    config leaves that open. The method `vendor` is the extension that the model's vendor documents
    for the target. `strict` refuses a config that leaves open how the model rotates, instead of
    warning.

    A target below the length that the model serves is refused, unless `from_original` gives that
    up; one that it was trained at and does not state changes lengths only. If the model serves the
    target already and the method changes nothing, the plan is the one that the model follows now.
    """
    values = locals()  # the arguments alone: no other name is bound yet
    with called("plan", plan, values) as (_, progress):
        if unknown:
            raise _unexpected(unknown)
        # A config may leave open how the model rotates, or up to which length it was trained; that
        # is stated, or refused (`strict`), before anything is planned by it.
        source = resolve(model, allow_download=allow_download)
        if trained_length is not None:
            source = source.with_trained_length(as_length(trained_length, "trained_length"))
        stated_assumptions(source, notice, strict=strict)
        # The options as one frozen value, which refuses those that exclude each other. What to plan
        # for them is decided in planning/request.py.
        options = request(PlanRequest, plan, values, source=source, target=as_length(to, "to"))
        options.check_use()
        return planned(options, progress, notice)


def _unexpected(unknown: Mapping[str, object]) -> Exception:
    """The error for keywords that `plan` lacks; a method's parameters have a place of their own."""
    for name in unknown.keys() - parameter_names():
        return TypeError(f"plan() got an unexpected keyword argument {name!r}")
    return InputError(
        f"{', '.join(unknown)}: parameters of a method are given together; write "
        f"parameters={unknown}"
    )
