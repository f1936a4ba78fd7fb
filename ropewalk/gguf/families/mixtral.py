"""Mixtral: Llama with experts. A checkpoint has a tensor for each, the file one for all."""

from __future__ import annotations

import re

from ropewalk.gguf.families import GGUFFamily, TensorPart, expert_keys

_EXPERT = re.compile(r"(?P<before>.+\.experts)\.(?P<expert>\d+)\.(?P<rest>w[123]\.weight)")


def _parts(source: str) -> tuple[TensorPart, ...]:
    found = _EXPERT.fullmatch(source)
    if found is None:
        return (TensorPart(source),)
    return (TensorPart(f"{found['before']}.{found['rest']}", expert=int(found["expert"])),)


FAMILY = GGUFFamily(("llama",), parts=_parts, keys=expert_keys)
