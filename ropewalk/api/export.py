"""`export`: a model with its plan, in the form that a stock runtime loads; and its preview."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from ropewalk.api.card import keep_card
from ropewalk.api.common import AllowDownload, ModelToRun, PlanLike, Strict, as_plan
from ropewalk.arguments import as_path
from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, UnknownName, Unsupported
from ropewalk.exporting.exported import Exported, Loss
from ropewalk.exporting.plan_check import check_plan
from ropewalk.exporting.staging import check_export_place
from ropewalk.extras import required_by
from ropewalk.models.config import Config
from ropewalk.models.source import Source, resolve, stated_assumptions
from ropewalk.models.stock_config import stock_config
from ropewalk.options import (
    Advanced,
    Option,
    called,
    command,
    is_preview,
    preview_ends,
    previewed_by,
)
from ropewalk.outputs import check_no_part
from ropewalk.planning.extension import begins_plain, extend_plan
from ropewalk.progress import Notice, Progress, Status, log_notice, shown
from ropewalk.runtimes import target, targets
from ropewalk.runtimes.drafters import MTP, Drafter, beside, drafted, drafter_of, lost
from ropewalk.runtimes.features import Support, matrix
from ropewalk.runtimes.runtime import FolderTarget, Target
from ropewalk.values import Result, check_member, flat


@dataclass(frozen=True, eq=False)
class ExportPreview(Result):
    """Each runtime's support of a plan."""

    model: str
    plan_id: str
    matrix: Mapping[str, Mapping[str, Support]]
    """By feature of the plan, then by runtime."""
    losses: Mapping[str, Loss | None]
    """The runtimes that can only approximate the plan, with the cost; None without the weights or
    the torch needed to measure it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, row in self.matrix.items():
            for runtime in targets():
                check_member(runtime, row, f"matrix.{name}")

    def to_rows(self) -> list[dict[str, Any]]:
        cells = ((name, *each) for name, row in self.matrix.items() for each in row.items())
        return [{"feature": name, "runtime": engine, **flat(cell)} for name, engine, cell in cells]

    def refusing(self, runtime: str) -> tuple[str, ...]:
        """The features that keep a runtime from following the plan."""
        return tuple(name for name, row in self.matrix.items() if row[runtime].fit == "refused")

    def summary(self) -> str:
        refused = [runtime for runtime in targets() if self.refusing(runtime)]
        whole = [r for r in targets() if r not in refused and r not in self.losses]
        groups = (("follow", whole), ("approximate", list(self.losses)), ("refuse", refused))
        text = (f"{', '.join(who)} {verb}{'s' * (len(who) == 1)} it" for verb, who in groups if who)
        return f"Plan {self.plan_id} for {self.model}: {'; '.join(text)}."

    def blocks(self) -> Iterator[Block]:
        rows = ((name, *(row[r].fit for r in targets())) for name, row in self.matrix.items())
        yield Table("", ("", *targets()), tuple(cells(*row) for row in rows))
        for feature, row in self.matrix.items():
            hows: dict[str, list[str]] = {}
            for runtime, cell in row.items():
                if cell.how:
                    hows.setdefault(str(cell), []).append(runtime)
            for said, runtimes in hows.items():
                yield Paragraph(f"  {feature}, {', '.join(runtimes)}: {said}")
        for runtime, loss in self.losses.items():
            cost = loss or "not measured: its weights or torch are not here"
            yield Paragraph(f"  approximated in {runtime}: {cost}")


def _preview(source: Source, plan: ContextPlan, progress: Progress) -> ExportPreview:
    """Each runtime's support of a plan, and the cost of approximations if the weights are here."""
    if source.kind == "GGUF file":
        return _preview_of_file(source, plan)
    check_plan(plan, source.config, source.name)
    cells = matrix(plan, source.config)
    approximations: dict[str, ContextPlan] = {}
    for name, runtime in targets().items():
        try:
            followed, near = runtime.expressible(plan, source.config, approximate=True)
        except Unsupported:  # the matrix says what it refuses
            continue
        if near:
            approximations[name] = followed
    progress(Status("preview", 0.1, "measuring the cost of approximations"))
    measured = _losses(source, plan, [*approximations.values()])
    losses = dict(zip(approximations, measured, strict=True))
    return ExportPreview(source.name, plan.id, cells, losses)


