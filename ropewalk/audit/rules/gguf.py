"""llama.cpp's rules for a GGUF file, as gguf/rotation.py holds them."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.audit.reading import BY_ITS_RULES, Effective, Reading
from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import DEFAULT_BASE, present_plan
from ropewalk.gguf.settings import has_own_windows
from ropewalk.schedule import RotarySchedule

RUNTIME = "llama.cpp"


def read(header: GGUFHeader) -> Reading:
    """What llama.cpp turns by, if it follows its rules."""
    steps = present_plan(header, str(header.path)).steps()
    context = header.count("context_length")
    layers = {FULL_ATTENTION: tuple(map(Effective.of, steps))}
    if own := _own_base(header):  # these layers are never scaled, only multiplied
        plain = replace(
            RotarySchedule.plain(replace(steps[-1].schedule.geometry, base=own)),
            attention_scaling=header.number("rope.scaling.attn_factor") or 1.0,
        )
        layers[SLIDING_ATTENTION] = (Effective.of(replace(steps[-1], schedule=plain)),)
    return Reading(
        RUNTIME,
        BY_ITS_RULES,
        layers,
        "by the declared length" if len(steps) > 1 else "never",
        limit=context or steps[-1].up_to_length,
    )


def _own_base(header: GGUFHeader) -> float | None:
    """The base of layers with a sliding window, where they have their own and it is known."""
    if not has_own_windows(header):
        return None
    usual = DEFAULT_BASE if header.architecture == "gemma3" else None
    return header.number("rope.freq_base_swa") or usual
