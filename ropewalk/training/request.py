"""A request to `train`: the options, and the stages, settings and places that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ropewalk.budget import Budget
from ropewalk.context_plan import ContextPlan
from ropewalk.costs.sizes import config_of
from ropewalk.data.mixtures import check_domains
from ropewalk.data.published_mixtures import shares_of
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import SpecialTokens, Windows
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.extras import check_installed
from ropewalk.lengths import format_length
from ropewalk.models.source import Source, resolve
from ropewalk.models.stock_config import stock_config
from ropewalk.progress import Notice
from ropewalk.run_directory import check_run_place
from ropewalk.scaling import stacked
from ropewalk.training.execution import Execution, check_reports, check_stage, with_original
from ropewalk.training.planner import StagePlanner
from ropewalk.training.recipes import SEARCH, TrainingRecipe
from ropewalk.training.settings import StageSettings, TrainingSettings, stages_of
from ropewalk.training.text import TrainingText

_OF_A_RECIPE = ("layout", "batch", "learning_rate", "decay", "weight_decay", "betas", "filling")
"""Settings that a recipe has values for."""


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """The options of `train` for a model and a text."""

    source: Source
    text: TrainingText
    execution: Execution
    given: Mapping[str, Any]
    """Settings by their names; None for those that a recipe, or else the default, decides."""
    to: int | None
    stages: Sequence[int] | None
    steps: int | Sequence[int] | None
    window: int | None
    plan: tuple[ContextPlan, ...] | None
    method: str | None
    recipe: TrainingRecipe | None
    run: Path | None
    domain_tags: bool
    search_between: bool
    budget: Budget | None
    """The budget of each search."""

    @cached_property
    def settings(self) -> TrainingSettings:
        """The settings that are given, with the recipe's values for the others."""
        lengths, recipe = self._lengths(), self.recipe
        usual = {} if recipe is None else {key: getattr(recipe, key) for key in _OF_A_RECIPE}
        chosen = {key: value for key, value in self.given.items() if value is not None}
        derived = {
            "stages": stages_of(lengths, self._steps(len(lengths)), self._window(lengths)),
            "shares": shares_of(self.given["shares"], self.text.domains),
        }
        return TrainingSettings(**usual | chosen | derived)

    @property
    def path(self) -> Path:
        """The run directory, which a preview does not make."""
        length = format_length(self.settings.stages[-1].length)
        return self.run or Path("runs") / f"train-{self.source.short_name}-{length}"

    @property
    def planner(self) -> StagePlanner:
        """The rule for the plan of each stage."""
        method, plans = self.method, self.plan or ()
        if method is None and not plans and self.recipe is not None:
            method = self.recipe.method
        bases = None if self.recipe is None else self.recipe.base
        stages = self.settings.stages
        return StagePlanner(stages, plans, method, bases, self.search_between)

    @property
    def searches_as_published(self) -> bool:
        """True if the schedules are those of LongRoPE's own search, as one of its recipes says."""
        return self.method is None and not self.plan and self.planner.method == SEARCH

    @property
    def apart_from(self) -> list[Path]:
        """Files and folders that are read, which nothing may be written to."""
        return [*self.source.places, *self.text.places]

    def epochs(self, stage: StageSettings) -> float | None:
        """The number of times that a stage reads the tokens of a folder; None for other text."""
        if self.text.tokens is None:
            return None
        # Of a tokenizer that has both; which tokens they are does not matter.
        store = TokenStore(self.text.tokens)
        epoch = Windows(store, self.settings.windows(stage), SpecialTokens(0, 0))
        return stage.steps * self.settings.batch / len(epoch)

    def check(self, notice: Notice) -> None:
        """Refuse what a later stage would, before there is a run directory."""
        self._check_plans()
        self._check_served(notice)
        check_domains(self.settings.shares or {}, self.text.domains)
        if self.domain_tags and len(self.text.domains) == 1:
            raise InputError(
                "`domain_tags` needs several domains, and there is one; name the domain of each "
                "corpus, or leave it out"
            )
        if self.execution.on is None:
            adapters = ["peft"] if self.settings.lora else []
            check_installed("train", "torch", "accelerate", *adapters)
            if self.execution.device not in ("auto", "cpu"):  # only torch knows what is there
                from ropewalk.models.load import placement

                placement("auto", self.execution.device, {})
        check_reports(self.execution.report_to)
        self.execution.accumulated(self.settings.batch)
        self._check_search()
        self._check_stages()
        check_run_place(self.path, self.apart_from)

    def _lengths(self) -> Sequence[int]:
        """The length of each stage; rising order is checked with the settings."""
        if self.stages is None:
            target = self.to or (self.plan[-1].target_length if self.plan else None)
            if target is None:
                raise InputError("give the length to train for (`to`), `stages`, or a `plan`")
            return self._recipe_lengths(target)
        if self.to is not None and self.stages and self.stages[-1] != self.to:
            raise InvalidValue(
                "stages",
                ", ".join(map(format_length, self.stages)),
                f"the last must be the target, {format_length(self.to)}",
                "end with it, or leave out `to`",
            )
        return self.stages

    def _recipe_lengths(self, target: int) -> tuple[int, ...]:
        """The target, after its half if that is how the recipe reaches so long a target."""
        first, served = target // 2, self.source.present_plan.target_length
        begun = self.recipe is not None and not self.plan and self.recipe.halved_from
        return (first, target) if begun and target >= begun and first > served else (target,)

    def _steps(self, stages: int) -> Sequence[int]:
        if self.steps is None:
            if self.recipe is None:
                raise InputError("give the number of steps (`steps`), or a recipe (`recipe`)")
            return self.recipe.steps[:stages]
        if isinstance(self.steps, int):
            return (self.steps,)
        if not isinstance(self.steps, list | tuple) or not self.steps:
            raise InvalidValue(
                "steps", self.steps, "must be a number or a list", "write [400, 600]"
            )
        return self.steps

    def _window(self, lengths: Sequence[int]) -> int | None:
        if self.window is None:
            return None if self.recipe is None else self.recipe.window
        if lengths and self.window > lengths[-1]:
            raise InvalidValue(
                "window",
                self.window,
                f"must be at most {lengths[-1]}, the length that is trained for",
                "give shorter windows, or a longer target (`to`)",
            )
        return self.window

    def _check_plans(self) -> None:
        """Refuse plans that are not those of the stages, and a method next to them."""
        plans, stages = self.plan or (), len(self.settings.stages)
        if plans and self.method is not None:
            raise InputError("give a plan or a method, not both (`plan`, `method`)")
        if self.method not in (None, SEARCH):
            stacked(self.method, SEARCH)  # says which names there are
        if len(plans) not in (0, 1, stages):
            raise InvalidValue(
                "plan",
                f"{len(plans)} plans",
                f"there {'is 1 stage' if stages == 1 else f'are {stages} stages'}",
                "give one plan for all stages, or one for each",
            )
        targets = [plan.target_length for plan in plans]
        if any(after <= before for before, after in pairwise(targets)):
            raise InvalidValue(
                "plan",
                ", ".join(map(format_length, targets)),
                "each plan must serve a longer context than the one before",
                "give them in the order of their stages",
            )

    def _check_served(self, notice: Notice) -> None:
        """A stage at the length that the model serves is trained as the model rotates."""
        stages, served = self.settings.stages, self.source.present_plan.target_length
        shown = format_length(served)
        if stages[0].length < served:
            raise InvalidValue(
                "to",
                stages[0].length,
                f"the model serves {shown} already",
                "train at that length, or at a longer one",
            )
        if stages[0].length > served or self.plan:
            return
        if self.method is not None and len(stages) == 1:
            raise InvalidValue(
                "method",
                self.method,
                f"the model serves {shown} already, so there is nothing to plan",
                "leave the method out, give a plan (`plan`), or train at a longer length",
            )
        if method := self.planner.method:
            notice(
                f"the model serves {shown} already: training at that length uses its own "
                f"frequencies, not {method}"
            )

    def _check_search(self) -> None:
        searches = self.planner.searches
        if self.search_between and len(self.settings.stages) == 1:
            raise InputError("`search_between` is for several stages: name them (`stages`)")
        if self.budget is not None and not searches:
            raise InputError(
                "`budget` limits a search, and no stage of this run searches; leave it out"
            )
        if searches and self.execution.ranks > 1:
            raise Unsupported(
                "training under torchrun does not search; search first (`ropewalk search`, which "
                "can run under torchrun), and give the plan of each stage (`plan`)"
            )

    def _check_stages(self) -> None:
        """Plan the stages one after the other, on the config that each leaves."""
        config = config_of(self.source)
        for number, stage in enumerate(self.settings.stages, start=1):
            if self.planner.is_searched(number):
                return  # from here on, plans depend on weights
            plan = self.planner.planned(number, resolve(config))
            if self.settings.mixed_windows:
                plan = with_original(plan)
            check_stage(config, plan, stage, self.settings, self.execution)
            config = stock_config(config, plan)
