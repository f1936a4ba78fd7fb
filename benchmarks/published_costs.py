"""The costs that `ropewalk cost` calculates, next to published speeds and lengths on GPUs.

    python -m benchmarks.published_costs

Nothing is run. No formula and no constant was chosen by these figures. The formulas are those of a
step of ropewalk: FP8, compilation, ring attention and state that is moved to the CPU, which some
sources use, are not in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks.machine import PAGE
from ropewalk.costs.machines import machine
from ropewalk.costs.memory_and_time import Way, Workload, serving, step
from ropewalk.costs.sizes import sizes_of
from ropewalk.lengths import format_length
from ropewalk.models import catalogue

WITHIN = 1.3
KNOWN = 6
"""The first rows were known when the allowance was written down; the others were looked for when
formulas and allowance stood."""
TITAN = "torchtitan, docs/performance.md"
TITAN_PAGE = "https://github.com/pytorch/torchtitan/blob/main/docs/performance.md"
TRL_PAGE = "https://huggingface.co/docs/trl/en/long_context_training"
EASY = "EasyContext, README"
EASY_PAGE = "https://github.com/jzhang38/EasyContext#speed"
PROLONG, PROLONG_PAGE = "ProLong, Table 9", "https://arxiv.org/abs/2410.02660"
ALST = "ALST, recipes for 8 H100"
ALST_PAGE = "https://github.com/snowflakedb/ArcticTraining/tree/main/projects/sequence-parallelism"
MINFERENCE_PAGE = "https://nips.cc/virtual/2024/poster/94208"
NVL32_PAGE = (
    "https://developer.nvidia.com/blog/low-latency-inference-chapter-2-blackwell-is-coming-"
    "nvidia-gh200-nvl32-with-nvlink-switch-gives-signs-of-big-leap-in-time-to-first-token-"
    "performance"
)
PARALLEL_PAGE = "https://arxiv.org/abs/2411.01783"
VLLM_PAGE = "https://github.com/vllm-project/vllm/issues/19996"
LLAMA_405B = {
    "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
    "num_attention_heads": 128,
}  # fmt: skip
"""Sizes in which it differs from the 70B model."""


@dataclass(frozen=True)
class Published:
    """A figure that a source publishes."""

    source: str
    page: str
    model: str
    on: str
    length: int
    """Tokens of the window or prompt; of the longest one, if that is the published figure."""
    value: float
    """Tokens a second and device of a step; seconds of reading a prompt; or the longest length."""
    does: Literal["train", "read a prompt", "train, longest", "serve, longest"] = "train"
    sequence: int = 1
    """Devices that share a window."""
    recompute: bool = True
    differs: str = ""
    """Features of the source that the formulas do not count."""


def _prolong(length: int, sequence: int, hours: float, differs: str) -> Published:
    """20 billion tokens in so many hours of a device."""
    return Published(
        PROLONG, PROLONG_PAGE, "llama-3-8b", "8xh100", length, 20e9 / hours / 3600,
        sequence=sequence, differs=differs,
    )  # fmt: skip


FP8, RING = "FP8 and compilation", "ring attention"
EXCHANGED = "weights and parts of windows are exchanged, which takes time"
OFFLOADED = "the optimizer on the CPU"
ROWS = (
    Published("TRL, 380 s a step", TRL_PAGE, "qwen3-8b", "8xh100", 2**20, 2**17 / 380, sequence=8),
    *(
        Published(
            f"{TITAN}, FP8", TITAN_PAGE, "llama-3.1-8b", "8xh100", length, speed,
            sequence=sequence, differs=differs,
        )
        for length, speed, sequence, differs in (
            (2**15, 3890, 1, FP8),
            (2**16, 2540, 2, FP8),
            (2**17, 1071, 4, f"{FP8}, {RING}"),
            (2**18, 548, 8, f"{FP8}, {RING}"),
        )
    ),
    Published(
        f"{TITAN}, FSDP", TITAN_PAGE, "llama-3.1-8b", "8xh100", 2**13, 5762, recompute=False,
        differs=f"compilation; {EXCHANGED}",
    ),
    Published(
        f"{EASY}, data parallel", EASY_PAGE, "llama-2-7b", "8xa100", 2**16, 10240 / 8,
        differs=OFFLOADED,
    ),
    *(
        Published(
            f"{EASY}, ring", EASY_PAGE, "llama-2-7b", "8xa100", length, speed / 8, sequence=8,
            differs=f"{RING}; {OFFLOADED}",
        )
        for length, speed in ((2**16, 7816), (2**17, 4266), (2**19, 2133), (700 * 1024, 1603))
    ),
    _prolong(2**16, 1, 2200, "attention within documents, which is faster"),
    _prolong(2**19, 8, 12200, f"attention within documents, which is faster; {EXCHANGED}"),
    Published(
        "MInference, 30 minutes", MINFERENCE_PAGE, "llama-3-8b", "a100", 10**6, 1800,
        "read a prompt",
    ),
    Published(
        "NVIDIA, GH200 NVL32", NVL32_PAGE, "llama-3.1-70b", "32xh200", 2**15, 0.472,
        "read a prompt", differs="the number format is not known",
    ),
    Published(
        "Context Parallelism", PARALLEL_PAGE, "llama-3.1-405b", "128xh100", 2**17, 3.8,
        "read a prompt", differs="weights in FP8",
    ),
    Published(
        "Context Parallelism", PARALLEL_PAGE, "llama-3.1-405b", "128xh100", 10**6, 77,
        "read a prompt", differs="weights in FP8",
    ),
    Published(
        f"{ALST}, activations on the GPU", ALST_PAGE, "llama-3.1-8b", "8xh100", 1_100_000,
        1_100_000, "train, longest", 8, differs=OFFLOADED,
    ),
    Published(
        f"{ALST}, activations on the CPU", ALST_PAGE, "llama-3.1-8b", "8xh100", 3_800_000,
        3_800_000, "train, longest", 8, differs=f"activations and {OFFLOADED}",
    ),
    Published(
        "vLLM 0.9.1, cache of an H100", VLLM_PAGE, "llama-3.1-8b", "h100", 410_128, 410_128,
        "serve, longest", differs="90% of the memory is used, and a draft model is held",
    ),
)  # fmt: skip


def work_of(row: Published) -> Workload:
    larger = row.model == "llama-3.1-405b"
    entry, on = catalogue.find("llama-3.1-70b" if larger else row.model), machine(row.on)
    config: dict[str, Any] = {**entry.config, **entry.sizes, **(LLAMA_405B if larger else {})}
    return Workload(sizes_of(config), row.length, on, row.length)


def way_of(row: Published, work: Workload) -> Way:
    if row.does in ("read a prompt", "serve, longest"):
        return next(serving(work))
    return step(
        work, work.machine.devices, row.sequence,
        recompute=row.recompute, lora=False, window=work.length,
    )  # fmt: skip


def calculated(row: Published) -> float:
    """The same figure, by the formulas."""
    work = work_of(row)
    if row.does.endswith("longest"):
        return longest(row, work)
    seconds = way_of(row, work).seconds
    assert seconds is not None
    return seconds if row.does == "read a prompt" else row.length / row.sequence / seconds


def longest(row: Published, work: Workload) -> int:
    """The longest that fits, in thousands."""
    low, high = 1, 2**14
    while high - low > 1:
        middle = (low + high) // 2
        fits = way_of(row, replace(work, length=1000 * middle)).bytes <= work.machine.memory
        low, high = (middle, high) if fits else (low, middle)
    return 1000 * low


UNITS = {"train": "tokens/s a device", "read a prompt": "s"}


def blocks() -> dict[str, str]:
    lines = [
        "| source | model | on | does | published | calculated | times | differs by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    near = []
    for row in ROWS:
        own, unit = calculated(row), UNITS.get(row.does, "tokens")
        times = own / row.value
        near.append(1 / WITHIN <= times <= WITHIN)
        does: str = row.does
        if not does.endswith("longest"):
            whole = row.length % 1024 == 0
            does += f", {format_length(row.length) if whole else f'{row.length:,}'}"
        lines.append(
            f"| [{row.source}]({row.page}) | {row.model} | {row.on} | {does} "
            f"| {_figure(row.value)} {unit} | {_figure(own)} {unit} | {times:.2f} "
            f"| {row.differs} |"
        )
    later = near[KNOWN:]
    told = (
        f"{sum(near)} of {len(near)} are within {WITHIN} times; of the {len(later)} that were "
        f"looked for afterwards, {sum(later)}: `python -m benchmarks.published_costs`."
    )
    return {PAGE: "\n".join([*lines, "", told, ""])}


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


if __name__ == "__main__":
    print(blocks()[PAGE])
