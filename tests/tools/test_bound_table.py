"""The table of bounds that ships is the one that its program computes."""

from __future__ import annotations

import json
from pathlib import Path

from tools import bound_table


def test_a_row_computed_anew_is_the_shipped_one(tmp_path: Path) -> None:
    output = tmp_path / "bounds.json"
    bound_table.main(["--head-dim", "64", "--lengths", "1k", "--output", str(output)])
    (row,) = json.loads(output.read_text(encoding="utf-8"))["rows"]
    shipped = json.loads(bound_table.SHIPPED.read_text(encoding="utf-8"))["rows"]
    assert row in shipped
