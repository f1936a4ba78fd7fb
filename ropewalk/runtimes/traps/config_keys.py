"""Traps in the keys of a config, in the assumptions made in reading them, and in loading it.

- `factor-count`: the number of factors is not the number of pairs; transformers only warns
- `ignored-key`: no runtime reads this key under this rope type; it is often misspelt
- `no-rope-type`: a rope setting without its type is taken for plain RoPE
- `theta-missing`: the config states no base, and each runtime has its own default
- `theta-conflict`: `rope_theta` differs from the value in `rope_parameters`: transformers 4 and 5
  disagree
- `scaling-conflict`: `rope_scaling` and `rope_parameters` differ
- `original-length-missing`: the extended length is taken for the original length
- `factor-recomputed`: (note) exllamav3 and transformers up to 4.55 compute another YaRN factor,
  max_position_embeddings / original length
- `truncate-ignored`: yarn's ramp still begins and ends at whole pairs: llama.cpp, and
  transformers if `truncate` is inside a layer type
- `not-causal`: config (`is_causal`, `use_bidirectional_attention`) or file (`attention.causal`)
  lets tokens see later ones; a note for encoders
- `window-missing`: `layer_types` has layers with a sliding window, but no window is stated,
  switched on or read
- `refused`: the runtime refuses to load it, or a value lets it compute nothing of use
- `assumption`: (note) the config leaves open how the model rotates, and ropewalk assumes
  one reading
- `remote-code`: (note) the config names custom code, which was not run
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.errors import RopewalkError, shortened
from ropewalk.lengths import format_length
from ropewalk.models.config import (
    MAX_EPSILON,
    ORIGINAL_LENGTH,
    Config,
    ConfigReader,
    for_stock_class,
)
from ropewalk.models.families import ENCODERS, UNKNOWN
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.reading import STOCK, kind_of, number, whole

_TABLE = json.loads(Path(__file__).with_name("config_keys.json").read_text(encoding="utf-8"))
# What at least one runtime reads, by rope type.
_READ = {kind: set(keys) for kind, keys in _TABLE["read"].items()}
# What the classes ask for as they load a setting of a rope type.
_NEEDED = {kind: set(keys) for kind, keys in _TABLE["needed"].items()}
# What other types take where a setting leaves these out: written anyway, they ask for nothing.
_NEUTRAL = _TABLE["neutral"]
# Model types whose class forgets the window unless `use_sliding_window` is true.
_SWITCHED = set(_TABLE["switched"])
# Those whose class in transformers has one mask for all layers, whatever layer_types says.
_WINDOWLESS = set(_TABLE["windowless"])
# Those whose class has a window, by this default, and attends without it: only its cache is cut.
UNMASKED = _TABLE["unmasked"]
# Those whose class takes rope_scaling, null too, for all of its rope settings, and then has none.
_ERASED = set(_TABLE["erased"])
# Those that take the number of factors from the hidden size, whatever `head_dim` says.
_OF_THE_WIDTH = set(_TABLE["of_the_width"])
# What the classes take, and check when they load; both engines load configs with these classes.
KINDS = Path(__file__).with_name("config_kinds.json")
_TAKEN = json.loads(KINDS.read_text(encoding="utf-8"))
_WORDS_OF = {**_TAKEN["words"], **_TABLE["words"]}
_NUMBER_OF = {kind: number for number, kind in enumerate(_TAKEN["types"])}
_WORDS = {
    "NoneType": "null",
    "bool": "true or false",
    "dict": "an object",
    "float": "a number with a point",
    "int": "a whole number",
    "list": "a list",
    "str": "text",
}
_WORD_KEYS = {
    **dict.fromkeys(("hidden_act", "hidden_activation"), "activation"),
    **dict.fromkeys(("dtype", "torch_dtype"), "dtype"),
    "topk_method": "routing",
}
# What generation_config.json may state; below the least of a penalty, generation divides by 0.
_GENERATION = {
    "repetition_penalty": (1e-9, math.inf),
    "temperature": (0, math.inf),
    "top_p": (0, 1),
    "top_k": (-1, math.inf),
    "min_p": (0, 1),
    "num_beams": (1, math.inf),
    "max_new_tokens": (1, math.inf),
}
_SCALES = {"factor", "short_factor", "long_factor", "beta_fast", "low_freq_factor"}


def ignored_keys(subject: ExaminedModel) -> Iterator[Finding]:
    """Keys that no runtime reads under this rope type, misspelt or left over from another."""
    for rope in _stated_ropes(subject):
        kind = kind_of(rope)
        neutral = {**_NEUTRAL}
        if rope.get("mscale") == rope.get("mscale_all_dim"):  # what counts is their ratio
            neutral["mscale_all_dim"] = rope.get("mscale")
        if kind not in _READ or not {"rope_type", "type"} & set(rope):
            continue
        for key in sorted(set(rope).difference(_READ[kind], _TABLE["always"])):
            yield Finding(
                "ignored-key",
                (),
                f"{key} = {_shown(rope[key])} is in a rope setting of type {kind!r}",
                "no runtime reads it there, so it has no effect",
                "remove it, or correct its name or the type; type "
                f"{kind!r} reads {', '.join(sorted(_READ[kind])) or 'no keys of its own'}",
                # Beside a plan, all that it should do is compared: what is left over is harmless.
                wrong=not subject.planned and rope[key] != neutral.get(key),
            )


def no_rope_type(subject: ExaminedModel) -> Iterator[Finding]:
    for rope in _stated_ropes(subject):
        if "rope_type" not in rope and "type" not in rope and set(rope) & _SCALES:
            yield Finding(
                "no-rope-type",
                (),
                f"a rope setting with {', '.join(sorted(set(rope) & _SCALES))} has no rope_type",
                "transformers takes it for plain RoPE and silently ignores the rest",
                'add "rope_type"',
            )


def factor_count(subject: ExaminedModel) -> Iterator[Finding]:
    reader = subject.reader
    for rope in _stated_ropes(subject):
        if kind_of(rope) != "longrope":
            continue
        full = {**rope, "rope_theta": rope.get("rope_theta") or reader.get("rope_theta") or 1e4}
        try:
            pairs = reader.geometry(full, 1).pairs
        except RopewalkError:
            continue
        for name in ("short_factor", "long_factor"):
            factors = rope.get(name)
            count = len(factors) if isinstance(factors, list) else 0
            if count != pairs:
                yield Finding(
                    "factor-count",
                    (),
                    f"{name} has {count} factors, and the heads of this model turn as {pairs} "
                    "pairs",
                    "transformers only warns; then one factor stretches over all pairs, or the "
                    "model cannot be built",
                    f"write {pairs} factors, one for each pair",
                )


def theta_missing(subject: ExaminedModel) -> Iterator[Finding]:
    inner = subject.inner
    if not isinstance(inner.get("rope_parameters"), Mapping):
        return
    stated = [inner.get(key) for key in ("rope_theta", "rotary_emb_base", "global_rope_theta")]
    for rope in _stated_ropes(subject):
        if rope.get("rope_theta") is None and not any(stated):
            yield Finding(
                "theta-missing",
                (),
                "the config states no rope_theta",
                "each runtime has its own default, mostly 10000, whatever base the model "
                "was pretrained with",
                'write the model\'s base as "rope_theta" into rope_parameters',
            )
            return


def original_length_missing(subject: ExaminedModel) -> Iterator[Finding]:
    reader = subject.reader
    for rope in _stated_ropes(subject):
        kind = kind_of(rope)
        if kind not in ("yarn", "llama3", "longrope"):
            continue
        if "original_max_position_embeddings" in rope or reader.get(
            "original_max_position_embeddings"
        ):
            continue
        stated = reader.get("max_position_embeddings")
        if isinstance(stated, int) and stated >= subject.length:
            yield Finding(
                "original-length-missing",
                (),
                f"{kind} without original_max_position_embeddings, beside max_position_embeddings "
                f"= {stated}",
                f"every runtime takes {format_length(stated)} for the length of pretraining, and "
                "scales the wrong pairs",
                "write original_max_position_embeddings into the rope setting",
            )


def factor_recomputed(subject: ExaminedModel) -> Iterator[Finding]:
    """A factor of YaRN that is not the ratio of the two lengths next to it."""
    stated = subject.reader.get("max_position_embeddings")
    for rope in _stated_ropes(subject):
        factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
        numbers = all(isinstance(n, int | float) for n in (factor, original, stated))
        if kind_of(rope) != "yarn" or not numbers or not original:
            continue
        ratio = stated / original
        if abs(ratio / factor - 1) > 1e-3 if factor else False:
            yield Finding(
                "factor-recomputed",
                (),
                f"YaRN's factor is {factor:g}, and max_position_embeddings is {ratio:.4g} times "
                f"the original length {original}",
                "exllamav3, and transformers up to 4.55, take that ratio and ignore the factor",
                f"for those, write max_position_embeddings = {factor * original:g}",
                wrong=False,
            )


def truncate_nested(subject: ExaminedModel) -> Iterator[Finding]:
    setting = subject.inner.get("rope_parameters") or subject.inner.get("rope_scaling")
    if not isinstance(setting, Mapping):
        return
    for layer_type, rope in setting.items():
        if not isinstance(rope, Mapping) or "truncate" not in rope:
            continue
        if rope["truncate"] != setting.get("truncate", True):
            yield Finding(
                "truncate-ignored",
                ("transformers",),
                f"truncate = {_shown(rope['truncate'])} stands inside the setting of {layer_type}",
                "transformers looks for it beside the layer types only and takes the default: the "
                "pairs at the ends of the ramp turn at other speeds",
                "write truncate beside the layer types too, or export the factors as longrope",
            )


def window_missing(subject: ExaminedModel) -> Iterator[Finding]:
    """Layers with a sliding window of no length, or in a class that does not read them."""
    inner, kinds = subject.inner, subject.inner.get("layer_types")
    kind = subject.reader.model_type
    for key in ("sliding_window", "attention_chunk_size"):
        unmasked = kind in UNMASKED and key == "sliding_window"
        window = number(inner.get(key, UNMASKED[kind] if unmasked else None))
        known = _kinds(kind, key) or _kinds(kind, "layer_types")
        unread = unmasked or (kind in _NUMBER_OF and not known)
        if kinds is None and window is not None and window < subject.length and unread:
            what = "masks nothing by it" if unmasked else "has no such key"
            yield Finding(
                "window-missing",
                (STOCK,),
                f"{key} = {shortened(window)} is stated, and transformers' {kind} {what}",
                "its attention sees everything, and decodes by a cache that is cut to the window",
                f"{f'write {subject.length}' if unmasked else f'remove {key}'}; for layers with a "
                "window, use a model type whose class has them",
            )
    if not isinstance(kinds, list) or SLIDING_ATTENTION not in kinds:
        return
    off = kind in _SWITCHED and not inner.get("use_sliding_window")
    if off or not inner.get("sliding_window", True):
        yield Finding(
            "window-missing",
            (),
            f"layer_types has {kinds.count(SLIDING_ATTENTION)} layers with a sliding window, and "
            + ("use_sliding_window is not true" if off else "sliding_window states no length"),
            "transformers fails when it runs; elsewhere these layers may see everything",
            f"state the window that the model was trained with, or write {FULL_ATTENTION!r}",
        )
    elif kind in _WINDOWLESS:
        yield Finding(
            "window-missing",
            (STOCK,),
            f"layer_types has layers with a sliding window, which transformers' {kind} does not "
            "read",
            "it has one mask for all layers, and decodes by a cache that is cut to the window; "
            "vLLM follows layer_types",
            f"write {FULL_ATTENTION!r} if all layers were trained to see everything; else use a "
            "model type whose class has such windows",
        )


def scaling_null(subject: ExaminedModel) -> Iterator[Finding]:
    inner, kind = subject.inner, subject.reader.model_type
    if kind in _ERASED and "rope_scaling" in inner and not inner["rope_scaling"]:
        yield Finding(
            "refused",
            tuple(r.runtime for r in subject.readings if r.runtime in (STOCK, *ENGINE_NAMES)),
            f"rope_scaling = {inner['rope_scaling']} is stated, and transformers' {kind} takes it "
            "for its rope_parameters",
            "it does not load",
            "remove rope_scaling (ropewalk export does)",
        )


def _stated_ropes(subject: ExaminedModel) -> list[Config]:
    """Each layer type's own setting, without the keys that are null."""
    settings = []
    for rope in subject.stated_settings:
        nested = [dict(value) for value in rope.values() if isinstance(value, Mapping)]
        settings += nested or [rope]
    return [{key: v for key, v in rope.items() if v is not None} for rope in settings]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def assumed(subject: ExaminedModel) -> Iterator[Finding]:
    """Those on which runtimes are known to differ are wrong; the others inform."""
    for name, text in subject.assumptions:
        if name == "theta-conflict" and len(subject.ropes) == 1:
            yield Finding(
                "theta-conflict",
                (),
                text,
                "transformers 4 and readers of its keys follow the config's own base",
                "write the same base in both, or only in rope_parameters",
            )
        elif name == "scaling-conflict":
            yield Finding(
                "scaling-conflict",
                (),
                text,
                "some readers follow rope_parameters, so runtimes serve different models",
                "keep one of the two",
            )
        elif name == "encoder":
            yield Finding(
                "not-causal",
                (),
                text,
                "text that it writes is garbage, however it rotates",
                "leave is_causal and use_bidirectional_attention out of its config, unless it was "
                "trained to see later tokens",
                wrong=_writes_text(subject),
            )
        elif name != "theta-conflict":
            yield Finding(
                "assumption",
                (),
                text,
                "a runtime that reads the config differently will serve a different model",
                "correct the config, or check that this is meant",
                wrong=False,
            )


