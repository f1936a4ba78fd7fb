"""The functions that the certified bounds take for granted are as exact here as they assume."""

from __future__ import annotations

import json

from benchmarks import libm


def test_exp_cos_and_sin_are_within_what_the_proofs_assume() -> None:
    largest = libm.largest_errors(3000, seed=1)
    assert largest.keys() == {"exp", "cos", "sin"}
    assert 0 < max(largest.values()) < libm.ALLOWED


def test_the_committed_margin_is_one() -> None:
    result = json.loads(libm.RESULT.read_text(encoding="utf-8"))
    assert result["allowed_in_u"] == libm.ALLOWED
    assert max(result["largest_error_in_u"].values()) < libm.ALLOWED
