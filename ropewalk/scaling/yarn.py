"""YaRN: keeps fast pairs, interpolates slow ones with a ramp between, and sharpens attention.

Peng et al. 2023, Eq. 17 to 22. Pair i turns r = L·θᵢ / 2π times within the trained length L (17).
With more than `beta_fast` turns it keeps its frequency, with fewer than `beta_slow` it is slowed by
s, and between the two the *frequency* moves linearly (18 to 20):

    θᵢ′ = (1 − ramp)·θᵢ + ramp·θᵢ/s        ramp from 0 at beta_fast to 1 at beta_slow

The paper's ramp is linear in r. This one is linear in i, as in the authors' code and all runtimes.

The attention scaling is 0.1 ln s + 1 (22) unless given, or with `mscale` and `mscale_all_dim` the
ratio of the two growths. With `scale_softmax` all logits are also multiplied by the square of the
second, as in DeepSeek's attention. A `base` first replaces that of the start, and the ramp is laid
over the frequencies of the new base (Wang et al. 2024, Tables 2 and 4).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ropewalk.errors import InvalidValue
from ropewalk.scaling import base_change, log_growth, scale_of, scaling_method
from ropewalk.schedule import MAX_SCALING, RotarySchedule
from ropewalk.untrusted import check_between

MAX_TURNS = 1e9


@scaling_method(identity_at_one=True, monotone=True, geometric_start=True)
def schedule(
    start: RotarySchedule,
    target_length: int,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    attention_factor: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    scale_softmax: bool = False,
    factor: float | None = None,
    base: float | None = None,
) -> RotarySchedule:
    if not 1 / MAX_TURNS <= beta_slow <= beta_fast <= MAX_TURNS:
        raise InvalidValue(
            "beta_fast",
            beta_fast,
            f"must be at least beta_slow = {beta_slow:g}, both above 0 and at most {MAX_TURNS:g}",
            "the usual values are 32 and 1",
        )
    for name, weight in (("mscale", mscale), ("mscale_all_dim", mscale_all_dim)):
        if weight is not None:
            check_between(weight, 0, MAX_SCALING, name, "the usual value is 1")
    s = scale_of(start, target_length, factor)
    if base is not None:
        start = base_change.schedule(start, start.length, base=base)

    # Eq. 17 solved for the pairs at both ends of the ramp. They are whole pairs, unless the model
    # was trained with fractional ones.
    first, last = _pair_turning(beta_fast, start), _pair_turning(beta_slow, start)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    # The upper bound is d - 1 rather than the last pair's index: every implementation has it so.
    first, last = max(first, 0), min(last, start.geometry.rotary_dim - 1)
    if first == last:
        last += 0.001  # a step instead of a ramp
    ramp = np.clip((np.arange(start.geometry.pairs) - first) / (last - first), 0, 1)  # Eq. 18
    factors = 1 / (1 - ramp + ramp / s)  # Eq. 19 and 20, as λ = θ/θ′

    # Eq. 22. DeepSeek divides it by the growth that multiplies all logits instead, below.
    if attention_factor is None:
        attention_factor = log_growth(s)
        if mscale and mscale_all_dim:
            attention_factor = log_growth(s, mscale) / log_growth(s, mscale_all_dim)
    extended = start.rescaled(factors, target_length, attention_scaling=attention_factor)
    if scale_softmax and mscale_all_dim:
        scaling = start.softmax_scaling * log_growth(s, mscale_all_dim) ** 2
        return replace(extended, softmax_scaling=scaling)
    return extended


def _pair_turning(turns: float, start: RotarySchedule) -> float:
    """The (fractional) index i of the pair that turns so often within the length L that the start
    serves: base^(−2i/d)·L / 2π = turns, solved for i."""
    base = start.geometric_base
    assert base is not None  # geometric_start
    exponent = math.log(start.length / (turns * 2 * math.pi)) / math.log(base)
    return start.geometry.rotary_dim / 2 * exponent
