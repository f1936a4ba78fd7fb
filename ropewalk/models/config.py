"""Reads transformers' configs: the present plan of a model.

`present_plan` reads a config, of v4 (`rope_theta` and `rope_scaling`) or v5 (`rope_parameters`,
maybe nested by layer type), into the plan that the model follows as it stands. The config is taken
as plain JSON, so that neither torch nor transformers is needed.

What a config leaves to its model type is looked up in families.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep, ladder
from ropewalk.errors import InputError, InvalidValue, Unsupported, printable, shortened
from ropewalk.lengths import MAX_LENGTH
from ropewalk.models.families import (
    ENCODERS,
    FAMILIES,
    NOT_ATTENTION,
    ROTATES_OTHERWISE,
    UNKNOWN,
    WITHOUT_ROPE,
    follows_share,
)
from ropewalk.models.native import ALPHA, PLAIN, TRAINED, Lengths, Stated, extended, three_lengths
from ropewalk.models.native import DUAL_CHUNK as DUAL_CHUNK
from ropewalk.scaling import (
    doublings,
    dynamic_ntk,
    linear,
    llama3,
    log_growth,
    longrope,
    yarn,
)
from ropewalk.schedule import MAX_DIM, MAX_FACTOR, LogN, RotaryGeometry, RotarySchedule
from ropewalk.untrusted import counted, read_json, real_number, text_value, truth_value

Config = dict[str, Any]
_FLOATS = {text: float(text) for text in ("Infinity", "-Infinity", "NaN")}

BUNDLED = "bundled"
"""The name of the model that ships with ropewalk."""
BUNDLED_FOLDER = Path(__file__).parent / BUNDLED
BUNDLED_FOLDERS = {
    BUNDLED: BUNDLED_FOLDER,
    "bundled:2": BUNDLED_FOLDER.with_name("bundled_2"),
    "bundled:3": BUNDLED_FOLDER.with_name("bundled_3"),
}
"""The same model, trained from three seeds: so that it shows how much models differ."""


# Attributes under which a config may hold what the first name holds.
ALIASES = {
    "rope_theta": ("rope_theta", "rotary_emb_base", "global_rope_theta"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
}
QUERY_GROWTH = "llama_4_scaling_beta"
ROTATES_BY_LAYER = ("no_rope_layers", "layer_rope_theta")
"""Lists by layer, in which 0 is a layer that does not rotate, despite the name of the first."""
_METHOD_KEYS = (
    *("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    *("low_freq_factor", "high_freq_factor", "alpha", QUERY_GROWTH),
)
ORIGINAL_LENGTH = "original_max_position_embeddings"
MAX_WIDTH = 2**24
MAX_CONFIG_BYTES = 2**20
"""Published configs have a few kilobytes, and with the names of 20,000 classes less than this."""
CARRIED_KEYS = ("mrope_section", "mrope_interleaved", "interleaved", "xdrope_section")
"""Keys that a new setting must keep: the model needs them, and no method changes them.

They say what of each pair's position comes from time, height and width of a picture. That says
nothing of frequencies, and all three are equal in text."""
# Every key that a rope dict may have and that we know the meaning of.
KNOWN_KEYS = {
    *_METHOD_KEYS,  # among them Hunyuan's alpha
    *CARRIED_KEYS,
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "finetuned", ORIGINAL_LENGTH),
    *("truncate", "short_factor", "long_factor", "short_mscale", "long_mscale"),
    "attn_factor",  # SGLang's, beside attention_factor
    "max_position_embeddings",  # Ministral 3 repeats it here
    "layer_type",  # ours: whose setting it is
}
SPECULATORS = "transformer_layer_config"
"""The part of a config of vllm-project/speculators that describes the drafter's layers."""
# Where a model of several parts keeps the part that reads text.
_TEXT_PARTS = (
    *("text_config", "thinker_config", "llm_config", "language_config", "vlm_config"),
    *("decoder", "decoder_config", SPECULATORS),
)
_LAYER_TYPES = {"mamba": "linear_attention", "attention": FULL_ATTENTION}


def for_stock_class(value: Any) -> Any:
    """A copy of a stored config as its class takes it; JSON has infinity as an object."""
    if isinstance(value, dict):
        if (tag := value.get("__float__")) in _FLOATS and len(value) == 1:
            return _FLOATS[tag]
        return {key: for_stock_class(own) for key, own in value.items()}
    return [for_stock_class(own) for own in value] if isinstance(value, list) else value


def _refuse_adapter(file: Path) -> None:
    """Name the folder of an adapter, which holds a part of a model."""
    if not file.is_file():
        return
    own = read_json(file, max_bytes=MAX_CONFIG_BYTES)
    base = own.get("base_model_name_or_path") if isinstance(own, dict) else None
    of = f" of {shortened(base)}" if base else ""
    raise InputError(
        f"{file.parent}: is the folder of an adapter{of}, not of a model; merge it into its base "
        "(PEFT: merge_and_unload, then save_pretrained), and give that folder"
    )