def _writes_text(subject: ExaminedModel) -> bool:
    """True if an architecture that writes text is stated, so the model is not meant to encode."""
    names, kind = subject.config.get("architectures"), subject.reader.model_type
    stated = " ".join(map(str, names)) if isinstance(names, list) else ""
    return kind not in ENCODERS and bool(re.search("For(CausalLM|ConditionalGeneration)", stated))


LAYERS, HEADS, KEYS = "num_hidden_layers", "num_attention_heads", "num_key_value_heads"
CHOSEN = "num_experts_per_tok"
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def remote_code(subject: ExaminedModel) -> Iterator[Finding]:
    if subject.config.get("auto_map"):
        yield Finding(
            "remote-code",
            (),
            "the config names custom code (auto_map)",
            "with trust_remote_code that code runs in place of the stock model that was read here; "
            "ropewalk never runs it",
            "load the model without trust_remote_code",
            wrong=False,
        )


def refused(subject: ExaminedModel) -> Iterator[Finding]:
    if any((*factor_count(subject), *scaling_null(subject))):  # named already, and better
        return
    unfit = _bad_counts(subject) or _bad_kind(subject) or _bad_labels(subject.config)
    for reading in subject.readings:
        if unfit:
            yield Finding(
                "refused",
                (reading.runtime,),
                unfit,
                "it does not run",
                "correct this in the config",
            )
        elif reading.refused:
            yield Finding(
                "refused",
                (reading.runtime,),
                reading.refused,
                "it does not load",
                "correct that value, or export the model again",
            )