def _preview_of_file(source: Source, plan: ContextPlan) -> ExportPreview:
    """Each runtime's support of a plan in a GGUF file."""
    pairs = {name: each.support_of_file(source, plan) for name, each in targets().items()}
    near = {name: loss for name, (support, loss) in pairs.items() if support.fit == "approximated"}
    supports = {name: support for name, (support, _) in pairs.items()}
    return ExportPreview(source.name, plan.id, {"the plan": supports}, near)


def _losses(
    source: Source, plan: ContextPlan, followed: Sequence[ContextPlan]
) -> Sequence[Loss | None]:
    """The cost of following each plan instead of the given one; None if nothing can be run."""
    unknown = [None] * len(followed)
    if not followed or source.kind == "live model" or not source.has_weights:
        return unknown
    try:
        with required_by("measuring the cost"):
            from ropewalk.exporting.approximating import losses_between
            from ropewalk.models.checkpoint import Checkpoint

        checkpoint = Checkpoint.open(str(source.folder))
    except InputError:  # no torch here, no weights in the folder, or none that can be exported
        return unknown
    return losses_between(checkpoint, plan, followed)


_NEEDED = (
    "an export needs a runtime and a place to write to (`runtime`, `out`); to only see how each "
    "runtime supports the plan, ask for a `preview`"
)


