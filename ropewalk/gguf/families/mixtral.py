"""Mixtral: Llama with experts. A checkpoint has a tensor for each, the file one for all."""

from __future__ import annotations

import re
from typing import Any

from ropewalk.gguf.family import Family, Keys, Part, Weights

_EXPERT = re.compile(r"(?P<before>.+\.experts)\.(?P<expert>\d+)\.(?P<rest>w[123]\.weight)")


def _parts(source: str) -> tuple[Part, ...]:
    found = _EXPERT.fullmatch(source)
    if found is None:
        return (Part(source),)
    return (Part(f"{found['before']}.{found['rest']}", expert=int(found["expert"])),)


def _keys(config: Any, weights: Weights) -> Keys:
    return {
        "{arch}.expert_count": config.num_local_experts,
        "{arch}.expert_used_count": config.num_experts_per_tok,
    }


FAMILY = Family(("llama",), parts=_parts, keys=_keys)
