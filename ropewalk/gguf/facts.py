"""A GGUF file's model, by its header: its sizes, its quantisation, and its layers with a window."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ropewalk.gguf.cache import windowed
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.rotation import base_of_windows, window_of
from ropewalk.gguf.sizes import NAMES, bytes_of
from ropewalk.values import Value

_OF_K = ("Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K")
_MIXTURES = dict(enumerate(_OF_K, 10))
"""Names of mixtures of types, by what general.file_type says."""


@dataclass(frozen=True, eq=False)
class Facts(Value):
    """The sizes of a model in a GGUF file."""

    architecture: str
    layers: int | None
    weights: int
    """Numbers, in all tensors."""
    bytes: int
    """Of all tensors whose type is known."""
    mixture: str
    """The file's own name for its quantisation, such as Q4_K_M; empty if it gives none."""
    types: Mapping[str, float]
    """The share of the weights in each type of GGML, most first."""
    window: int | None
    """The sliding window of some layers."""
    windowed: int | None
    """The number of these layers; None if it is not known."""
    window_base: float | None
    """The base by which they turn, if they have their own."""

    @classmethod
    def of(cls, header: GGUFHeader) -> Facts:
        sizes = Counter[str]()
        for place in header.tensors.values():
            sizes[NAMES.get(place.kind, f"type {place.kind}")] += math.prod(place.shape)
        layers, weights = windowed(header), sum(sizes.values())
        kind = header.values.get("general.file_type")
        return cls(
            architecture=header.architecture,
            layers=header.count("block_count"),
            weights=weights,
            bytes=tensor_bytes(header),
            mixture=_MIXTURES.get(kind, "") if isinstance(kind, int) else "",
            types={name: size / max(1, weights) for name, size in sizes.most_common()},
            window=window_of(header),
            windowed=None if layers is None else sum(layers),
            window_base=base_of_windows(header),
        )

    def sentences(self) -> Iterator[str]:
        """Each fact as a sentence."""
        layers = "" if self.layers is None else f"{self.layers} layers, "
        size = f"{self.weights / 1e6:,.4g} million weights in {self.bytes / 2**20:,.4g} MiB"
        shares = (f"{share:.0%}" if share >= 0.005 else "<1%" for share in self.types.values())
        types = ", ".join(map(" ".join, zip(self.types, shares, strict=True))) or "no weights"
        mixture = f"{self.mixture}: " if self.mixture else ""
        yield f"architecture {self.architecture}: {layers}{size} ({mixture}{types})"
        if self.window is None:
            return
        count = "some" if self.windowed is None else f"{self.windowed} of {self.layers}"
        base = self.window_base
        turns = "" if base is None else f" and turn by a base of their own, {base:,.10g}"
        yield f"{count} layers have a sliding window of {self.window:,}{turns}"


def tensor_bytes(header: GGUFHeader) -> int:
    """The bytes of all tensors whose type is known."""
    return sum(bytes_of(place) or 0 for place in header.tensors.values())
