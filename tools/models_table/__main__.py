"""Writes the table of models: eighty published configs, and what each runtime makes of them.

    python -m tools.models_table        docs/models.json and docs/models.html

Configs are those of the tests (tests/golden/configs and tests/models/published) and more.json here,
each with the keys that its rotation depends on; `checked` names the public copies that those of
more.json were compared with. Every runtime is judged by `ropewalk verify` with `--no-run`, by the
rules recorded for its release. No model is downloaded or run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import ropewalk as rw
from ropewalk.errors import RopewalkError
from ropewalk.models.config import ConfigReader, present_plan
from tools.found import GONE, REPRODUCED, recorded
from tools.found import faults as described
from tools.models_table.page import page
from tools.models_table.parity import parity

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "docs" / "models.json"
HTML = RECORDED.with_suffix(".html")
OLDER = Path(__file__).with_name("older.json")
"""Faults of docs/found.md in older releases, by `python -m tools.found OLDER.whl`."""
MORE = Path(__file__).with_name("more.json")
TESTS = ROOT / "tests"
FOLDERS = (TESTS / "golden" / "configs", TESTS / "models" / "published")
DOCUMENTED = TESTS / "models" / "documented_lengths.json"
RUNTIMES = ("transformers", "vllm", "sglang", "llama.cpp", "ollama", "mlx-lm")


def published() -> Iterator[tuple[str, dict[str, Any], int | None, str]]:
    """Name, config, the length that its vendor documents, and a source or note."""
    documented = json.loads(DOCUMENTED.read_text(encoding="utf-8"))
    for folder in FOLDERS:
        for path in sorted(folder.glob("*.json")):
            config = json.loads(path.read_text(encoding="utf-8"))
            lengths = documented.get(path.stem, {}).get("lengths", (None,) * 3)
            yield path.stem, config, lengths[1], f"{path.relative_to(ROOT)}"
    for name, row in json.loads(MORE.read_text(encoding="utf-8")).items():
        told = (row["source"], row["note"], f"checked: {row['checked']}")
        yield name, row["config"], row["documented"], "; ".join(filter(None, told))


def checked() -> dict[str, int]:
    """How many configs of more.json agree with public copies."""
    rows = json.loads(MORE.read_text(encoding="utf-8")).values()
    kinds = ("in part", "not confirmed")
    told = (next(filter(row["checked"].startswith, kinds), "agree") for row in rows)
    return dict(Counter(told).most_common())


def releases() -> dict[str, str]:
    """The release of each runtime for which its rules were recorded."""
    from ropewalk.runtimes.model_classes import TABLE

    engines = json.loads(TABLE.read_text(encoding="utf-8"))
    other = json.loads((ROOT / "tools/observatory/recorded.json").read_text(encoding="utf-8"))
    found = {name: engines[name]["version"] for name in ("vllm", "sglang")}
    return {
        "transformers": metadata.version("transformers"),
        **found,
        "llama.cpp": metadata.version("xllamacpp"),
        "ollama": "0.33.0-rc2",
        "mlx-lm": other["mlx-lm"]["version"],
    }


def cell(audit: Any, runtime: str) -> dict[str, Any]:
    """What one runtime makes of a config."""
    reading = audit.runtimes[runtime]
    findings = [f for f in audit.warnings if f.runtimes and runtime in f.runtimes]
    outcome = "refused" if reading.refused else "unknown" if reading.unread else "as stated"
    if outcome == "as stated" and any(f.wrong for f in findings):
        outcome = "otherwise"
    return {
        "outcome": outcome,
        "serves": reading.limit or audit.length if outcome in ("as stated", "otherwise") else None,
        "why": reading.refused or reading.unread or "",
        "findings": [f"{f.trap}: {f.what}" for f in findings],
    }


def row(name: str, config: dict[str, Any], documented: int | None, source: str) -> dict[str, Any]:
    """The row of one model."""
    made: dict[str, Any] = {"model": name, "documented": documented, "source": source}
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            plan = present_plan(config)
            schedule = plan.longest(plan.main_layer)
            reader = ConfigReader(config)
            made |= {
                "family": reader.model_type,
                "method": schedule.method,
                "native": schedule.geometry.original_length,
                "stated": reader.get("max_position_embeddings"),
            }
            audit = rw.verify(place, runtimes=RUNTIMES, run=False, progress=None)
        except RopewalkError as error:
            return {**made, "refused": str(error), "runtimes": {}}
        made["runtimes"] = {runtime: cell(audit, runtime) for runtime in RUNTIMES}
    return made


def faults() -> list[dict[str, str]]:
    """The faults of docs/found.md, by software and release."""
    kept, older = recorded(), json.loads(OLDER.read_text(encoding="utf-8"))
    return [
        {
            "what": fault.what,
            "fails in": _in(kept[fault.name], REPRODUCED),
            "does not fail in": _in(kept[fault.name], GONE),
            "older releases": ", ".join(
                f"{version}: {'fails too' if outcome == REPRODUCED else 'does not fail'}"
                for version, outcome in older.get(fault.name, {}).items()
            ),
        }
        for fault in described()
        if fault.name in kept
    ]


def _in(runs: dict[str, dict[str, Any]], outcome: str) -> str:
    ran = (name.split(",")[0] for name, run in runs.items() if run["outcome"] == outcome)
    return ", ".join(dict.fromkeys(ran))


def table() -> dict[str, Any]:
    """The whole table, with its counts."""
    rows = []
    for one in published():
        print(one[0], flush=True)
        rows.append(row(*one))
    counts = {
        runtime: dict(Counter(r["runtimes"][runtime]["outcome"] for r in rows if r["runtimes"]))
        for runtime in RUNTIMES
    }
    return {
        "releases": releases(),
        "counts": counts,
        "parity": parity(config for _, config, *_ in published()),
        "checked": checked(),
        "faults": faults(),
        "models": rows,
    }


def main() -> int:
    made = table()
    RECORDED.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    HTML.write_text(page(made), encoding="utf-8")
    print(json.dumps(made["counts"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
