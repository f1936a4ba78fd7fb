"""vLLM: the rules of 0.33, and those of 2025.

A rope setting passes three places, and each may change it: vLLM's checks of the config, the
model's class, which passes some keys on and drops others (model_classes.json), and the rotary
module, which computes frequencies and attention factor of what arrives. `Vllm.read` follows it
through these. What all modules share with SGLang's is in engine.py.

The longest sequence that it accepts is the shortest length that the config states, or
`model_max_length` in its place, times the factor of every rope type but llama3, longrope and YaRN
(`_get_and_verify_max_len`). Gemma 3 states its scaled length, so no factor counts there. The
tokenizer's limit counts only for models that pool over absolute positions. vLLM of 2025 took
original · factor. It refuses more, unless an environment variable allows it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.models.config import (
    ORIGINAL_LENGTH,
    STATED_SCALED,
    Config,
    ConfigReader,
    drafter_layers,
    rope_type,
)
from ropewalk.models.safetensors_header import OF_MISTRAL
from ropewalk.runtimes.drafters import beyond_overrides
from ropewalk.runtimes.engine import (
    ServingEngine,
    one_base,
    passed_on,
    refuse_interleaved_longrope,
    stating,
    times,
    times_attn_factor,
    with_losses,
    with_mscale,
    with_nulls,
    yarn_keys_of,
)
from ropewalk.runtimes.features import BY_SERVER, Feature, Support
from ropewalk.runtimes.model_classes import ModelClass, RotaryType, model_class
from ropewalk.runtimes.reading import (
    RotaryReading,
    Switch,
    by_rules,
    kind_of,
    known,
    number,
    whole,
    without,
)
from ropewalk.runtimes.runtime import Connection, Dialect, Runtime, members, plain
from ropewalk.runtimes.transformers import Transformers

# Old and new names of one rope type, which may stand in one setting.
_RENAMED = (("su", "longrope"), ("mrope", "default"))
# The keys of yarn that it read in 2025: those that it must have, and those it may have.
_YARN_OF_2025 = RotaryType(
    ("factor", "original_max_position_embeddings"),
    ("attn_factor", "beta_fast", "beta_slow", "extrapolation_factor"),
)
# A note on configs whose rotation differs from that of transformers.
_WIDE_RAMP = "under M-RoPE, its YaRN lays the ramp for 4 times the original length"
# Keys that vLLM takes for the longest sequence, next to max_position_embeddings.
_LENGTHS = ("max_seq_len", "seq_length", "max_sequence_length", "max_seq_length", "seq_len")


def _described(server: Connection, entry: Mapping[str, Any], name: str) -> dict[str, object]:
    """The version of a server, and the length and origin of the model that `entry` describes."""
    version = members(server.get("/version")).get("version")
    origin = plain({key: entry.get(key) for key in ("root", "parent")})
    return {"version": version, "length": entry.get("max_model_len"), **origin}


class Vllm(ServingEngine):
    """vLLM of today: longrope's table is chosen when the server starts, by `--max-model-len`."""

    name = "vllm"
    place = 1
    preferred = OF_MISTRAL
    attention_keys = "attention_factor, short_mscale and long_mscale"
    dialect = Dialect(
        "vLLM",
        "vllm",
        _described,
        asked={"repetition_penalty": 1.0},  # a generation_config.json may hold another
        asked_for_top={"return_tokens_as_token_ids": True},
    )

    def read(self, config: Config) -> RotaryReading:
        served = self.served(config)
        # A model without a class in vLLM runs transformers' code, which reads the whole setting.
        runs_transformers = served.scaling == "transformers"

        def steps(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            _refuse_two_types(rope)
            if runs_transformers:
                return reader.steps(known(rope))
            return self._computed(served, reader, passed_on(served, reader, rope))

        # Of longrope's two lists of factors, vLLM's classes take one for good when the server
        # starts; transformers' code takes one for each batch.
        switches: Switch = (
            "by the length at hand" if runs_transformers else "by the declared length"
        )
        reading = by_rules(self.name, config, steps, switches)
        # Keys that the class does not pass on are lost without a word, so they are named.
        reading = with_losses(replace(reading, limit=self.accepts(config)), served, config)
        if reading.layers and not runs_transformers:
            reader = ConfigReader(config)
            if any(_lays_ramp_wide(reader, rope) for rope in reader.layer_settings().values()):
                return replace(reading, notes=(*reading.notes, _WIDE_RAMP))
        return reading

    def _computed(
        self, served: ModelClass, reader: ConfigReader, rope: Config
    ) -> tuple[PlanStep, ...]:
        """The schedules that vLLM's rotary modules compute from the keys that a class passes on."""
        kind = kind_of(rope)
        if kind == "dynamic":  # one base for good; that of transformers grows with the text
            return reader.steps(one_base(reader, rope))
        refuse_interleaved_longrope(reader, rope, self.name)
        if kind == "longrope":
            return with_mscale(reader, rope)
        # DeepSeek's yarn is another module, which computes as transformers does.
        if kind == "yarn" and not reader.family.softmax_mscale:
            read_keys = yarn_keys_of(served)
            rope = without(rope, {"truncate"} - read_keys)
            if _lays_ramp_wide(reader, rope):
                rope = {**rope, ORIGINAL_LENGTH: 4 * rope[ORIGINAL_LENGTH]}
            if "attention_factor" not in read_keys:
                return _yarn_of_2025(reader, rope)
        return reader.steps(known(rope))

    def accepts(self, config: Config) -> int | None:
        """The longest sequence that the server takes, as `_get_and_verify_max_len` computes it."""
        reader = stating(config)
        # The shortest stated length counts, unless model_max_length is stated.
        stated = [whole(reader.get("max_position_embeddings"))]
        stated += [whole(reader.config.get(key)) for key in _LENGTHS]
        lengths = [length for length in stated if length is not None]
        length = whole(reader.config.get("model_max_length")) or min(lengths, default=None)
        if length is None or "gemma3" in reader.model_type:
            return length
        # The last layer type with a factor decides, since the loop in vLLM overwrites it.
        factor = 1.0
        for rope in reader.layer_settings().values():
            if rope_type(rope) not in STATED_SCALED:
                factor = number(rope.get("factor")) or factor
        return times(length, factor)

    def command(self, model: str, length: int, overrides: Config | None = None) -> str:
        extra = f" --hf-overrides {shlex.quote(json.dumps(overrides))}" if overrides else ""
        return f"vllm serve {shlex.quote(model)} --max-model-len {length}{extra}"

    def switching(self, feature: Feature) -> Support:
        """vLLM's classes take one of two lists for good when it starts; others change with a batch.

        An export for vLLM is compared in transformers, so only one that has both lists there too.
        """
        by_server = self.served(feature.config).scaling != "transformers"
        if by_server and Transformers().support(feature).fit == "exact":
            return Support("equivalent", BY_SERVER)
        return super().switching(feature)

    def beyond_overrides(self, config: Config, length: int) -> str:
        return beyond_overrides(config, length) if drafter_layers(config) else ""

    def caveats(self, followed: ContextPlan, written: Config) -> tuple[str, ...]:
        return (*super().caveats(followed, written), *_two_servers(followed))


class VllmOf2025(Runtime):
    """vLLM as it was in 2025: yarn ignored the attention factor of a config."""

    name = "vllm-2025"
    place = 1
    preferred = OF_MISTRAL

    def read(self, config: Config) -> RotaryReading:
        def computed(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
            _refuse_two_types(rope)
            refuse_interleaved_longrope(reader, rope, self.name)
            kind = kind_of(rope)
            if kind == "longrope":
                return with_mscale(reader, rope)
            if kind == "yarn" and not reader.family.softmax_mscale:  # DeepSeek's is another class
                return _yarn_of_2025(reader, rope)
            if kind == "dynamic":
                raise Unsupported(
                    "ropewalk does not know how vLLM's releases of 2025 compute dynamic NTK; run "
                    "the model there to see"
                )
            return reader.steps(known(rope))

        served = model_class(config, Vllm.name)
        served = replace(served, version="of 2025", types={**served.types, "yarn": _YARN_OF_2025})
        reading = by_rules(self.name, config, computed, "by the declared length")
        return with_nulls(reading, served, config)


def _lays_ramp_wide(reader: ConfigReader, rope: Config) -> bool:
    """True if YaRN's ramp counts from the length of the cos/sin table, not from the original one.

    Under M-RoPE the table has room for 4 times as many positions, for videos. Classes since
    Qwen3-VL leave no such room, unless tokens of videos are pruned.
    """
    by_section = kind_of(rope) == "yarn" and rope.get("mrope_section") is not None
    has_room = not reader.model_type.startswith(("qwen3_vl", "qwen3_5"))
    return by_section and has_room and whole(rope.get(ORIGINAL_LENGTH)) is not None


def _refuse_two_types(rope: Config) -> None:
    """Refuse two names of different rope types in one setting, as vLLM does."""
    kind, old = rope.get("rope_type"), rope.get("type")
    if None not in (kind, old) and kind != old and (old, kind) not in _RENAMED:
        raise InvalidValue(
            "type", old, f"contradicts rope_type {shortened(kind)}", "leave out `type`"
        )


def _yarn_of_2025(reader: ConfigReader, rope: Config) -> tuple[PlanStep, ...]:
    """yarn before vLLM's #56446: 0.1 ln s + 1 whatever the config says, times `attn_factor`."""
    unread = {"attention_factor", "mscale", "mscale_all_dim"}
    return times_attn_factor(reader, without(rope, unread))


def _two_servers(followed: ContextPlan) -> tuple[str, ...]:
    """Advise a second server for short text, if the plan has a list of factors for it."""
    if not (switching := [steps for steps in followed.schedules.values() if len(steps) > 1]):
        return ()
    short = min(steps[0].up_to_length for steps in switching)
    return (
        f"this server applies the long list to short text too; for sequences within {short}, start "
        f"another of the same weights with --max-model-len {short}, which takes the short list "
        "(`fingerprint` shows which list a server takes, and reports it as a deviation)",
    )


RUNTIMES = (Vllm(), VllmOf2025())
