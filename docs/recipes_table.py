"""The tables of docs/recipes.md: documented extensions, and where plans differ from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ropewalk.lengths import format_length
from ropewalk.models.recipes import FILE

_BASIS = {"V": "vendor", "C": "code", "P": "third party"}


def blocks() -> dict[str, str]:
    table = json.loads(FILE.read_text(encoding="utf-8"))
    return {"docs/recipes.md": f"{_recipes(table)}\n\n{_otherwise(table)}"}


def _recipes(table: Mapping[str, Any]) -> str:
    lines = [
        "| models | model types | stated length | documented | note | source | read at |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table["recipes"]:
        stated = ", ".join(f"{length:,}" for length in row["stated"])
        types = ", ".join(f"`{name}`" for name in row["model_type"])
        told = [
            f"{format_length(each['target'])}: {each['method']} "
            + ", ".join(f"{key} {value:g}" for key, value in each["parameters"].items())
            + f" over {row['reference']:,}"
            for each in row["extensions"]
        ]
        cells = (
            *(f"{row['vendor']}: {row['models']}", types, stated, "; ".join(told) or "none"),
            *(row.get("note", ""), row["source"], _BASIS[row["basis"]]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _otherwise(table: Mapping[str, Any]) -> str:
    lines = ["| models | documented | what `plan` does, and why |", "|---|---|---|"]
    for row in table["otherwise"]:
        lines.append(f"| {row['models']} | {row['documented']} | {row['why']} |")
    return "\n".join(lines)
