"""The speed of training that `ropewalk cost` calculates, next to published speeds on GPUs.

    python -m benchmarks.published_costs

Nothing is run. No formula and no constant was chosen by these figures. The formulas are those of a
step of ropewalk: FP8, compilation and ring attention, which some sources use, are not in them.
"""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.costs.estimates import Work, step
from ropewalk.costs.machines import machine
from ropewalk.costs.sizes import sizes_of
from ropewalk.lengths import format_length
from ropewalk.models import catalogue

WITHIN = 1.3
TITAN = "torchtitan, docs/performance.md"
TITAN_PAGE = "https://github.com/pytorch/torchtitan/blob/main/docs/performance.md"
TRL_PAGE = "https://huggingface.co/docs/trl/en/long_context_training"


class Published(NamedTuple):
    """The speed that a source publishes."""

    source: str
    page: str
    model: str
    on: str
    length: int
    sequence: int
    """Devices that share a window."""
    recompute: bool
    speed: float
    """Tokens a second and device."""


ROWS = (
    Published("TRL, 380 s a step", TRL_PAGE, "qwen3-8b", "8xh100", 2**20, 8, True, 2**17 / 380),
    Published(f"{TITAN}, FP8", TITAN_PAGE, "llama-3.1-8b", "8xh100", 2**15, 1, True, 3890),
    Published(f"{TITAN}, FP8", TITAN_PAGE, "llama-3.1-8b", "8xh100", 2**16, 2, True, 2540),
    Published(f"{TITAN}, FP8", TITAN_PAGE, "llama-3.1-8b", "8xh100", 2**17, 4, True, 1071),
    Published(f"{TITAN}, FP8", TITAN_PAGE, "llama-3.1-8b", "8xh100", 2**18, 8, True, 548),
    Published(f"{TITAN}, FSDP", TITAN_PAGE, "llama-3.1-8b", "8xh100", 2**13, 1, False, 5762),
)


def calculated(row: Published) -> float:
    """Tokens a second and device, by the formulas."""
    entry, on = catalogue.find(row.model), machine(row.on)
    sizes = sizes_of({**entry.config, **entry.sizes})
    way = step(
        Work(sizes, row.length, on, row.length), on.devices, row.sequence,
        recompute=row.recompute, lora=False, window=row.length,
    )  # fmt: skip
    assert way.seconds is not None
    return row.length / row.sequence / way.seconds


def blocks() -> dict[str, str]:
    lines = [
        "| source | model | on | length | published, tokens/s a device | calculated | times |",
        "|---|---|---|---|---|---|---|",
    ]
    near = 0
    for row in ROWS:
        own = calculated(row)
        times = own / row.speed
        near += 1 / WITHIN <= times <= WITHIN
        lines.append(
            f"| [{row.source}]({row.page}) | {row.model} | {row.on} | {format_length(row.length)} "
            f"| {row.speed:,.0f} | {own:,.0f} | {times:.2f} |"
        )
    told = (
        f"{near} of {len(ROWS)} are within {WITHIN} times: `python -m benchmarks.published_costs`."
    )
    return {"docs/cost.md": "\n".join([*lines, "", told, ""])}


if __name__ == "__main__":
    print(blocks()["docs/cost.md"])
