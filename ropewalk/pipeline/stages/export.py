"""Export: the chosen plan as a transformers folder and a GGUF file, each compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ropewalk.errors import Unsupported
from ropewalk.exporting import llama_cpp, transformers
from ropewalk.exporting.parity import Exported
from ropewalk.pipeline.stage import Cost, Stage, Work
from ropewalk.pipeline.stages.evaluate import chosen_plan
from ropewalk.progress import Progress, Status
from ropewalk.values import Result, check_filled

PLAN, FOLDER, FILE = "plan.json", "model", "model.gguf"


@dataclass(frozen=True, eq=False)
class Exports(Result):
    """What was written, each with its proof, and what was left out, with the reason."""

    written: tuple[Exported, ...]
    left_out: Mapping[str, str]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_filled(self.written, "written")

    def summary(self) -> str:
        return " ".join(each.summary() for each in self.written)


@dataclass(frozen=True)
class Export(Stage[Exports]):
    name = "export"
    does = "a transformers folder and a GGUF file, each loaded back and compared"
    result_type = Exports

    def cost(self) -> Cost:
        return Cost(processes=2)

    def run(self, work: Work, progress: Progress) -> Exports:
        plan, path = chosen_plan(work), work.directory.path
        work.directory.write(PLAN, plan.dumps())
        written = [transformers.export(work.source, plan, path / FOLDER, overwrite=True)]
        progress(Status(self.name, 0.5))
        left_out = {}
        try:
            written.append(llama_cpp.export(work.source, plan, path / FILE, overwrite=True))
        except Unsupported as error:
            left_out["llama.cpp"] = str(error)
            work.notice(f"not exported to llama.cpp: {error}")
        return Exports(tuple(written), left_out)
