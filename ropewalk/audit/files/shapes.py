"""The names and shapes of tensors that a config asks for, in the usual naming.

Nearly all decoder models name their weights alike: `embed_tokens`, `layers.N.self_attn.q_proj`,
`mlp.down_proj`. What stands under such a name has the shape that the config gives it. Where a model
type is known to follow the naming, what differs is wrong; elsewhere nothing is established.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ropewalk.audit.files.check import listed
from ropewalk.audit.files.names import (
    NAMINGS,
    after_the_layers,
    in_each_layer,
    is_buffer,
    strangers,
)
from ropewalk.errors import shortened
from ropewalk.gguf.tensors import times
from ropewalk.models.config import Config, ConfigReader, text_config
from ropewalk.runtimes.reading import is_headless, whole
from ropewalk.runtimes.traps.config_keys import CHOSEN, EXPERTS

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Wanted = dict[str, tuple[int | None, ...]]
"""A size is None if the config leaves it to its class."""

USUAL = frozenset(NAMINGS)
"""Model types whose every tensor of these names has these shapes, as their tiny models show."""
_RENAMED = ("cosmos3_omni", "qianfan_ocr")
"""Model types that save the text model in them under other names than its own."""
_TYING = {
    *("cohere", "cohere2", "ernie4_5", "gemma", "gemma2", "gemma3_text", "smollm3", "starcoder2"),
    *("qwen2_5_vl_text", "qwen2_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"),
}
"""Those of them whose class ties the head to the embedding where the config says nothing."""
_EMBEDDING = re.compile(r"(?P<prefix>(?:.*\.)?)(?:embed_tokens|embed_in)\.weight")
_HEAD = re.compile(r"(?:.*\.)?(?:lm_head|embed_out)\.weight")
_EXPERT = re.compile(
    r"(?:.*\.)?experts\.(?P<number>[0-9]{1,5})\."
    r"(?:(?P<up>gate_proj|up_proj|w1|w3)|down_proj|w2)\.weight"
)
_ROUTERS = (*("mlp.gate", "mlp.router", "block_sparse_moe.gate", "block_sparse_moe.router.layer"),)
_TOGETHER = (
    ("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"),
    ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    ("block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"),
)
"""A layer that has one name of a row has all: of a dense one, or of all experts together."""
_OF_EXPERT = (("gate_proj", "up_proj", "down_proj"), ("w1", "w2", "w3"))
_QUANTISED = ("quantization_config", "quantization", "compression_config")
"""The keys of transformers, of MLX, and an older one that vLLM reads too."""
_ACTIVATION = {"alpha_n": (1,), "alpha_p": (1,), "beta": (), "eps": ()}
"""The shapes of the numbers of apertus' activation."""
_QUERIES = ("q_proj", "q_b_proj", "qkv_proj", "query_key_value")


@dataclass(frozen=True)
class Compared:
    """Tensors compared with a config."""

    problems: tuple[str, ...] = ()
    unknown: str = ""
    """Why nothing, or not all, could be compared."""
    rows: int | None = None
    """The rows of the embedding: every token must have one."""


def check_shapes(tensors: Shapes, config: Config) -> Compared:
    """The names and shapes of all tensors, compared with those that the config asks for."""
    reader = ConfigReader(config)
    embeddings = sorted(filter(None, map(_EMBEDDING.fullmatch, tensors)), key=lambda m: m.end())
    if not embeddings:
        said = "no tensor has the usual name of an embedding, so the shapes are not compared"
        return Compared(unknown=said)
    embedding = embeddings[0]
    prefix = embedding["prefix"]
    model = _Model(reader, tensors, prefix)
    problems = list(model.problems(embedding[0]))
    others = any(not name.startswith(prefix) and not _HEAD.fullmatch(name) for name in tensors)
    rows = next(iter(tensors[embedding[0]]), None)
    if not problems and reader.path and not others:
        said = "the config has more than a text model, and no tensor is of another part"
        return Compared(unknown=said, rows=rows)
    kind = reader.outer_type if reader.outer_type in _RENAMED else reader.model_type
    if quantised(config) or kind not in USUAL:
        why = f"the naming of model type {kind[:40]!r} is not known here"
        why = "the weights are quantised" if quantised(config) else why
        first = f" ({problems[0]})" if problems else ""
        said = f"not all shapes are compared with the config: {why}{first}"
        return Compared(unknown=said, rows=rows)
    if not problems and (left := model.left_open()):
        said = f"the config leaves {left} to its class, so not all shapes are compared with it"
        return Compared(unknown=said, rows=rows)
    return Compared(tuple(problems), rows=rows)


