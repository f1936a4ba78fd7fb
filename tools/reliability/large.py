"""Four large things: a long search, a journal of a million records, 40 GB, 200 layers.

Time is that of the processor, since a machine may be busy with other work.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from ropewalk.__main__ import run
from ropewalk.run_directory import Journal
from tools.reliability.row import Case, Row

EVALUATIONS, RECORDS, LAYERS, SIZE = 5_000, 1_000_000, 200, 40 * 2**30
REPORTED_RECORDS = 100_000
RESUMED, REPORTED, GROWTH = 2.0, 10.0, 100 * 2**20


def _memory() -> int:
    text = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) * 1024


def _seconds(work: Callable[[], object]) -> float:
    before = sum(os.times()[:4])
    work()
    return sum(os.times()[:4]) - before


def _called(*words: str) -> Callable[[], None]:
    def call() -> None:
        told = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
            status = run(words)
        if status not in (0, 3):
            raise RuntimeError(f"{words[0]}: status {status}: {told.getvalue()[-400:]}")

    return call


def _too_slow(what: str, seconds: float, most: float) -> str | None:
    return f"{what} takes {seconds:.1f} s, and {most:g} s are allowed" if seconds > most else None


def long_search(room: Path) -> str | None:
    """A search of 5,000 evaluations on a known surface; then it is started again."""
    from ropewalk.searching.driver import search
    from ropewalk.searching.strategies import every
    from tests.searching.problems import Bowl, ramp, small_space

    space = small_space()
    memory: list[int] = []

    class Watched(Bowl):
        def losses(self, schedules, documents):  # type: ignore[no-untyped-def]
            memory.append(_memory())
            found = super().losses(schedules, documents)
            self.asked.clear()
            return found

    def searched() -> object:
        journal = Journal(room / "search.jsonl")
        try:
            return search(
                space, Watched(space, ramp(space)), every()["evolution"], seed=0, journal=journal,
                evaluations=EVALUATIONS,
            )  # fmt: skip
        finally:
            journal.close()

    first = searched()
    grown = memory[-1] - memory[len(memory) // 10]
    if grown > GROWTH:
        return f"memory grows by {grown >> 20} MiB"
    again: list[object] = []
    seconds = _seconds(lambda: again.append(searched()))
    if again[0] != first:
        return "started again, it ends otherwise"
    return _too_slow("starting again", seconds, RESUMED)


def many_records(room: Path) -> str | None:
    """An evaluation of a million records: its journal opened, and the report of a tenth of it."""
    from tests.evaluation import tiny

    model = tiny.folder_of(tiny.model(), room / "model")
    corpus = room / "corpus.txt"
    corpus.write_text("\n".join(document.text for document in tiny.documents(4)), encoding="utf-8")
    run_folder = room / "run"
    asked = ("evaluate", str(model), "--tasks", "kv", "--lengths", "128", "--samples", "2",
             "--corpus", str(corpus), "--run", str(run_folder))  # fmt: skip
    _called(*asked)()
    journal = Journal(run_folder / "records.jsonl")
    (run_folder / "results.json").unlink()
    first = dict(journal.records[-1])
    for start in range(0, RECORDS, 500):
        if start == REPORTED_RECORDS:
            reported = _seconds(_called("report", str(run_folder)))
        journal.append(_more(first, start))
        journal.records.clear()
    journal.close()
    before = _memory()
    opened = [Journal(run_folder / "records.jsonl")]
    grown = _memory() - before
    opened.pop().close()
    # The least of several: the caches of the processor are shared with other work.
    seconds = min(_seconds(lambda: Journal(run_folder / "records.jsonl").close()) for _ in range(3))
    print(f"\nopened in {seconds:.2f} s with {grown >> 20} MiB, reported in {reported:.1f} s",
          file=sys.stderr)  # fmt: skip
    if grown > 10 * GROWTH:
        return f"memory grows by {grown >> 20} MiB"
    return _too_slow("opening", seconds, RESUMED) or _too_slow("a report", reported, REPORTED)


def _more(first: Mapping[str, object], start: int) -> Iterator[dict[str, object]]:
    for number in range(start, start + 500):
        name = hashlib.sha256(b"%d" % number).hexdigest()
        yield {**first, "sample": name, "layout": name, "score": number % 2}


def sparse_gguf(room: Path) -> str | None:
    """A GGUF file whose tensors end at 40 GB; nearly all of it is a hole."""
    import gguf

    from tests.gguf.gguf_files import header_only

    small = header_only(room / "small.gguf", tensors={"t": np.zeros(32, np.float32)})
    reader = gguf.GGUFReader(small)
    raw = small.read_bytes()
    [tensor] = reader.tensors
    place = raw.index(b"t" + struct.pack("<I", 1)) + 5
    data = raw[: int(tensor.data_offset)]
    large = data[:place] + struct.pack("<Q", (SIZE - len(data)) // 4 // 32 * 32) + data[place + 8 :]
    path = room / "large.gguf"
    with path.open("wb") as file:
        file.write(large)
        file.truncate(len(data) + (SIZE - len(data)) // 4 // 32 * 32 * 4)
    before = _memory()
    looked = _seconds(_called("inspect", str(path)))
    judged = _seconds(lambda: run(["verify", str(path), "--no-run"]))
    grown = _memory() - before
    if grown > GROWTH:
        return f"memory grows by {grown >> 20} MiB"
    return _too_slow("inspect", looked, RESUMED) or _too_slow("verify", judged, REPORTED)


def many_layers(room: Path) -> str | None:
    """A folder of a model with 200 layers: what is read, judged and previewed of it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=48, max_position_embeddings=128,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(room / "model")
    model, plan = str(room / "model"), str(room / "plan.json")
    before = _memory()
    for words in (
        ("inspect", model),
        ("plan", model, "--to", "512", "--method", "yarn", "-o", plan),
        ("verify", model, "--no-run"),
        ("cost", model, "--to", "512"),
        ("export", model, "--plan", plan, "--dry-run"),
    ):
        if said := _too_slow(words[0], _seconds(_called(*words)), REPORTED):
            return said
    grown = _memory() - before
    return f"memory grows by {grown >> 20} MiB" if grown > GROWTH else None


def _dumped(work: Callable[[Path], str | None], room: Path) -> str | None:
    room.mkdir()
    return work(room)


def cases(room: Path, seed: int) -> Iterator[Case]:
    for name, work in {
        "a sparse GGUF file of 40 GB": sparse_gguf,
        "200 layers": many_layers,
        "5,000 evaluations": long_search,
        "a journal of a million records": many_records,
    }.items():
        yield Case(name, partial(_dumped, work, room / name))


ROWS = (
    Row(
        "large",
        "5,000 evaluations of a search, a journal of a million records, a sparse GGUF file of "
        "40 GB, a model of 200 layers",
        "memory flat; a search goes on, and a journal is opened, in 2 s; a report, of 100,000 "
        "records too, takes at most 10 s, of the processor's time",
        4,
        cases,
        seconds=600,
        sample=1,
        mended=(
            "A report of an evaluation in which nearly all records share a layout ended with "
            "status 70.",
        ),
    ),
)
