"""Shows which recorded facts a release contradicts, read in its wheel; nothing of it is run.

    pip download --no-deps vllm==0.34.0
    python -m tools.observatory [--write] [--run] WHEEL ...

Wheels of vLLM, SGLang, mlx-lm and transformers are compared with the tables that ship with ropewalk
(ropewalk/runtimes/model_classes.json) and with recorded.json here; `--write` stores the new facts.
Which architecture a model type has, and the share of a head that turns by default, come from the
installed transformers. The longest sequence that an engine accepts is computed by its own function,
for the configs of the table of models, and compared with the rule in ropewalk/runtimes: such a
difference, and whatever could not be read, is for a person to mend. With `--run`, the rows of
docs/found.md and docs/bakeoff.md that change come last; that runs the wheel's code (rows.py). Exit
status 1: something differs.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.errors import RopewalkError
from ropewalk.runtimes import every
from ropewalk.runtimes.engine import ServingEngine
from ropewalk.runtimes.model_classes import TABLE as TABLE
from tools.models_table.__main__ import published
from tools.observatory import facts
from tools.observatory.classes import SHARE, model_type
from tools.observatory.interpreter import Unreadable
from tools.observatory.sources import Sources, called

RECORDED = Path(__file__).with_name("recorded.json")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--write", action="store_true", help="store the facts of these releases")
    parser.add_argument("--run", action="store_true", help="also the rows of pages: runs its code")
    given = parser.parse_args(words)
    differ = False
    tables = {path: json.loads(path.read_text(encoding="utf-8")) for path in (TABLE, RECORDED)}
    found = {path: dict(table) for path, table in tables.items()}
    found[TABLE] |= {"model_types": architectures(), "shares": shares()}
    for wheel in given.wheels:
        runtime, sources, said = facts.read(wheel)
        found[TABLE if runtime in found[TABLE] else RECORDED][runtime] = said
        for line in limits(runtime, sources):
            differ = True
            print(f"{runtime} {sources.version}: {line}")
    for path, table in found.items():
        for line in differences(tables[path], table):
            differ = True
            print(line)
        if given.write:
            path.write_text(written(table, rows=path == TABLE), encoding="utf-8")
    if given.run:
        from tools.observatory.rows import changed

        for line in changed([wheel.resolve() for wheel in given.wheels]):
            differ = True
            print(line, flush=True)
    if not differ:
        print("these releases say what is recorded")
    return int(differ and not given.write)


def limits(runtime: str, sources: Sources) -> Iterator[str]:
    """Configs for which an engine accepts another length than its recorded rule."""
    engine = every()[runtime]
    for name, config, *_ in published() if isinstance(engine, ServingEngine) else ():
        try:
            recorded = engine.accepts(config)
            here = str(facts.limit_of(runtime, sources, config))
        except RopewalkError:  # the model does not rotate
            continue
        except Unreadable as error:
            here = f"cannot be read: {error}"
        if here != str(recorded):
            yield f"docs/models.html: longest sequence of {name}: {recorded} -> {here}"


def differences(kept: Mapping[str, Any], found: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """The values that differ in two tables, a line each."""
    for key in sorted({*kept, *found}, key=str):
        here, there = kept.get(key), found.get(key)
        where = f"{at}.{key}".removeprefix(".")
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from differences(here, there, where)
        elif _ordered(here) != _ordered(there):
            yield f"{where}: {json.dumps(here)} -> {json.dumps(there)}"


def _ordered(fact: Any) -> Any:
    """A fact without its order: code that lists the same keys or types anew changes nothing."""
    if isinstance(fact, list):
        return sorted(map(str, fact))
    return sorted(re.findall(r"[^\s,;|\[\]]+", fact)) if isinstance(fact, str) else fact


def written(table: Mapping[str, Any], *, rows: bool) -> str:
    """A table as JSON; with `rows`, an architecture a line."""
    text = json.dumps(table, indent=1, sort_keys=True)
    inner = r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)?\}"
    return (re.sub(inner, _on_a_line, text) if rows else text) + "\n"


def _on_a_line(found: re.Match[str]) -> str:
    return re.sub(r"\s*\n\s*", " ", found.group())


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


if __name__ == "__main__":
    sys.exit(main())
