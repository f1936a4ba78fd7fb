"""The calls that are disturbed: each works for a second or two on a model of two layers.

All are started in an empty folder, with paths relative to it, so that two of them leave the same
bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tools.reliability.calls import ROOT, Call, Ended, calls, content
from tools.reliability.parts import HERE


class Subject(NamedTuple):
    """A call of the command by its name."""

    name: str
    line: str
    """With MODEL, LONGER, TEXTS and PLAN for the paths of its inputs."""
    changed: Mapping[str, object] = {}
    """Attributes of modules, so that a small input has all the parts of a large one."""
    journals: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    """Files that it leaves in its run."""
    light: bool = False
    """True if it needs no model."""

    @property
    def told(self) -> str:
        """It in a sentence."""
        return LIGHT.get(self.name, f"`{self.line.split()[0]}`, on a model of two layers")


LIGHT = {
    "driver": "a search of a bowl by the driver of all searches",
    "store": "a build of a token store",
    "staging": "the staging of an export",
}
_FEW = {"ropewalk.searching.model.settings.DOCUMENTS": (2, 5, 5)}
SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject(
            "search",
            "search MODEL --to 256 --corpus TEXTS --budget 3 --device cpu --run run",
            _FEW,
            journals=("search.jsonl", "search-measured.jsonl", "events.jsonl"),
            results=("results.json", "plan.json"),
        ),
        Subject(
            "evaluate",
            "evaluate MODEL --corpus TEXTS --to 256 --method none --method yarn --tasks "
            "kv,passkey,perplexity --lengths 128,256 --samples 3 --device cpu --run run",
            journals=("records.jsonl", "events.jsonl"),
            results=("results.json",),
        ),
        Subject(
            "train",
            "train MODEL --corpus TEXTS --to 256 --method linear --steps 6 --batch 2 "
            "--learning-rate 1e-2 --save-every 2 --device cpu --run run",
            journals=("training.jsonl", "events.jsonl"),
            results=("results.json", "export.json"),
        ),
        Subject(
            "data",
            "data build MODEL --corpus TEXTS -o run",
            {"ropewalk.data.store.SHARD": 4000, "ropewalk.data.store.BATCH": 3000},
            journals=("shards.jsonl", "events.jsonl"),
            results=("manifest.json",),
        ),
        Subject(
            "extend",
            "extend MODEL --to 256 --corpus TEXTS --budget 6 --search --device cpu --run run",
            _FEW,
            journals=("search.jsonl", "search-measured.jsonl", "first.jsonl", "events.jsonl"),
            results=("first.json", "search.json", "export.json", "verify.json"),
        ),
        Subject("export", "export MODEL --plan PLAN --runtime transformers -o run"),
        Subject(
            "howlong",
            "howlong LONGER --corpus TEXTS --device cpu --run run",
            journals=("documents.jsonl", "events.jsonl"),
            results=("results.json",),
        ),
        Subject(
            "precision",
            "precision MODEL --corpus TEXTS --length 48 --shifts 0,16 --sequences 2 --device cpu "
            "--run run",
            journals=("measurements.jsonl", "events.jsonl"),
            results=("results.json",),
        ),
        Subject(
            "fingerprint",
            "fingerprint MODEL --plan PLAN --length 64 --corpus TEXTS --device cpu -o run.json",
        ),
        Subject("checkpoint", f"{HERE}save_checkpoint run"),
        Subject("plan", "plan CONFIG --to 16k --method yarn -o run.json", light=True),
        Subject(
            "run-directory",
            f"{HERE}save_run run",
            journals=("records.jsonl", "events.jsonl"),
            results=("results.json",),
            light=True,
        ),
        Subject(
            "driver",
            f"{HERE}search run",
            journals=("search.jsonl",),
            results=("results.json",),
            light=True,
        ),
        Subject(
            "store",
            f"{HERE}build_store run",
            journals=("shards.jsonl",),
            results=("manifest.json",),
            light=True,
        ),
        Subject("staging", f"{HERE}stage_export run", light=True),
    )
}


class Undisturbed(NamedTuple):
    """A call that was left alone."""

    folder: Path
    seconds: float
    status: int
    content: dict[str, bytes]


@dataclass
class Stage:
    """A folder with the inputs of calls; they are made when they are needed."""

    room: Path
    known: dict[str, Undisturbed] = field(default_factory=dict)

    def words(self, subject: Subject) -> list[str]:
        inputs = {name.upper(): str(self.room / name) for name in ("model", "longer", "texts")}
        inputs["PLAN"] = str(self.room / "plan.json")
        inputs["CONFIG"] = str(ROOT / "tests" / "golden" / "configs" / "command-r.json")
        return [inputs.get(word, word) for word in subject.line.split()]

    def prepare(self, subject: Subject) -> None:
        """Start its process and write its inputs, if that is still to be done."""
        if not subject.light and not (self.room / "plan.json").exists():
            made = calls(light=False).run(["tools.reliability.subjects:make", self.room], self.room)
            if made.status != 0:
                raise RuntimeError(made.errors)
        calls(light=subject.light)

    def start(self, subject: Subject, folder: Path, *more: str, **how: Any) -> Call:
        """Begin a call, with further words behind its own."""
        self.prepare(subject)
        how["changed"] = {**subject.changed, **how.get("changed", {})}
        words = [*self.words(subject), *more]
        return calls(light=subject.light).start(words, folder, **how)

    def run(self, subject: Subject, folder: Path, *more: str, **how: Any) -> Ended:
        return self.start(subject, folder, *more, **how).wait()

    def undisturbed(self, subject: Subject) -> Undisturbed:
        """A call that was left alone, made once."""
        if subject.name not in self.known:
            folder = self.room / f"{subject.name}-whole"
            self.prepare(subject)
            began = time.monotonic()
            ended = self.run(subject, folder)
            if ended.status not in (0, 3):
                raise RuntimeError(f"{subject.name} itself fails: {ended.last}")
            seconds = time.monotonic() - began
            self.known[subject.name] = Undisturbed(folder, seconds, ended.status, content(folder))
        return self.known[subject.name]


def make(room: str) -> None:
    """Write the model, the texts and the plan; in the process of a call."""
    import ropewalk as rw
    from tests.evaluation import tiny

    place = Path(room)
    tiny.saved(place / "model")
    tiny.saved(place / "longer", max_position_embeddings=512)
    tiny.texts(place / "texts", 8)
    (place / "plan.json").write_text(rw.plan(place / "model", 256, "yarn").plan.dumps())
