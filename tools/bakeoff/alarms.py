"""False alarms: what ropewalk says where nothing was planted.

    python -m tools.bakeoff.alarms < JOBS

A job with a `config` is a published config, given to `verify --no-run` alone as its vendor wrote
it; a job with a `family` is an unmodified random model of that family, whose rotation is compared
with its own config's by `assert_rotation`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import ropewalk as rw
from ropewalk.errors import RopewalkError
from ropewalk.models.config import present_plan
from tests.models.tiny import tiny_model
from tools.bakeoff.forked import serve
from tools.bakeoff.judged import judged, ready


def alarm(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer of verify, or of assert_rotation."""
    if "config" in asked:
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "config.json").write_text(json.dumps(asked["config"]), "utf-8")
            return judged({"folder": place, "as stated": True})
    try:
        model = tiny_model(asked["family"])
        return {"said": rw.assert_rotation(model, present_plan(model.config)).summary()}
    except RopewalkError as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    ready()
    serve(alarm)
