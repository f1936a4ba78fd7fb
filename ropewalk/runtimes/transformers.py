"""transformers: `verify` measures it, if it is installed (trials/stock_rotary.py).

By rules, it reads what this package's own reader of configs reads; transformers 4, and all that
reads its keys, only `rope_theta` and `rope_scaling`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.context_plan import SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, MissingExtra, RopewalkError, Unsupported
from ropewalk.exporting.exported import Lines
from ropewalk.extras import required_by
from ropewalk.models.config import Config, ConfigReader, text_config
from ropewalk.models.source import Source
from ropewalk.models.stock_config import changes, is_dynamic, stock_config, two_lists
from ropewalk.runtimes.features import DYNAMIC, EXACT, LONGEST, Feature, Support, nearest_in_stock
from ropewalk.runtimes.model_classes import GROWTH_IN_ROPE
from ropewalk.runtimes.reading import NOT_MEASURED, STOCK, RotaryReading, by_rules, known, without
from ropewalk.runtimes.runtime import FolderTarget, Runtime
from ropewalk.runtimes.serving import Serving, reason_of
from ropewalk.runtimes.trials import Trial

if TYPE_CHECKING:
    from ropewalk.exporting.folder import Job

BY_BATCH = (
    "short and long factors are chosen by the longest position of a batch at every forward: a long "
    "row changes short ones, and decoding past the original length through the cache differs from "
    "computing anew"
)
# PhimoeRotaryEmbedding asks for its frequencies anew in each forward, and gives no length.
_SHORT_LIST_ONLY = {"phimoe"}
# Their folders bring code of their own, which is never run here.
_NOT_STOCK = {"kimi_k2", "minicpm"}


class Transformers(FolderTarget):
    """transformers of today: keys that it does not know have no effect."""

    name = STOCK
    place = 0
    by_model_type = True
    run_here = "stock transformers and the planned model"

    def read(self, config: Config) -> RotaryReading:
        def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            if reader.model_type in _NOT_STOCK:
                raise Unsupported(f"model type {reader.model_type!r} is not known to transformers")
            if reader.family.steps_log_n and GROWTH_IN_ROPE not in rope:
                rule = "is missing in a rope setting, and the class computes with it"
                raise InvalidValue(GROWTH_IN_ROPE, None, rule, "write it (ropewalk export does)")
            if reader.one_base and rope["layer_type"] == SLIDING_ATTENTION:
                rope = {**rope, "rope_theta": reader.family.defaults["rope_theta"]}
            return _steps(reader, rope)

        return by_rules(self.name, config, seen, "by the length at hand")

    def measured(self, config: Config, lengths: Sequence[int], *, run: bool) -> RotaryReading:
        try:
            with required_by("measuring it"):
                from ropewalk.runtimes.trials import stock_rotary
        except MissingExtra as error:
            return RotaryReading(self.name, NOT_MEASURED, unread=str(error))
        return stock_rotary.measure(config, tuple(ConfigReader(config).layer_settings()), lengths)

    def try_folder(self, folder: Path, plan: ContextPlan, *, tokenizer: bool) -> Trial:
        from ropewalk.runtimes.trials import stock_model

        return stock_model.tried(folder, plan, tokenizer=tokenizer)

    def growth_key(self, config: Config) -> str:
        return GROWTH_IN_ROPE

    def support(self, feature: Feature) -> Support:
        """Its stock code's support of a feature."""
        if feature.kind == "attention":
            return Support("exact", "attention_factor")
        if feature.kind == "softmax":
            return Support("exact", "mscale_all_dim")
        if feature.kind == "growth":
            return Support("exact", GROWTH_IN_ROPE)
        if feature.kind == "switching":
            if not all(len(s) == 1 or two_lists(s) for s in feature.plan.schedules.values()):
                return Support("approximated", LONGEST)
            if ConfigReader(feature.config).model_type in _SHORT_LIST_ONLY:
                why = "its code for this model type takes the short list for all"
                return Support("refused", why)
            return Support("exact", "two lists, by the longest current position")
        if feature.rope_type == "dynamic":
            return Support("approximated", "cached keys keep their former rotation")
        if feature.name == "factors by pair":
            return Support("equivalent", "longrope with equal lists")
        return EXACT

    def follows_by(self, feature: str, support: Support) -> bool:
        """Dynamic NTK counts, though its cached decoding is not that of the plan."""
        return feature == DYNAMIC or super().follows_by(feature, support)

    def nearest(
        self, plan: ContextPlan, config: Config, supports: Mapping[str, Support]
    ) -> ContextPlan:
        return nearest_in_stock(plan, config)

    def support_as_written(self, config: Config, plan: ContextPlan) -> Support:
        # The config of dynamic NTK states no end.
        return EXACT if is_dynamic(plan) else super().support_as_written(config, plan)

    def written_config(self, config: Config, plan: ContextPlan, *, v4_keys: bool = False) -> Config:
        return stock_config(config, plan, v4_keys=v4_keys)

    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        return f"AutoModelForCausalLM.from_pretrained({model!r})"

    def serve(self, plan: ContextPlan, source: Source) -> Serving:
        """The members of config.json that make it follow the plan."""
        near: tuple[str, ...] = ()
        try:
            followed, near = self.expressible(plan, source.config, approximate=True)
            written, refused = stock_config(source.config, followed), ""
        except RopewalkError as error:
            followed, written, refused = plan, source.config, reason_of(error, STOCK)
        for unchanged, config in ((True, source.config), (False, written)):
            if unchanged and plan != source.present_plan:
                continue
            if refused and not unchanged:
                return Serving(STOCK, "impossible", refused)
            judged = self.judge(config, followed, folder=source.path, own_plan=unchanged)
            limits = "".join(f"; {limit.remedy}" for limit in judged.limits)
            if judged.unknown:
                return Serving(STOCK, "unknown", f"{judged.unknown}{limits}")
            if unchanged and not judged.wrong:
                reason = f"the model's own config, unchanged{limits}"
                return Serving.possible(STOCK, near, reason)
        what, lines = _members(source.config, written)
        return Serving.possible(STOCK, near, f"{what}{limits}", *lines)

    def lines(self, job: Job, out: str) -> Lines:
        plan = job.followed
        two = any(len(steps) > 1 for steps in plan.schedules.values()) and not is_dynamic(plan)
        return Lines(self.command(out, plan.target_length), caveats=(BY_BATCH,) if two else ())


