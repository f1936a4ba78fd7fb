"""A scale for each head and rotary pair of a model's queries.

A pair of a query is multiplied by one positive number. That commutes with the rotation of the pair,
so the scales can stand in the weights of the query projection: any runtime that loads weights then
computes them. A plan holds scales until an export folds them in.

They are many (65,536 for a model with 32 layers of 32 heads of 64 pairs), so JSON holds the bytes
of each layer as one text of base64: exact, and a line instead of thousands.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from ropewalk.errors import InvalidValue
from ropewalk.schedule import FloatArray
from ropewalk.untrusted import Fields

MAX_LAYER = 9999
MOST_SCALES = 2**20  # of all layers: 126 layers of 128 heads of 64 pairs fit
MAX_SCALE = 1e6
"""A scale and its inverse are at most this large."""
FOLDED = "folded"
"""The key of a plan's provenance that names the scales that are in the weights already."""

_STORED = np.dtype("<f8")
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")


@dataclass(frozen=True, eq=False)
class QueryScales:
    """What to multiply queries by. Immutable, compares by content."""

    layers: Mapping[int, FloatArray]
    """[query heads, rotary pairs] by the index of the layer in the model; others are unscaled."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidValue("layers", {}, "must contain at least one layer", "add one")
        for index in self.layers:
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= MAX_LAYER:
                raise InvalidValue(
                    "layers",
                    index,
                    f"must be the index of a layer, from 0 to {MAX_LAYER}",
                    "count from the first layer, which is 0",
                )
        own = {index: _by_head_and_pair(index, self.layers[index]) for index in sorted(self.layers)}
        count = sum(scales.size for scales in own.values())
        if count > MOST_SCALES:
            raise InvalidValue(
                "layers",
                f"{count:,} scales",
                f"must be at most {MOST_SCALES:,}",
                "scale fewer layers",
            )
        object.__setattr__(self, "layers", MappingProxyType(own))

    def __reduce__(self) -> tuple[object, ...]:
        return QueryScales, (dict(self.layers),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QueryScales):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"<QueryScales: {self}>"

    def __str__(self) -> str:
        """`8,192 query scales in 32 layers, from 0.81 to 1.3`."""
        smallest = min(float(scales.min()) for scales in self.layers.values())
        largest = max(float(scales.max()) for scales in self.layers.values())
        count = sum(scales.size for scales in self.layers.values())
        layers = f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)}"
        return f"{count:,} query scales in {layers}, from {smallest:.3g} to {largest:.3g}"

    @property
    def name(self) -> str:
        """What the provenance of a plan calls exactly these scales."""
        import hashlib  # slow, and `--help` signs nothing

        content = json.dumps(self.to_json()).encode()
        return f"query scales {hashlib.sha256(content).hexdigest()[:16]}"

    def _identity(self) -> tuple[object, ...]:
        return tuple((index, own.shape, own.tobytes()) for index, own in self.layers.items())

    def to_json(self) -> dict[str, object]:
        return {
            "layers": {
                str(index): {
                    "heads": scales.shape[0],
                    "pairs": scales.shape[1],
                    "float64": base64.b64encode(scales.astype(_STORED).tobytes()).decode("ascii"),
                }
                for index, scales in self.layers.items()
            }
        }

    @classmethod
    def from_json(cls, value: object, path: str = "query_scales") -> QueryScales:
        fields = Fields(value, path)
        layers = {}
        for name, layer in fields.mapping("layers").items():
            key = f"{fields.of('layers')}.{name}"
            if not _INDEX.fullmatch(name):
                raise InvalidValue(
                    fields.of("layers"), name, "is not the index of a layer", "write 0, 1, 2, …"
                )
            layers[int(name)] = _decoded(Fields(layer, key))
        return fields.build(cls, layers=layers)


def _by_head_and_pair(index: int, values: ArrayLike) -> FloatArray:
    """A new read-only array of the scales of one layer."""
    key = f"layers.{index}"
    try:
        scales = np.asarray(values)
    except ValueError:  # lists of unequal lengths
        scales = np.empty(0, dtype=object)
    if scales.ndim != 2 or not scales.size or scales.dtype.kind not in "iuf":
        raise InvalidValue(
            key,
            f"an array of shape {scales.shape}" if scales.dtype.kind in "iuf" else values,
            "must be one number for each query head and rotary pair",
            "give a list of heads, each with as many numbers as the head has pairs",
        )
    scales = scales.astype(np.float64)
    usable = (scales >= 1 / MAX_SCALE) & (scales <= MAX_SCALE)  # False for NaN too
    if not usable.all():
        head, pair = (int(i) for i in np.argwhere(~usable)[0])
        raise InvalidValue(
            f"{key}[{head}][{pair}]",
            float(scales[head, pair]),
            f"must be a finite number from {1 / MAX_SCALE:g} to {MAX_SCALE:g}",
            "a scale of 1 changes nothing",
        )
    scales.flags.writeable = False
    return scales


def _decoded(fields: Fields) -> FloatArray:
    """The scales of one layer, their number known before anything is decoded."""
    heads, pairs = fields.integer("heads"), fields.integer("pairs")
    text = fields.text("float64")
    fields.close()
    for key, count in (("heads", heads), ("pairs", pairs)):
        if not 1 <= count <= MOST_SCALES:
            raise InvalidValue(
                fields.of(key), count, f"must lie between 1 and {MOST_SCALES:,}", "check the value"
            )
    size = heads * pairs * _STORED.itemsize
    try:
        content = base64.b64decode(text, validate=True) if len(text) == -(-size // 3) * 4 else b""
    except (binascii.Error, ValueError):  # ValueError: characters outside ASCII
        content = b""
    if len(content) != size:
        raise InvalidValue(
            fields.of("float64"),
            text,
            f"must be {heads} × {pairs} little-endian float64 numbers as base64",
            "take the file again from where it was written",
        )
    return np.frombuffer(content, dtype=_STORED).reshape(heads, pairs)
