"""A scaling method: `ropewalk plan MODEL --to 32k --plugin own_method.py --method slow_half`."""

import numpy as np

import ropewalk as rw


@rw.register("method", identity_at_one=True, monotone=True)
def slow_half(
    start: rw.RotarySchedule, target_length: int, *, share: float = 0.5
) -> rw.RotarySchedule:
    """Interpolation of the slowest pairs alone."""
    factors = np.ones(start.geometry.pairs)
    factors[int((1 - share) * len(factors)) :] = target_length / start.length
    return start.rescaled(factors, target_length)


if __name__ == "__main__":
    planned = rw.plan("llama-3-8b", "32k", "slow_half", parameters={"share": 0.25})
    print(planned.summary())
    print(planned.plan.provenance)
