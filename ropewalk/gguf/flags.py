"""A schedule as llama.cpp's flags: how a GGUF file rotates otherwise without another file.

Flags replace the file's base, factor and ramp. They take away neither a tensor of factors nor an
attention factor that the file states, and give no factor for each pair: what needs one of these
needs a file of its own (settings.py says what is written).

llama.cpp serves no more than the file's `context_length`, but where the scaling is of the type
`yarn` and differs from the file's, it serves the original length times the factor. YaRN with its
ramp switched off (`--yarn-ext-factor 0`) is linear, and reads no original length: so any setting
reaches any length, by a factor that differs from 1 at most in float32's last place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ropewalk.errors import Unsupported
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, GGUFHeader
from ropewalk.gguf.rotation import factor_of, has_own_windows
from ropewalk.gguf.settings import (
    GGUFSetting,
    check_windows_unscaled,
    flags_reach_all_layers,
    setting_in,
    usable,
)
from ropewalk.schedule import RotarySchedule

WITH_A_FILE = "write a file with the plan (`export`, runtime llama.cpp), and give that file"


@dataclass(frozen=True)
class Flags:
    """llama.cpp's flags for rotation, which override the file."""

    base: float
    scale: float
    ramp: bool
    """YaRN, and not one factor for all pairs."""
    original_length: int
    attention: float = 1.0
    betas: tuple[float, float] = (32.0, 1.0)

    @classmethod
    def of(
        cls, setting: GGUFSetting, original: int, length: int, stated: float | None = None
    ) -> Self:
        """Those of a setting, up to a length that a file of the factor `stated` does not reach."""
        ramp, factor = setting.yarn != 1, setting.linear * setting.yarn
        scale = np.float32(1 / factor)
        rounded = ramp and np.float32(original) / scale < length
        if rounded or (stated and scale == np.float32(1 / stated)):
            scale = np.nextafter(scale, np.float32(0))
        if not ramp:
            original = int(np.ceil(length * float(scale))) + 1
        return cls(setting.base, float(scale), ramp, original, setting.attention, setting.betas)

    @property
    def words(self) -> tuple[str, ...]:
        """The same on a command line."""
        fast, slow = self.betas
        values = {
            "rope-scaling": "yarn",
            "rope-freq-base": repr(self.base),
            "rope-freq-scale": repr(self.scale),
            "yarn-orig-ctx": str(self.original_length),
            "yarn-ext-factor": str(int(self.ramp)),
            "yarn-attn-factor": repr(self.attention),
            "yarn-beta-fast": repr(fast),
            "yarn-beta-slow": repr(slow),
        }
        return tuple(word for name, value in values.items() for word in (f"--{name}", value))


def flags_of(header: GGUFHeader, schedule: RotarySchedule, length: int) -> Flags:
    """The flags that make llama.cpp follow a schedule in this file, up to a length."""
    file = header.path.name
    kept = [name for name in (FREQUENCIES, LONG, SHORT) if name in header.tensors]
    if kept or header.number("rope.scaling.attn_factor") not in (None, 1.0):
        held = f"the tensor {kept[0]}" if kept else "an attention factor"
        raise Unsupported(f"{file} holds {held}, which no flag takes away; {WITH_A_FILE}")
    if not flags_reach_all_layers(header):
        raise Unsupported(
            f"architecture {header.architecture}: llama.cpp's flags do not change its layers with "
            f"a sliding window; {WITH_A_FILE}"
        )
    setting = setting_in(replace(usable(header), betas=True), schedule)
    if has_own_windows(header):
        check_windows_unscaled(setting)
    if setting.factors is not None or (setting.yarn != 1 and setting.attention != 1):
        what = "no flag gives a factor for each pair"
        if setting.factors is None:
            what = "no flag changes the attention factor of llama.cpp's YaRN"
        raise Unsupported(f"{what}, which this schedule needs; {WITH_A_FILE}")
    reaches = length <= (header.count("context_length") or 0)
    stated = None if reaches else factor_of(header)
    flags = Flags.of(setting, schedule.geometry.original_length, length, stated)
    if not reaches and np.float32(flags.original_length) / np.float32(flags.scale) < length:
        served = int(schedule.geometry.original_length * setting.yarn)
        raise Unsupported(
            f"under YaRN's flags llama.cpp serves its factor times the original length, {served:,} "
            f"tokens, and {length:,} are asked for; {WITH_A_FILE}"
        )
    return flags
