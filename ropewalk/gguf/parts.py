"""A model in one GGUF file or in several: the parts of a split model, found by their names.

llama.cpp splits large models into NAME-00001-of-00003.gguf and so on. The first part holds the
metadata, and each says which part it is, of how many, and how many tensors they hold together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ropewalk.errors import InputError, shortened
from ropewalk.gguf.header import GGUFHeader, read_header

NUMBER, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"
_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_WIDE = ("attn_norm.weight", "ffn_norm.weight")
"""Tensors of a block that are as wide as the model, in nearly all architectures."""


def read_model(path: str | Path) -> GGUFHeader:
    """The header of a whole model, with the tensors of all its parts."""
    return whole(read_parts(path))


def read_parts(path: str | Path) -> tuple[GGUFHeader, ...]:
    """The headers of all files of a model, in order, from any one of them."""
    header = read_header(path)
    count = header.values.get(COUNT, 1)
    if not isinstance(count, int) or count <= 1:
        return (header,)
    # Any part tells its number and theirs; the name has to agree, since it leads to the others.
    number = header.values.get(NUMBER)
    matched = _NAME.fullmatch(header.path.name)
    if not isinstance(number, int) or not 0 <= number < count:
        raise InputError(
            f"{path}: says that it is part {number} of {count}, which is impossible; split the "
            "model again"
        )
    if matched is None or (int(matched["number"]), int(matched["count"])) != (number + 1, count):
        raise InputError(
            f"{path}: is part {number + 1} of {count}, and its name does not say so; name the "
            f"parts NAME-{number + 1:05}-of-{count:05}.gguf, as llama.cpp does"
        )
    names = [f"{matched['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    missing = [name for name in names if not (header.path.parent / name).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        are = "are" if more else "is"
        raise InputError(
            f"{path}: is one of {count} parts, and {missing[0]}{more} {are} missing; put all parts "
            "into one folder"
        )
    parts = tuple(read_header(header.path.parent / name) for name in names)
    _check_belonging(parts)
    return parts


def whole(parts: Sequence[GGUFHeader]) -> GGUFHeader:
    """The header of the first part, with the tensors of all."""
    first, *others = parts
    if not others:
        return first
    tensors = {
        name: replace(place, path=part.path)
        for part in parts
        for name, place in part.tensors.items()
    }
    return replace(first, tensors=tensors)


def size(parts: Sequence[GGUFHeader]) -> int:
    """The bytes of all files."""
    return sum(part.path.stat().st_size for part in parts)


def _check_belonging(parts: Sequence[GGUFHeader]) -> None:
    """Parts of different models have the right names all the same."""
    # Keys first, then the tensors, which a part of another model repeats or has too few of.
    first = parts[0]
    for i, part in enumerate(parts):
        said = [part.values.get(key) for key in (NUMBER, COUNT, TENSORS)]
        if said != [i, len(parts), first.values.get(TENSORS)]:
            states = zip((NUMBER, COUNT, TENSORS), said, strict=True)
            words = ", ".join(f"{key} = {value}" for key, value in states)
            raise _of_another(first, part, f"it states {words}")
        if part.architecture not in ("", first.architecture):
            raise _of_another(first, part, f"its architecture is {part.architecture}")
        if part.alignment != first.alignment:
            raise _of_another(first, part, f"its alignment is {part.alignment}")
        width = first.count("embedding_length")
        for name, place in part.tensors.items():
            norm = name.startswith("blk.") and name.endswith(_WIDE) and len(place.shape) == 1
            if width and norm and place.shape != (width,):
                raise _of_another(first, part, f"{name} is {place.shape[0]} wide, not {width}")
    names: set[str] = set()
    for part in parts:
        if twice := names & set(part.tensors):
            raise _of_another(first, part, f"{shortened(min(twice))} is in a part before it too")
        names |= set(part.tensors)
    total = first.values.get(TENSORS)
    if total != len(names):
        raise InputError(
            f"{first.path}: its parts hold {len(names)} tensors, and {total} are stated; give the "
            "parts of one model"
        )


def _of_another(first: GGUFHeader, part: GGUFHeader, why: str) -> InputError:
    return InputError(
        f"{part.path}: belongs to another model than {first.path.name}: {why}; give the parts of "
        "one model"
    )
