"""The number formats and devices that a model may be loaded in, by name. No torch.

Whether a device exists on this machine only torch can say (load.py).
"""

from __future__ import annotations

import re

from ropewalk.errors import InvalidValue, UnknownName

AUTO = "auto"
STORED = ("float32", "bfloat16", "float16")
"""The number formats that an export may write."""
GGUF_TYPES = ("F32", "F16", "BF16", "Q8_0")
DTYPES = (*STORED, "float64")
_DEVICES = re.compile(r"cpu|mps|meta|(cuda|xpu|hpu|npu)(:[0-9]{1,3})?")


def check_placement(dtype: object, device: object) -> None:
    """Refuse names that no machine knows."""
    check_dtype(dtype)
    if not isinstance(device, str) or (device != AUTO and not _DEVICES.fullmatch(device)):
        raise InvalidValue(
            "device", device, "is not a device", "give auto, cpu, cuda, cuda:1, … or mps"
        )


def check_dtype(dtype: object, valid: tuple[str, ...] = DTYPES) -> None:
    if not isinstance(dtype, str) or dtype not in (AUTO, *valid):
        raise UnknownName("dtype", dtype, (AUTO, *valid))
