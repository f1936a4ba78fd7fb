"""An export that has moved is loaded by the lines that name it where it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.exporting.exported import Exported, modelfile


@pytest.mark.parametrize("before", ["runs/demo", "/data/runs/demo"])
@pytest.mark.parametrize("now", ["kept", "/home/kept"])
def test_the_lines_that_load_an_export_move_with_it(before: str, now: str) -> None:
    def exported(folder: str) -> Exported:
        path = f"{folder}/model.gguf"
        load = f"llama-cli -m {path} -c 4096"
        return Exported("llama.cpp", Path(path), None, load=load, elsewhere=modelfile(path, 4096))

    assert exported(before).moved(Path(now)) == exported(now)