def generation_refused(subject: ExaminedModel) -> Iterator[Finding]:
    """A generation config that does not load, or with which every generation fails."""
    if rule := _bad_generation(subject.generation):
        yield Finding(
            "refused",
            (STOCK, *ENGINE_NAMES),
            f"generation_config.json: {rule}",
            "it does not load, or fails when it writes",
            "correct this there, or remove it",
        )


def _bad_generation(stated: object) -> str:
    if not isinstance(stated, Mapping):
        return "is not a JSON object"
    for key, (least, most) in _GENERATION.items():
        value = stated.get(key)
        if value is not None and ((size := number(value)) is None or not least <= size <= most):
            return f"{key} = {shortened(value)}: must be a number from {least:g} to {most:g}"
    for key in ("eos_token_id", "bos_token_id", "pad_token_id"):
        value = stated.get(key)
        items = value if isinstance(value, list) else [value]
        if value is not None and any(whole(item) is None for item in items):
            return f"{key} = {shortened(value)}: must be a whole number, or a list of such"
    if (words := stated.get("bad_words_ids")) is not None and (
        not isinstance(words, list) or not words or not all(words)
    ):
        return f"bad_words_ids = {shortened(words)}: must be a list of lists of tokens"
    cache = stated.get("cache_implementation")
    if cache is not None and cache not in _TABLE["caches"]:
        known = ", ".join(_TABLE["caches"])
        return f"cache_implementation = {shortened(cache)}: is not one of {known}"
    return ""