def twins(tensors: Iterable[str], config: Config) -> tuple[str, str] | None:
    """The embedding and the head, where the class takes the first for both."""
    embedding, head = next(filter(_EMBEDDING.fullmatch, tensors), None), head_of(tensors)
    both = (embedding, head) if embedding and head else None
    return both if ties(ConfigReader(config)) else None


def head_of(tensors: Iterable[str]) -> str | None:
    """The name of the output head, if it has weights of its own."""
    return min(filter(_HEAD.fullmatch, tensors), key=len, default=None)


def ties(reader: ConfigReader) -> bool | None:
    """True if the class takes the embedding for the head; None if it is not known."""
    inner, outer = (each.get("tie_word_embeddings") for each in (reader.config, reader.outer))
    if reader.path:  # an outer one that ties does so whatever its text model says
        return True if outer is True else inner
    return reader.model_type in _TYING if inner is None and reader.model_type in USUAL else inner


def quantised(config: Config) -> bool:
    """True if a config says that weights are quantised."""
    parts = (config, text_config(config))
    return any(part.get(key) is not None for part in parts for key in _QUANTISED)


@dataclass(frozen=True)
class _Model:
    reader: ConfigReader
    tensors: Shapes
    prefix: str
    """The prefix of `layers.0`."""
    layers: dict[int, dict[str, Shape]] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    """The names of tensors that are in no layer."""

    def __post_init__(self) -> None:
        numbered = re.compile(rf"{re.escape(self.prefix)}layers\.(0|[1-9][0-9]{{0,5}})\.(.+)")
        # Layers that predict further tokens stand behind the others (DeepSeek-V3), with more parts.
        stated = self.count("num_hidden_layers") or 0
        behind = range(stated, stated + (self.count("num_nextn_predict_layers") or 0))
        for name, shape in self.tensors.items():
            if not (match := numbered.fullmatch(name)):
                self.outside.append(name)
            elif int(match[1]) not in behind:
                self.layers.setdefault(int(match[1]), {})[match[2]] = shape

    @property
    def alone(self) -> bool:
        """True for a text model that is no part of another."""
        return not (self.reader.path or "_vl" in self.reader.model_type)

    def problems(self, embedding: str) -> Iterator[str]:
        yield from self._misnamed()
        vocabulary, hidden = self.count("vocab_size"), self.count("hidden_size")
        yield from self._differs(embedding, (vocabulary, hidden))
        tied, head = ties(self.reader), head_of(self.tensors)
        if head is not None:
            yield from self._differs(head, (vocabulary, hidden))
        biased = {"phi": True, "phimoe": self.reader.config.get("lm_head_bias") is True}
        bias = head.replace("weight", "bias") if head and biased.get(self.reader.model_type) else ""
        if bias in self.tensors:
            yield from self._differs(bias, (vocabulary,))
        elif bias:
            yield f"there is no {bias}"
        headless = is_headless(self.reader.outer)
        if head is None and tied is False and not headless:
            yield "there is no lm_head.weight, and the config does not tie it to the embedding"
        yield from self._layer_count()
        wanted = self._by_name()
        for number, shapes in sorted(self.layers.items()):
            for name, shape in wanted.items():
                if name in shapes:
                    yield from self._differs(f"{self.prefix}layers.{number}.{name}", shape)
        yield from self._experts()
        for name in self._last():
            if name in self.tensors:
                yield from self._differs(name, (hidden,))
        yield from self._missing()
        known = (embedding, head, bias, *self._last(), *(("score.weight",) if headless else ()))
        strange = [name for name in self.outside if name not in known and not is_buffer(name)]
        if strange and self.alone and self._last():
            yield f"{listed(strange)}: a {self.reader.model_type!r} has no tensors of that name"

    def left_open(self) -> str:
        """Something that the tensors cannot be compared with, since the config states no number."""
        if not ties(self.reader) and head_of(self.tensors) is None:
            return "the output head"
        if any(self.count(key) is None for key in ("vocab_size", "num_hidden_layers")):
            return "the vocabulary or the number of layers"
        expert = {n for n, each in self.layers.items() if any(".experts." in name for name in each)}
        deep = self.reader.model_type.startswith("deepseek")  # whose classes differ in their own
        if expert and not any(map(self.count, EXPERTS)):
            return "the number of experts"
        if expert and not any(map(self.count, ("moe_intermediate_size", "intermediate_size"))):
            return "the width of experts"
        if expert and self.count(CHOSEN) is None:
            return "the number of experts for a token"
        greedy = self.reader.config.get("topk_method") == "greedy"
        if expert and deep and not greedy and self.count("n_group") is None:
            return "the grouping of experts"
        if expert and self._sparse() is None and (deep or len(expert) < len(self.layers)):
            return "which layers have experts"
        if deep and self.reader.config.get("mlp_bias"):
            return "the biases of its feed-forward parts"
        wanted = self._by_name()
        there = (
            name for each in self.layers.values() for name in each if None in wanted.get(name, ())
        )
        return next((f"a width of {name}" for name in there), "")

    def _sparse(self) -> set[int] | None:
        """The layers to which the config gives experts; None if it leaves them to its class."""
        first, step = self.count("first_k_dense_replace"), self.count("decoder_sparse_step")
        if first is not None:
            return {number for number in self.layers if number >= first}
        dense = self.reader.config.get("mlp_only_layers")
        if step is None and not isinstance(dense, list):
            return None
        usual = {number for number in self.layers if (number + 1) % (step or 1) == 0}
        return {number for number in usual if not isinstance(dense, list) or number not in dense}

    def _misnamed(self) -> Iterator[str]:
        """A prefix that no class of a text model adds or takes off."""
        kind, prefix = self.reader.model_type, self.prefix
        if self.alone and kind in USUAL and prefix not in ("", "model.", f"{kind}."):
            yield f"names begin with {shortened(prefix)}, and those of a {kind!r} do not"

    def count(self, key: str) -> int | None:
        return whole(self.reader.get(key))

    def _differs(self, name: str, wanted: tuple[int | None, ...]) -> Iterator[str]:
        """A width of None is one that the config leaves to its class."""
        shape = self.tensors[name]
        if len(shape) != len(wanted) or any(
            want is not None and want != have for have, want in zip(shape, wanted, strict=True)
        ):
            have, want = (
                " × ".join("any" if size is None else str(size) for size in each) or "one number"
                for each in (shape, wanted)
            )
            yield f"{name} is {have}, and the config asks for {want}"

    def _layer_count(self) -> Iterator[str]:
        stated = self.count("num_hidden_layers")
        there = len(self.layers)
        if stated is not None and there != stated:
            yield f"{there} layers are there, and the config asks for {stated}"
        elif sorted(self.layers) != list(range(there)):
            yield f"{there} layers are there, not numbered from 0 to {there - 1}"

    def _experts(self) -> Iterator[str]:
        """Experts of which each has tensors of its own: how many, and how wide."""
        hidden = self.count("hidden_size")
        inner = self.count("moe_intermediate_size") or self.count("intermediate_size")
        stated = next(filter(None, map(self.count, EXPERTS)), None)
        for number, shapes in sorted(self.layers.items()):
            experts = {name: match for name in shapes if (match := _EXPERT.fullmatch(name))}
            there = len({match["number"] for match in experts.values()})
            if experts and stated is not None and there != stated:
                yield f"layer {number} has {there} experts, and the config asks for {stated}"
            parts = Counter(
                name.partition(f"{match['number']}.")[2] for name, match in experts.items()
            )
            usual = _OF_EXPERT[any(part.startswith("w") for part in parts)]
            lacking = [part for part in usual if parts[f"{part}.weight"] < there]
            if lacking:
                yield f"an expert of layer {number} has no {lacking[0]}.weight"
            for name, match in experts.items():
                wanted = (inner, hidden) if match["up"] else (hidden, inner)
                yield from self._differs(f"{self.prefix}layers.{number}.{name}", wanted)

    def _by_name(self) -> Wanted:
        """The shape that the config gives to each name within a layer."""
        hidden, heads = self.count("hidden_size"), self.count("num_attention_heads")
        inner, stated = self.count("intermediate_size"), self.count("head_dim")
        size = stated or (hidden // heads if hidden and heads else None)
        queries = outputs = times(heads, size)
        keys = times(self.count("num_key_value_heads"), size)
        latent, turned = self.count("kv_lora_rank"), self.count("qk_rope_head_dim")
        unturned, value = self.count("qk_nope_head_dim"), self.count("v_head_dim")
        if latent:  # DeepSeek's attention
            queries, outputs = times(heads, _plus(turned, unturned)), times(heads, value)
            keys = None
        elif self.reader.config.get("num_key_value_heads") is None:
            keys = None  # each class has its own default
        up = ("mlp.gate_proj", "mlp.up_proj", "mlp.c_fc", "mlp.fc1", "mlp.dense_h_to_4h")
        down = ("mlp.down_proj", "mlp.c_proj", "mlp.fc2", "mlp.dense_4h_to_h")
        weights: Wanted = {
            "self_attn.q_proj": (queries, hidden),
            **dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (keys, hidden)),
            **dict.fromkeys(("self_attn.o_proj", "self_attn.dense"), (hidden, outputs)),
            "self_attn.qkv_proj": (_plus(queries, times(2, keys)), hidden),
            "self_attn.q_a_proj": (self.count("q_lora_rank"), hidden),
            "self_attn.q_b_proj": (queries, self.count("q_lora_rank")),
            "self_attn.kv_a_proj_with_mqa": (_plus(latent, turned), hidden),
            "self_attn.kv_b_proj": (times(heads, _plus(unturned, value)), latent),
            "attention.query_key_value": (times(3, hidden), hidden),
            "attention.dense": (hidden, hidden),
            **dict.fromkeys(up, (inner, hidden)),
            **dict.fromkeys(down, (hidden, inner)),
            "mlp.gate_up_proj": (times(2, inner), hidden),
            **self._norms(size, queries, keys),
        }
        biases = {f"{name}.bias": shape[:1] for name, shape in weights.items()}
        named = {f"{name}.weight": shape for name, shape in weights.items()}
        activation = {f"mlp.act_fn.{name}": shape for name, shape in _ACTIVATION.items()}
        return {
            **named,
            **biases,
            **activation,
            "self_attn.sinks": (heads,),
            **self._with_experts(),
        }

    def _norms(self, size: int | None, queries: int | None, keys: int | None) -> Wanted:
        """The shapes of norms: of a layer, and of its queries and keys."""
        hidden, heads = self.count("hidden_size"), self.count("num_attention_heads")
        groups, kind = self.count("num_key_value_heads"), self.reader.model_type
        both: tuple[tuple[int | None, ...], ...] = ((size,), (size,))
        if kind in ("olmo2", "olmo3"):  # of all heads together
            both = (queries,), (keys,)
        elif kind == "olmoe":  # by the width, whatever head_dim says
            both = (hidden,), (times(groups, hidden and heads and hidden // heads),)
        elif kind == "cohere":
            both = (heads, size), (groups, size)
        parts = {name.rpartition(".")[0] for own in self.layers.values() for name in own}
        of_layers = (part for part in parts if part.endswith("norm") and "attn." not in part)
        of_heads = (part for part in parts if "layernorm.norms." in part)  # stablelm
        return {
            **dict.fromkeys(of_layers, (hidden,)),
            **dict.fromkeys(of_heads, (size,)),
            **dict(zip(("self_attn.q_norm", "self_attn.k_norm"), both, strict=True)),
            "self_attn.q_a_layernorm": (self.count("q_lora_rank"),),
            "self_attn.kv_a_layernorm": (self.count("kv_lora_rank"),),
        }

    def _with_experts(self) -> Wanted:
        """The shapes of what chooses among experts, of shared ones, and of all in one tensor."""
        hidden, inner = self.count("hidden_size"), self.count("intermediate_size")
        experts = next(filter(None, map(self.count, EXPERTS)), None)
        narrow = self.count("moe_intermediate_size")
        shared, wide = self.count("shared_expert_intermediate_size"), narrow or inner
        up, down = (times(2, wide), hidden), (hidden, wide)
        if self.reader.model_type == "gpt_oss":  # which multiplies from the other side
            up, down = up[::-1], down[::-1]
        shapes: Wanted = {
            **{f"{name}.weight": (experts, hidden) for name in _ROUTERS},
            **{f"{name}.bias": (experts,) for name in _ROUTERS},
            "mlp.gate.e_score_correction_bias": (experts,),
            "mlp.shared_expert_gate.weight": (shared and 1, hidden),
            "mlp.experts.gate_up_proj": (experts, *up),
            "mlp.experts.gate_up_proj_bias": (experts, times(2, inner)),
            "mlp.experts.down_proj": (experts, *down),
            "mlp.experts.down_proj_bias": (experts, hidden),
            "block_sparse_moe.input_linear.weight": (experts, times(2, inner), hidden),
            "block_sparse_moe.output_linear.weight": (experts, hidden, inner),
        }
        for part, width in (
            ("shared_experts", times(self.count("n_shared_experts"), narrow)),
            ("shared_expert", shared),
        ):
            shapes |= {f"mlp.{part}.{own}_proj.weight": (width, hidden) for own in ("gate", "up")}
            shapes[f"mlp.{part}.down_proj.weight"] = (hidden, width)
        return shapes

    def _last(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}{name}" for name in after_the_layers(self.reader))

    def _missing(self) -> Iterator[str]:
        """Names that the model type asks for or has not, and those that some layers lack.

        Experts may stand in some layers only.
        """
        mixed = any(
            _chooses(shapes) or any(f"{name}.weight" in shapes for name in _ROUTERS)
            for shapes in self.layers.values()
        )
        sparse = self._sparse() if mixed else None
        # A name that some layer has, all should have, unless layers differ by design.
        names = dict.fromkeys(name for shapes in self.layers.values() for name in shapes)
        if not any(part in name for name in names for part in _QUERIES):
            yield "no layer has the usual names of queries"
        alike: dict[bool, set[str]] = defaultdict(set)
        for shapes in self.layers.values():
            alike[_chooses(shapes)] |= {name for name in shapes if not _EXPERT.fullmatch(name)}
        shared = {n: s for n, s in self._with_experts().items() if "shared" in n}
        alike[True] |= {name for name, shape in shared.items() if all(shape)}
        if self.reader.model_type == "deepseek_v3":
            alike[True].add("mlp.gate.e_score_correction_bias")
        stated = self.count("num_hidden_layers") or len(self.layers)
        wanted = in_each_layer(self.reader)
        dense = any(name.startswith("mlp.") for name in wanted) or self._sparse() == set()
        if wanted and not dense and not any(map(_chooses, self.layers.values())):
            yield f"no layer has experts, and those of a {self.reader.model_type!r} have"
        absent = [name for name in self._last() if name not in self.tensors]
        uneven, strange = [], []
        for number, shapes in sorted(self.layers.items()):
            # Layers beyond these predict further tokens, and may have other parts.
            if number >= stated:
                continue
            layer = f"{self.prefix}layers.{number}."
            absent += [layer + name for name in wanted if name not in shapes]
            strange += [layer + name for name in strangers(self.reader, shapes)]
            uneven += [
                layer + name
                for name in names
                if name not in shapes
                and name not in wanted
                and not (mixed and name.startswith("mlp."))
            ]
            if sparse is not None and (number in sparse) != _chooses(shapes):
                have, asked = ("no experts", "some") if number in sparse else ("experts", "none")
                yield f"layer {number} has {have}, and the config asks for {asked}"
            if mixed:
                absent += [layer + name for name in _lacking(shapes, alike[_chooses(shapes)])]
        if absent := list(dict.fromkeys(absent)):
            tensors = "1 tensor" if len(absent) == 1 else f"{len(absent)} tensors"
            yield f"no file holds {tensors} that the config asks for ({listed(absent)})"
        if strange:
            kind = self.reader.model_type
            yield f"{listed(strange)}: no layer of model type {kind!r} has tensors of that name"
        if uneven:
            yield f"no file holds {listed(uneven)}, and other layers have tensors of that name"


def _chooses(shapes: Shapes) -> bool:
    """True if a layer has experts."""
    return any(".experts." in name or ".input_linear." in name for name in shapes)


def _lacking(shapes: Shapes, alike: Collection[str]) -> Iterator[str]:
    """Parts that a layer lacks, and others with experts, or without, have; and parts of a whole."""
    yield from (name for name in alike if name not in shapes)
    for together in _TOGETHER:
        if any(name in shapes for name in together):
            yield from (name for name in together if name not in shapes and name not in alike)
    if _chooses(shapes) and not any(f"{name}.weight" in shapes for name in _ROUTERS):
        yield _ROUTERS[0]
    elif not _chooses(shapes) and any(f"{name}.weight" in shapes for name in _ROUTERS):
        yield "mlp.experts"


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
