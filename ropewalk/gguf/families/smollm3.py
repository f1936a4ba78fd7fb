"""SmolLM3, in which every fourth layer does not rotate."""

from __future__ import annotations

from typing import Any

from ropewalk.errors import Unsupported
from ropewalk.gguf.families import GGUFFamily


def _check(config: Any) -> None:
    turning = config.no_rope_layers  # 1 where a layer rotates
    if turning is not None and list(map(int, turning)) != [
        int((i + 1) % 4 != 0) for i in range(len(turning))
    ]:
        raise Unsupported(
            "no_rope_layers: llama.cpp's smollm3 leaves every fourth layer without rotation, and "
            "this model leaves out others, which no GGUF file can state"
        )


FAMILY = GGUFFamily(("smollm3",), check=_check)