class Transformers4(Runtime):
    """transformers 4, and all that reads its keys: nothing of `rope_parameters` is read."""

    name = "transformers-4"
    place = 0
    by_model_type = True

    def read(self, config: Config) -> RotaryReading:
        plain = without_todays_keys(config)
        return by_rules(self.name, plain, _steps, "by the length at hand")


def _steps(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    steps = reader.steps(known(rope))
    return steps[:1] if reader.model_type in _SHORT_LIST_ONLY else steps


def without_todays_keys(config: Config) -> Config:
    """The config as a reader of `rope_theta` and `rope_scaling` sees it."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = {**config, "text_config": without(dict(inner), {"rope_parameters"})}
    return without(config, {"rope_parameters"})


def _members(former: Config, written: Config) -> tuple[str, Iterator[str]]:
    """The change of config.json that makes one config of another: in words, and by member."""
    changed = changes(former, written)
    path = ConfigReader(former).path if changed else ()
    what = f"set these members of {'.'.join(path)}{' in ' if path else ''}config.json"
    if gone := _contradicting(text_config(former), text_config(written)):
        what += f", and remove {' and '.join(gone)}"
    return what, (f'"{key}": {json.dumps(value)},' for key, value in changed.items())


def _contradicting(former: Config, written: Config) -> list[str]:
    """The keys that are not written any more and would state something else."""
    ropes = ConfigReader(written).layer_settings().values()
    bases = [rope.get("rope_theta") for rope in ropes]
    return [
        key
        for key, value in former.items()
        if key not in written and value is not None and value not in bases
    ]


RUNTIMES = (Transformers(), Transformers4())
