"""The keys of one config: the names under which it states a value, and its family's defaults.

Errors name keys as the file writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.errors import InvalidValue
from ropewalk.models.config.loading import Config, text_part
from ropewalk.models.families import ENCODERS, FAMILIES, UNKNOWN
from ropewalk.untrusted import counted, truth_value

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

    def count(self, key: str, most: int) -> int:
        """A whole number from 1 to `most`, of a key that must be there."""
        return counted(self.need(key), self.written(key), most)
