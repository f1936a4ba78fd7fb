"""One rope setting of a config: its values, and the lengths that go with it."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.errors import InvalidValue
from ropewalk.models.config.geometry import geometry
from ropewalk.models.config.keys import ConfigKeys
from ropewalk.models.config.loading import Config
from ropewalk.models.lengths import ALPHA, Lengths, Stated, three_lengths
from ropewalk.schedule import MAX_FACTOR, RotarySchedule
from ropewalk.untrusted import real_number


@dataclass(frozen=True)
class RopeSetting:
    """One rope dict, with the lengths that go with it."""

    keys: ConfigKeys
    """The config that it is part of."""
    rope: Config
    kind: str
    stated_length: int
    original_length: int | None
    place: str
    """Its path in the file."""
    original_key: str
    """The key that states the original length."""

    def number(self, key: str) -> float | None:
        value = self.rope.get(key)
        return None if value is None else real_number(value, f"{self.place}.{key}")

    def factor(self) -> float:
        """s as stated, else the ratio of the two lengths."""
        factor = self.number("factor")
        if factor is None and self.original_length is not None:
            factor = self.stated_length / self.original_length
        if factor is None or not 1 <= factor <= MAX_FACTOR:
            raise InvalidValue(
                f"{self.place}.factor",
                factor,
                f"rope type {self.kind} needs an extension factor of at least 1 and at most "
                f"{MAX_FACTOR:g}",
                "correct it, or state original_max_position_embeddings",
            )
        return factor

    def lengths(self, factor: float = 1.0) -> Lengths:
        """The reference, trained and served length (lengths.py has the rule)."""
        kind = self.kind
        if kind == "dynamic" and self.rope.get("alpha") is not None:
            kind = ALPHA
        if kind == "proportional" and factor > 1:
            kind = "linear"
        stated = Stated(
            self.keys.model_type,
            kind,
            self.stated_length,
            length_key=self.keys.written("max_position_embeddings"),
            original=self.original_length,
            original_key=self.original_key,
            factor=factor,
            alpha=self.number("alpha"),
            length_is_scaled=self.keys.family.length_is_scaled,
            config=self.keys.config,
            trained=self.keys.trained,
        )
        try:
            return three_lengths(stated)
        except InvalidValue as error:
            raise error.renamed({"factor": f"{self.place}.factor"}) from None

    def plain(self, reference_length: int) -> RotarySchedule:
        """The frequencies of pretraining."""
        return RotarySchedule.plain(geometry(self.keys, self.rope, reference_length))

    def scaled(self) -> tuple[float, Lengths, RotarySchedule]:
        """The start of all scalings by one factor: it, the lengths, and the plain frequencies."""
        factor = self.factor()
        own = self.lengths(factor)
        return factor, own, self.plain(own.reference)
