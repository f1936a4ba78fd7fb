"""Refuses work that does not fit into the memory that is here, by the formulas, before it begins.

What is refused is what cannot fit: without the allowance for what the formulas do not see.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.costs.machines import Machine, main_memory, of_main_memory
from ropewalk.costs.memory_and_time import (
    GIB,
    Way,
    Workload,
    cheapest,
    evaluating,
    reading,
    training,
)
from ropewalk.costs.sizes import Sizes, sizes_of
from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.models.config import Config
from ropewalk.models.dividing import check_divides
from ropewalk.torchrun import neighbours

if TYPE_CHECKING:
    import torch

DRIVERS = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
"""The device files that Linux has if there is a GPU that torch could compute on."""


def accelerated() -> bool:
    """True if torch finds a GPU; it is imported only if there may be one."""
    if sys.platform == "linux" and not any(Path(driver).exists() for driver in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


def memory_of(device: torch.device | str) -> int | None:
    """The bytes of a device, if they are known; ranks on one machine share its main memory."""
    if str(device).startswith("cuda"):
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    there = main_memory()
    return None if there is None else there // neighbours()


def check_memory(model: Any, length: int, key: str, *, in_chunks: bool, ranks: int = 1) -> None:
    """Refuse a text that a loaded model cannot read here; `ranks` hold it together."""
    # The weights are here already, perhaps only a rank's share of them.
    held = sum(getattr(w, "to_local", lambda w=w: w)().nbytes for w in model.parameters())
    check_config(
        model.config.to_dict(),
        length,
        key,
        model.device,
        model.dtype.itemsize,
        in_chunks=in_chunks,
        ranks=ranks,
        cache_whole=ranks > 1 and bool(check_divides(model.config, ranks)),
        held=held,
    )


def check_config(
    config: Config,
    length: int,
    key: str,
    device: torch.device,
    number: int,
    *,
    in_chunks: bool,
    ranks: int = 1,
    cache_whole: bool = False,
    held: float | None = None,
) -> None:
    """The same of a model that is not loaded; `held` are the bytes of weights, if known."""
    there, sizes = memory_of(device), sizes_where_known(config)
    if there is None or sizes is None:
        return
    kind = Machine if str(device).startswith("cuda") else of_main_memory
    machine = kind(str(device), 1, there)
    work = Workload(sizes, length, machine, length, number)
    parts = reading(work, in_chunks=in_chunks, ranks=ranks, cache_whole=cache_whole)
    if held is not None:
        parts["weights"] = float(held)
    if sum(parts.values()) <= there:
        return
    fits = cheapest(work, evaluating) if in_chunks else None
    raise InvalidValue(
        key,
        length,
        f"one forward takes at least {_gib(parts)}, and {machine.name} has {there / GIB:.3g} GiB",
        f"give {fits.option}" if fits is not None and fits.option else "give a shorter length",
    )


def check_training(work: Workload, way: Way) -> None:
    """Refuse a step that does not fit; `work.machine` has the ranks, and the memory of each."""
    there = work.machine.memory
    if sum(way.parts.values()) <= there:
        return
    fits = cheapest(work, training)
    remedy = "give shorter windows"
    if work.machine.at_most > work.machine.devices:
        remedy += ", or more ranks"
    if fits is not None:
        more = f"{fits.devices} ranks, " if fits.devices > way.devices else ""
        remedy = f"{more}{fits.option} would fit".replace(",  ", " ")
    raise InvalidValue(
        "window",
        work.length,
        f"a step takes at least {_gib(way.parts)}, and each rank has {there / GIB:.3g} GiB",
        remedy,
    )


def sizes_where_known(config: Config) -> Sizes | None:
    """None if no formula and no stock model counts them: nothing is refused by a guess."""
    try:
        return sizes_of(config)
    except RopewalkError:
        return None


def _gib(parts: Mapping[str, float]) -> str:
    large = sorted(parts.items(), key=lambda part: -part[1])[:3]
    sizes = ", ".join(f"{name} {size / GIB:.3g}" for name, size in large)
    return f"{sum(parts.values()) / GIB:.3g} GiB ({sizes})"
