"""The execution of a training, its cost, and what is refused before it begins. No torch.

replicate × shard × sequence = the number of ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.costs.machines import Machine, of_main_memory
from ropewalk.costs.memory_and_time import BYTES, HALF, Way, Workload, step
from ropewalk.costs.refusals import accelerated, check_training, memory_of, sizes_where_known
from ropewalk.errors import InvalidValue, UnknownName, Unsupported
from ropewalk.exporting.plan_check import check_plan
from ropewalk.lengths import format_length
from ropewalk.models.config import Config, load_config, text_config
from ropewalk.models.placement import check_dtype, check_placement
from ropewalk.runtimes.features import matrix
from ropewalk.schedule import RotarySchedule
from ropewalk.torchrun import started
from ropewalk.training.settings import StageSettings, TrainingSettings
from ropewalk.untrusted import check_count

TRAINED_IN = ("float32", "bfloat16")
TRAINED = "trained"
"""The folder of the trained weights in that of their stage."""
CHECKPOINTS = 2
"""Whole checkpoints that are kept: one could be damaged."""


@dataclass(frozen=True)
class Division:
    """So many ranks along each way of dividing."""

    shard: int = 1
    replicate: int = 1
    sequence: int = 1

    def __post_init__(self) -> None:
        for key in ("shard", "replicate", "sequence"):
            check_count(getattr(self, key), key)

    @classmethod
    def of_world(cls, ranks: int, *, replicate: int = 1, sequence: int = 1) -> Division:
        """All ranks, those left over for `shard`."""
        if ranks % (replicate * sequence):
            raise InvalidValue(
                "sequence_parallel" if sequence > 1 else "replicate",
                sequence if sequence > 1 else replicate,
                f"{ranks} ranks cannot be divided into {replicate} × {sequence}",
                "choose numbers whose product divides the number of ranks",
            )
        return cls(ranks // (replicate * sequence), replicate, sequence)

    @property
    def ranks(self) -> int:
        return prod((self.shard, self.replicate, self.sequence))

    @property
    def readers(self) -> int:
        """The number of ranks that read windows of their own."""
        return self.shard * self.replicate


@dataclass(frozen=True)
class Execution:
    """The way a training is computed; none of it changes what is computed, except by rounding."""

    device: str = "auto"
    dtype: str = "auto"
    """The type of the weights, while they are trained and as written: float32, or bfloat16. `auto`
    trains float32 weights, computes in bfloat16 on an accelerator, and writes in the model's own
    type."""
    sequence: int = 1
    replicate: int = 1
    windows_at_once: int = 1
    recompute: bool = False
    """Compute activations again in the backward pass, which saves memory."""
    save_every: int = 100
    report_to: tuple[str, ...] = ()
    on: Machine | None = None
    """Another machine than this, which a preview is for; a rank has a device of it."""

    def __post_init__(self) -> None:
        check_placement("auto", self.device)
        check_dtype(self.dtype, TRAINED_IN)
        check_count(self.sequence, "sequence_parallel", usual=1)
        for key, usual in (("replicate", 1), ("windows_at_once", 1), ("save_every", 100)):
            check_count(getattr(self, key), key, usual=usual)

    @property
    def trained_in(self) -> str:
        """The number format of the weights while they are trained."""
        return "float32" if self.dtype == "auto" else self.dtype

    @property
    def on_cpu(self) -> bool:
        if self.device == "auto":
            return self.on is None and not accelerated()
        return self.device == "cpu"

    @property
    def ranks(self) -> int:
        return started() if self.on is None else self.on.devices

    def division(self) -> Division:
        return Division.of_world(self.ranks, replicate=self.replicate, sequence=self.sequence)

    def accumulated(self, batch: int) -> int:
        """The number of times that windows are read for a step."""
        readers = self.division().readers * self.windows_at_once
        if batch % readers:
            raise InvalidValue(
                "batch",
                batch,
                f"must be a multiple of {readers}: {self.division().readers} readers, "
                f"{self.windows_at_once} windows at once",
                "choose another number of windows for a step, or of ranks",
            )
        return batch // readers


def check_reports(names: Sequence[str]) -> None:
    """Refuse what transformers cannot log to, before anything is computed."""
    if not names:
        return
    from transformers.integrations import integration_utils as integrations

    present = integrations.get_available_reporting_integrations()
    for name in names:
        if name not in integrations.INTEGRATION_TO_CALLBACK:
            raise UnknownName("report_to", name, integrations.INTEGRATION_TO_CALLBACK)
        if name not in present:
            raise InvalidValue(
                "report_to", name, "is not installed here", f"install {name}, or leave it out"
            )


def check_stage(
    source: Path | Config,
    plan: ContextPlan,
    stage: StageSettings,
    settings: TrainingSettings,
    execution: Execution,
) -> None:
    """Refuse what could not be trained or exported at the end, before anything is computed.

    `source` is the model that the stage begins with, or the config that it will have.
    """
    if plan.target_length < stage.length:
        raise InvalidValue(
            "plan",
            f"up to {format_length(plan.target_length)}",
            f"is shorter than the {format_length(stage.length)} that is trained for",
            "give a plan for that length, or a shorter target (`to`)",
        )
    if settings.mixed_windows and execution.sequence > 1:
        raise Unsupported(
            "mixed windows choose a schedule by the positions at hand, and ranks of a sequence "
            "group hold different ones (`sequence_parallel`); use one rank for each window, or "
            "leave out `mixed_windows`"
        )
    config = load_config(source)
    check_plan(plan, config, str(source) if isinstance(source, Path) else "the stage's model")
    check_step(config, stage, settings, execution)
    _check_exportable(plan, config, mixed=settings.mixed_windows)
    execution.accumulated(settings.batch)


def check_step(
    config: Config, stage: StageSettings, settings: TrainingSettings, execution: Execution
) -> None:
    """Refuse scores that training does not compute, adapters and a division that do not fit the
    model, and a step whose memory is not there."""
    if text_config(config).get("attn_logit_softcapping"):
        raise Unsupported(
            "training does not apply the soft cap that this model has on its attention scores "
            "(`attn_logit_softcapping`), so its weights would not suit the model as it is run; "
            "ropewalk cannot train this model"
        )
    # Without sizes in the config, nothing more can be known before the model is loaded.
    cost = step_cost(config, stage, settings, execution)
    if cost is None:
        return
    sizes = cost[0].sizes
    if settings.lora is not None and settings.lora > sizes.hidden:
        raise InvalidValue(
            "lora",
            settings.lora,
            f"is more than the model's width, {sizes.hidden}, so adapters would save nothing",
            "8 to 64 are usual",
        )
    heads, sequence = sizes.heads, execution.sequence
    if heads % sequence:
        fit = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise InvalidValue(
            "sequence_parallel",
            sequence,
            f"{heads} attention heads cannot be divided over so many ranks",
            f"give one of {fit}",
        )
    check_training(*cost)


def step_cost(
    config: Config, stage: StageSettings, settings: TrainingSettings, execution: Execution
) -> tuple[Workload, Way] | None:
    """The cost of a step on each rank, by the formulas of `ropewalk cost`; None if these do not
    know the model or the machine."""
    sizes, ranks, each = sizes_where_known(config), execution.ranks, execution.on
    if each is None and (there := memory_of("cpu" if execution.on_cpu else "cuda")) is not None:
        each = (of_main_memory if execution.on_cpu else Machine)("rank", ranks, there)
    if sizes is None or each is None:
        return None
    trained = BYTES[execution.trained_in]
    work = Workload(sizes, stage.window, each, stage.window, trained if execution.on_cpu else HALF)
    way = step(
        work,
        ranks // execution.replicate,
        execution.sequence,
        recompute=execution.recompute,
        lora=settings.lora is not None,
        window=stage.window,
        at_once=execution.windows_at_once,
        trained=trained,
    )
    return work, way


def _check_exportable(plan: ContextPlan, config: Config, *, mixed: bool) -> None:
    """A trained model follows its plan to the digit: nothing is approximated for it."""
    cells = {feature: row["transformers"] for feature, row in matrix(plan, config).items()}
    bad = {key: cell for key, cell in cells.items() if cell.fit in ("refused", "approximated")}
    if mixed and bad.keys() & {"switching by length", "dynamic NTK"}:
        raise Unsupported(
            "mixed windows need a method whose plan can be written as short and long factors with "
            "one attention scaling: choose linear, ntk, llama3, base_change, longrope or a "
            "search, not YaRN or dynamic NTK; or leave out `mixed_windows`"
        )
    if bad:
        reasons = "; ".join(f"{key}: {cell}" for key, cell in bad.items())
        raise Unsupported(
            "stock transformers cannot follow this plan exactly, which training requires "
            f"({reasons}); plan without those parts, or by another method"
        )


def with_original(plan: ContextPlan) -> ContextPlan:
    """The plan with the original frequencies for windows up to the original length."""
    layer = plan.extended_layer
    if len(plan.steps(layer)) > 1:
        return plan
    plain = RotarySchedule.plain(plan.longest(layer).geometry)
    original = plan.longest(layer).geometry.original_length
    mixed = plan.with_steps(layer, (PlanStep(original, plain), *plan.steps(layer)))
    return replace(mixed, provenance=plan.provenance)


def bytes_on_disk(whole: int, settings: TrainingSettings, *, keeps: bool = True) -> int:
    """The most that a run writes: checkpoints of one stage, models to evaluate, the trained one,
    and the export of each stage.

    `whole` is the size of the weights in float32; `keeps`, whether there are models to evaluate.
    """
    # Weights and two moments of each.
    checkpoints = (CHECKPOINTS + 1) * (3 if settings.lora is None else 1)
    kept = len(settings.stages[-1].kept) if keeps else 0
    return whole * (checkpoints + kept + 1 + len(settings.stages))
