"""The sizes of a model, by its config: weights, cache of each token, computation of each token.

Weights are counted by the formula of a transformer's layer, for model types where a test finds this
equal to the stock model's own count; else in an empty stock model, which needs torch.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ropewalk.errors import InvalidValue, Unsupported, first_line
from ropewalk.extras import required_by
from ropewalk.models.config import Config, ConfigReader, for_stock_class
from ropewalk.models.source import Source
from ropewalk.untrusted import whole_number

Kind = Literal["full", "sliding", "latent", "linear", "shared"]
Norms = Literal["half", "single", "torch"]
"""The precision in which a norm multiplies by its weights: in the number format of the model, in
float32, or within a kernel of torch."""
_TYPES = json.loads(Path(__file__).with_name("model_types.json").read_text(encoding="utf-8"))
BY_FORMULA = frozenset(_TYPES["by_formula"])
"""The model types whose weights the formula counts."""
TWO_MATRICES = frozenset(_TYPES["two_matrices"])
"""The model types whose feed-forward layers have no gate."""
NORMED_KEYS = frozenset(_TYPES["normed_keys"])
"""The model types whose queries and keys go through norms of their own."""
FOUR_NORMS = frozenset(_TYPES["four_norms"])
"""The model types that norm before and after attention and feed-forward part; others do one."""
ONE_NORM = frozenset(_TYPES["one_norm"])
NORMS_IN_SINGLE = frozenset(_TYPES["norms_in_single"])
"""The model types whose norms multiply by their weights in float32, before they round."""
NORMS_OF_TORCH = frozenset(_TYPES["norms_of_torch"])
"""The model types with torch's own layer norm, which keeps what it was given and nothing else."""
PATTERNS = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}
"""For configs that list no layer types: every n-th layer has no window."""
SLIDING = ("sliding_attention", "chunked_attention", "sliding", "local")
LINEAR = ("linear_attention", "mamba", "conv", "recurrent")
COMPRESSED = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""DeepSeek-V4's layers that keep one latent for so many tokens, unless compress_rates differs."""
KEY_HEADS = "num_key_value_heads"
_MOST, _MOST_LAYERS = 2**40, 4096


@dataclass(frozen=True)
class Layer:
    """The memory that one layer keeps of a text, and the cost of a pair of positions."""

    kind: Kind
    keeps: int
    """Numbers for each token: keys and values, or the latents that MLA makes them from."""
    state: int = 0
    """Numbers whatever the length."""
    window: int | None = None
    width: int = 0
    """The width of all heads: products of a pair of positions for its score, and its value."""
    compressed: float = 0.0
    """Numbers for each token of the whole text, where `keeps` is for those of the window."""

    def kept(self, length: int) -> int:
        """Numbers kept of a text."""
        near = self.keeps * min(length, self.window or length)
        return near + int(self.compressed * length) + self.state

    def pairs(self, length: int) -> float:
        """Pairs of positions that it compares in a text."""
        if not self.width:
            return 0.0
        if self.window is None or self.window >= length:
            return length * (length + 1) / 2
        return self.window * (length - (self.window - 1) / 2)


@dataclass(frozen=True)
class Sizes:
    """A model's sizes; weights are counted as numbers, not as bytes."""

    weights: int
    active: int
    """Weights that a token is multiplied by: all but the looked-up table and experts not chosen."""
    layers: tuple[Layer, ...]
    hidden: int
    inner: int
    """The widest that a token gets within a layer's feed-forward part."""
    vocabulary: int
    heads: int
    key_heads: int
    table: int
    """Weights of the embeddings, and of the head if it has its own."""
    normed: int
    """Numbers of a token that go through norms, within a layer."""
    norms: Norms = "half"

    @property
    def layer_weights(self) -> int:
        """The weights of one layer, on average."""
        return (self.weights - self.table) // max(1, len(self.layers))

    def cache(self, length: int) -> int:
        """Numbers that are kept of a text of this length."""
        return sum(layer.kept(length) for layer in self.layers)

    def operations(self, length: int, pairs: int | None = None) -> float:
        """Multiplications and additions of one forward over a text.

        A layout leaves so many `pairs` of positions to layers without a window (default: all).
        """
        compared = sum(
            2 * layer.width * (pairs if pairs and not layer.window else layer.pairs(length))
            for layer in self.layers
        )
        return 2 * (self.active * length + compared)


