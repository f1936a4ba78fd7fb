"""Write which kinds of values config classes take: `python -m tools.config_kinds`.

A key's kinds are those that any class takes which ropewalk reads. The classes state them as
annotations, and transformers checks these when it loads a config.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.activations import ACT2FN

from ropewalk.models.families import FAMILIES
from ropewalk.outputs import write_atomically
from ropewalk.runtimes.traps.config_keys import KINDS


def kinds(annotation: Any) -> set[str]:
    """The types of JSON values that fit, by their names in Python."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return set().union(*map(kinds, inner))
    if origin is list:
        return {f"list of {kind}" for kind in kinds(inner[0])}
    if annotation is torch.dtype or origin is Literal:
        return {"str"}
    is_plain = annotation in (bool, int, float, str, list, tuple, type(None))
    return {annotation.__name__ if is_plain else "tuple" if origin is tuple else "dict"}


def table() -> dict[str, Any]:
    classes = [CONFIG_MAPPING[kind] for kind in FAMILIES if kind in CONFIG_MAPPING]
    base = get_type_hints(PreTrainedConfig, localns={"torch": torch})  # its fields have text only
    stated = [(f.name, base.get(f.name, f.type)) for config in classes for f in fields(config)]
    found: dict[str, set[str]] = defaultdict(set)
    for name, annotation in stated:
        found[name] |= kinds(annotation) - {"tuple"}  # beside a list, and JSON has none
    for name, classes_with in Counter(name for name, _ in stated).items():
        if classes_with < len(classes) / 2:  # null in a key that the class lacks does no harm
            found[name].add("NoneType")
    found["torch_dtype"] = found["dtype"]
    together: dict[str, list[str]] = defaultdict(list)
    for name, taken in sorted(found.items()):
        together[", ".join(sorted(taken))].append(name)
    return {"kinds": dict(sorted(together.items())), "activations": sorted(ACT2FN)}


if __name__ == "__main__":
    write_atomically(KINDS, json.dumps(table(), separators=(",", ":")) + "\n")
