"""Extensions that vendors document: recipes.json, and which of its rows a config belongs to.

A model is recognised by the structure in its config (type, sizes, base, lengths), never by its
name: a fine-tuned model has the recipe of the model that it came from. A config that is scaled
already, or whose geometry differs, has none. A row without extensions is a vendor that documents
none for this size. `docs/recipes.md` is written from the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.errors import InputError
from ropewalk.lengths import format_length
from ropewalk.models.config import Config, ConfigReader
from ropewalk.models.lengths import PLAIN
from ropewalk.values import table_in

VENDOR = "vendor"
"""The name of a documented extension among methods."""
RECIPE = "recipe"
"""The key of a plan's provenance that names the source of a documented extension."""
FILE = Path(__file__).with_name("recipes.json")
QUOTED = {"P": ", as a third party quotes it"}
"""The remark on a source that is not the vendor's own."""


@dataclass(frozen=True)
class Extension:
    """One documented setting."""

    target: int
    method: str
    parameters: Mapping[str, object]

    def __str__(self) -> str:
        settings = " and ".join(f"{key} {value:g}" for key, value in self.parameters.items())
        return f"{self.method} with {settings} for {format_length(self.target)}"


@dataclass(frozen=True)
class Documented:
    """A vendor's documented extensions for models of one structure."""

    models: str
    vendor: str
    source: str
    basis: str
    reference: int
    extensions: tuple[Extension, ...] = ()
    note: str = ""

    def for_target(self, target: int) -> Extension | None:
        """The extension for exactly this target: a factor for another one is not documented."""
        return next((each for each in self.extensions if each.target == target), None)

    def sentence(self, target: int) -> str:
        """A sentence on this target; empty for one that needs no extension."""
        if target <= self.reference:
            return ""
        where = f" Source: {self.source}{QUOTED.get(self.basis, '')}."
        note = f" ({self.note})" if self.note else ""
        entry = self.for_target(target)
        over = f" over {format_length(self.reference)}"
        if entry is not None:
            return (
                f"Documented by the vendor ({self.vendor}, {self.models}): {entry}{over}{note}; "
                f"the method `{VENDOR}` writes it.{where}"
            )
        if not self.extensions:
            return f"{self.vendor} documents no extension of {self.models}{note}.{where}"
        extensions = "; ".join(map(str, self.extensions))
        return (
            f"{self.vendor} documents no extension of {self.models} to {format_length(target)}, "
            f"only {extensions}{over}{note}.{where}"
        )

    def needed(self, target: int) -> Extension:
        """The extension for this target; any other is refused with those that there are."""
        extension = self.for_target(target)
        if target <= self.reference:
            raise InputError(
                f"{format_length(target)} is within the {format_length(self.reference)} of "
                f"{self.models}, which needs no extension; leave the method out"
            )
        if extension is None:
            raise InputError(f"{self.sentence(target)} Name another method, or a documented target")
        return extension


def documented(config: Config, *, trained: int | None = None) -> Documented | None:
    """The vendor's documentation for a model of this structure; None if none is known."""
    reader = ConfigReader(config, trained=trained)
    if reader.setting(reader.main_rope()).kind not in PLAIN:
        return None
    reference = reader.lengths().reference
    for row in table_in(FILE)["recipes"]:
        stated = reader.get("max_position_embeddings") in row["stated"]
        if stated and row.get("reference", reference) == reference and _matches(reader, row):
            return Documented(
                **{key: row[key] for key in ("models", "vendor", "source", "basis")},
                reference=reference,
                extensions=tuple(Extension(**each) for each in row["extensions"]),
                note=row.get("note", ""),
            )
    return None


def is_documented(config: Config) -> bool:
    """True if the scaling of a config is a documented extension, which needs no training."""
    reader = ConfigReader(config)
    rope = reader.main_rope()
    if reader.setting(rope).kind != "yarn":
        return False
    original = reader.lengths().reference
    return any(
        _matches(reader, row)
        and row.get("reference") == original
        and any(each["parameters"]["factor"] == rope.get("factor") for each in row["extensions"])
        for row in table_in(FILE)["recipes"]
    )


def _matches(reader: ConfigReader, row: Mapping[str, Any]) -> bool:
    """True if type, place, sizes and geometry are those of a row."""
    if reader.model_type not in row["model_type"] or reader.outer_type not in row.get(
        "outer", [""]
    ):
        return False
    size = [reader.get("hidden_size"), reader.get("num_hidden_layers")]
    if "sizes" in row and size not in row["sizes"]:
        return False
    width = reader.get("intermediate_size")
    if "widths" in row and width is not None and width not in row["widths"]:
        return False
    rope = reader.main_rope()
    geometry = reader.geometry(rope, 1)
    values = {
        "base": geometry.base,
        "rotary_dim": geometry.rotary_dim,
        "share": geometry.rotary_dim / geometry.head_dim,
        "sections": rope.get("mrope_section"),
    }
    return all(row.get(key, value) == value for key, value in values.items())
