"""Packing a million documents into windows, next to TRL.

    pip install trl datasets
    python -m benchmarks.packing                         a few minutes, 8 GiB of memory
    python -m benchmarks.packing --documents 100000

Lengths are drawn from a log-normal distribution and are the same for all. Each way of packing runs
in a process of its own, and is charged the CPU time and the memory beyond what its input takes.
TRL moves the tokens into a new data set as it packs, a thousand documents at a time. Ours decides
where they go and moves the tokens of a window when it is read: a row of its own reads all windows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import PAGE, machine, measured_on
from ropewalk.data import store
from ropewalk.data.corpora import MANIFEST
from ropewalk.data.packing import IntArray, pack
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import SpecialTokens, Windows, WindowSettings
from ropewalk.outputs import write_atomically
from ropewalk.run_directory import RunDirectory

RESULTS = Path(__file__).with_name("results") / "packing.json"
COMMAND = "python -m benchmarks.packing"
WINDOW = 4096
MEAN_LOG, SPREAD = 4.5, 1.3
WAYS = {
    "ropewalk, best_fit": ("best_fit", "cut"),
    "ropewalk, best_fit, drop": ("best_fit", "drop"),
    "ropewalk, greedy": ("greedy", "cut"),
}
TRL = {"TRL, bfd_split": "bfd_split", "TRL, bfd": "bfd", "TRL, wrapped": "wrapped"}
READ = "ropewalk, best_fit, and every window read"
ALIKE = (READ, "TRL, bfd_split")
"""Both move every token of every document, and drop none."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one, asked.documents)))
        return 0
    rows = {name: _apart(name, asked.documents) for name in (*WAYS, READ, *TRL)}
    versions = {name: metadata.version(name) for name in ("trl", "datasets", "numpy")}
    found = {
        "machine": {**machine(), **versions},
        "documents": asked.documents,
        "tokens": int(lengths(asked.documents).sum()),
        "rows": rows,
    }
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 0


def lengths(documents: int) -> IntArray:
    random = np.random.default_rng(0)
    drawn = random.lognormal(MEAN_LOG, SPREAD, documents).astype(np.int64)
    return np.minimum(drawn + 1, 16 * WINDOW)


def _apart(name: str, documents: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.packing", "--one", name]
    done = subprocess.run(
        [*words, "--documents", str(documents)], capture_output=True, text=True, check=True
    )
    print(name, done.stdout.strip(), flush=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(name: str, documents: int) -> dict[str, Any]:
    """Measure the result and the cost of one way of packing, in this process."""
    own = lengths(documents)
    if name in TRL:
        return _by_trl(own, TRL[name])
    if name == READ:
        return _read(own)
    filling, overflow = WAYS[name]
    return _charged(lambda: pack(own, WINDOW, filling=filling, overflow=overflow), _of_packing)  # type: ignore[arg-type]


def _of_packing(packing: Any) -> dict[str, float]:
    return {"windows": len(packing), "filled": packing.filled, "dropped": packing.dropped}


def _read(own: IntArray) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        built = _store(Path(folder) / "store", own)
        settings = WindowSettings(WINDOW, "intra")

        def read() -> Windows:
            windows = Windows(built, settings, SpecialTokens(None, None))
            for window in windows:
                assert window.tokens.size == WINDOW
            return windows

        return _charged(read, lambda windows: _of_packing(windows.packing))


def _store(folder: Path, own: IntArray) -> TokenStore:
    """Write a store as `data build` does, without its texts."""
    with RunDirectory(folder, store.COMMAND, {"tokenizer_sha256": ""}) as directory:
        tokens = np.zeros(int(own.sum()), dtype=store.TOKEN)
        tokens.tofile(directory.path / "tokens-00000.bin")
        table = np.stack([own, np.zeros_like(own)], axis=1).astype(store.FIELD)
        table.tofile(directory.path / "documents-00000.bin")
        shard = store.Shard(own.size, tokens.size, "", "", "").to_json()
        manifest = {
            "format": store.FORMAT,
            "tokenizer_sha256": "",
            "domains": ["text"],
            "shards": [shard],
        }
        directory.write(MANIFEST, json.dumps(manifest))
    return TokenStore(folder)


def _by_trl(own: IntArray, strategy: str) -> dict[str, Any]:
    import datasets
    import pyarrow
    from trl import pack_dataset

    datasets.disable_progress_bars()
    offsets = np.concatenate([[0], np.cumsum(own)]).astype(np.int32)
    values = pyarrow.array(np.zeros(int(own.sum()), dtype=np.int32))
    lists = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), values)
    given = datasets.Dataset(pyarrow.table({"input_ids": lists}))
    with tempfile.TemporaryDirectory() as folder:
        cache = {"cache_file_name": str(Path(folder) / "packed.arrow")}

        def counted(packed: Any) -> dict[str, float]:
            sizes = pyarrow.compute.list_value_length(packed.data.column("input_ids"))
            kept = int(pyarrow.compute.sum(sizes).as_py())
            return {
                "windows": len(packed),
                "filled": kept / (len(packed) * WINDOW),
                "dropped": 1 - kept / int(own.sum()),
            }

        return _charged(lambda: pack_dataset(given, WINDOW, strategy, cache), counted)


def _charged(work: Callable[[], Any], counted: Callable[[Any], dict[str, float]]) -> dict[str, Any]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, begin = _peak(), time.process_time()
    found = work()
    seconds, peak = time.process_time() - begin, _peak() - before
    return {**counted(found), "cpu_seconds": seconds, "mib": peak}


def _peak() -> float:
    """MiB that this process has taken at most."""
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x[:6] == "VmHWM:"]
    return int(line.split()[1]) / 1024


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {PAGE: f"{table(found)}\n\n{measured_on(found['machine'], COMMAND)}."}


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{found['documents']:,} documents, {found['tokens']:,} tokens, windows of {WINDOW}:",
        "",
        "| | windows | filled | tokens dropped | CPU seconds | memory |",
        "|---|---|---|---|---|---|",
    ]
    rows = found["rows"]
    lines += [
        f"| {name} | {row['windows']:,} | {row['filled']:.2%} | {row['dropped']:.2%} | "
        f"{row['cpu_seconds']:.2g} | {row['mib']:,.0f} MiB |"
        for name, row in ((name, rows[name]) for name in ALIKE)
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
