from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.errors import InvalidValue
from ropewalk.models.config import present_plan
from ropewalk.planning.comparison import Comparison, sufficient_base
from ropewalk.theory.bound import safe_bases
from ropewalk.theory.table import safe_base

CONFIGS = Path(__file__).parents[1] / "golden" / "configs"
LAYER = "full_attention"


def test_it_is_the_safe_base_rounded_up_to_three_digits() -> None:
    base = sufficient_base(present_plan(CONFIGS / "llama-2-7b.json"), 8192, LAYER)
    safe = safe_base(128, 8192).value
    assert safe <= base < 1.01 * safe
    assert float(f"{base:.3g}") == base


def test_a_base_that_is_large_enough_is_kept() -> None:
    llama31 = present_plan(CONFIGS / "llama-3.1-8b.json")
    assert sufficient_base(llama31, 8192, LAYER) == 500_000
    assert sufficient_base(llama31, 8192, LAYER, from_original=True) == 500_000


def test_a_base_that_takes_hours_is_asked_for() -> None:
    llama = present_plan(CONFIGS / "llama-3.1-8b.json")
    with pytest.raises(InvalidValue, match=r"must be given beyond 1M.*`ropewalk bound`"):
        sufficient_base(llama, 10 * 2**20, LAYER)
    found = rw.plan("llama-3.1-8b", "10m")
    assert isinstance(found, Comparison)
    assert "`ropewalk bound`" in found.refused["base_change"]


def test_pairs_that_do_not_rotate_count_too() -> None:
    pythia = present_plan(CONFIGS / "pythia-1.4b.json")
    geometry = pythia.longest().geometry
    assert geometry.rotary_dim < geometry.head_dim
    seen: list[float] = []
    base = sufficient_base(pythia, 4096, LAYER, progress=seen.append)
    [safe] = safe_bases(geometry.head_dim, [4096], rotary_dim=geometry.rotary_dim)
    assert base >= max(safe.value, geometry.base)
    assert seen[-1] == 1
