"""exllamav3's rules, read in the wheel of 1.6.5 (`util/rope.py`, `model/config.py`), not run.

Its classes read a setting from `rope_scaling` first, or `rope_parameters`. YaRN does not go by its
`factor` where an original length is stated: the factor is then max_position_embeddings over it, so
a Qwen3 config with nothing but the setting added gets 40,960 / 32,768 = 1.25 and not 4. Its
attention factor is YaRN's own whatever mscale says, or 1 where queries grow with their position.
longrope takes one list for good, by the stated length. It refuses no length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ropewalk.context_plan import PlanStep
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader
from ropewalk.runtimes import Runtime
from ropewalk.runtimes.model_classes import BASE_AND_SHARE, GROWTH_IN_ROPE, architecture
from ropewalk.runtimes.reading import Reading, by_rules, kind_of, known, scaled, without
from ropewalk.untrusted import real_number

NAME = "exllamav3"
LENGTH = "max_position_embeddings"
PLAIN = frozenset(
    f"{name}ForCausalLM"
    for name in (
        *("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe", "Phi3", "Arcee", "SeedOss"),
        *("SmolLM3", "GptOss", "Apertus", "Exaone4", "Glm4Moe", "MiniMaxM2", "Ministral3", "Dots1"),
    )
)
"""Classes that take the setting as its shared function reads it; others were not examined."""
_TYPES = ("default", "mrope", "proportional", "llama3", "linear", "yarn", "longrope")


def read(config: Config) -> Reading:
    """The setting as its rotary class computes it."""
    name = architecture(config)

    def seen(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
        if name not in PLAIN or reader.is_nested:
            raise Unsupported(
                f"how exllamav3's class of {shortened(name)} reads its setting was not examined; "
                "judge it by running it there"
            )
        older = reader.config.get("rope_scaling")
        if isinstance(older, Mapping) and reader.config.get("rope_parameters"):
            rope = {**{key: rope[key] for key in BASE_AND_SHARE if key in rope}, **older}
        kind = kind_of(rope)
        if kind not in _TYPES:
            raise InvalidValue("rope_type", kind, "exllamav3 does not know it", "use another")
        if kind == "yarn":
            return _yarn(reader, rope)
        steps = reader.steps(known(rope))
        return steps[-1:] if kind == "longrope" else steps

    return by_rules(NAME, config, seen, "never")


def _yarn(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    stated, original = reader.need(LENGTH), rope.get(ORIGINAL_LENGTH)
    if original is not None:
        lengths = real_number(stated, LENGTH), real_number(original, ORIGINAL_LENGTH)
        rope = {**rope, "factor": lengths[0] / (lengths[1] or math.nan)}
    factor = real_number(rope.get("factor"), "factor")
    scaling = rope.get("attention_factor")
    if scaling is not None:
        scaling = real_number(scaling, "attention_factor")
    else:
        grows = bool(rope.get(GROWTH_IN_ROPE))
        scaling = 1.0 if grows or factor <= 1 else 0.1 * math.log(factor) + 1.0
    rope = without(rope, {"mscale", "mscale_all_dim", "attention_factor"})
    # A factor of 1 and below scales nothing there; here it is no YaRN.
    rope = rope if factor > 1 else {**without(rope, {"factor"}), "factor": 1.0}
    return tuple(scaled(step, scaling) for step in reader.steps(known(rope)))


RUNTIME = Runtime(NAME, {NAME: read})
