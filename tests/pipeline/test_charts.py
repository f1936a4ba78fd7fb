from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.chart import Mark
from ropewalk.pipeline.charts import METRICS, by_length
from ropewalk.reports.figures import figure, save

POOLED = {
    metric: [
        (method, (Mark(128, value, 0.5 * value, None), Mark(256, value, None, None)))
        for method, value in (("none", 0.25), ("yarn", 0.75))
    ]
    for metric in METRICS
}


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_names_what_was_exported(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"extend.{ending}"
    save(figure(by_length(POOLED, 128, "yarn")), path)
    content = path.read_bytes()
    if ending == "svg":
        assert b"yarn (exported)" in content
    else:
        assert content.startswith(b"\x89PNG")
