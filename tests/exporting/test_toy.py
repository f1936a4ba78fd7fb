"""A runtime that exports are written for is one file: every command knows it by that alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.errors import Unsupported
from tests.exporting.folders import TARGET, proven, saved


@pytest.mark.usefixtures("in_process")
def test_a_runtime_of_one_file_is_planned_exported_and_verified(tmp_path: Path) -> None:
    source, out = saved(tmp_path / "source"), tmp_path / "out"
    planned = rw.plan(source, TARGET, "yarn")
    (row,) = (row for row in planned.serving if row.runtime == "toy")
    assert (row.fit, row.lines[1]) == ("exact", f"toy {source}-toy --length {TARGET}")
    assert rw.export.preview(source, planned.plan).matrix["YaRN"]["toy"].fit == "exact"
    made = rw.export(source, planned.plan, out, "toy")
    assert proven(made).passed
    assert made.load == f"toy {out} --length {TARGET}"
    found = rw.verify(out)
    assert (found.verdict_in("toy"), found.written_for) == ("OK", "toy")
    pairs = rw.plan(source, TARGET, "ntk_mixed").plan
    with pytest.raises(Unsupported, match="toy: factors by pair is refused"):
        rw.export(source, pairs, tmp_path / "pairs", "toy")