def sizes_of(config: Config) -> Sizes:
    """The sizes of the part of a model that reads text."""
    text = _Text(config)
    layers = tuple(text.layers())
    weights, active = text.weights(layers)
    table = text.need("vocab_size") * text.need("hidden_size")
    return Sizes(
        weights=weights,
        active=active,
        layers=layers,
        hidden=text.need("hidden_size"),
        inner=text.inner(),
        vocabulary=text.need("vocab_size"),
        heads=text.need("num_attention_heads"),
        key_heads=text.key_heads,
        table=table if text.tied else 2 * table,
        normed=text.normed(),
        norms=text.norms,
    )


class _Text:
    """A config, asked for sizes."""

    def __init__(self, config: Config) -> None:
        self.whole = config
        reader = ConfigReader(config)
        self.get, self.type = reader.get, reader.model_type

    def need(self, key: str) -> int:
        value = self.get(key)
        if value is None:
            raise InvalidValue(
                key,
                None,
                f"is missing in the config of this {self.type}, and the cost depends on it",
                "give the config.json of the model itself",
            )
        return self.count(key, value)

    def count(self, key: str, value: object, least: int = 0, most: int = _MOST) -> int:
        number = whole_number(value, key)
        if not least <= number <= most:
            raise InvalidValue(key, number, "is not a model's size", "correct the config")
        return number

    def number(self, key: str, default: int = 0, least: int = 0) -> int:
        value = self.get(key)
        return default if value is None else self.count(key, value, least)

    @property
    def tied(self) -> bool:
        for value in (self.get("tie_word_embeddings"), self.whole.get("tie_word_embeddings")):
            if value is not None:
                return bool(value)
        return self.type.startswith(("gemma", "cohere")) or self.type in ("starcoder2", "smollm3")

    @property
    def key_heads(self) -> int:
        if self.get("multi_query"):
            return 1
        return self.number(KEY_HEADS, self.need("num_attention_heads"), least=1)

    @property
    def head(self) -> int:
        return self.number("head_dim") or self.need("hidden_size") // max(
            1, self.need("num_attention_heads")
        )

    def inner(self) -> int:
        """The widest of the feed-forward parts that a token goes through."""
        stated = self.get("intermediate_size")
        if isinstance(stated, list):  # one for each layer, as in Gemma 3n
            return max((self.count("intermediate_size", each) for each in stated), default=0)
        dense = self.number("intermediate_size", 4 * self.need("hidden_size"))
        experts = self.number("moe_intermediate_size", dense) * max(
            1, self.number("num_experts_per_tok", 1)
        )
        return max(dense, experts) if self.experts else dense

    @property
    def experts(self) -> int:
        keys = ("n_routed_experts", "num_local_experts", "num_experts")
        return next((self.number(key) for key in keys if self.get(key)), 0)

    def normed(self) -> int:
        """The norms of the residual stream, and those of queries, keys and latents."""
        count = 4 if self.type in FOUR_NORMS else 1 if self.type in ONE_NORM else 2
        wide = count * self.need("hidden_size")
        if latent := self.number("kv_lora_rank"):
            return wide + latent + self.number("q_lora_rank")
        if self.type in NORMED_KEYS or self.get("use_qk_norm") or self.get("qk_layernorm"):
            wide += self.head * (self.need("num_attention_heads") + self.key_heads)
        return wide

    @property
    def norms(self) -> Norms:
        if self.type in NORMS_OF_TORCH:
            return "torch"
        return "single" if self.type in NORMS_IN_SINGLE else "half"

    # --- layers ------------------------------------------------------------------------------

    def names(self, count: int) -> list[str]:
        """The types of the layers, if they are stated; DeepSeek-V4's own config has their rates."""
        keys = ("layer_types", "layers_block_type", "compress_ratios")
        key = next((key for key in keys if self.get(key)), "")
        stated = self.get(key) if key else []
        if key and (not isinstance(stated, list | tuple) or len(stated) < count):
            rule = f"must list the {count} layers that num_hidden_layers says"
            raise InvalidValue(key, stated, rule, "correct the config")
        by_rate = {0: "sliding", **{rate: name for name, rate in COMPRESSED.items()}}
        return [by_rate.get(x, "") if isinstance(x, int) else str(x) for x in stated[:count]]

    def kinds(self) -> list[Kind]:
        count = self.count("num_hidden_layers", self.need("num_hidden_layers"), 1, _MOST_LAYERS)
        window = self.number("sliding_window")
        if names := self.names(count):
            return [self._kind(name, window) for name in names]
        every = self.number("full_attention_interval")
        if every:
            return ["full" if (i + 1) % every == 0 else "linear" for i in range(count)]
        if not window or self.get("use_sliding_window") is False:
            return ["full"] * count
        pattern = self.number("sliding_window_pattern", PATTERNS.get(self.type, 0))
        if pattern:
            return ["full" if (i + 1) % pattern == 0 else "sliding" for i in range(count)]
        first = self.number("max_window_layers") if self.get("use_sliding_window") else 0
        return ["full" if i < first else "sliding" for i in range(count)]

    @staticmethod
    def _kind(name: str, window: int) -> Kind:
        if name in LINEAR:
            return "linear"
        return "sliding" if name in SLIDING and window else "full"

    def layers(self) -> list[Layer]:
        heads, window = self.need("num_attention_heads"), self.number("sliding_window")
        latent, turned = self.number("kv_lora_rank"), self.number("qk_rope_head_dim")
        of_latents = self.number("qk_nope_head_dim") + turned + self.number("v_head_dim")
        kinds = self.kinds()
        names = self.names(len(kinds))
        stored = len(kinds) - self.number("num_kv_shared_layers")
        layers = []
        for i, kind in enumerate(kinds):
            if kind == "linear":
                layers.append(Layer(kind, 0, state=self._state()))
                continue
            at = window if kind == "sliding" else None
            if names and names[i] in COMPRESSED:
                layers.append(self._compressed(names[i]))
                continue
            keeps, width = latent + turned, heads * of_latents // 2
            if not latent:
                head, key_heads = self._heads(i, kind)
                keeps, width = 2 * key_heads * head, heads * head
            if i >= stored:
                layers.append(Layer("shared", 0, window=at, width=width))
            else:
                layers.append(Layer("latent" if latent else kind, keeps, window=at, width=width))
        return layers

    def _compressed(self, name: str) -> Layer:
        """A layer of DeepSeek-V4: one latent a token in a window, and one for many before it."""
        stated = self.get("compress_rates")
        rates = {**COMPRESSED, **(stated if isinstance(stated, dict) else {})}
        rate = self.count("compress_rates", rates[name], 1)
        index = self.number("index_head_dim") if name == "compressed_sparse_attention" else 0
        return Layer(
            "latent",
            self.head,
            window=self.number("sliding_window", least=1),
            width=self.need("num_attention_heads") * self.head,
            compressed=(self.head + index) / rate,
        )

    def _heads(self, i: int, kind: Kind) -> tuple[int, int]:
        """The size of a layer's heads, and its key heads: Gemma 4's full layers have their own."""
        head, key_heads, stated = self.head, self.key_heads, self.get("per_layer_config")
        for at, own in stated.items() if isinstance(stated, dict) else ():
            if str(at).isdecimal() and int(at) == i and isinstance(own, dict):
                head = self.count("head_dim", own.get("head_dim", head), 1)
                return head, self.count(KEY_HEADS, own.get(KEY_HEADS, key_heads), 1)
        if kind == "full":
            head = self.number("global_head_dim", head, least=1)
            if self.get("attention_k_eq_v"):
                key_heads = self.number("num_global_key_value_heads", key_heads, least=1)
        return head, key_heads

    def _state(self) -> int:
        """The state of a layer without attention: a matrix a head, or some numbers a channel."""
        if heads := self.number("linear_num_value_heads"):
            keys, values = self.number("linear_key_head_dim"), self.number("linear_value_head_dim")
            return heads * keys * values
        inner = self.number("mamba_expand", 2) * self.need("hidden_size")
        return inner * self.number("mamba_d_state", self.number("conv_L_cache", 16))

    # --- weights -----------------------------------------------------------------------------

    def weights(self, layers: Sequence[Layer]) -> tuple[int, int]:
        """All weights, and those that a token is multiplied by."""
        width, vocabulary = self.need("hidden_size"), self.need("vocab_size")
        table = vocabulary * width
        idle = sum(self._idle(i) for i in range(len(layers)))
        if self.type in BY_FORMULA:
            whole = table * (1 if self.tied else 2)
            whole += sum(self._attention() + self._feed_forward(i) for i in range(len(layers)))
        else:
            whole = sum(weight.numel() for weight in empty_model(self.whole).parameters())
        return whole, whole - idle - (0 if self.tied else table)

    def _attention(self) -> int:
        width, heads = self.need("hidden_size"), self.need("num_attention_heads")
        if latent := self.number("kv_lora_rank"):
            plain, turned = self.number("qk_nope_head_dim"), self.number("qk_rope_head_dim")
            values, query = self.number("v_head_dim"), self.number("q_lora_rank")
            turning = heads * (plain + turned)
            queries = query * (width + turning) if query else width * turning
            keys = width * (latent + turned) + latent * heads * (plain + values)
            return queries + keys + heads * values * width
        return self.head * width * (2 * heads + 2 * self.key_heads)

    def _feed_forward(self, i: int) -> int:
        width = self.need("hidden_size")
        if not self._has_experts(i):
            matrices = 2 if self.type in TWO_MATRICES else 3
            return matrices * width * self.number("intermediate_size", 4 * width)
        shared = self.number("n_shared_experts") or self.number("num_shared_experts")
        always = shared * self._expert()
        for key in ("shared_expert_intermediate_size", "shared_intermediate_size"):
            always += 3 * width * self.number(key)
        return self.experts * self._expert() + always + width * self.experts

    def _expert(self) -> int:
        inner = self.number("moe_intermediate_size") or self.need("intermediate_size")
        return 3 * self.need("hidden_size") * inner

    def _has_experts(self, i: int) -> bool:
        dense = i < self.number("first_k_dense_replace") or i in (self.get("mlp_only_layers") or ())
        if dense or not self.experts:
            return False
        return (i + 1) % max(1, self.number("decoder_sparse_step", 1)) == 0

    def _idle(self, i: int) -> int:
        """Weights of experts that a token does not choose."""
        if not self._has_experts(i):
            return 0
        return max(0, self.experts - self.number("num_experts_per_tok", 1)) * self._expert()


def empty_model(config: Config) -> Any:
    """The stock model of a config, without its weights."""
    with required_by(f"counting the weights of a {config.get('model_type')}"):
        importlib.import_module("transformers")
    return _made(json.dumps(dict(config), sort_keys=True, default=str))


@lru_cache(maxsize=1)
def _made(text: str) -> Any:
    import torch
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoConfig,
        AutoModelForCausalLM,
    )

    config = json.loads(text)
    kind = config.pop("model_type", None)
    uncounted = f"the weights of a {kind} cannot be counted here"
    if kind not in CONFIG_MAPPING:
        raise Unsupported(f"{uncounted}: transformers has no such model type")
    try:
        made = AutoConfig.for_model(kind, **for_stock_class(config))
        if type(made) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise Unsupported(f"{uncounted}: transformers has no text model of this type")
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(made)
    except Unsupported:
        raise
    except Exception as error:  # whatever classes raise whose config lacks or misstates a key
        raise Unsupported(f"{uncounted} ({first_line(error)[:200]})") from None


def config_of(source: Source) -> dict[str, Any]:
    """The config, with the sizes that the catalogue knows."""
    sizes = source.value.sizes if source.kind == "catalogue" else {}
    return {**source.config, **sizes}
