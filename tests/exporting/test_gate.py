"""The gate's errors name what the user named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.errors import GateFailed
from ropewalk.exporting.gate import named_as
from ropewalk.exporting.writing import staged


def test_errors_name_the_export_and_not_where_it_was_written(tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real")
    out = link / "extended"
    with (
        pytest.raises(GateFailed) as caught,
        staged(out, needs_bytes=0) as folder,
        named_as(out, folder),
    ):
        raise GateFailed("stock", [f"no weights in {folder}", f"nor in {folder.resolve()}/a"])
    assert str(caught.value) == f"stock: no weights in {out}; nor in {out}/a"
