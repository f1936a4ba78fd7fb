"""Gives every fault of a folder to every tool, and keeps what each says.

Answers are kept by fault and tool, so a run that ends early is resumed. The intended folder goes
first to each tool: what a tool says of that one is no report of the fault.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tools.bakeoff import folders, known
from tools.bakeoff.bases import BASES
from tools.bakeoff.fault import plant
from tools.bakeoff.forked import answers
from tools.bakeoff.new_faults import FOLDER

STOCK = ("transformers", "vllm", "sglang", "llama.cpp")
JUDGED = ("verify", "verify, with the plan")
RUN = "verify, with the plan, run"


@dataclass(frozen=True)
class Case:
    """A fault, and how to write the folder without it and with it."""

    name: str
    group: str
    base: str
    story: str
    words: tuple[str, ...]
    intend: Callable[[Path], None]
    plant: Callable[[Path], None]
    prompt: int = 1100


def cases() -> list[Case]:
    """All faults of folders, known ones first."""
    return [
        *(
            Case(
                name,
                "known",
                f"known {broken.of}",
                "tests/audit/corpus.py",
                tuple(known.words(broken)),
                partial(known.write_intended, broken),
                partial(known.plant, broken),
                1100 if known.base(broken)["max_position_embeddings"] > 1100 else 400,
            )
            for name, broken in known.cases()
        ),
        *(
            Case(
                fault.name,
                "new",
                fault.base,
                fault.story,
                fault.words,
                partial(folders.write, BASES[fault.base]),
                partial(plant, fault),
            )
            for fault in FOLDER
        ),
    ]


def name_of(text: str) -> str:
    return re.sub(r"\W+", "_", text)


class Room:
    """The folders of a run, and what was said about each."""

    def __init__(self, place: Path, said: dict[str, dict[str, Any]], keep: Callable[[], None]):
        self.place, self.said, self.keep = place, said, keep
        self.cases = cases()
        self.plans: dict[str, str] = {}

    @property
    def prompts(self) -> dict[str, int]:
        """Tokens of the prompt to generate from: fewer where the intended set-up states 512."""
        lengths = {f"{c.group} {c.name}": c.prompt for c in self.cases}
        return {**{f"intended {c.base}": c.prompt for c in self.cases}, **lengths}

    def write(self) -> None:
        """All folders that are not there yet."""
        for case in self.cases:
            intended = self.place / name_of(case.base)
            if not intended.exists():
                case.intend(intended)
            faulty = self.folder(case)
            if not faulty.exists():
                case.plant(folders.copy(intended, faulty))

    def folder(self, case: Case) -> Path:
        return self.place / f"{case.group}-{name_of(case.name)}"

    def subjects(self) -> dict[str, Path]:
        """The intended folders, then those with a fault, by the key of what was said."""
        intended = {f"intended {case.base}": self.place / name_of(case.base) for case in self.cases}
        return {**intended, **{f"{c.group} {c.name}": self.folder(c) for c in self.cases}}

    def ask(self, tool: str, module: str, jobs: Mapping[str, Any], env: Mapping[str, str]) -> None:
        """The answers of a tool that are not there yet."""
        own = self.said.setdefault(tool, {})
        waiting = {key: job for key, job in jobs.items() if key not in own}
        words = [tool] if module.endswith("stock") else []
        got = answers(module, words, list(waiting.values()), env)
        for (key, _), answer in zip(waiting.items(), got, strict=True):
            own[key] = answer
            print(f"{tool}: {key}: {answer.get('error') or answer.get('exit', 'done')}"[:150])
            self.keep()

    def stock(self, env: Mapping[str, Mapping[str, str]], tools: Sequence[str] = STOCK) -> None:
        for tool in tools:
            jobs = {
                key: {"folder": str(folder), "prompt": self.prompts[key]}
                for key, folder in self.subjects().items()
            }
            self.ask(tool, "tools.bakeoff.stock", jobs, env.get(tool, {}))

    def judge(self) -> None:
        """By the rules of each runtime, without running the model (`--no-run`)."""
        intended = {f"intended {case.base}": self.place / name_of(case.base) for case in self.cases}
        plans = {key: str(folder) + ".plan.json" for key, folder in intended.items()}
        own = {f"{c.group} {c.name}": plans[f"intended {c.base}"] for c in self.cases}
        self.plans = plans
        write = {
            key: {"folder": str(intended[key]), "intended": plan} for key, plan in plans.items()
        }
        self.said.pop("plans", None)
        self.ask("plans", "tools.bakeoff.judged", write, {})
        for tool in JUDGED:
            jobs = {key: {"folder": str(folder)} for key, folder in self.subjects().items()}
            if tool != "verify":
                jobs = {key: {**job, "plan": {**plans, **own}[key]} for key, job in jobs.items()}
            self.ask(tool, "tools.bakeoff.judged", jobs, {})

    def run_missed(self, missed: Sequence[str]) -> None:
        """Run the model too, for what passes by the rules: that can only find more."""
        bases = {f"{c.group} {c.name}": f"intended {c.base}" for c in self.cases}
        subjects = self.subjects()
        keys = [*dict.fromkeys(bases[key] for key in missed), *missed]
        jobs = {
            key: {
                "folder": str(subjects[key]),
                "plan": self.plans[bases.get(key, key)],
                "run": True,
            }
            for key in keys
        }
        self.ask(RUN, "tools.bakeoff.judged", jobs, {})


def fresh(place: Path) -> Path:
    """An empty room."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def environments(sglang: str, converter: str) -> dict[str, dict[str, str]]:
    """Packages that one tool needs, unpacked, before all others on its path."""
    before = os.environ.get("PYTHONPATH", "")
    return {
        "sglang": {"PYTHONPATH": f"{sglang}{os.pathsep}{before}"},
        "llama.cpp": {"PYTHONPATH": f"{converter}{os.pathsep}{before}"},
    }


def loaded(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
