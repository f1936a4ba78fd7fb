"""The keys of one config: the names under which it states a value, and its family's defaults.

Errors name keys as the file writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ropewalk.errors import InputError, InvalidValue, Unsupported, shortened
from ropewalk.models.families import ENCODERS, FAMILIES, UNKNOWN
from ropewalk.models.lengths import TRAINED
from ropewalk.untrusted import counted, read_json, text_value, truth_value

Config = dict[str, Any]
_FLOATS = {text: float(text) for text in ("Infinity", "-Infinity", "NaN")}
BUNDLED = "bundled"
"""The name of the model that ships with ropewalk."""
BUNDLED_FOLDER = Path(__file__).parents[1] / BUNDLED
BUNDLED_FOLDERS = {
    BUNDLED: BUNDLED_FOLDER,
    "bundled:2": BUNDLED_FOLDER.with_name("bundled_2"),
    "bundled:3": BUNDLED_FOLDER.with_name("bundled_3"),
}
"""The same model, trained from three seeds: so that it shows how much models differ."""
MAX_CONFIG_BYTES = 2**20
"""Published configs have a few kilobytes, and with the names of 20,000 classes less than this."""
STATED_SCALED = ("su", "longrope", "llama3", "yarn")
"""Rope types whose config states the scaled length."""
LENGTH_BESIDE = ("phi3", "phi4_multimodal")
"""Model types that always have an original length next to the setting, where it has priority."""
SPECULATORS = "transformer_layer_config"
"""The part of a config of vllm-project/speculators that describes the drafter's layers."""
# Where a model of several parts keeps the part that reads text.
_TEXT_PARTS = (
    *("text_config", "thinker_config", "llm_config", "language_config", "vlm_config"),
    *("decoder", "decoder_config", SPECULATORS),
)


def for_stock_class(value: Any) -> Any:
    """A copy of a stored config as its class takes it; JSON has infinity as an object."""
    if isinstance(value, dict):
        if (tag := value.get("__float__")) in _FLOATS and len(value) == 1:
            return _FLOATS[tag]
        return {key: for_stock_class(member) for key, member in value.items()}
    return [for_stock_class(member) for member in value] if isinstance(value, list) else value


def _refuse_adapter(file: Path) -> None:
    """Name the folder of an adapter, which holds a part of a model."""
    if not file.is_file():
        return
    adapter = read_json(file, max_bytes=MAX_CONFIG_BYTES)
    base = adapter.get("base_model_name_or_path") if isinstance(adapter, dict) else None
    of = f" of {shortened(base)}" if base else ""
    raise InputError(
        f"{file.parent}: is the folder of an adapter{of}, not of a model; merge it into its base "
        "(PEFT: merge_and_unload, then save_pretrained), and give that folder"
    )


def load_config(source: object) -> Config:
    """A config as plain JSON: from a config.json, a model's folder, or a transformers object."""
    # A config that is in memory already.
    if isinstance(source, Mapping):
        return dict(source)
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    if not isinstance(source, str | Path):
        raise InputError(
            f"{source!r} is not a config: give a config.json, a folder or a config object"
        )
    # A file, or a folder with one.
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
    # Other JSON files of ours and of the hub are often given by mistake.
    if "schedules" in value and "model_type" not in value:
        raise InputError(
            f"{path}: is a plan, not a model; give the model's folder (a plan goes with --plan; to "
            "check what a plan does, export the model with it, and verify the export)"
        )
    for key, part in (("model_type", value), ("text_config.model_type", value.get("text_config"))):
        if isinstance(part, dict) and part.get("model_type") is not None:
            text_value(part["model_type"], f"{path}: {key}")
    return value


def config_file(path: str | Path) -> Path:
    """The file that holds the config of a folder, or the file itself."""
    path = Path(path)
    try:
        return path / "config.json" if path.is_dir() else path
    except OSError as error:  # a name that no file system takes
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


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


def rope_type(rope: Mapping[str, object]) -> str:
    """The rope type that a setting names, under its new or its old key."""
    return str(rope.get("rope_type") or rope.get("type") or "default")


def text_config(config: Config) -> Config:
    """The part of a config that speaks of the language model: itself, or a part of it."""
    return text_part(config)[0]


def text_part(config: Config) -> tuple[Config, tuple[str, ...]]:
    """The same as `text_config`, and the keys that lead to it."""
    for key in _TEXT_PARTS:
        inner = config.get(key)
        if inner is not None and not isinstance(inner, dict) and key.endswith("_config"):
            raise InvalidValue(f"config.{key}", inner, "must be an object", "write {…}")
        # A decoder that is no more than a number of layers belongs to the config around it.
        if isinstance(inner, dict) and (key == "text_config" or inner.get("model_type")):
            part, path = text_part(inner)
            return part, (key, *path)
    return config, ()


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
METHOD_KEYS = (
    *("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    *("low_freq_factor", "high_freq_factor", "alpha", QUERY_GROWTH),
)
ORIGINAL_LENGTH = "original_max_position_embeddings"
MAX_WIDTH = 2**24
MAX_EPSILON = 0.1
"""A hundred times the largest of any published model: above it, a norm divides by little else."""
CARRIED_KEYS = ("mrope_section", "mrope_interleaved", "interleaved", "xdrope_section")
"""Keys that a new setting must keep: the model needs them, and no method changes them.

They say what of each pair's position comes from time, height and width of a picture. That says
nothing of frequencies, and all three are equal in text."""
# Every key that a rope dict may have and that we know the meaning of.
KNOWN_KEYS = {
    *METHOD_KEYS,  # among them Hunyuan's alpha
    *CARRIED_KEYS,
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "finetuned", ORIGINAL_LENGTH),
    *("truncate", "short_factor", "long_factor", "short_mscale", "long_mscale"),
    "attn_factor",  # SGLang's, beside attention_factor
    "max_position_embeddings",  # Ministral 3 repeats it here
    "layer_type",  # ours: whose setting it is
}


class ConfigKeys:
    """One config, with its family's defaults behind it."""

    def __init__(self, config: Config, *, trained: int | None = None) -> None:
        self.trained = trained
        """The trained length, if somebody states it besides the config."""
        self.outer = config
        self.config, self.path = text_part(config)
        self.prefix = "".join(f"{key}." for key in self.path)
        """The prefix of this config's keys in its file."""
        self.model_type = str(self.config.get("model_type") or config.get("model_type") or "")
        self.family = FAMILIES.get(self.model_type, UNKNOWN)

    @property
    def outer_type(self) -> str:
        """The type of the model that holds this one; empty if none does."""
        return str(self.outer.get("model_type") or "") if self.path else ""

    @property
    def is_encoder(self) -> bool:
        """True if it predicts no next token: by its type, or by keys under which all see all."""
        both = self.config.get("use_bidirectional_attention") in (True, "all")
        both &= self.outer_type != "paligemma"  # it sees a whole prompt, and writes
        return both or self.flag("is_causal") is False or self.model_type in ENCODERS

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
        fixed = self.family.defaults.get("own_base") and not self.config.get(self.rope_key)
        return (*self.family.unread, *(["rope_theta"] if fixed else []))

    def _names_of(self, key: str) -> tuple[str, ...]:
        """The names under which a config of this type may state a key, the family's own first."""
        first = self.family.names.get(key)
        usual = (name for name in ALIASES.get(key, (key,)) if name not in self.unread)
        return (*((first,) if first else ()), *usual)

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

    def count(self, key: str, most: int) -> int:
        """A whole number from 1 to `most`, of a key that must be there."""
        return counted(self.need(key), self.written(key), most)
