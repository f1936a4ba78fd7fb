"""Texts that would do something in a page if they were not escaped: names of models and tasks,
documents and answers come from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

PAYLOADS: list[str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