@command(
    "export",
    "For a runtime",
    example="ropewalk export path/to/model --plan plan.json --runtime vllm -o extended",
    preview="Only show how each runtime supports the plan.",
)
@previewed_by(_preview)
def export(
    model: ModelToRun,
    plan: Annotated[PlanLike, Option("A plan of `ropewalk plan` or `search`.")],
    out: Annotated[
        str | Path | None,
        Option(
            "The folder, or GGUF file, to write. A split GGUF file becomes one file if OUT ends in "
            ".gguf, otherwise a folder of its parts.",
            "OUT",
            shell=("--output", "-o"),
        ),
    ] = None,
    runtime: Annotated[
        str | None, Option("transformers, vllm, sglang or llama.cpp.", "RUNTIME")
    ] = None,
    *,
    dtype: Annotated[
        str | None,
        Option(
            "float32, bfloat16 or float16 (default: the checkpoint's own); for llama.cpp F32, F16, "
            "BF16 or Q8_0 (default: F32). A GGUF file keeps its own formats.",
            "FORMAT",
        ),
    ] = None,
    approximate: Annotated[
        bool, Option("Allow an approximation where the runtime cannot express the plan exactly.")
    ] = False,
    v4_keys: Annotated[
        bool, Advanced("Write the keys of transformers 4: rope_theta, rope_scaling.")
    ] = False,
    drafter: Annotated[
        str | Path | None,
        Option("A drafter's folder; written to OUT-drafter, its weights as links.", "DRAFTER"),
    ] = None,
    shadow: Annotated[bool, Option("Link the weights to the source's instead of copying.")] = False,
    overwrite: Annotated[bool, Option("Replace OUT if it exists.")] = False,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Exported:
    """Write a model with its plan for a runtime, load it back, and compare it with the plan.

    `runtime` is transformers, vllm, sglang or llama.cpp. `dtype` is float32, bfloat16 or float16,
    the checkpoint's own by default; for llama.cpp F32 (the default), F16, BF16 or Q8_0.
    `approximate` allows an approximation where the runtime cannot express the plan exactly, and
    measures its cost. `v4_keys` writes the keys of transformers 4. `drafter` is a drafter's folder:
    it is written beside `out`, its files as links, with the target's rotation if it was trained on
    the target's states in the same geometry, otherwise extended to its length by YaRN. `shadow`
    writes links to the source's weights, which must then stay where they are. `strict` refuses a
    config that leaves open how the model rotates, instead of warning.

    An export that does not follow the plan is removed, and `NotTheSame` is raised. Only a preview,
    `export.preview(model, plan)`, needs neither `out` nor `runtime`: it shows how each runtime can
    express the plan, and the cost of approximations if the model's weights are available.
    """
    with called("export", export, locals()) as (_, progress):
        if is_preview():
            source, followed = resolve(model, allow_download=allow_download), as_plan(plan)
            stated_assumptions(source, notice, strict=strict)
            preview_ends(source, followed, progress)
        if runtime is None or out is None:
            raise InputError(_NEEDED)
        # Arguments that contradict each other are refused before a model is read.
        chosen = target(runtime)
        options = _checked(chosen, _given(dtype=dtype, v4_keys=v4_keys, shadow=shadow))
        check_no_part(out := as_path(out, "out"), "out")
        followed, source = as_plan(plan), resolve(model, allow_download=allow_download)
        how = _given(approximate=approximate, overwrite=overwrite, progress=progress)
        stated_assumptions(source, notice, strict=strict)
        # A GGUF file becomes another one: its weights are never read as numbers.
        if source.kind == chosen.loads == "GGUF file":
            _check_unconverted(dtype)
            return chosen.write_file(source, followed, out, **how)
        inputs = (*source.places, *([Path(plan)] if isinstance(plan, str | Path) else []))
        # All places are checked before the long work begins, the drafter's too.
        is_folder = chosen.loads == "folder"
        check_export_place(out, sources=inputs, overwrite=overwrite, is_folder=is_folder)
        drafts = None if drafter is None else _drafter(source, drafter, followed, chosen)
        if drafts is not None:
            check_export_place(beside(out), sources=(*inputs, *drafts.read), overwrite=overwrite)
        # Nothing has its name before it has passed the gate.
        exported = chosen.write(str(source.folder), followed, out, **how, **options)
        if is_folder:
            keep_card(out, source, notice)
        return exported if drafts is None else drafts.written(exported, source, overwrite=overwrite)


def _given(**options: object) -> dict[str, Any]:
    """The options that are given."""
    return {name: value for name, value in options.items() if value not in (None, False)}


def _check_unconverted(dtype: str | None) -> None:
    if dtype is not None:
        raise InputError(
            "`dtype` is not for a GGUF file, whose weights are copied unchanged; for "
            f"{dtype}, give the folder that it was converted from"
        )


def _checked(runtime: Target, options: dict[str, Any]) -> dict[str, Any]:
    """The options, if the export for a runtime knows them."""
    if "shadow" in options and "dtype" in options:
        raise InputError(
            "`shadow` links the source's own weights, and `dtype` needs others; leave one out"
        )
    for name, why in runtime.other_options.items():
        if name in options:
            raise InputError(f"`{name}` is not for {runtime.name}, {why}; leave it out")
    if (dtype := options.get("dtype")) is not None and dtype not in runtime.dtypes:
        raise UnknownName("dtype", dtype, runtime.dtypes)
    return options


@dataclass(frozen=True)
class _Drafting:
    """A drafter, and its config under a plan of its own that reaches the target's length."""

    drafter: Drafter
    config: Config
    plan: ContextPlan
    length: int

    @property
    def read(self) -> tuple[Path, ...]:
        return (self.drafter.source.folder,)

    def written(self, exported: Exported, target: Source, *, overwrite: bool) -> Exported:
        """Write it beside an export; the export with the lines that serve both."""
        from ropewalk.exporting.drafter import write

        place, (folder,) = beside(exported.path), self.read
        write(folder, self.config, self.plan, exported.target, place, overwrite=overwrite)
        lines = drafted(
            exported.target,
            exported.load,
            self.drafter,
            str(place),
            self.length,
            str(target.folder),
        )
        return replace(exported, drafting=tuple(lines))


def _drafter(source: Source, drafter: str | Path, plan: ContextPlan, runtime: Target) -> _Drafting:
    drafts = drafter_of(source, resolve(drafter))
    mtp = "the export itself has its MTP layers" * (drafts.form == MTP)
    if why := mtp or lost(runtime.name, source, drafts):
        raise InputError(f"{drafter}: {why}; leave `drafter` out")
    present = drafted = drafts.source.present_plan
    if drafts.turns_as(plan):
        steps = plan.steps(plan.main_layer)
        drafted = ContextPlan(present.model, dict.fromkeys(present.schedules, steps))
    elif present.target_length < plan.target_length:
        anew = begins_plain(present, "yarn", (present.extended_layer,))
        drafted = extend_plan(present, plan.target_length, "yarn", from_original=anew)
    write_config = runtime.written_config if isinstance(runtime, FolderTarget) else stock_config
    config = write_config(drafts.source.config, drafted)
    return _Drafting(drafts, config, drafted, plan.target_length)
