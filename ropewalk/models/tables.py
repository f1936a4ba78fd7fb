"""Tables of facts that stand next to the code that reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def table_in(path: Path) -> Any:
    """The content of a JSON file of this package, which nobody changes."""
    return json.loads(path.read_text(encoding="utf-8"))


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as fields of a frozen value, whose lists are tuples."""
    return {key: tuple(own) if isinstance(own, list) else own for key, own in row.items()}