def _bad_counts(subject: ExaminedModel) -> str:
    """Counts with which no model runs, though transformers builds some without a word."""
    if not subject.config:
        return ""
    counts = {key: whole(subject.reader.get(key)) for key in (LAYERS, HEADS, KEYS, CHOSEN)}
    for key, count in counts.items():
        if count is not None and count < 1:
            return f"{key} = {count}: must be at least 1"
    if fault := _bad_routing(subject.reader):
        return fault
    heads, keys = counts[HEADS], counts[KEYS]
    wide, head = whole(subject.reader.get("hidden_size")), whole(subject.reader.get("head_dim"))
    scaled = any(kind_of(rope) != "default" for rope in subject.ropes.values())
    counted = scaled and subject.reader.model_type in _OF_THE_WIDTH
    if counted and heads and wide and head and wide // heads != head:
        return f"head_dim = {head}: the class counts factors by hidden_size / {HEADS} alone"
    if heads is None or keys is None or heads % keys == 0:
        return ""
    return f"{HEADS} = {heads} is not divisible by {KEYS} = {keys}, and heads share keys evenly"


def _bad_routing(reader: ConfigReader) -> str:
    """A choice of more experts for a token than there are, or than its groups of them have."""
    experts = next(filter(None, (whole(reader.get(key)) for key in EXPERTS)), None)
    chosen = whole(reader.get(CHOSEN)) or 0
    if experts is None or chosen > experts:
        return f"{CHOSEN} = {chosen}, and there are {experts} experts" if experts else ""
    groups, taken = whole(reader.get("n_group")), whole(reader.get("topk_group"))
    if groups is None or not _kinds(reader.model_type, "n_group"):
        return ""
    if groups < 1 or experts % groups:
        return f"n_group = {groups} does not divide the {experts} experts"
    if taken is not None and not -(-chosen * groups // experts) <= taken <= groups:
        return f"topk_group = {taken}: of {groups} groups, which hold {CHOSEN} = {chosen} experts"
    return ""


def _bad_labels(config: Config) -> str:
    """Labels of no number, with which the class fails that all three load configs by; and a decoder
    that is to be run as a model of two halves."""
    labels, count = config.get("id2label"), config.get("num_labels")
    if isinstance(labels, Mapping) and not all(
        re.fullmatch("-?[0-9]+", str(label)) for label in labels
    ):
        return f"id2label = {shortened(labels)}: its keys must be whole numbers"
    if count is not None and whole(count) is None:
        return f"num_labels = {shortened(count)}: must be a whole number"
    classes = config.get("architectures")
    first = str(classes[0]) if isinstance(classes, list) and classes else ""
    if config.get("is_encoder_decoder") and first.endswith("ForCausalLM"):
        return f"is_encoder_decoder is true, and {shortened(first)} has no encoder"
    return ""


_MULTIPLIERS = re.compile("_multiplier$|^logits?_scal(e|ing)$|^query_pre_attn_scalar$")


def _bad_rope(kind: str, rope: Config) -> str:
    """A setting that a class of transformers does not load: a type that is no text, or a key that
    it needs and that is missing or null."""
    named = "rope_type" if "rope_type" in rope else "type"
    if named in rope and (not rope[named] or not isinstance(rope[named], str)):
        return f"{named} = {shortened(rope[named])} in a rope setting: must be text"
    needed = _NEEDED.get(kind_of(rope), set()) if kind in _NUMBER_OF else set()
    if kind_of(rope) == "longrope":  # whose factors `factor_count` looks at
        needed = _NEEDED.get(kind, set())
    if missing := sorted(needed - rope.keys()):
        return f"a rope setting of type {kind_of(rope)!r} lacks {', '.join(missing)}"
    counted = needed | {"partial_rotary_factor"} | ({ORIGINAL_LENGTH} if needed else set())
    strange = sorted(key for key in counted & rope.keys() if number(rope[key]) is None)
    if kind_of(rope) == "yarn" and rope.get("factor", 1) is None:  # it takes the lengths' ratio
        strange.remove("factor")
    if not needed or not strange:
        return ""
    return f"{strange[0]} = {shortened(rope[strange[0]])} in a rope setting: must be a number"


def _bad_kind(subject: ExaminedModel) -> str:
    """A value that the class of transformers does not take, or under which nothing is computed."""
    reader = subject.reader if subject.config else None
    if reader is None or reader.family is UNKNOWN:
        return ""
    outer = ((reader.outer_type, "", reader.outer),) if reader.path else ()
    for kind, prefix, config in (*outer, (reader.model_type, reader.prefix, reader.config)):
        for key, value in for_stock_class(config).items():
            if rule := _broken_rule(kind, key, value):
                return f"{prefix}{key} = {shortened(value)}: {rule}"
    for rope in subject.stated_settings:
        for setting in (rope, *(value for value in rope.values() if isinstance(value, Mapping))):
            if fault := _bad_rope(reader.model_type, dict(setting)):
                return fault
    layers = whole(reader.get(LAYERS))
    for key in ("layer_types", "mlp_layer_types"):
        kinds = reader.config.get(key)
        # Dory's class saves the MLP of each layer as an item of its own.
        if kinds is not None and layers not in (None, len(kinds), len(kinds) - kinds.count("mlp")):
            return f"{reader.prefix}{key} has {len(kinds)} items, and {LAYERS} is {layers}"
    strange = {*(reader.config.get("layer_types") or ())} - {*_TAKEN["layer_types"], "mlp"}
    if strange:
        return f"{reader.prefix}layer_types has {shortened(min(strange))}, unknown to transformers"
    return ""


def _broken_rule(kind: str, key: str, value: object) -> str:
    """The rule that a value of a model type's config breaks; empty if it breaks none."""
    by_kinds, declared = _TAKEN["keys"].get(key, {}), _kinds(kind, key)
    # A class without the key takes all, but others read it by the same name.
    kinds = declared.split(", ") if declared else [*", ".join(by_kinds).split(", "), "NoneType"]
    if by_kinds and not _fits(value, kinds):
        words = (", each item ".join(map(_WORDS.__getitem__, k.split(" of "))) for k in kinds)
        return f"must be {' or '.join(dict.fromkeys(words))}"
    word = _WORD_KEYS.get(key, "")
    if word and (declared or word != "routing") and value not in (None, *_WORDS_OF[word]):
        return f"is no {word} that transformers knows"
    if (amount := number(value)) is None:
        return ""
    if re.search("_eps(ilon)?$", key) and not 0 <= amount <= MAX_EPSILON:
        return f"must be from 0 to {MAX_EPSILON}, or norms divide by it rather than by the size"
    if declared and amount == 0 and _MULTIPLIERS.search(key):
        return "must not be zero, by which all that it multiplies is lost"
    if amount > 1 and _NUMBER_OF.get(kind) in _TAKEN["at_most_one"].get(key, ()):
        return "must be from 0 to 1"
    may_be = key in _TAKEN["below_zero"] or key.endswith(("_id", "_index", "_layer"))
    return "must not be negative" if declared and amount < 0 and not may_be else ""


def _kinds(kind: str, key: str) -> str:
    """The kinds of a key's values that the class of a model type declares; empty without it."""
    by_kinds = _TAKEN["keys"].get(key, {}).items()
    return next((kinds for kinds, types in by_kinds if _NUMBER_OF.get(kind) in types), "")


def _fits(value: object, kinds: Sequence[str]) -> bool:
    if not isinstance(value, list | tuple):
        return type(value).__name__ in kinds
    lists = {kind for kind in kinds if kind.startswith("list")}
    return bool(lists) and (
        "list" in lists or {f"list of {type(v).__name__}" for v in value} <= lists
    )
