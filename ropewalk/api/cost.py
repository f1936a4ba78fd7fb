"""`cost`: the cost of serving, evaluating, searching and training a model, by its config alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

from ropewalk.api.common import AllowDownload, ModelToRead
from ropewalk.arguments import Length, as_length
from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.costs import memory_and_time as estimates
from ropewalk.costs.forwards import Forwards
from ropewalk.costs.llama_cpp import LlamaCppCost
from ropewalk.costs.machines import HERE, Machine, machine
from ropewalk.costs.memory_and_time import GIB, UseCost, Way, Workload, duration
from ropewalk.costs.sizes import BY_FORMULA, config_of, sizes_of
from ropewalk.errors import Unsupported
from ropewalk.gguf.cache import TYPES
from ropewalk.gguf.facts import Facts
from ropewalk.lengths import MAX_MEASURED_LENGTH, format_length
from ropewalk.models.config import ConfigReader
from ropewalk.models.source import Source, resolve
from ropewalk.options import Option, called, command
from ropewalk.torchrun import check_heads
from ropewalk.values import Result

if TYPE_CHECKING:
    from ropewalk.context_plan import ContextPlan
    from ropewalk.pipeline.settings import ExtendSettings


SERVING, TRAINING = "serve", "train, a step"


class Change(NamedTuple):
    """The change that would make it fit."""

    told: str
    bytes: float
    devices: int


class CostRow(NamedTuple):
    """The memory and time of one activity on one device."""

    what: str
    bytes: float
    """The peak, with the allowance."""
    parts: Mapping[str, float]
    """Bytes, without the allowance."""
    seconds: float | None
    """None if the speed of the machine is not known."""
    breaks: str | None
    """The part that there is no room for, once a device holds those before it; None if it fits."""
    change: Change | None
    """The cheapest change that fits; None if the default fits, or if none of ours does."""

    @property
    def fits(self) -> bool:
        return self.breaks is None


@dataclass(frozen=True, eq=False)
class Cost(Result):
    """The needs of a model at a length on a machine, by formulas; nothing was measured."""

    rows_in = "rows"

    model: str
    length: int
    machine: str
    memory: int
    """Bytes of one device."""
    weights: int
    """Numbers."""
    rows: tuple[CostRow, ...]
    assumptions: tuple[str, ...]
    proposal: str = ""
    """The type of cache, or the length, that a GGUF file has room for."""

    def summary(self) -> str:
        size = f"{self.model} ({self.weights / 1e9:.3g} billion weights)"
        if self.proposal:
            return f"{size}: {self.proposal}."
        fitting = [row.what.partition(", ")[0] for row in self.rows if row.fits]
        names = ", ".join(fitting) if fitting else "nothing"
        at = f"at {format_length(self.length)} on {self.machine}"
        return f"{size} {at}: what fits unchanged: {names}."

    def blocks(self) -> Iterator[Block]:
        timed = any(row.seconds is not None for row in self.rows)
        yield Table(
            "",
            ("", "a device", *(["time"] if timed else []), "fits"),
            tuple(
                cells(
                    row.what,
                    f"{row.bytes / GIB:,.1f} GiB",
                    *([duration(row.seconds)] if timed else []),
                    fits(row),
                )
                for row in self.rows
            ),
        )
        for row in self.rows:
            yield Paragraph(f"{row.what}: {parts(row)}")
        yield Paragraph(self.summary(), "verdict")
        for line in self.assumptions:
            yield Paragraph(f"  {line}")


def parts(row: CostRow) -> str:
    """The memory of an activity by part, in GiB."""
    return ", ".join(f"{name} {size / GIB:,.1f}" for name, size in row.parts.items())


def fits(row: CostRow) -> str:
    """Say that an activity fits, or what would make it."""
    if row.breaks is None:
        return "yes"
    verdict = f"no room for {_PARTS.get(row.breaks, row.breaks)}"
    if row.change is None:
        return f"{verdict}; no option of ropewalk makes it fit"
    return f"{verdict}; {row.change.told} fits ({row.change.bytes / GIB:,.1f} GiB)"


_TEXT_ALONE = "only the part that reads text is counted; parts for pictures or sound need more room"
_PARTS = {"weights": "the weights", "cache": "the cache", "loss": "the loss"}


@command(
    "cost",
    "From a config alone",
    example="ropewalk cost llama-3.1-8b --to 1M --on 8xh100",
)
def cost(
    model: ModelToRead,
    to: Annotated[Length | None, Option("Length (default: the model's own).")] = None,
    *,
    on: Annotated[str, Option("Machine, such as 8xh100, 2x24GiB, or here.", "MACHINE")] = HERE,
    allow_download: AllowDownload = False,
) -> Cost:
    """Say what serving, evaluating, searching and training take, before anything is run.

    `to` is the length, `on` a machine: a name of the table with a number of devices (`8xh100`), the
    memory of any (`2x24GiB`), or `here`. For each thing: the peak memory of a device by part, the
    time where the machine's speed is known, and, where it does not fit, the cheapest change that
    does. Weights and cache are counted in bfloat16; those of a GGUF file as it stores them, with
    the types of cache that llama.cpp has.
    """
    with called("cost", cost, locals()):
        machine(on)  # says which there are
        source = resolve(model, allow_download=allow_download)
        present = source.present_plan
        length = present.target_length if to is None else as_length(to, "to")
        if source.kind == "GGUF file":
            reading = {}
            if present.target_length < length <= MAX_MEASURED_LENGTH:
                from ropewalk.pipeline.settings import settings_for

                reading = read_by_extend(present, settings_for(present, length))
            return of_file(source, length, machine(on), reading)
        return calculated(source, length, on, lambda work: _ways(work, present))


def calculated(
    source: Source,
    length: int,
    on: str | None,
    ways: Callable[[Workload], Mapping[str, Callable[[Workload], Iterator[Way]]]],
    dtype: str = "auto",
) -> Cost:
    """The cost of these ways of using a model on a machine, by default this one."""
    work = _work(source, length, HERE if on is None else on)
    work = replace(work, number=estimates.BYTES.get(dtype, work.number))
    rows = tuple(_row(work, row) for row in estimates.rows(work, ways(work)))
    reader = ConfigReader(config_of(source))
    alone = reader.path and reader.model_type in BY_FORMULA  # others are counted as a whole
    return Cost(
        model=source.name,
        length=length,
        machine=str(work.machine),
        memory=work.machine.memory,
        weights=work.sizes.weights,
        rows=rows,
        assumptions=(*_assumptions(work, rows), *([_TEXT_ALONE] if alone else [])),
    )


def _work(source: Source, length: int, on: str) -> Workload:
    served = source.present_plan.target_length
    return Workload(sizes_of(config_of(source)), length, machine(on), served)


def of_file(
    source: Source,
    length: int,
    on: Machine,
    reading: Mapping[str, Sequence[Forwards]] = MappingProxyType({}),
) -> Cost:
    """Serving a GGUF file by llama.cpp, by type of cache, and work that reads so many texts."""
    cost = LlamaCppCost.of(source.header, on)
    if cost is None:
        raise Unsupported(
            f"{source.name}: the cache of architecture {source.header.architecture} is not known "
            "here, since its layers do not all keep keys and values; llama-server prints its size"
        )
    ways = {kind: cost.way(length, kind) for kind in TYPES}
    # The types of cache come from the largest to the smallest: the first that fits loses least.
    first = next((way for way in ways.values() if way.breaks(on.memory) is None), None)
    change = first and Change(first.option, first.bytes, on.devices)
    rows = [
        CostRow(
            *(f"{SERVING} with a cache in {kind.upper()}", way.bytes, way.parts, way.seconds),
            *((breaks := way.breaks(on.memory)), change if breaks else None),
        )
        for kind, way in ways.items()
    ]
    # Texts are read with the largest cache that fits, since that loses least.
    for name, texts in reading.items():
        if first is None:
            break
        seconds = [one * n for length, n in texts if (one := cost.seconds(length))]
        what = f"{name}, at most {sum(each.times for each in texts)} texts"
        rows.append(CostRow(what, first.bytes, first.parts, sum(seconds) or None, None, None))
    always = estimates.with_allowance({}, on.devices) / GIB
    return Cost(
        model=source.name,
        length=length,
        machine=str(on),
        memory=on.memory,
        weights=Facts.of(source.header).weights,
        rows=tuple(rows),
        proposal=cost.proposal(length),
        assumptions=(
            "one text at a time in llama.cpp; weights as the file stores them; the compute buffer "
            f"is an estimate; an allowance of {always:.0f} GiB and {estimates.ALLOWED_SHARE:.0%} "
            "for what the formulas do not see",
            "extend reads each text once for all of its questions; the step that llama.cpp takes "
            "for each scored token is not counted",
            *filter(None, [on.caution]),
            *_speed(on),
        ),
    )


def read_by_extend(present: ContextPlan, settings: ExtendSettings) -> dict[str, list[Forwards]]:
    """The texts of the first verdict of `extend`, and of all that it does if that fails."""
    from ropewalk.pipeline.stages import stages

    needs = [
        stage.needs(present.target_length).forwards
        for stage in stages(settings)
        if stage.over_ranks
    ]
    return {
        "extend, first verdict": list(needs[0]),
        "extend, if that fails": [each for forwards in needs for each in forwards],
    }


def _ways(work: Workload, present: ContextPlan) -> dict[str, Callable[[Workload], Iterator[Way]]]:
    """The ways of doing each thing that this model and length leave to do."""
    ways: dict[str, Callable[[Workload], Iterator[Way]]] = {
        SERVING: estimates.serving,
        "evaluate, a forward": estimates.evaluating,
    }
    if work.length > present.target_length:
        from ropewalk.pipeline.cost import ways as ways_to_extend
        from ropewalk.pipeline.settings import settings_for
        from ropewalk.searching.model.forwards import needs_of_leg
        from ropewalk.searching.model.settings import SearchSettings

        count, *_ = needs_of_leg(SearchSettings(work.length), work.length, work.original).forwards
        ways[f"search, {count.times} forwards"] = estimates.searching([count])
        settings = settings_for(present, work.length)
        ways["extend"] = estimates.extending(lambda n: ways_to_extend(settings, work, n).values())
    ways[TRAINING] = estimates.training
    return ways


def by_length(
    way: Callable[[Sequence[Forwards], int], Callable[[Workload], Iterator[Way]]],
    forwards: Sequence[Forwards],
    ranks: int,
) -> dict[str, Callable[[Workload], Iterator[Way]]]:
    """The forwards of each length alone."""
    return {
        f"{each.times:,} forwards at {format_length(each.length)}": way([each], ranks)
        for each in forwards
    }


def check_divided(work: Workload, ranks: int) -> None:
    """Refuse ranks that do not divide the heads, if keys and values are divided at all."""
    sizes = work.sizes
    if ranks > 1 and not any(layer.kind == "latent" for layer in sizes.layers):
        check_heads([(sizes.heads, "query"), (sizes.key_heads, "key")], ranks)


def _row(work: Workload, row: UseCost) -> CostRow:
    devices, there = row.way.devices, work.machine.devices
    serves = row.what == SERVING and devices < there
    return CostRow(
        what=f"{row.what}, on {devices} of {there} devices" if serves else row.what,
        bytes=row.way.bytes,
        parts={name: float(size) for name, size in row.way.parts.items()},
        seconds=row.way.seconds,
        breaks=row.breaks,
        change=None if row.change is None else _change(work, row.change),
    )


def _change(work: Workload, way: Way) -> Change:
    more = way.devices > work.machine.devices
    devices = [f"{way.devices} devices"] if more else []
    return Change(", ".join(filter(None, [*devices, way.option])), way.bytes, way.devices)


def _assumptions(work: Workload, rows: Sequence[CostRow]) -> Iterator[str]:
    always = estimates.with_allowance({}, work.machine.devices) / GIB
    yield (
        f"each peak includes an allowance of {always:.0f} GiB and {estimates.ALLOWED_SHARE:.0%}; "
        f"outside training, weights count {8 * work.number} bits, even if the folder stores fewer"
    )
    compared = f"figures for {work.machine.name} were compared with runs of ours (docs/cost.md)"
    yield work.machine.caution or compared
    if work.length < work.original:
        yield (
            f"the model serves {format_length(work.original)} already, so nothing needs to be "
            "searched or extended"
        )
    yield from _speed(work.machine, " (`extend --dry-run` times it)")
    if any(row.what == TRAINING and row.seconds for row in rows):
        yield (
            "a step of training reads one window for each group of ranks; all weights, AdamW, "
            "float32"
        )


def _speed(on: Machine, instead: str = "") -> Iterator[str]:
    if on.operations is None:
        yield f"no time: the speed of this machine is not known{instead}"
        return
    yield (
        f"times assume {estimates.COMPUTING:.0%} of {on.operations / 1e12:.0f} TFLOP/s a device "
        f"({on.source})"
    )
