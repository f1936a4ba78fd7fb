"""The cost of a search besides the model's own forwards: strategy, journal, plans put in and out.

    python -m benchmarks.search_machinery    prints a line and writes results/search_machinery.json

The search of `ropewalk search bundled --to 2k` with fewer evaluations, on one thread, its journals
on disk. Time is processor time: within the scorer, and all of it from the documents to the plan.
The aim is 2%.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import machine
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.evaluation.scoring import Scorer
from ropewalk.models.config import BUNDLED
from ropewalk.models.load import load
from ropewalk.run_directory import RunDirectory
from ropewalk.searching.model.run import search_model
from ropewalk.searching.model.settings import SearchSettings

RESULTS = Path(__file__).with_name("results") / "search_machinery.json"
EVALUATIONS = 8
AIM = 0.02


def main() -> int:
    torch.set_num_threads(1)
    loaded = load(BUNDLED)
    documents = list(read_documents(HELD_OUT))
    spent = {"forwards": 0.0, "calls": 0}
    score = Scorer.score

    def timed(self: Scorer, *arguments: Any) -> Any:
        began = time.process_time()
        found = score(self, *arguments)
        spent["forwards"] += time.process_time() - began
        spent["calls"] += 1
        return found

    setattr(Scorer, "score", timed)  # noqa: B010
    settings = SearchSettings(2048, evaluations=EVALUATIONS)
    with (
        tempfile.TemporaryDirectory() as folder,
        RunDirectory(Path(folder) / "run", "search", asdict(settings)) as directory,
    ):
        # The first installation is verified, which happens once a run.
        began = time.process_time()
        found = search_model(loaded, documents, settings, journal=directory.journal)
        seconds = time.process_time() - began
    assert found is not None
    value = {
        "machine": machine(),
        "forwards": spent["calls"],
        "seconds_in_forwards": round(spent["forwards"], 3),
        "seconds": round(seconds, 3),
        "share_beside_forwards": round((seconds - spent["forwards"]) / spent["forwards"], 4),
        "aim": AIM,
    }
    RESULTS.write_text(json.dumps(value, indent=2) + "\n")
    print(
        f"{value['forwards']} forwards took {value['seconds_in_forwards']} s of processor time, "
        f"all else {value['share_beside_forwards']:.1%} of that (the aim: {AIM:.0%})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
