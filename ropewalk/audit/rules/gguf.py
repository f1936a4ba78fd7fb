"""llama.cpp's rules for a GGUF file, as gguf/rotation.py holds them."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.audit.reading import BY_ITS_RULES, Effective, Reading
from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import present_plan
from ropewalk.schedule import RotarySchedule

RUNTIME = "llama.cpp"


def read(header: GGUFHeader) -> Reading:
    """What llama.cpp turns by, if it follows its rules."""
    steps = present_plan(header, str(header.path)).steps()
    context = header.count("context_length")
    layers = {FULL_ATTENTION: tuple(map(Effective.of, steps))}
    if own := header.number("rope.freq_base_swa"):  # these are never scaled, only multiplied
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
