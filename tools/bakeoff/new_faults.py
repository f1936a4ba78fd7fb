"""New faults: written and committed before any tool had seen them, and never changed to suit one.

They were written from vendors' pages, issue threads and experience, by someone who had read the
documentation of ropewalk and none of its checks. `words` were written with them: a report names a
fault if it contains one. A candidate that turns out to change nothing for the model is no fault,
and is listed apart.
"""

from __future__ import annotations

from tools.bakeoff.bases import LONG, SHORT, YARN
from tools.bakeoff.fault import (
    FolderFault,
    LiveFault,
    change,
    drop,
    move,
    put,
    repeat_key,
    swap,
)

ROPE = "rope_parameters"
LOST = ("factors-dropped", "no-rope-type", "not-extended", "unscaled-length", "no scaling")
ORIGINAL = ("original_max_position_embeddings", "original-length", "original length")
FREQUENCIES = ("frequencies-differ", "factors-dropped", "inverse frequencies", "inv_freq")
ATTENTION = ("attention_factor", "attention-factor", "attention factor", "mscale")

FOLDER: tuple[FolderFault, ...] = (
    # Keys that are written wrongly.
    FolderFault(
        "original length misspelt",
        "llama yarn",
        "a config edited by hand",
        (
            move(
                f"{ROPE}/original_max_position_embeddings",
                f"{ROPE}/original_max_positional_embeddings",
            ),
        ),
        (*ORIGINAL, "original_max_positional_embeddings", "ignored-key"),
    ),
    FolderFault(
        "factor misspelt",
        "qwen2 linear",
        "a config edited by hand",
        (move(f"{ROPE}/factor", f"{ROPE}/scale_factor"),),
        ("factor", "ignored-key"),
    ),
    FolderFault(
        "factor as text",
        "qwen3 yarn",
        "a config filled by a template",
        (put(f"{ROPE}/factor", "4.0"),),
        ("factor",),
    ),
    FolderFault(
        "original length as text",
        "llama yarn",
        "a config filled by a template",
        (put(f"{ROPE}/original_max_position_embeddings", "1024"),),
        ORIGINAL,
    ),
    FolderFault(
        "type in capitals",
        "llama yarn",
        "the paper's spelling",
        (put(f"{ROPE}/rope_type", "YaRN"),),
        ("YaRN", "rope_type", "rope type", *LOST),
    ),
    FolderFault(
        "type at the top",
        "llama yarn",
        "a key put one level too high",
        (move(f"{ROPE}/rope_type", "rope_type"),),
        ("rope_type", "rope type", *LOST),
    ),
    FolderFault(
        "keys of GGUF",
        "llama yarn",
        "a config written back from a GGUF file's names",
        (
            put("rope_scaling_type", "yarn"),
            put("rope_scaling_factor", 4.0),
            put("rope_freq_base", 10000.0),
            drop(ROPE),
        ),
        ("rope_scaling_type", "rope_scaling_factor", "ignored-key", "theta-missing", *LOST),
    ),
    FolderFault(
        "setting under text_config",
        "llama yarn",
        "the override of a multimodal recipe on a model of text",
        (move(ROPE, f"text_config/{ROPE}"),),
        ("text_config", "theta-missing", *LOST),
    ),
    FolderFault(
        "setting above text_config",
        "qwen3_vl yarn",
        "a recipe for models of text on a multimodal one",
        (
            move(f"text_config/{ROPE}", ROPE),
            put(f"text_config/{ROPE}", {"rope_type": "default", "rope_theta": 5e6}),
        ),
        ("text_config", ROPE, *LOST),
    ),
    FolderFault(
        "setting by layer type in a model of one type",
        "llama yarn",
        "copied from a Gemma 3 config",
        (change(ROPE, lambda rope: {"full_attention": dict(rope)}),),
        ("full_attention", "layer type", ROPE, *LOST),
    ),
    FolderFault(
        "layer type misspelt",
        "gemma3 linear",
        "a name from another code base",
        (move(f"{ROPE}/full_attention", f"{ROPE}/global_attention"),),
        ("global_attention", "full_attention", *LOST),
    ),
    FolderFault(
        "settings of layer types exchanged",
        "gemma3 linear",
        "two blocks copied in the wrong order",
        (swap(f"{ROPE}/full_attention", f"{ROPE}/sliding_attention"),),
        ("layers swapped", "full_attention", "sliding_attention", *FREQUENCIES),
    ),
    FolderFault(
        "scaling on sliding layers too",
        "gemma3 linear",
        "an override that reaches all layers",
        (
            put(
                f"{ROPE}/sliding_attention",
                {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0},
            ),
        ),
        ("sliding_attention", *FREQUENCIES),
    ),
    FolderFault(
        "YaRN on sliding layers too",
        "olmo3 yarn",
        "a flat setting over one by layer type",
        (put(ROPE, {**YARN, "rope_theta": 500000.0}),),
        ("sliding_attention", *FREQUENCIES),
    ),
    FolderFault(
        "full layers without a setting",
        "olmo3 yarn",
        "an entry dropped in a merge",
        (drop(f"{ROPE}/full_attention"),),
        ("full_attention", *LOST),
    ),
    FolderFault(
        "key written twice",
        "llama yarn",
        "a merge that kept both sides",
        (repeat_key(ROPE, {"rope_type": "default", "rope_theta": 10000.0}),),
        ("twice", "duplicate", "repeated", *LOST),
    ),
    FolderFault(
        "setting in generation_config.json",
        "llama yarn",
        "a setting written into the wrong file",
        (drop(ROPE), put("rope_theta", 10000.0)),
        LOST,
    ),
    FolderFault(
        "both types stated",
        "llama yarn",
        "an old key left next to the new one",
        (put(f"{ROPE}/type", "yarn"), put(f"{ROPE}/rope_type", "linear")),
        ("rope_type", "type", "scaling-conflict", *FREQUENCIES),
    ),
    FolderFault(
        "old setting over the new one",
        "llama yarn",
        "a v4 tool that edited a v5 folder",
        (put("rope_scaling", {"type": "linear", "factor": 4.0}),),
        ("scaling-conflict", "rope_scaling"),
    ),
    FolderFault(
        "setting null",
        "llama yarn",
        "a tool that knows only rope_scaling",
        (put(ROPE, None), put("rope_theta", 10000.0)),
        LOST,
    ),
    FolderFault(
        "setting as a list",
        "llama yarn",
        "a converter from YAML",
        (change(ROPE, lambda rope: [dict(rope)]),),
        (ROPE, "list"),
    ),
    # Values that are another model's, another unit's or another convention's.
    FolderFault(
        "original length is the extended one",
        "llama yarn",
        "both lengths raised together",
        (put(f"{ROPE}/original_max_position_embeddings", 4096),),
        (*ORIGINAL, *FREQUENCIES),
    ),
    FolderFault(
        "factor from the extended length",
        "qwen3 yarn",
        "target / max_position_embeddings instead of target / original length",
        (put(f"{ROPE}/factor", 1.25),),
        ("factor", *FREQUENCIES),
    ),
    FolderFault(
        "factor's reciprocal",
        "qwen2 linear",
        "llama.cpp's rope-freq-scale is 1 / factor",
        (put(f"{ROPE}/factor", 0.25),),
        ("factor", *FREQUENCIES),
    ),
    FolderFault(
        "factor squared",
        "qwen2 linear",
        "an extension applied to an extended config",
        (put(f"{ROPE}/factor", 16.0),),
        ("factor", *FREQUENCIES),
    ),
    FolderFault(
        "factor in percent",
        "qwen2 linear",
        "a setting in another unit",
        (put(f"{ROPE}/factor", 400.0),),
        ("factor", *FREQUENCIES),
    ),
    FolderFault(
        "a digit of the base lost",
        "llama ntk",
        "a typing error",
        (put(f"{ROPE}/rope_theta", 50000.0),),
        ("theta", "base", *FREQUENCIES),
    ),
    FolderFault(
        "base under GPT-NeoX's name",
        "llama ntk",
        "a converter from Megatron",
        (move(f"{ROPE}/rope_theta", "rotary_emb_base"),),
        ("theta", "rotary_emb_base", "base"),
    ),
    FolderFault(
        "base null",
        "llama ntk",
        "saved by a tool that set rope_scaling after loading",
        (put(f"{ROPE}/rope_theta", None),),
        ("theta", "base"),
    ),
    FolderFault(
        "base raised under YaRN",
        "llama yarn",
        "two recipes for one target",
        (put(f"{ROPE}/rope_theta", 40000.0),),
        ("theta", "base", *FREQUENCIES),
    ),
    FolderFault(
        "base of the sliding layers in all",
        "gemma3 linear",
        "one rope_theta for a model with two",
        (put(f"{ROPE}/full_attention/rope_theta", 10000.0),),
        ("theta", "base", *FREQUENCIES),
    ),
    FolderFault(
        "dictionary of Llama 3.2",
        "llama llama3",
        "the setting of a sister model (factor 32)",
        (put(f"{ROPE}/factor", 32.0),),
        ("factor", *FREQUENCIES),
    ),
    FolderFault(
        "low and high factor exchanged",
        "llama llama3",
        "two numbers in the wrong order",
        (swap(f"{ROPE}/low_freq_factor", f"{ROPE}/high_freq_factor"),),
        ("low_freq_factor", "high_freq_factor", *FREQUENCIES),
    ),
    FolderFault(
        "high factor of Llama 4",
        "llama llama3",
        "the setting of a sister model (high_freq_factor 1)",
        (put(f"{ROPE}/high_freq_factor", 1.0),),
        ("high_freq_factor", *FREQUENCIES),
    ),
    FolderFault(
        "betas exchanged",
        "qwen3 yarn",
        "two numbers in the wrong order",
        (swap(f"{ROPE}/beta_fast", f"{ROPE}/beta_slow"),),
        ("beta_fast", "beta_slow", *FREQUENCIES),
    ),
    FolderFault(
        "betas of Kimi K2",
        "qwen3 yarn",
        "a dictionary copied from another vendor (beta_fast 1)",
        (put(f"{ROPE}/beta_fast", 1.0),),
        ("beta_fast", *FREQUENCIES),
    ),
    FolderFault(
        "attention factor of UltraLong",
        "llama yarn",
        "a dictionary copied from another vendor (attention_factor 1.0)",
        (put(f"{ROPE}/attention_factor", 1.0),),
        ATTENTION,
    ),
    FolderFault(
        "mscale of DeepSeek-V2",
        "llama yarn",
        "a dictionary copied from another vendor (mscale 0.707 twice)",
        (put(f"{ROPE}/mscale", 0.707), put(f"{ROPE}/mscale_all_dim", 0.707)),
        ATTENTION,
    ),
    FolderFault(
        "truncate dropped",
        "gpt_oss yarn",
        "a tool that writes the usual YaRN keys alone",
        (drop(f"{ROPE}/truncate"),),
        ("truncate", *FREQUENCIES),
    ),
    FolderFault(
        "type becomes dynamic",
        "llama yarn",
        "Transformers' own advice of 2023",
        (
            put(
                ROPE,
                {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
            ),
        ),
        ("dynamic", "switches-with-cache", *FREQUENCIES),
    ),
    FolderFault(
        "partial rotation dropped",
        "phi3 partial",
        "a tool that rewrites the dictionary",
        (drop(f"{ROPE}/partial_rotary_factor"),),
        ("partial_rotary_factor", "factor-count", "short_factor", "long_factor", "rotary"),
    ),
    FolderFault(
        "partial rotation under another name",
        "neox linear",
        "GPT-NeoX's rotary_pct inside the new dictionary",
        (move(f"{ROPE}/partial_rotary_factor", f"{ROPE}/rotary_pct"),),
        ("partial_rotary_factor", "rotary_pct", "ignored-key", "rotary"),
    ),
    FolderFault(
        "partial rotation of another model",
        "glm4 yarn",
        "a dictionary copied from a model that rotates a quarter",
        (put(f"{ROPE}/partial_rotary_factor", 0.25),),
        ("partial_rotary_factor", "rotary", *FREQUENCIES),
    ),
    FolderFault(
        "head_dim dropped",
        "qwen3 yarn",
        "a tool that keeps only the keys it knows",
        (drop("head_dim"),),
        ("head_dim", "size mismatch", "weights-differ", "shape"),
    ),
    FolderFault(
        "original length at the top alone is dropped",
        "phi3 longrope",
        "a tool that keeps only the new dictionary",
        (drop("original_max_position_embeddings"),),
        ORIGINAL,
    ),
    # Lists of factors.
    FolderFault(
        "lists exchanged",
        "phi3 longrope",
        "two lists pasted in the wrong order",
        (swap(f"{ROPE}/short_factor", f"{ROPE}/long_factor"),),
        ("short_factor", "long_factor", "wrong-step", *FREQUENCIES),
    ),
    FolderFault(
        "list of multipliers",
        "llama longrope",
        "frequencies multiplied where they should be divided",
        tuple(
            put(f"{ROPE}/{name}_factor", [1 / value for value in LONG])
            for name in ("short", "long")
        ),
        ("short_factor", "long_factor", *FREQUENCIES),
    ),
    FolderFault(
        "list in reverse",
        "llama longrope",
        "pairs counted from the slowest",
        tuple(put(f"{ROPE}/{name}_factor", LONG[::-1]) for name in ("short", "long")),
        ("short_factor", "long_factor", *FREQUENCIES),
    ),
    FolderFault(
        "list by dimension",
        "llama longrope",
        "one factor for each dimension of the head, not each pair",
        tuple(put(f"{ROPE}/{name}_factor", LONG * 2) for name in ("short", "long")),
        ("factor-count", "short_factor", "long_factor"),
    ),
    FolderFault(
        "list of another head size",
        "llama longrope",
        "factors searched on a sister model",
        tuple(put(f"{ROPE}/{name}_factor", LONG[::2]) for name in ("short", "long")),
        ("factor-count", "short_factor", "long_factor"),
    ),
    FolderFault(
        "list with a hole",
        "llama longrope",
        "a value that JSON cannot write became null",
        (
            put(f"{ROPE}/long_factor", [*LONG[:-1], None]),
            put(f"{ROPE}/short_factor", [*LONG[:-1], None]),
        ),
        ("short_factor", "long_factor", "null", "None"),
    ),
    FolderFault(
        "short list of ones",
        "phi3 longrope",
        "the list that most configs have",
        (put(f"{ROPE}/short_factor", [1.0] * len(SHORT)),),
        ("short_factor", *FREQUENCIES),
    ),
    FolderFault(
        "list rounded to whole numbers",
        "llama longrope",
        "a table printed without decimals",
        tuple(
            put(f"{ROPE}/{name}_factor", [float(round(value)) for value in LONG])
            for name in ("short", "long")
        ),
        ("short_factor", "long_factor", *FREQUENCIES),
    ),
    # DeepSeek's and Mistral's factors outside cos and sin.
    FolderFault(
        "softmax factor dropped",
        "deepseek yarn",
        "a tool that writes the usual YaRN keys alone",
        (drop(f"{ROPE}/mscale_all_dim"),),
        ("mscale_all_dim", "softmax-scaling-differs", "softmax", *ATTENTION),
    ),
    FolderFault(
        "softmax factor at the top",
        "deepseek yarn",
        "a key put one level too high",
        (move(f"{ROPE}/mscale_all_dim", "mscale_all_dim"),),
        ("mscale_all_dim", "softmax-scaling-differs", "softmax", *ATTENTION),
    ),
    FolderFault(
        "halves for neighbours",
        "deepseek yarn",
        "rope_interleave lost in a conversion",
        (put("rope_interleave", False),),
        ("rope_interleave", "interleave", "pairs"),
    ),
    FolderFault(
        "growth of queries dropped",
        "ministral3 yarn",
        "a tool that writes the usual YaRN keys alone",
        (drop(f"{ROPE}/llama_4_scaling_beta"),),
        ("llama_4_scaling", "position-scaling-lost"),
    ),
    # Windows and layers.
    FolderFault(
        "window of Mistral 0.1",
        "mistral linear",
        "a config copied from an older release",
        (put("sliding_window", 512),),
        ("sliding_window", "window-in-every-layer", "sliding window"),
    ),
    FolderFault(
        "windows in all layers",
        "gemma3 linear",
        "layer_types filled with one value",
        (put("layer_types", ["sliding_attention"] * 4),),
        ("layer_types", "window-in-every-layer", "sliding_attention", "window"),
    ),
    FolderFault(
        "windows in no layer",
        "gemma3 linear",
        "layer_types filled with one value",
        (put("layer_types", ["full_attention"] * 4),),
        ("layer_types", "full_attention", "window"),
    ),
    FolderFault(
        "a longer window",
        "olmo3 yarn",
        "the window raised with the length",
        (put("sliding_window", 1024),),
        ("sliding_window", "window"),
    ),
    FolderFault(
        "layers without rotation exchanged",
        "smollm3 yarn",
        "1 means with rotation here, and without it elsewhere",
        (put("no_rope_layers", [0, 0, 0, 1]),),
        ("no_rope_layers", "NoPE", "without rotation", "layer"),
    ),
    # Lengths, and other files.
    FolderFault(
        "length not raised",
        "qwen3 yarn",
        "the recipe that sets the dictionary alone",
        (put("max_position_embeddings", 1280),),
        ("max_position_embeddings", "length-limit", "not-extended", "max_model_len"),
    ),
    FolderFault(
        "length raised too far",
        "llama yarn",
        "a nominal length that the setting does not reach",
        (put("max_position_embeddings", 16384),),
        ("max_position_embeddings", "not-extended", "length", "factor"),
    ),
    FolderFault(
        "tokenizer truncates",
        "llama yarn",
        "tokenizer.json saved after training with truncation to 512",
        (
            put(
                "truncation",
                {"direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0},
            ),
        ),
        ("truncat", "tokenizer-limit", "tokenizer"),
        "tokenizer.json",
    ),
    FolderFault(
        "tokenizer's length not raised",
        "llama yarn",
        "tokenizer_config.json of the model before its extension",
        (put("model_max_length", 1024),),
        ("model_max_length", "tokenizer-limit"),
        "tokenizer_config.json",
    ),
    FolderFault(
        "generation stops early",
        "llama yarn",
        "generation_config.json of the model before its extension",
        (put("max_length", 1024),),
        ("max_length", "generation-limit"),
        "generation_config.json",
    ),
    # The form of transformers 4.
    FolderFault(
        "old keys, type misspelt",
        "qwen2 old keys",
        "a type of another runtime",
        (put("rope_scaling/type", "yarn-rope"),),
        ("yarn-rope", "rope_type", "rope type", "type"),
    ),
    FolderFault(
        "old keys, base inside alone",
        "qwen2 old keys",
        "half of a conversion to the new keys",
        (move("rope_theta", "rope_scaling/rope_base"),),
        ("theta", "base", "rope_base"),
    ),
    FolderFault(
        "old keys, factor at the top",
        "qwen2 old keys",
        "a key put one level too high",
        (move("rope_scaling/factor", "rope_scaling_factor"),),
        ("factor", "rope_scaling"),
    ),
    FolderFault(
        "old keys, scaling as a number",
        "qwen2 old keys",
        "the form of MPT and of early Llama forks",
        (put("rope_scaling", 4.0),),
        ("rope_scaling", *LOST),
    ),
)

LIVE: tuple[LiveFault, ...] = (
    LiveFault("frequencies in float16", "llama yarn", "model.half()", ("float16", "rounded")),
    LiveFault(
        "frequencies of zero",
        "llama yarn",
        "buffers left on a meta device, then filled with zeros",
        ("frequenc", "no known fault", "positions"),
    ),
    LiveFault(
        "pairs in reverse", "llama yarn", "a kernel that counts pairs from the slowest", ("pair",)
    ),
    LiveFault(
        "rotation the other way", "llama yarn", "the sign of sin", ("sin", "sign", "no known fault")
    ),
    LiveFault(
        "attention factor on cos alone",
        "llama yarn",
        "one of two lines patched",
        ("attention factor", "sin", "no known fault"),
    ),
    LiveFault(
        "factors multiplied",
        "llama longrope",
        "frequencies multiplied where they should be divided",
        ("factor", "no known fault", "frequenc"),
    ),
    LiveFault(
        "every second factor",
        "llama longrope",
        "a shard that holds every second pair",
        ("factor", "no known fault", "frequenc"),
    ),
    LiveFault(
        "slowest quarter without rotation",
        "llama yarn",
        "an experiment (DroPE, CoPE) left in",
        ("pair", "no known fault", "frequenc"),
    ),
    LiveFault(
        "betas exchanged",
        "llama yarn",
        "a YaRN of one's own with its ramp the wrong way",
        ("beta", "ramp", "no known fault", "pair"),
    ),
    LiveFault(
        "positions halved",
        "llama yarn",
        "grouped positions (self-extend) left in",
        ("position", "factor", "linear", "another method"),
    ),
    LiveFault(
        "positions start again",
        "llama yarn",
        "positions modulo the original length, as a ring buffer counts",
        ("table", "position", "too short"),
    ),
    LiveFault(
        "one layer unscaled",
        "llama yarn",
        "a patched layer with tables of its own",
        ("layer",),
    ),
    LiveFault(
        "neighbours for halves in attention",
        "llama yarn",
        "a fused kernel with another layout, under right tables",
        ("pair", "interleaved"),
    ),
    LiveFault(
        "softmax scale of another head size",
        "llama yarn",
        "a kernel's default scale, under right tables",
        ("softmax", "scal"),
    ),
    LiveFault(
        "NTK in place of YaRN",
        "llama yarn",
        "another method with the same factor",
        ("another method", "ntk", "NTK", "base"),
    ),
    LiveFault(
        "dynamic update",
        "llama yarn",
        "a module of type dynamic, which changes with each long input",
        ("another method", "dynamic", "no known fault", "base"),
    ),
)
"""Planted in a model of transformers that was loaded from its intended folder."""

TRAINING: tuple[LiveFault, ...] = (
    LiveFault("plan never applied", "llama yarn", "the base model goes in", ("no scaling",)),
    LiveFault(
        "plan on a copy", "llama yarn", "the planned model was copied before", ("no scaling",)
    ),
    LiveFault(
        "config changed after loading",
        "llama yarn",
        "config.rope_parameters edited, modules not rebuilt",
        ("no scaling",),
    ),
    LiveFault(
        "plan applied twice",
        "llama yarn",
        "in the config, and again by a patch",
        ("twice",),
    ),
    LiveFault(
        "rotary module built anew",
        "llama yarn",
        "a kernel patch builds it from default settings",
        ("no scaling", "base"),
    ),
    LiveFault("model in half precision", "llama yarn", "model.half()", ("float16", "rounded")),
    LiveFault("the plan of another length", "llama yarn", "twice the target's factor", ("factor",)),
    LiveFault(
        "made anew by model_init",
        "llama yarn",
        "Trainer builds the model again at the start of train()",
        ("no scaling",),
    ),
    LiveFault(
        "resumed from a checkpoint without the setting",
        "llama yarn",
        "a model loaded from a checkpoint whose config lost it",
        ("no scaling",),
    ),
    LiveFault(
        "changed after the first step",
        "llama yarn",
        "another callback rebuilds the rotary module while training runs",
        ("no scaling", "base"),
    ),
    LiveFault(
        "wrong under adapters",
        "llama yarn",
        "the base model of LoRA was loaded without the setting",
        ("no scaling",),
    ),
    LiveFault(
        "one layer unscaled",
        "llama yarn",
        "the plan applied to all layers but one",
        ("layer",),
    ),
)
"""A transformers.Trainer that is to train under the intended setting."""

SERVER: tuple[LiveFault, ...] = (
    LiveFault("1.3 times the base", "bundled yarn", "another model's base (flag)", ("base",)),
    LiveFault("0.8 times the factor", "bundled yarn", "a factor for another target", ("factor",)),
    LiveFault(
        "beta_slow 4", "bundled yarn", "another ramp (flag --yarn-beta-slow)", ("beta", "unknown")
    ),
    LiveFault(
        "half of YaRN",
        "bundled yarn",
        "--yarn-ext-factor 0.5 mixes with linear",
        ("unknown", "another method"),
    ),
    LiveFault(
        "attention factor 1.2 times",
        "bundled yarn",
        "--yarn-attn-factor in a file that has one",
        ("attention factor",),
    ),
    LiveFault("cache Q4_1", "bundled yarn", "a smaller cache", ("cache",)),
    LiveFault(
        "four slots share the context",
        "bundled yarn",
        "-np 4 divides -c",
        ("context",),
    ),
    LiveFault(
        "the middle of prompts is left out",
        "bundled yarn",
        "a gateway that fits prompts to a budget",
        ("truncat",),
    ),
    LiveFault(
        "prompts in lower case",
        "bundled yarn",
        "a gateway that normalises text",
        ("token", "prompt", "unknown"),
    ),
    LiveFault(
        "the last token is left out", "bundled yarn", "a gateway that strips prompts", ("truncat",)
    ),
)
"""A llama.cpp server, or a gateway before it, that is to serve the intended plan."""
