"""Parts of ropewalk's commands that write, without a model: they take milliseconds.

Each is called in the process of a call (calls.py) and returns its exit status, as a command does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = "tools.reliability.parts:"


def _status(work: Callable[[], object]) -> int:
    """The exit status of work that may be refused."""
    from ropewalk.errors import RopewalkError

    try:
        work()
    except RopewalkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def save_run(run: str) -> int:
    """A run directory with a journal, a sealed result and a page."""
    from ropewalk.run_directory import RECORDS, RESULTS, RunDirectory

    def work() -> None:
        with RunDirectory(run, "trial", {"seed": 0}) as directory:
            journal = directory.journal(RECORDS)
            for number in range(len(journal.records), 4):
                journal.append([{"number": number, "text": "a record " * 9}])
            directory.keep(RESULTS, {"sum": sum(int(str(r["number"])) for r in journal.records)})
            directory.write("page.html", "a page\n" * 400)

    return _status(work)


def search(run: str) -> int:
    """A search by the driver that all searches have, of a bowl instead of a model."""
    import numpy as np

    from ropewalk.run_directory import RESULTS, RunDirectory
    from ropewalk.schedule import RotaryGeometry, RotarySchedule
    from ropewalk.searching import driver
    from ropewalk.searching.space import Space
    from ropewalk.searching.strategies import every

    class Valley:
        documents, tokens_per_document = 4, 512

        def losses(
            self, schedules: Sequence[RotarySchedule], documents: Sequence[int]
        ) -> np.ndarray:
            logs = np.log([schedule.rescale_factors for schedule in schedules])
            apart = [((logs - 0.1 * document) ** 2).sum(axis=1) for document in documents]
            return np.stack(apart, axis=1)

    def work() -> None:
        plain = RotarySchedule.plain(RotaryGeometry(16, 16, 1e4, 128))
        with RunDirectory(run, "trial", {"seed": 3}) as directory:
            found = driver.search(
                Space(plain, 512),
                Valley(),
                every()["adaptive"],
                seed=3,
                evaluations=8,
                journal=directory.journal("search.jsonl"),
            )
            best, score = found.finalists[0]
            directory.keep(RESULTS, {"best": best.to_json(), "score": score})

    return _status(work)


def build_store(run: str) -> int:
    """A token store of several shards; a token is a character."""
    from ropewalk.data.corpora import Document
    from ropewalk.data.store import build

    texts = [Document(str(i), f"Rope {i} is {i * 'l'}ong.") for i in range(60)]

    def work() -> None:
        encode = lambda own: [list(map(ord, text)) for text in own]  # noqa: E731
        build(run, {"text": texts}, encode, tokenizer="characters", shard=800)

    return _status(work)


def stage_export(run: str) -> int:
    """A folder with a manifest, written beside its place and moved there; another is replaced."""
    from ropewalk.exporting.manifest import Manifest
    from ropewalk.exporting.staging import staged

    def work() -> None:
        with staged(run, needs_bytes=1000, overwrite=True) as folder:
            folder.mkdir()
            (folder / "config.json").write_text("{}")
            (folder / "model.safetensors").write_bytes(b"weights " * 900)
            Manifest.of(folder).write(folder)

    return _status(work)


def save_checkpoint(run: str) -> int:
    """A checkpoint of a training, in the place of one that is there."""
    import random

    import torch

    from ropewalk.training import checkpoint
    from tests.training import tiny

    folder = Path(run) / "checkpoint-1"

    def work() -> None:
        checkpoint.remove_leftovers(Path(run))
        random.seed(0)  # Python's is another in each fork
        if folder.exists():
            checkpoint.check(folder)
        model = tiny.build(hidden_size=16, intermediate_size=16, head_dim=4)
        optimizer = torch.optim.AdamW(model.parameters())
        checkpoint.save(folder, model, optimizer, {"step": 1}, {"trainer_state.json": {"step": 1}})

    return _status(work)
