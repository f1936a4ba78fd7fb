"""What `ropewalk verify` says about a folder, with its plan and without one.

    python -m tools.bakeoff.judged < JOBS

A job has a `folder` and, optionally, a `plan`; without a plan the length is given instead, as it is
to an engine. With `intended`, the plan that the folder follows is written there. The exit codes are
those of the command: 0 passed, 1 wrong, 2 refused, 3 unclear, 70 a fault of its own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

import ropewalk as rw
from ropewalk.api.verify import EXIT
from ropewalk.errors import RopewalkError
from ropewalk.models.config import present_plan
from tools.bakeoff.bases import BASES
from tools.bakeoff.folders import LENGTH, write
from tools.bakeoff.forked import serve


def judged(asked: dict[str, Any]) -> dict[str, Any]:
    """The exit code of one call, and its findings: trap, runtimes, text, and whether it fails."""
    folder = Path(asked["folder"])
    how: dict[str, Any] = {"run": asked.get("run", False), "progress": None}
    if not asked.get("as stated"):
        how |= {"plan": asked["plan"]} if "plan" in asked else {"length": LENGTH}
    try:
        if "intended" in asked:
            Path(asked["intended"]).write_text(present_plan(folder).dumps(), encoding="utf-8")
            return _said(0)
        found = rw.verify(folder, **how)
    except RopewalkError as error:
        return _said(2, error)
    except Exception as error:
        return _said(70, error)
    findings = [
        (f.trap, list(f.runtimes), f"{f.trap}: {f.what}; {f.consequence}", f.wrong)
        for f in found.warnings
    ]
    return {**_said(EXIT[found.verdict]), "findings": findings}


def _said(code: int, error: Exception | None = None) -> dict[str, Any]:
    words = f"{type(error).__name__}: {error}" if error else ""
    return {"exit": code, "error": words, "findings": []}


def ready() -> None:
    """Import what every job needs, once: a verification of a clean folder does."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "clean"
        write(BASES["llama yarn"], folder)
        judged({"folder": str(folder)})


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    ready()
    serve(judged)
