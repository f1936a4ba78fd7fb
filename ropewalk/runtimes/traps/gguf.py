"""Traps inside a GGUF file, found in its header.

- `factors-ignored`: llama.cpp does not read the file's tensor of factors for this architecture
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ropewalk.context_plan import ContextPlan
from ropewalk.gguf.header import F32, FREQUENCIES, LONG, SHORT, GGUFHeader
from ropewalk.gguf.rotation import (
    DEFAULT_BASE,
    factor_of,
    geometry_of,
    honours_factors,
    scaling_type,
)
from ropewalk.runtimes.finding import TOLERANCE, Finding
from ropewalk.runtimes.reading import LLAMA_CPP

_RUNTIMES = (LLAMA_CPP,)


def findings(header: GGUFHeader, plan: ContextPlan | None) -> Iterator[Finding]:
    """The traps that lie in the file itself, and the growth that a plan asks of it."""
    yield from _of_factors(header)
    yield from _of_settings(header)
    for steps in plan.schedules.values() if plan is not None else ():
        want = steps[-1].schedule.log_n
        if want is None or want.growth is None:
            continue
        growth = np.float32(header.number("attention.temperature_scale") or 0)
        length = header.count("rope.scaling.original_context_length")
        if (growth, length) != (np.float32(want.growth), want.length):
            yield Finding(
                "position-scaling-lost",
                _RUNTIMES,
                f"the plan scales queries by {want}; in the file: attention.temperature_scale = "
                f"{growth:g}, rope.scaling.original_context_length = {length}",
                "attention beyond the original length is not as sharp as planned",
                "convert it again, with a converter that knows llama_4_scaling_beta",
            )


def _of_factors(header: GGUFHeader) -> Iterator[Finding]:
    geometry = geometry_of(header)
    for name in (FREQUENCIES, LONG, SHORT):
        if (place := header.tensors.get(name)) is None:
            continue
        if not honours_factors(header, name):
            yield Finding(
                "factors-ignored",
                _RUNTIMES,
                f"{name} stands in a file of architecture {header.architecture} and scaling type "
                f"{scaling_type(header)}, which does not take it",
                "llama.cpp refuses the file, or silently ignores the factors",
                "export the plan again (ropewalk export), from the folder if the architecture "
                "takes no factors",
            )
        elif place.kind != F32 or place.shape != (geometry.pairs,):
            yield Finding(
                "factor-count",
                _RUNTIMES,
                f"{name} has the shape {list(place.shape)} and type {place.kind}; the heads turn "
                f"as {geometry.pairs} pairs, whose factors are F32",
                "llama.cpp refuses the file",
                f"write {geometry.pairs} factors in F32",
            )
        elif not np.all((factors := header.floats(name)) > 0):
            yield Finding(
                "frequencies-differ",
                _RUNTIMES,
                f"{name} holds {np.min(factors):g}, and a factor must be above 0",
                "that pair turns backwards, or makes no number",
                "export the plan again (ropewalk export)",
            )


def _of_settings(header: GGUFHeader) -> Iterator[Finding]:
    if header.get("rope.freq_base") is None:
        yield Finding(
            "theta-missing",
            _RUNTIMES,
            "the file states no rope.freq_base",
            f"llama.cpp takes {DEFAULT_BASE:g}, whatever base the model was pretrained with",
            "convert it again from a config that states rope_theta",
        )
    if header.get("attention.causal") in (False, 0):
        # Models that embed text or fill in masks are meant so.
        other = header.get("pooling_type") or "tokenizer.ggml.mask_token_id" in header.values
        yield Finding(
            "not-causal",
            _RUNTIMES,
            "the file states attention.causal = false: each token sees those after it",
            "text that it writes is garbage, however it rotates",
            "convert it again from a config without is_causal = false",
            wrong=not other,
        )
    attention = header.number("rope.scaling.attn_factor")
    factor = factor_of(header)
    if scaling_type(header) == "yarn" and attention is not None and factor > 1:
        computed = 0.1 * math.log(factor) + 1
        if abs(attention / computed - 1) <= TOLERANCE:
            yield Finding(
                "attention-factor-squared",
                _RUNTIMES,
                f"rope.scaling.attn_factor = {attention:.6g} is what the type yarn multiplies cos "
                "and sin by anyway",
                "llama.cpp multiplies one by the other: attention is "
                f"{attention**2:.3g} times as sharp as it should be",
                "remove rope.scaling.attn_factor",
            )
    if (LONG in header.tensors) != (SHORT in header.tensors):
        yield Finding(
            "factors-dropped",
            _RUNTIMES,
            "only one of the two lists of longrope is in the file",
            "llama.cpp uses plain frequencies for the other",
            "convert it again",
        )
