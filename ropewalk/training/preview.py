"""The preview of a training: its steps, and their cost by the formulas of `ropewalk cost`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.costs.memory_and_time import GIB, SINGLE, duration
from ropewalk.costs.sizes import config_of, sizes_of
from ropewalk.lengths import format_length
from ropewalk.training.execution import bytes_on_disk, step_cost
from ropewalk.training.request import TrainRequest
from ropewalk.values import Result


class PreviewStage(NamedTuple):
    """The work of a stage."""

    length: int
    window: int
    steps: int
    method: str
    tokens: int
    epochs: float | None
    """None if the text is not tokenised yet."""
    petaflops: float
    """10¹⁵ multiplications and additions, of forwards and backwards together."""
    seconds: float | None = None
    """By the formulas of `ropewalk cost`; None if the speed of the machine is not known."""


@dataclass(frozen=True, eq=False)
class TrainPreview(Result):
    """The steps and cost of a training run. Nothing was computed or written."""

    rows_in = "stages"

    model: str
    stages: tuple[PreviewStage, ...]
    bytes_on_disk: int
    """The most that checkpoints and models take."""
    peak_bytes: int | None = None
    """The peak memory of each rank, by the formulas of `ropewalk cost`; None if these know too
    little."""
    machine: str = "this machine"
    caution: str = ""
    """A warning if nothing of ours was measured on that machine."""

    def summary(self) -> str:
        peak = "" if self.peak_bytes is None else f"; {self.peak_bytes / GIB:.3g} GiB a rank"
        tokens = sum(stage.tokens for stage in self.stages)
        seconds = [stage.seconds for stage in self.stages if stage.seconds is not None]
        time = f"; {duration(sum(seconds))}" if seconds else ""
        return (
            f"{self.model}: {sum(stage.steps for stage in self.stages):,} steps, {tokens:,} tokens,"
            f" {sum(stage.petaflops for stage in self.stages):,.3g} PFLOP; up to "
            f"{self.bytes_on_disk / GIB:.3g} GiB of checkpoints and models on disk{peak}, on "
            f"{self.machine}{time}.{self.caution and f' {self.caution}.'}"
        )

    def blocks(self) -> Iterator[Block]:
        yield Table(
            "",
            ("length", "steps", "windows of", "tokens", "epochs", "PFLOP", "time", "method"),
            tuple(
                cells(
                    format_length(stage.length),
                    f"{stage.steps:,}",
                    format_length(stage.window),
                    f"{stage.tokens:,}",
                    "unknown" if stage.epochs is None else f"{stage.epochs:.2f}",
                    f"{stage.petaflops:,.3g}",
                    duration(stage.seconds),
                    stage.method,
                )
                for stage in self.stages
            ),
        )
        yield Paragraph(self.summary())


def preview(job: TrainRequest) -> TrainPreview:
    """The steps of a run, and their cost."""
    batch, config = job.settings.batch, config_of(job.source)
    sizes, on = sizes_of(config), job.execution.on
    served = job.source.present_plan.target_length
    rows, peak = [], 0.0
    for number, stage in enumerate(job.settings.stages, start=1):
        tokens = stage.steps * batch * stage.window
        cost = step_cost(config, stage, job.settings, job.execution)
        # A step of the formula is one window of each reader; a step of ours is a batch of windows.
        steps = stage.steps * job.execution.accumulated(batch) * job.execution.windows_at_once
        seconds = None if cost is None else cost[1].seconds
        rows.append(
            PreviewStage(
                stage.length,
                stage.window,
                stage.steps,
                job.planner.name(number, served),
                tokens,
                job.epochs(stage),
                3 * sizes.operations(stage.window) * (tokens / stage.window) / 1e15,
                None if seconds is None else seconds * steps,
            )
        )
        peak = max(peak, 0.0 if cost is None else cost[1].bytes)
    return TrainPreview(
        job.source.name,
        tuple(rows),
        bytes_on_disk(SINGLE * sizes.weights, job.settings),
        int(peak) or None,
        TrainPreview.machine if on is None else str(on),
        "" if on is None else on.caution,
    )
