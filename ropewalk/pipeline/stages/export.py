"""Export: the chosen plan as a transformers folder and a GGUF file, each compared with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.costs.forwards import Forwards, Needs
from ropewalk.errors import InputError, Unsupported
from ropewalk.exporting import gguf_file
from ropewalk.exporting.exported import Exported
from ropewalk.exporting.gguf_file import BEYOND
from ropewalk.gguf import rewriting
from ropewalk.gguf.parts import read_parts
from ropewalk.models.source import resolve
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
        self._writer(start)

    def bytes_to_write(self, start: Start, place: Path) -> int:
        needed = self._writer(start).bytes
        return sum(size for name, size in needed.items() if not (place / name).exists())

    def run(self, work: Work, progress: Progress) -> Exports:
        plan, path = final(work.results).plan, work.directory.path
        work.directory.seal(PLAN, plan.dumps())
        written, left_out = self._writer(work).write(plan, path, partial(self._shown, progress))
        for target, why in left_out.items():
            work.notice(f"not exported to {target}: {why}")
        return Exports(tuple(written), left_out, _digests(path))

    def _shown(self, progress: Progress, done: float) -> None:
        progress(Status(self.name, done))

    @staticmethod
    def _writer(start: Start) -> _OfFolder | _OfFile:
        source = resolve(start.source)
        if source.kind == "GGUF file":
            assert source.path is not None
            return _OfFile(source.path)
        return _OfFolder.of(start.source)

    def recalled(self, work: Work, result: Exports) -> Exports | None:
        """The exports, if they are still on disk as they were written.

        What was deleted is written again; what was changed may be somebody's work, and is not.
        """
        path = work.directory.path
        digests = _digests(path)
        deleted: dict[Path, None] = {}
        for name, digest in result.sha256.items():
            whole = path / Path(name).parts[0]
            if not whole.exists():
                deleted[whole] = None
            elif digests.get(name) != digest:
                state = "has changed since it was exported" if name in digests else "is missing"
                raise InputError(
                    f"{path / name}: {state}; remove {whole} to have it exported again, or give "
                    "another run directory (`run`)"
                )
        if deleted:
            work.notice(f"exporting again what was deleted: {', '.join(map(str, deleted))}")
            return None
        return replace(result, written=tuple(each.moved(path) for each in result.written))


Written = tuple[list[Exported], dict[str, str]]
"""The exports, and what is left out, with the reason."""


@dataclass(frozen=True)
class _OfFolder:
    """A model's folder, which becomes a folder and a GGUF file."""

    source: str
    bytes: Mapping[str, int]

    @classmethod
    def of(cls, source: str) -> _OfFolder:
        import torch

        from ropewalk.models.checkpoint import Checkpoint

        model = Checkpoint.open(source)
        return cls(source, {FOLDER: model.bytes(), FILE: model.bytes(torch.float32)})

    def write(self, plan: ContextPlan, path: Path, done: Callable[[float], None]) -> Written:
        from ropewalk.exporting import llama_cpp
        from ropewalk.runtimes import targets

        written = [targets()[STOCK].write(self.source, plan, path / FOLDER, overwrite=True)]
        done(0.5)
        try:
            written.append(llama_cpp.export(self.source, plan, path / FILE, overwrite=True))
        except Unsupported as error:
            return written, {"llama.cpp": str(error)}
        return written, {}


@dataclass(frozen=True)
class _OfFile:
    """A GGUF file, which becomes another one."""

    source: Path

    @property
    def bytes(self) -> Mapping[str, int]:
        return {FILE: rewriting.needs(read_parts(self.source))}

    def write(self, plan: ContextPlan, path: Path, done: Callable[[float], None]) -> Written:
        return [gguf_file.export(self.source, plan, path / FILE, overwrite=True)], {}


def _digests(run: Path) -> dict[str, str]:
    """The SHA-256 of every exported file in a run directory."""
    folder = sorted(path for path in (run / FOLDER).rglob("*") if path.is_file())
    files = [path for path in (run / PLAN, *folder, run / FILE) if path.is_file()]
    return {path.relative_to(run).as_posix(): sha256_of(path) for path in files}
