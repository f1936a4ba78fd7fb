"""Mixtral: Llama with experts. A checkpoint has a tensor for each, the file one for all."""

from __future__ import annotations

import re

from ropewalk.gguf.families import GGUFFamily, TensorPart, expert_keys

_EXPERT = re.compile(r"(?P<before>.+\.experts)\.(?P<expert>\d+)\.(?P<rest>w[123]\.weight)")


def _parts(source: str) -> tuple[TensorPart, ...]:
    matched = _EXPERT.fullmatch(source)
    if matched is None:
        return (TensorPart(source),)
    return (TensorPart(f"{matched['before']}.{matched['rest']}", expert=int(matched["expert"])),)


FAMILY = GGUFFamily(("llama",), parts=_parts, keys=expert_keys)
