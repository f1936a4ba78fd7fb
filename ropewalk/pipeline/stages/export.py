"""Export: the chosen plan as a transformers folder and a GGUF file, each compared with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ropewalk.context_plan import PLAN
from ropewalk.costs.forwards import Forwards, Needs
from ropewalk.errors import InputError, Unsupported
from ropewalk.exporting.gguf_file import BEYOND
from ropewalk.outputs import sha256_of
from ropewalk.pipeline.results import Exports, final
from ropewalk.pipeline.stage import Stage, Start, Work
from ropewalk.progress import Progress, Status
from ropewalk.runtimes.reading import STOCK

FOLDER, FILE = "model", "model.gguf"


def in_llama_cpp(window: int) -> tuple[Forwards, ...]:
    """The cost of comparing with llama.cpp: one forward of ours, and its own on fewer threads."""
    return (Forwards(window + BEYOND, 4),)


@dataclass(frozen=True)
class Export(Stage[Exports]):
    name = "export"
    does = "a transformers folder and a GGUF file, each loaded back and compared"
    result_type = Exports

    def needs(self, window: int) -> Needs:
        return Needs(in_llama_cpp(window), processes=2)

    def check(self, start: Start) -> None:
        from ropewalk.models.checkpoint import Checkpoint

        Checkpoint.open(start.source)

    def bytes_to_write(self, start: Start, place: Path) -> int:
        import torch

        from ropewalk.models.checkpoint import Checkpoint

        model = Checkpoint.open(start.source)
        folder = 0 if (place / FOLDER).exists() else model.bytes()
        return folder + (0 if (place / FILE).exists() else model.bytes(torch.float32))

    def run(self, work: Work, progress: Progress) -> Exports:
        from ropewalk.exporting import llama_cpp
        from ropewalk.runtimes import targets

        plan, path = final(work.results).plan, work.directory.path
        work.directory.seal(PLAN, plan.dumps())
        stock = targets()[STOCK]
        written = [stock.write(work.source, plan, path / FOLDER, overwrite=True)]
        progress(Status(self.name, 0.5))
        left_out = {}
        try:
            written.append(llama_cpp.export(work.source, plan, path / FILE, overwrite=True))
        except Unsupported as error:
            left_out["llama.cpp"] = str(error)
            work.notice(f"not exported to llama.cpp: {error}")
        return Exports(tuple(written), left_out, _digests(path))

    def recalled(self, work: Work, result: Exports) -> Exports | None:
        """The exports, if they are still on disk as they were written.

        What was deleted is written again; what was changed may be somebody's work, and is not.
        """
        path = work.directory.path
        found = _digests(path)
        deleted: dict[Path, None] = {}
        for name, digest in result.sha256.items():
            whole = path / Path(name).parts[0]
            if not whole.exists():
                deleted[whole] = None
            elif found.get(name) != digest:
                state = "has changed since it was exported" if name in found else "is missing"
                raise InputError(
                    f"{path / name}: {state}; remove {whole} to have it exported again, or give "
                    "another run directory (`run`)"
                )
        if deleted:
            work.notice(f"exporting again what was deleted: {', '.join(map(str, deleted))}")
            return None
        return replace(result, written=tuple(each.moved(path) for each in result.written))


def _digests(run: Path) -> dict[str, str]:
    """The SHA-256 of every exported file in a run directory."""
    folder = sorted(path for path in (run / FOLDER).rglob("*") if path.is_file())
    files = [path for path in (run / PLAN, *folder, run / FILE) if path.is_file()]
    return {path.relative_to(run).as_posix(): sha256_of(path) for path in files}