def load_config(source: object) -> Config:
    """A config as plain JSON: from a config.json, a model's folder, or a transformers object."""
    if isinstance(source, Mapping):
        return dict(source)
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    if not isinstance(source, str | Path):
        raise InputError(
            f"{source!r} is not a config: give a config.json, a folder or a config object"
        )
    path = config_file(source)
    if path != Path(source) and not path.is_file():
        _refuse_adapter(path.with_name("adapter_config.json"))
        raise InputError(
            f"{path}: there is no such file: the folder holds no config.json, so it is not a "
            "transformers model; give the folder that save_pretrained wrote"
        )
    value = read_json(path, max_bytes=MAX_CONFIG_BYTES)
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds no JSON object; expected a transformers config.json")
    if "schedules" in value and "model_type" not in value:
        raise InputError(
            f"{path}: is a plan, not a model; give the model's folder (a plan goes with --plan; to "
            "check what a plan does, export the model with it, and verify the export)"
        )
    for place, own in (("model_type", value), ("text_config.model_type", value.get("text_config"))):
        if isinstance(own, dict) and own.get("model_type") is not None:
            text_value(own["model_type"], f"{path}: {place}")
    return value


def config_file(path: str | Path) -> Path:
    """The file that holds the config of a folder, or the file itself."""
    path = Path(path)
    try:
        return path / "config.json" if path.is_dir() else path
    except OSError as error:  # a name that no file system takes
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


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


@contextmanager
def named_in(file: str | Path | None) -> Iterator[None]:
    """Let errors name the file that states the value; a config without a file is `config`."""
    try:
        yield
    except InvalidValue as error:
        if error.key == TRAINED:  # no key of the file
            raise
        raise error.within("config" if file is None else f"{file}: ") from None
    except Unsupported as error:
        raise (error if file is None else Unsupported(f"{file}: {error}")) from None


def _present_plan(reader: ConfigReader, model: str | None) -> ContextPlan:
    name = printable(
        model or str(reader.outer.get("_name_or_path") or reader.model_type or "model")
    )
    layers = reader.layer_settings()
    steps = {layer: reader.steps(rope) for layer, rope in layers.items()}
    found = reader.rotating_layers()
    rotating = f"{found[0]} of {found[1]}" if found and found[0] < found[1] else ""
    # A sliding-window layer sees no distance above its window, so it serves what the others serve.
    target = max(own[-1].up_to_length for own in steps.values())
    return ContextPlan(
        model=name,
        schedules={
            layer: (*own[:-1], replace(own[-1], up_to_length=target))
            for layer, own in steps.items()
        },
        provenance={
            "source": "config",
            "model_type": reader.model_type,
            **({"rotating_layers": rotating} if rotating else {}),
        },
    )


def text_config(config: Config) -> Config:
    """The part of a config that speaks of the language model: itself, or a part of it."""
    return _text_part(config)[0]


def drafter_layers(config: Config) -> int:
    """The layers of a checkpoint that propose several tokens at once (multi-token prediction)."""
    inner = text_config(config)
    for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
        count = inner.get(key, config.get(key))
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            return count
    return 0


def _text_part(config: Config) -> tuple[Config, tuple[str, ...]]:
    """The same, and the keys that lead to it."""
    for key in _TEXT_PARTS:
        inner = config.get(key)
        if inner is not None and not isinstance(inner, dict) and key.endswith("_config"):
            raise InvalidValue(f"config.{key}", inner, "must be an object", "write {…}")
        # A decoder that is no more than a number of layers belongs to the config around it.
        if isinstance(inner, dict) and (key == "text_config" or inner.get("model_type")):
            found, path = _text_part(inner)
            return found, (key, *path)
    return config, ()


