"""Write which kinds of values config classes take: `python -m tools.config_kinds`.

The classes state them as annotations, and transformers checks these when it loads a config. By key
and kinds, the table has the numbers of the types whose classes take them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import Field, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.configuration_utils import (
    _LEGACY_LAYER_TYPE_REMAP,
    ALLOWED_ATTN_LAYER_TYPES,
)

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


def refuses(field: Field[Any], value: float) -> bool:
    """True if a check of the class's own refuses a value of the right type."""
    for check in field.metadata.get("validator") or ():
        try:
            check(value)
        except ValueError:
            return True
    return False


def table() -> dict[str, Any]:
    classes = {kind: CONFIG_MAPPING[kind] for kind in sorted({*FAMILIES} & {*CONFIG_MAPPING})}
    base = get_type_hints(PreTrainedConfig, localns={"torch": torch})  # its fields have text only
    keys: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    below_zero = set()
    at_most_one: dict[str, list[int]] = defaultdict(list)
    for number, config in enumerate(classes.values()):
        for field in fields(config):
            taken = kinds(base.get(field.name, field.type)) - {"tuple"}  # JSON has none
            keys[field.name][", ".join(sorted(taken))].append(number)
            if isinstance(field.default, int | float) and field.default < 0:
                below_zero.add(field.name)
            if isinstance(field.default, float) and refuses(field, 1.5):
                at_most_one[field.name].append(number)
    keys["torch_dtype"] = keys["dtype"]
    keys["is_causal"]["bool"] = [*range(len(classes))]  # attention reads it, whatever the class
    dtypes = sorted(name for name, own in vars(torch).items() if isinstance(own, torch.dtype))
    layers = [*ALLOWED_ATTN_LAYER_TYPES, *_LEGACY_LAYER_TYPE_REMAP]
    return {
        "types": [*classes],
        "keys": dict(sorted(keys.items())),
        "below_zero": sorted(below_zero),
        "at_most_one": at_most_one,
        "layer_types": layers,
        "words": {"activation": sorted(ACT2FN), "dtype": dtypes},
    }


if __name__ == "__main__":
    write_atomically(KINDS, json.dumps(table(), separators=(",", ":")) + "\n")
