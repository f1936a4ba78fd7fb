"""Faults that ropewalk's tests and benchmarks have had for long: counted apart from new ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.audit.corpus import BROKEN, CLEAN, TRAPPED, Broken
from tools.bakeoff import folders
from tools.bakeoff.fault import Config

VOCABULARY = 128


def cases() -> Iterator[tuple[str, Broken]]:
    """The faults of tests/audit/corpus.py that change a file of the clean export."""
    for name, broken in BROKEN.items():
        clean = {**CLEAN, **TRAPPED}[broken.of]
        if (broken.export.config, broken.export.tokenizer) != (clean.config, clean.tokenizer):
            yield name, broken


def base(broken: Broken) -> Config:
    """The clean config, with a vocabulary for the bake-off's tokenizer."""
    return {**{**CLEAN, **TRAPPED}[broken.of].config, "vocab_size": VOCABULARY}


def plant(broken: Broken, folder: Path) -> None:
    """Write the files of the broken export over those of a folder with the clean one."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    wrong = {**broken.export.config, "vocab_size": VOCABULARY}
    wrong["architectures"] = config["architectures"]
    (folder / "config.json").write_text(json.dumps(wrong), encoding="utf-8")
    path = folder / "tokenizer_config.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    del tokenizer["model_max_length"]
    path.write_text(json.dumps({**tokenizer, **broken.export.tokenizer}), encoding="utf-8")


def write_intended(broken: Broken, folder: Path) -> None:
    limit = {**CLEAN, **TRAPPED}[broken.of].tokenizer["model_max_length"]
    folders.write(base(broken), folder, tokenizer_length=limit)


def words(broken: Broken) -> list[str]:
    """The traps that the test names, and the keys that were edited."""
    clean = {**CLEAN, **TRAPPED}[broken.of]
    pairs = ((clean.config, broken.export.config), (clean.tokenizer, broken.export.tokenizer))
    edited = {key for one, other in pairs for key in _edited(one, other)}
    return sorted({broken.trap, *broken.also, *edited})


def _edited(one: Config, other: Config) -> Iterator[str]:
    for key in {*one, *other}:
        here, there = one.get(key), other.get(key)
        if isinstance(here, dict) and isinstance(there, dict):
            yield from _edited(here, there)
        elif here != there:
            yield key