class ConfigReader:
    """One config, with its family's defaults behind it."""

    def __init__(self, config: Config, *, trained: int | None = None) -> None:
        self.trained = trained
        """The trained length, if somebody states it besides the config."""
        self.outer = config
        self.config, self.path = _text_part(config)
        self.prefix = "".join(f"{key}." for key in self.path)
        """The prefix of this config's keys in its file."""
        self.model_type = str(self.config.get("model_type") or config.get("model_type") or "")
        self.family = FAMILIES.get(self.model_type, UNKNOWN)
        self._refuse_what_does_not_rotate(config)

    def _refuse_what_does_not_rotate(self, outer: Config) -> None:
        if how := ROTATES_OTHERWISE.get(self.model_type):
            raise Unsupported(
                f"model type {shortened(self.model_type)} rotates {how}; ropewalk does not extend "
                "that: use a model type of the table in docs/families.md"
            )
        other = WITHOUT_ROPE.get(self.model_type)
        because = ""
        if other is None and self.flag("alibi"):
            other = "ALiBi"
        if other is None and self.family.rotates_if is not None:
            key, value = self.family.rotates_if
            if self.get(key) != value:
                other = self.family.otherwise
                because = f" where {self.written(key)} = {shortened(self.get(key))}"
        if other is None and self.config.get("position_embedding_type") == "nope":
            other, because = "no positions", f" where {self.prefix}position_embedding_type = 'nope'"
        if other is not None:
            raise Unsupported(
                f"model type {shortened(self.model_type)} uses {other}{because}, not a rotary "
                "embedding, so nothing in it can be rescaled, and a rope_theta in its config has "
                "no effect"
            )
        for model_type in (str(outer.get("model_type")), self.model_type):
            if (why := FAMILIES.get(model_type, UNKNOWN).refused) is not None:
                raise Unsupported(f"model type {shortened(model_type)}: {why}")
        if self.config.get(DUAL_CHUNK):
            raise Unsupported(
                f"{self.prefix}{DUAL_CHUNK}: with dual chunk attention, positions start again in "
                "each chunk, which no schedule can express; SGLang follows it with "
                "--attention-backend dual_chunk_flash_attn, and transformers, llama.cpp and vLLM "
                "since 0.11 ignore it; remove the key to plan for the latter"
            )

    @property
    def outer_type(self) -> str:
        """The type of the model that holds this one; empty if none does."""
        return str(self.outer.get("model_type") or "") if self.path else ""

    @property
    def is_encoder(self) -> bool:
        """True if it predicts no next token: by its type, or by keys under which all see all."""
        both = self.config.get("use_bidirectional_attention") in (True, "all")
        return both or self.config.get("is_causal") is False or self.model_type in ENCODERS

    @property
    def rope_key(self) -> str:
        """The key of the rope settings. With both keys, transformers follows the first."""
        return "rope_scaling" if self.config.get("rope_scaling") else "rope_parameters"

    @property
    def is_nested(self) -> bool:
        """True if the file has one rope setting for each layer type."""
        rope = self.config.get(self.rope_key)
        return isinstance(rope, Mapping) and any(isinstance(v, Mapping) for v in rope.values())

    @property
    def one_base(self) -> bool:
        """True if one key states the base of all layers; transformers 5 follows it in full ones."""
        return self.family.local_base == "rope_theta" and not self.is_nested

    @property
    def unread(self) -> tuple[str, ...]:
        """Keys that the class of this type does not follow, though a config may state them."""
        own = self.family.defaults.get("own_base") and not self.config.get(self.rope_key)
        return (*self.family.unread, *(["rope_theta"] if own else []))

    def _names_of(self, key: str) -> tuple[str, ...]:
        """The names under which a config of this type may state a key, the family's own first."""
        own = self.family.names.get(key)
        usual = (name for name in ALIASES.get(key, (key,)) if name not in self.unread)
        return (*((own,) if own else ()), *usual)

    def _stated(self, name: str) -> Any:
        """The value at a path of the config, as `attn_config.rope_theta`."""
        value: Any = self.config
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def written(self, key: str) -> str:
        """The name under which the file states a key, or would."""
        names = self._names_of(key)
        stated = (name for name in names if self._stated(name) is not None)
        return self.prefix + next(stated, names[0])

    def flag(self, key: str) -> bool | None:
        """A JSON boolean: "no" in quotes would be taken as true."""
        value = self.config.get(key)
        return None if value is None else truth_value(value, self.prefix + key)

    def get(self, key: str) -> Any:
        """A value of the config, under any of its names, or the family's default."""
        for name in self._names_of(key):
            if (value := self._stated(name)) is not None:
                return value
        defaults = (self.family.defaults.get(name) for name in (*self._names_of(key), key))
        return next((value for value in defaults if value is not None), None)

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise InvalidValue(
                self.written(key), None, "is missing, and its model type has no default", "add it"
            )
        return value

    def layer_settings(self, *, unused: bool = False) -> dict[str, Config]:
        """The rope settings by layer type, each a flat dict with its base.

        Types that no layer has are left out, unless `unused` asks for them.
        """
        key, flagged = self.family.scaling_flag or ("", None)
        own = flagged if flagged and self.flag(key) else self.family.rope
        rope = self.config.get(self.rope_key) or own
        if not isinstance(rope, Mapping):
            raise InvalidValue(self.written(self.rope_key), rope, "must be an object", "write {…}")
        nested = {key: value for key, value in rope.items() if isinstance(value, Mapping)}
        for key in sorted(KNOWN_KEYS & nested.keys()):
            name = f"{self.prefix}{self.rope_key}.{key}"
            raise InvalidValue(name, nested[key], "must be a value, not an object", "correct it")
        self._refuse_other_form(rope)
        if nested:
            layers = {key: dict(value) for key, value in nested.items()}
            for setting in layers.values():
                if "truncate" in setting:  # transformers looks for it beside the layer types only
                    setting["truncate"] = rope.get("truncate", True)
        elif self.family.local_base:
            local = {"rope_theta": self.need(self.family.local_base)}
            if self.family.sliding_scales:
                local = {**rope, **local}
            layers = {FULL_ATTENTION: dict(rope), SLIDING_ATTENTION: local}
        else:
            layers = {self._rotating_type(): dict(rope)}
        base, by_layer = self._base(), self._base_by_layer()
        for layer_type, setting in layers.items():
            setting["layer_type"] = layer_type
            if by_layer is not None:
                setting["rope_theta"] = by_layer
            if setting.get("rope_theta") is None:
                setting["rope_theta"] = base
            if setting["rope_theta"] is None and self.is_nested:
                key = f"{self.prefix}{self.rope_key}.{layer_type}.rope_theta"
                raise InvalidValue(key, None, "is missing", "add it")
            if setting["rope_theta"] is None:
                part = f" in {'.'.join(self.path)}" if self.path else ""
                raise Unsupported(
                    f"the config of model type {shortened(self.model_type)} has no rope_theta, "
                    f"rope_parameters or rotary_emb_base{part}, so it has no RoPE that "
                    "ropewalk can change"
                )
        kinds = self.config.get("layer_types")
        used = {key: own for key, own in layers.items() if isinstance(kinds, list) and key in kinds}
        return layers if unused or not used else used

    def main_rope(self) -> Config:
        """The rope setting of the layers that see furthest."""
        settings = self.layer_settings()
        return settings.get(FULL_ATTENTION, next(iter(settings.values())))

    def _refuse_other_form(self, rope: Mapping[str, object]) -> None:
        """Refuse a flat setting if the config class has one for each layer type, and the reverse.

        transformers ignores it (Gemma 3, OLMo 3), fails on it (Gemma 4, ModernBERT), or takes parts
        of it (DeepSeek V4). `rope_scaling` of v4 was flat for types that state two bases.
        """
        layers = [key for key, value in self.family.rope.items() if isinstance(value, Mapping)]
        if self.family.local_base and self.rope_key == "rope_parameters":
            layers = [FULL_ATTENTION, SLIDING_ATTENTION]
        stated = self.config.get(self.rope_key)
        if stated and layers and not self.is_nested:
            raise InvalidValue(
                f"{self.prefix}{self.rope_key}",
                dict(rope),
                f"is a single setting, and models of type {shortened(self.model_type)} need one "
                "for each layer type",
                f"nest them: {{{', '.join(f'{layer!r}: {{…}}' for layer in layers)}}}",
            )
        by_layer = bool(layers or self.family.local_base)
        if by_layer and not self.is_nested and "type" in rope and "rope_type" not in rope:
            raise InvalidValue(  # which such a class has already, as default
                f"{self.prefix}{self.rope_key}.type",
                rope["type"],
                f"is not read for models of type {shortened(self.model_type)}, whose class looks "
                "for rope_type",
                "name it rope_type",
            )
        one = not by_layer and self.model_type in FAMILIES
        if one and self.is_nested:
            raise InvalidValue(
                f"{self.prefix}{self.rope_key}",
                list(rope),
                f"has a setting for each layer type, and models of type "
                f"{shortened(self.model_type)} read a single one",
                f"write that of {next(iter(rope))!r} alone, without the layer type",
            )

    def _rotating_type(self) -> str:
        """The layer type that rotates, if one setting serves all that do."""
        if self.family.windows_rotate:
            window = self.config.get("sliding_window")
            if window:
                counted(window, f"{self.prefix}sliding_window", MAX_LENGTH)
            windowless = "sliding_window" in self.config and not window
            return FULL_ATTENTION if windowless else SLIDING_ATTENTION
        return self.family.rotates

    def _base_by_layer(self) -> object:
        """The base of a list by layer, which overrides all others; 0 is a layer that rests."""
        bases, key = self.config.get("layer_rope_theta"), f"{self.prefix}layer_rope_theta"
        if bases is None:
            return None
        if not isinstance(bases, list):
            raise InvalidValue(key, bases, "must be a list of numbers", "write [a, b, …]")
        own = {real_number(base, f"{key}[{i}]") for i, base in enumerate(bases)} - {0.0}
        if len(own) != 1:
            raise Unsupported(
                f"{key} states {len(own)} bases above 0, and a plan has one schedule for all "
                "layers of a type"
            )
        return own.pop()

    def _base(self) -> object:
        """The base that the config states next to its rope settings."""
        base = self.get("rope_theta")
        ratio = self.get(self.family.base_ratio) if self.family.base_ratio else None
        if base is None or ratio is None:
            return base
        key = self.written(str(self.family.base_ratio))
        ratio = real_number(ratio, key)
        if not 0 < ratio <= MAX_FACTOR:
            raise InvalidValue(
                key, ratio, f"must be above 0 and at most {MAX_FACTOR:g}", "correct it"
            )
        return real_number(base, self.written("rope_theta")) * ratio

    def rotating_layers(self) -> tuple[int, int] | None:
        """The number of layers that rotate, and of all; None if the config does not say."""
        if not isinstance(self.get("num_hidden_layers"), int):
            return None
        count = self._count("num_hidden_layers", MAX_WIDTH)
        found = self._turning(count)
        if found is None:
            return None
        key, turning = found
        if not any(turning):
            raise Unsupported(
                f"{self.prefix}{key}: none of the {count} layers of this model rotates, so there "
                "is no RoPE to change"
            )
        return sum(turning), count

    def _turning(self, count: int) -> tuple[str, list[bool]] | None:
        """True if each layer rotates, and the key that says so."""
        for key in ROTATES_BY_LAYER:
            stated = self.config.get(key)
            if isinstance(stated, list) and len(stated) == count:
                return key, [bool(value) for value in stated]
        rests_every = self.get("no_rope_layer_interval")
        if isinstance(rests_every, int) and rests_every > 0:
            return "no_rope_layer_interval", [(i + 1) % rests_every != 0 for i in range(count)]
        by_kind = "layer_types" if self.config.get("layer_types") else "layers_block_type"
        kinds = self.config.get(by_kind)
        if isinstance(kinds, list) and len(kinds) == count:
            layers = tuple(self.layer_settings())
            only = None if FULL_ATTENTION in layers or len(layers) > 1 else layers[0]
            kinds = [_LAYER_TYPES.get(str(kind), str(kind)) for kind in kinds]
            return by_kind, [kind not in NOT_ATTENTION and only in (None, kind) for kind in kinds]
        attends_every = self.get("full_attention_interval")
        if isinstance(attends_every, int) and attends_every > 0:
            return "full_attention_interval", [(i + 1) % attends_every == 0 for i in range(count)]
        indices = self.config.get("full_attn_idxs")
        if isinstance(indices, list):
            return "full_attn_idxs", [i in indices for i in range(count)]
        return None

    def geometry(self, rope: Config, original_length: int) -> RotaryGeometry:
        head_dim, rotary_dim = self._dimensions(rope)
        resting = 0
        if rope_type(rope) == "proportional":  # the other pairs are there, and rest
            rotary_dim, resting = head_dim, (head_dim - rotary_dim) // 2
        interleaved = self.flag("rope_interleave")
        if interleaved is None:
            interleaved = bool(self.family.defaults.get("rope_interleave", False))
            interleaved = interleaved or self.family.pair_layout == "interleaved"
        return RotaryGeometry(
            head_dim=head_dim,
            rotary_dim=rotary_dim,
            base=real_number(rope["rope_theta"], "base"),
            original_length=original_length,
            pair_layout="interleaved" if interleaved else "half",
            resting_pairs=resting,
        )

    def _dimensions(self, rope: Config) -> tuple[int, int]:
        """The dimensions of a head, and how many of them rotate."""
        if self.get("qk_rope_head_dim"):  # multi-head latent attention: only this part turns
            rotary_dim = self._count("qk_rope_head_dim", MAX_DIM)
            unrotated = (
                self._count("qk_nope_head_dim", MAX_DIM) if self.get("qk_nope_head_dim") else 0
            )
            _check_pairs(self.written("qk_rope_head_dim"), rotary_dim, rotary_dim)
            return rotary_dim + unrotated, rotary_dim
        head_dim, head_key = self._head_dim(rope.get("layer_type"))
        share = rope.get("partial_rotary_factor")
        key = f"{self.prefix}{self.rope_key}.partial_rotary_factor"
        if share is None:
            share, key = self.get("partial_rotary_factor"), self.written("partial_rotary_factor")
        stated = (
            self.config.get("rotary_dim") is not None and "rotary_dim" not in self.family.unread
        )
        if share is None and stated:
            rotary_dim = self._count("rotary_dim", head_dim)
            _check_pairs(self.written("rotary_dim"), rotary_dim, rotary_dim)
            return head_dim, rotary_dim
        if share is None:
            _check_pairs(head_key, head_dim, head_dim)
            return head_dim, head_dim
        share = real_number(share, key)
        if not 0 < share <= 1:
            raise InvalidValue(
                key, share, "must be above 0 and at most 1, the share of each head that rotates",
                "correct it",
            )  # fmt: skip
        proportional = rope_type(rope) == "proportional"
        rotary_dim = 2 * int(share * head_dim // 2) if proportional else int(head_dim * share)
        _check_pairs(key, share, rotary_dim)
        stock = SPECULATORS not in self.path  # no class of transformers reads that part
        if share < 1 and not proportional and stock and not follows_share(self.model_type):
            raise Unsupported(
                f"{key} = {share:g}: transformers turns whole heads in models of type "
                f"{shortened(self.model_type)}, whatever this key says, and another runtime may "
                "follow it; remove it if the model was trained with whole heads"
            )
        return head_dim, rotary_dim

    def _head_dim(self, layer_type: str | None) -> tuple[int, str]:
        """The size of a head in the layers of a type, and the key that states it."""
        kinds, layers = self.config.get("layer_types"), self.config.get("per_layer_config")
        if isinstance(kinds, list) and isinstance(layers, Mapping):
            for index, values in layers.items():
                at = int(index) if str(index).isdecimal() else len(kinds)
                own = values.get("head_dim") if isinstance(values, Mapping) else None
                if own is not None and at < len(kinds) and kinds[at] == layer_type:
                    key = f"{self.prefix}per_layer_config.{index}.head_dim"
                    return counted(own, key, MAX_DIM), key
        if layer_type == FULL_ATTENTION and self.get("global_head_dim") is not None:
            return self._count("global_head_dim", MAX_DIM), self.written("global_head_dim")
        return self._common_head_dim(), self.written("head_dim")

    def _common_head_dim(self) -> int:
        if self.get("head_dim") is not None:
            return self._count("head_dim", MAX_DIM)
        heads = self._count("num_attention_heads", MAX_WIDTH)
        hidden = self._count("hidden_size", MAX_WIDTH)
        if hidden % heads:
            raise InvalidValue(
                self.written("hidden_size"),
                hidden,
                f"is not divisible by {self.written('num_attention_heads')} = {heads}, and no "
                "head_dim says how large a head is",
                "correct it, or add head_dim",
            )
        if hidden // heads > MAX_DIM:
            raise InvalidValue(
                self.written("hidden_size"),
                hidden,
                f"makes heads of {hidden // heads} dimensions, and at most {MAX_DIM} are read",
                f"check it and {self.written('num_attention_heads')}",
            )
        return hidden // heads

    def _count(self, key: str, most: int) -> int:
        """A whole number from 1 to `most`, of a key that must be there."""
        return counted(self.need(key), self.written(key), most)

    def setting(self, rope: Config) -> _Setting:
        """A layer type's setting, with the lengths that the config states for it."""
        rope = {key: value for key, value in rope.items() if value is not None}
        kind = rope_type(rope)
        if kind == "su" or (kind == "yarn" and self.model_type == "phi3"):
            kind = "longrope"  # what early Phi-3 configs called it
        if kind == "mrope":
            kind = "default"  # sections of positions, over plain frequencies
        if kind == "axial":
            raise Unsupported(
                "rope type 'axial' turns by the row and column of a patch in a picture, not by a "
                "position in a text, so there is no context to extend"
            )
        if self.family.only_longrope and kind not in ("default", "longrope"):
            raise InvalidValue(
                f"{self.prefix}{self.rope_key}.rope_type",
                kind,
                f"the class of model type {shortened(self.model_type)} refuses all but 'longrope'",
                "write factors of type longrope, or remove the setting and plan anew",
            )
        if kind not in _READERS:
            raise Unsupported(
                f"rope type {shortened(kind)} is not one that ropewalk can express; "
                f"it knows {', '.join(_READERS)}"
            )
        for key in rope:
            if key not in KNOWN_KEYS:
                raise Unsupported(
                    f"rope setting {shortened(key)} of type {kind!r} is unknown, and ignoring it "
                    "could change what the model does; remove it if you know that it has no effect"
                )
        layer_type = rope.get("layer_type") if self.is_nested else None
        place = f"{self.prefix}{self.rope_key}{f'.{layer_type}' if layer_type else ''}"
        stated = self._count("max_position_embeddings", MAX_LENGTH)
        original, written = self._original_length(rope, place)
        return _Setting(rope, kind, stated, original, place, written)

    def lengths(self) -> Lengths:
        """The model's three lengths: those of the layers that see furthest."""
        setting = self.setting(self.main_rope())
        scaled = setting.kind not in PLAIN and setting.rope.get("alpha") is None
        return setting.lengths(self, setting.factor() if scaled else 1.0)

    def steps(self, rope: Config) -> tuple[PlanStep, ...]:
        """The schedules of one layer type, by the rope type that its setting names."""
        setting = self.setting(rope)
        try:
            steps = _READERS[setting.kind](self, setting)
            self._check_sections(setting, steps[-1].schedule.geometry.turning_pairs)
            log_n = self._log_n(setting)
            return tuple(
                PlanStep(step.up_to_length, replace(step.schedule, log_n=log_n)) for step in steps
            )
        except InvalidValue as error:
            if error.key.startswith("rescale_factors"):
                factor = setting.rope.get("factor")
                given = f"makes a pair turn {error.value} times slower"
                raise InvalidValue(
                    f"{setting.place}.factor", factor, f"{given}, which {error.rule}", "correct it"
                ) from None
            names = self._names(setting.place, setting.rope, setting.original_key)
            raise error.renamed(names) from None

    def _check_sections(self, setting: _Setting, pairs: int) -> None:
        """Every pair takes the position of one axis."""
        key, sections = f"{setting.place}.mrope_section", setting.rope.get("mrope_section")
        if sections is None:
            return
        if not isinstance(sections, list):
            raise InvalidValue(key, sections, "must be a list of whole numbers", "write [a, b, c]")
        counts = [counted(value, f"{key}[{i}]", MAX_DIM) for i, value in enumerate(sections)]
        if sum(counts) != pairs:
            raise InvalidValue(
                key, sections, f"must sum to {pairs}, the pairs of a head that turn", "correct it"
            )

    def _log_n(self, setting: _Setting) -> LogN | None:
        """The family's scaling of queries by position."""
        length = setting.original_length or setting.stated_length
        flag, form = self.family.log_n_flag or ("", None)
        if form is not None and self.flag(flag):
            return LogN(form, length)
        beta = setting.number(QUERY_GROWTH)
        return LogN("steps", length, beta) if beta and self.family.steps_log_n else None

    def _original_length(self, rope: Config, place: str) -> tuple[int | None, str]:
        """The original length, if it is stated, and the key that states the length."""
        # Phi-3 and 4 always have one next to the setting, and there it has priority.
        own, key = rope.get(ORIGINAL_LENGTH), f"{place}.{ORIGINAL_LENGTH}"
        if own is not None and self.model_type not in ("phi3", "phi4_multimodal"):
            return counted(own, key, MAX_LENGTH), key
        if self.get(ORIGINAL_LENGTH) is not None:
            return self._count(ORIGINAL_LENGTH, MAX_LENGTH), self.written(ORIGINAL_LENGTH)
        return None, self.written("max_position_embeddings")

    def _names(self, place: str, setting: Config, length_key: str) -> dict[str, str]:
        """The keys of the file, by the names that schedules and methods have for their values."""
        rope, layer_type = self.config.get(self.rope_key), setting.get("layer_type")
        own = rope.get(layer_type, rope) if isinstance(rope, Mapping) else {}
        in_rope = isinstance(own, Mapping) and own.get("rope_theta") is not None
        served = self.written("max_position_embeddings")
        local = self.family.local_base
        if local and layer_type == SLIDING_ATTENTION and not self.is_nested:
            in_rope, base = False, self.written(local)
        else:
            base = self.written("rope_theta")
        return {
            "base": f"{place}.rope_theta" if in_rope else base,
            "original_length": length_key,
            **dict.fromkeys(("length", "up_to_length", "target_length"), served),
            "attention_scaling": f"{place}.attention_factor",
            "softmax_scaling": f"{place}.mscale_all_dim",
            "growth": f"{place}.{QUERY_GROWTH}",
            **{key: f"{place}.{key}" for key in _METHOD_KEYS},
        }


def rope_type(rope: Mapping[str, object]) -> str:
    """The rope type that a setting names, under its new or its old key."""
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _check_pairs(key: str, value: object, rotary_dim: int) -> None:
    if rotary_dim < 2 or rotary_dim % 2:
        raise InvalidValue(
            key, value, f"makes {rotary_dim} dimensions of a head rotate, and they rotate in pairs",
            "give a value that makes it an even number of at least 2",
        )  # fmt: skip


@dataclass(frozen=True)
class _Setting:
    """One rope dict, with the lengths that go with it."""

    rope: Config
    kind: str
    stated_length: int
    original_length: int | None
    place: str
    """Its path in the file."""
    original_key: str
    """The key that states the original length."""

    def number(self, key: str) -> float | None:
        value = self.rope.get(key)
        return None if value is None else real_number(value, f"{self.place}.{key}")

    def factor(self) -> float:
        """s as stated, else the ratio of the two lengths."""
        factor = self.number("factor")
        if factor is None and self.original_length is not None:
            factor = self.stated_length / self.original_length
        if factor is None or not 1 <= factor <= MAX_FACTOR:
            raise InvalidValue(
                f"{self.place}.factor",
                factor,
                f"rope type {self.kind} needs an extension factor of at least 1 and at most "
                f"{MAX_FACTOR:g}",
                "correct it, or state original_max_position_embeddings",
            )
        return factor

    def lengths(self, reader: ConfigReader, factor: float = 1.0) -> Lengths:
        """The reference, trained and served length (native.py has the rule)."""
        kind = self.kind
        if kind == "dynamic" and self.rope.get("alpha") is not None:
            kind = ALPHA
        if kind == "proportional" and factor > 1:
            kind = "linear"
        stated = Stated(
            reader.model_type,
            kind,
            self.stated_length,
            length_key=reader.written("max_position_embeddings"),
            original=self.original_length,
            original_key=self.original_key,
            factor=factor,
            alpha=self.number("alpha"),
            length_is_scaled=reader.family.length_is_scaled,
            config=reader.config,
            trained=reader.trained,
        )
        try:
            return three_lengths(stated)
        except InvalidValue as error:
            raise error.renamed({"factor": f"{self.place}.factor"}) from None


def _read_default(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    own = setting.lengths(reader)
    plain = RotarySchedule.plain(reader.geometry(setting.rope, own.reference))
    return (PlanStep(own.served, replace(plain, length=own.trained)),)


def _read_proportional(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    """Plain or linear, over a geometry whose slowest pairs rest."""
    factor = setting.number("factor")
    return _read_default(reader, setting) if factor in (None, 1) else _read_linear(reader, setting)


def _read_ntk_alpha(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    """Hunyuan's `alpha`: one base for all lengths, α^(d/(d-2)) times the stated one.

    The models are trained with it, so it is their plain base, whatever the factor says.
    """
    alpha, key = setting.number("alpha"), f"{setting.place}.alpha"
    dim = reader.geometry(setting.rope, setting.stated_length).rotary_dim
    if alpha is None or not 1 <= alpha <= MAX_FACTOR or dim < 4:
        raise InvalidValue(
            key, alpha, f"must be at least 1 and at most {MAX_FACTOR:g}", "correct it"
        )
    base = real_number(setting.rope["rope_theta"], "base") * alpha ** (dim / (dim - 2))
    return _read_default(reader, replace(setting, rope={**setting.rope, "rope_theta": base}))


def _scaled(reader: ConfigReader, setting: _Setting) -> tuple[float, Lengths, RotarySchedule]:
    """The start of all scalings by one factor: it, the lengths, and the plain frequencies."""
    factor = setting.factor()
    own = setting.lengths(reader, factor)
    return factor, own, RotarySchedule.plain(reader.geometry(setting.rope, own.reference))


def _read_linear(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor, own, plain = _scaled(reader, setting)
    return (PlanStep(own.served, linear.schedule(plain, own.trained, factor=factor)),)


def _read_dynamic(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    """transformers computes a base for every length; the ladder holds the doublings up to f·L₀."""
    if setting.rope.get("alpha") is not None:
        return _read_ntk_alpha(reader, setting)
    factor = setting.factor()
    original = setting.original_length or setting.stated_length
    plain = RotarySchedule.plain(reader.geometry(setting.rope, original))
    at = partial(dynamic_ntk.schedule, factor=factor)
    reach = extended(original, max(factor, 2.0))
    target = setting.stated_length if setting.stated_length > original else reach
    return ladder(at, plain, doublings(original, target))


def _read_yarn(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor, own, plain = _scaled(reader, setting)
    truncate = truth_value(setting.rope.get("truncate", True), f"{setting.place}.truncate")
    schedule = yarn.schedule(
        plain,
        own.trained,
        beta_fast=setting.number("beta_fast") or 32.0,
        beta_slow=setting.number("beta_slow") or 1.0,
        truncate=truncate,
        attention_factor=setting.number("attention_factor"),
        mscale=setting.number("mscale"),
        mscale_all_dim=setting.number("mscale_all_dim"),
        scale_softmax=reader.family.softmax_mscale,
        factor=factor,
    )
    return (PlanStep(own.served, schedule),)


def _read_llama3(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor, own, plain = _scaled(reader, setting)
    bands: dict[str, float] = {}
    for key in ("low_freq_factor", "high_freq_factor"):
        if (value := setting.number(key)) is None:
            rule = "is missing, and runtimes do not load rope type 'llama3' without it"
            raise InvalidValue(
                f"{setting.place}.{key}", None, rule, "add it: Llama 3.1 has 1 and 4"
            )
        bands[key] = value
    schedule = llama3.schedule(plain, own.trained, factor=factor, **bands)
    return (PlanStep(own.served, schedule),)


def _read_longrope(reader: ConfigReader, setting: _Setting) -> tuple[PlanStep, ...]:
    factor, own, plain = _scaled(reader, setting)
    original, length = own.reference, own.served
    attention = setting.number("attention_factor")
    if attention is None:
        attention = 1.0
        if factor > 1 and original == 1:
            raise InvalidValue(
                "original_length", original, "leaves longrope's attention factor undefined",
                "correct it, or state attention_factor",
            )  # fmt: skip
        if factor > 1:
            attention = math.sqrt(1 + math.log(factor) / math.log(original))
    softmax = 1.0
    if reader.family.softmax_mscale and setting.number("mscale_all_dim"):
        softmax = log_growth(factor, setting.number("mscale_all_dim") or 0.0) ** 2

    def step(name: str, up_to_length: int) -> PlanStep:
        factors = setting.rope.get(f"{name}_factor")
        if not isinstance(factors, list):
            raise InvalidValue(
                f"{setting.place}.{name}_factor", factors, "must be a list of numbers", "add it"
            )
        scaling = attention
        if reader.model_type == "phimoe":  # the one family whose own code reads these
            scaling = _or(setting.number(f"{name}_mscale"), attention)
        try:
            schedule = longrope.schedule(
                plain,
                own.trained if up_to_length == length else up_to_length,
                factors=factors,
                attention_factor=scaling,
            )
        except InvalidValue as error:
            key = error.key.replace("rescale_factors", f"{name}_factor")
            key = key.replace("factors", f"{name}_factor") if key.startswith("factors") else key
            if key == "attention_scaling":
                stated = setting.rope.get(f"{name}_mscale") is not None
                key = f"{name}_mscale" if stated else "attention_factor"
            raise InvalidValue(
                f"{setting.place}.{key}", error.value, error.rule, error.remedy
            ) from None
        return PlanStep(up_to_length, replace(schedule, softmax_scaling=softmax))

    long = step("long", length)
    if setting.rope.get("short_factor") == setting.rope.get("long_factor"):
        return (long,)
    short = step("short", original)
    return (short, long) if length > original else (short,)  # none is long enough for the others


_READERS: dict[str, Callable[[ConfigReader, _Setting], tuple[PlanStep, ...]]] = {
    "default": _read_default,
    "linear": _read_linear,
    "dynamic": _read_dynamic,
    "yarn": _read_yarn,
    "llama3": _read_llama3,
    "longrope": _read_longrope,
    "proportional": _read_proportional,
}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
