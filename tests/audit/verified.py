"""A config in a folder of its own, verified without being run, and the configs as published."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ropewalk as rw
from ropewalk.audit.result import Audit
from ropewalk.models.config import Config
from ropewalk.runtimes.finding import Finding

GOLDEN = Path(__file__).parents[1] / "golden" / "configs"
PUBLISHED = Path(__file__).parents[1] / "models" / "published"


def verified(folder: Path, config: Config, *runtimes: str, **more: Any) -> Audit:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return rw.verify(folder, runtimes=runtimes, run=False, **more)


def traps(found: Iterable[Finding]) -> set[str]:
    return {finding.trap for finding in found}
