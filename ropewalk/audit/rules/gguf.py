"""llama.cpp's rules for a GGUF file, as gguf/rotation.py holds them."""

from __future__ import annotations

from ropewalk.audit.reading import BY_ITS_RULES, Effective, Reading
from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import present_plan

RUNTIME = "llama.cpp"


def read(header: GGUFHeader) -> Reading:
    """What llama.cpp turns by, if it follows its rules."""
    steps = present_plan(header, str(header.path)).steps()
    context = header.count("context_length")
    return Reading(
        RUNTIME,
        BY_ITS_RULES,
        {FULL_ATTENTION: tuple(map(Effective.of, steps))},
        "by the declared length" if len(steps) > 1 else "never",
        limit=context or steps[-1].up_to_length,
    )
