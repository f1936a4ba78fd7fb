"""Reads transformers' configs: the present plan of a model.

`present_plan` reads a config, of v4 (`rope_theta` and `rope_scaling`) or v5 (`rope_parameters`,
maybe nested by layer type), into the plan that the model follows as it stands. The config is taken
as plain JSON, so that neither torch nor transformers is needed.

What a config leaves to its model type is looked up in families.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import printable
from ropewalk.models.config.geometry import geometry
from ropewalk.models.config.keys import BUNDLED as BUNDLED
from ropewalk.models.config.keys import BUNDLED_FOLDER as BUNDLED_FOLDER
from ropewalk.models.config.keys import BUNDLED_FOLDERS as BUNDLED_FOLDERS
from ropewalk.models.config.keys import KNOWN_KEYS as KNOWN_KEYS
from ropewalk.models.config.keys import MAX_EPSILON as MAX_EPSILON
from ropewalk.models.config.keys import MAX_WIDTH as MAX_WIDTH
from ropewalk.models.config.keys import ORIGINAL_LENGTH as ORIGINAL_LENGTH
from ropewalk.models.config.keys import QUERY_GROWTH as QUERY_GROWTH
from ropewalk.models.config.keys import SPECULATORS as SPECULATORS
from ropewalk.models.config.keys import STATED_SCALED as STATED_SCALED
from ropewalk.models.config.keys import Config as Config
from ropewalk.models.config.keys import ConfigKeys
from ropewalk.models.config.keys import config_file as config_file
from ropewalk.models.config.keys import for_stock_class as for_stock_class
from ropewalk.models.config.keys import load_config as load_config
from ropewalk.models.config.keys import named_in as named_in
from ropewalk.models.config.keys import rope_type as rope_type
from ropewalk.models.config.keys import text_config as text_config
from ropewalk.models.config.layers import check_rotates, layer_settings, rotating_layers
from ropewalk.models.config.setting import RopeSetting, rope_setting, steps
from ropewalk.models.lengths import DUAL_CHUNK as DUAL_CHUNK
from ropewalk.models.lengths import PLAIN, Lengths
from ropewalk.schedule import RotaryGeometry


def present_plan(
    source: object,
    model: str | None = None,
    *,
    file: str | Path | None = None,
    trained: int | None = None,
) -> ContextPlan:
    """The plan that a model follows by its present config.

    Errors name the `file` that the config comes from, and its keys as they are written there.
    `trained` is the trained length where it is known from elsewhere.
    """
    if file is None and isinstance(source, str | Path):
        file = config_file(source)
    config = load_config(source)
    with named_in(file):
        return _present_plan(ConfigReader(config, trained=trained), model)


def _present_plan(reader: ConfigReader, model: str | None) -> ContextPlan:
    name = printable(
        model or str(reader.outer.get("_name_or_path") or reader.model_type or "model")
    )
    layers = reader.layer_settings()
    steps = {layer: reader.steps(rope) for layer, rope in layers.items()}
    counts = reader.rotating_layers()
    rotating = f"{counts[0]} of {counts[1]}" if counts and counts[0] < counts[1] else ""
    # A sliding-window layer sees no distance above its window, so it serves what the others serve.
    target = max(ladder[-1].up_to_length for ladder in steps.values())
    return ContextPlan(
        model=name,
        schedules={
            layer: (*ladder[:-1], replace(ladder[-1], up_to_length=target))
            for layer, ladder in steps.items()
        },
        provenance={
            "source": "config",
            "model_type": reader.model_type,
            **({"rotating_layers": rotating} if rotating else {}),
        },
    )


def drafter_layers(config: Config) -> int:
    """The layers of a checkpoint that propose several tokens at once (multi-token prediction)."""
    inner = text_config(config)
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
        count = inner.get(key, config.get(key))
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            return count
    return 0


class ConfigReader(ConfigKeys):
    """One config, and all that follows from it."""

    def __init__(self, config: Config, *, trained: int | None = None) -> None:
        super().__init__(config, trained=trained)
        check_rotates(self)

    def layer_settings(self, *, unused: bool = False) -> dict[str, Config]:
        return layer_settings(self, unused=unused)

    def main_rope(self) -> Config:
        """The rope setting of the layers that see furthest."""
        settings = self.layer_settings()
        return settings.get(FULL_ATTENTION, next(iter(settings.values())))

    def rotating_layers(self) -> tuple[int, int] | None:
        return rotating_layers(self)

    def geometry(self, rope: Config, original_length: int) -> RotaryGeometry:
        return geometry(self, rope, original_length)

    def setting(self, rope: Config) -> RopeSetting:
        return rope_setting(self, rope)

    def lengths(self) -> Lengths:
        """The model's three lengths: those of the layers that see furthest."""
        setting = self.setting(self.main_rope())
        scaled = setting.kind not in PLAIN and setting.rope.get("alpha") is None
        return setting.lengths(setting.factor() if scaled else 1.0)

    def steps(self, rope: Config) -> tuple[PlanStep, ...]:
        return steps(self.setting(rope))


# With one window for all layers, whatever layer_types says; and the config class's default.
ONE_WINDOW: dict[str, int | None] = {
    **dict.fromkeys(("blt", "doge", "minimax", "ministral3", "mixtral", "phi3", "phi4_multimodal")),
    **dict.fromkeys(("phimoe", "starcoder2")),
    **dict.fromkeys(("mistral", "qwen3_moe"), 4096),
}


def window_everywhere(config: Config) -> int | None:
    """The sliding window that every layer has; None if some layer sees further."""
    inner, kind = text_config(config), ConfigReader(config).model_type
    window = inner.get("sliding_window", ONE_WINDOW.get(kind))
    on = inner.get("use_sliding_window", not kind.startswith("qwen"))
    if not isinstance(window, int) or not on:
        return None
    if kind in ONE_WINDOW:
        return window
    types = inner.get("layer_types")
    if isinstance(types, list) and types:
        return window if set(types) == {SLIDING_ATTENTION} else None
    # Of the others, the first layers of Qwen see all; by its class, without the key too.
    below = inner.get("max_window_layers", 28)
    return window if kind.startswith("qwen") and below == 0 else None
