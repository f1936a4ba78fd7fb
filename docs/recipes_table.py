"""The tables of docs/recipes.md: documented extensions, and where plans differ from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ropewalk.lengths import format_length
from ropewalk.models.recipes import FILE

_BASIS = {"C": "code", "P": "third party"}


def blocks() -> dict[str, str]:
    table = json.loads(FILE.read_text(encoding="utf-8"))
    return {"docs/recipes.md": f"{_recipes(table)}\n\n{_otherwise(table)}"}


def _recipes(table: Mapping[str, Any]) -> str:
    lines = [
        "| models | stated length | documented | note | source |",
        "|---" * 5 + "|",
    ]
    for row in table["recipes"]:
        stated = ", ".join(f"{length:,}" for length in row["stated"])
        told = [
            f"{format_length(each['target'])}: {each['method']} "
            + ", ".join(f"{key} {value:g}" for key, value in each["parameters"].items())
            + f" over {row['reference']:,}"
            for each in row["extensions"]
        ]
        source = (
            row["source"] if row["basis"] == "V" else f"{_BASIS[row['basis']]}: {row['source']}"
        )
        cells = (
            *(f"{row['vendor']}: {row['models']}", stated, "; ".join(told) or "none"),
            *(row.get("note", ""), source),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _otherwise(table: Mapping[str, Any]) -> str:
    """Models that need the same explanation share a row."""
    lines = ["| models: what is documented | what `plan` does, and why |", "|---|---|"]
    for why in dict.fromkeys(row["why"] for row in table["otherwise"]):
        own = [row for row in table["otherwise"] if row["why"] == why]
        told = "; ".join(f"{row['models']}: {row['documented']}" for row in own)
        lines.append(f"| {told} | {why} |")
    return "\n".join(lines)
