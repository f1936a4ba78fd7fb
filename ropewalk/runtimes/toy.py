"""A toy: it loads the folders of transformers, and knows no factors by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import RopewalkError
from ropewalk.exporting.exported import Lines
from ropewalk.models.config import Config, ConfigReader
from ropewalk.models.source import Source
from ropewalk.runtimes.configs import stock_config
from ropewalk.runtimes.features import EXACT, LONGEST, Feature, Support
from ropewalk.runtimes.reading import RotaryReading, by_rules, known
from ropewalk.runtimes.runtime import FolderTarget
from ropewalk.runtimes.serving import NOT_RUN, Serving, export_line, model_argument

if TYPE_CHECKING:
    from ropewalk.exporting.folder import Job


class Toy(FolderTarget):
    name = "toy"
    place = 5

    def read(self, config: Config) -> RotaryReading:
        def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            return reader.steps(known(rope))

        return by_rules(self.name, config, seen, "by the length at hand")

    def support(self, feature: Feature) -> Support:
        if feature.name == "factors by pair":
            return Support("refused", "it has one factor for all pairs")
        if feature.kind == "switching" or feature.name == "dynamic NTK":
            return Support("approximated", LONGEST)
        return EXACT

    def written_config(self, config: Config, plan: ContextPlan, *, v4_keys: bool = False) -> Config:
        return stock_config(config, plan, v4_keys=v4_keys)

    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        return f"toy {model} --length {length}"

    def serve(self, plan: ContextPlan, source: Source) -> Serving:
        try:
            _, near = self.expressible(plan, source.config, approximate=True)
        except RopewalkError as error:
            return Serving(self.name, "impossible", str(error))
        out = f"{model_argument(source)}-toy"
        lines = (export_line(source, self.name, out), self.command(out, plan.target_length))
        return Serving.possible(self.name, near, NOT_RUN, *lines)

    def lines(self, job: Job, out: str) -> Lines:
        return Lines(self.command(out, job.asked.target_length))


RUNTIMES = (Toy(),)
