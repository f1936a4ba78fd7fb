"""The parts of a rotary setting that each architecture of llama.cpp honours.

tools/observatory/llama_cpp_architectures.py reads the table in llama.cpp's source, and its rows are
compared with the real llama.cpp on tiny files (tests/gguf/test_architectures.py). Where a graph
takes no factors, llama.cpp refuses a file with the tensor (`refused`), or loads it and computes
without (`ignored`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ropewalk.values import fields_of, table_in

TABLE = Path(__file__).with_name("architectures.json")
CONSECUTIVE = ("llama", "smollm3")
"""The graphs, of those ropewalk writes, that turn the dimensions 2i and 2i + 1 together."""
Factors = Literal["honoured", "ignored", "refused"]
Windows = Literal["none", "own", "same", "same base, unscaled", "same in the file, not by flags"]


@dataclass(frozen=True)
class Architecture:
    """One architecture, by llama.cpp's name for it."""

    name: str
    rotates: bool = True
    known: bool = True
    tensors: tuple[str, ...] = ()
    """The tensors of factors that it loads: `rope_freqs`, and `rope_factors` (long and short)."""
    factors: Factors = "refused"
    freq_base: bool = True
    linear: bool = True
    yarn: bool = True
    attn_factor: bool = True
    """True if rope.scaling.attn_factor multiplies cos and sin."""
    betas: bool = False
    """True if it reads rope.scaling.yarn_beta_fast and yarn_beta_slow; others take 32 and 1."""
    log_multiplier: bool = False
    """True if it reads rope.scaling.yarn_log_multiplier, which changes YaRN's attention factor."""
    windows: Windows = "none"
    """The rotation of layers with a sliding window: the file's setting, or a base of their own."""

    @property
    def honours_factors(self) -> bool:
        return self.factors == "honoured"


def architecture(name: str) -> Architecture:
    """The row of an architecture; one that the table lacks is taken for a plain one, not known."""
    row = table_in(TABLE)["architectures"].get(name)
    if row is None or row["rotates"] == "unknown":
        return Architecture(name, known=False)
    return Architecture(name, **fields_of(row))


def known_architectures() -> tuple[str, ...]:
    """All names in the table."""
    return tuple(table_in(TABLE)["architectures"])


def build() -> str:
    """The llama.cpp whose source the table was read in."""
    return str(table_in(TABLE)["llama_cpp"])
