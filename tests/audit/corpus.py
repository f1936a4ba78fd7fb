"""Exports made whole, and the same with one thing wrong.

Every broken one names the trap that a verification must find in it, and the clean one that it
differs from by a single edit.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.models.config import present_plan
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import engines
from ropewalk.schedule import RotarySchedule
from tests.models.tiny import FAMILIES

WINDOW = 512
TARGET = 4096
BASE = 500_000.0

NOT_SGLANG = ("transformers", "vllm")
"""SGLang loses a position of longrope, unless it is written for SGLang."""

Config = dict[str, Any]


def source(family: str = "llama", **changes: Any) -> Config:
    """The config of a small model as its publisher wrote it, without any scaling."""
    return {
        "model_type": family,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 64,
        "max_position_embeddings": WINDOW,
        "rope_theta": BASE,
        **changes,
    }


@dataclass(frozen=True)
class Export:
    """A folder to be, and the plan it is to follow."""

    plan: ContextPlan
    config: Config
    tokenizer: Config = field(default_factory=lambda: {"model_max_length": TARGET})
    runtimes: tuple[str, ...] = ()
    """Those that it was made for, where not the usual ones."""

    def write(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(self.tokenizer), encoding="utf-8")
        return folder

    @property
    def rope(self) -> Config:
        rope: Config = self.config["rope_parameters"]
        return rope


def export(method: str, family: str = "llama", **parameters: Any) -> Export:
    config = source(family)
    if family == "olmo3":
        config |= {**FAMILIES["olmo3"], "num_hidden_layers": 3}
    plan = extend_plan(present_plan(config), TARGET, method, parameters)
    written = with_plan(config, plan)
    alone = family == "olmo3"  # SGLang has a config class of its own for it
    if alone or written["rope_parameters"].get("rope_type") == "longrope":
        return Export(plan, written, runtimes=NOT_SGLANG)
    return Export(plan, written)


def for_sglang() -> Export:
    plan = export("ntk_mixed").plan
    return Export(
        plan,
        engines()["sglang"].written_config(source(), plan),
        runtimes=("transformers", "sglang"),
    )


def two_lists() -> Export:
    """A plan that keeps short text as it was."""
    config = source()
    plain = present_plan(config).longest()
    long = extend_plan(present_plan(config), TARGET, "ntk_mixed").longest()
    steps = (PlanStep(WINDOW, plain), PlanStep(TARGET, long))
    plan = ContextPlan("two lists", {FULL_ATTENTION: steps})
    return Export(plan, with_plan(config, plan))


def dynamic() -> Export:
    plan = extend_plan(present_plan(source()), TARGET, "dynamic_ntk", {"factor": 8.0})
    return Export(plan, with_plan(source(), plan))


def attention(scaling: float) -> Export:
    """Any λ with an attention scaling that no formula gives."""
    config = source()
    factors = np.geomspace(1, TARGET / WINDOW, 8)
    schedule = RotarySchedule(
        present_plan(config).longest().geometry, factors, TARGET, attention_scaling=scaling
    )
    plan = ContextPlan("searched", {FULL_ATTENTION: (PlanStep(TARGET, schedule),)})
    return Export(plan, with_plan(config, plan), runtimes=NOT_SGLANG)


CLEAN: Mapping[str, Export] = {
    "plain": Export(present_plan(source()), source(), {"model_max_length": WINDOW}),
    "linear": export("linear"),
    "ntk": export("ntk"),
    "yarn": export("yarn"),
    "yarn, whole ramp": export("yarn", truncate=False),
    "llama3": export("llama3"),
    "any λ": export("ntk_mixed"),
    "searched": attention(1.05),
    "qwen2": export("ntk_mixed", family="qwen2"),
    "olmo3": export("yarn", family="olmo3"),
    "for SGLang": for_sglang(),
}

# What stock runtimes have traps for, however carefully it is written.
TRAPPED: Mapping[str, Export] = {
    "two lists": two_lists(),
    "dynamic": dynamic(),
    "cohere": export("ntk_mixed", family="cohere"),
}

Edit = Callable[[Export], None]


@dataclass(frozen=True)
class Broken:
    """One thing wrong."""

    trap: str
    of: str
    """The clean export it was made from."""
    edit: Edit
    runtimes: tuple[str, ...] = ()
    """Those that are judged, where not the usual ones."""
    planned: bool = True
    """Beside its plan, and not only beside a length."""
    also: frozenset[str] = frozenset()
    """What else is then wrong, as a consequence."""

    @property
    def export(self) -> Export:
        broken = copy.deepcopy({**CLEAN, **TRAPPED}[self.of])
        self.edit(broken)
        return broken


def _set(**keys: Any) -> Edit:
    return lambda export: export.rope.update(keys)


def _drop(*keys: str) -> Edit:
    def edit(export: Export) -> None:
        for key in keys:
            del export.rope[key]

    return edit


def _top(**keys: Any) -> Edit:
    return lambda export: export.config.update(keys)


def _without_scaling(export: Export) -> None:
    export.config["rope_parameters"] = {"rope_type": "default", "rope_theta": BASE}


def _tokenizer(limit: int) -> Edit:
    return lambda export: export.tokenizer.update(model_max_length=limit)


def _older_limit(export: Export) -> None:
    del export.tokenizer["model_max_length"]
    export.tokenizer["max_len"] = float(WINDOW)


def _squared(export: Export) -> None:
    factor = CLEAN["yarn"].plan.longest().attention_scaling
    export.rope["attn_factor"] = factor


def _truncate_inside(export: Export) -> None:
    export.rope["full_attention"]["truncate"] = False


def _windows(**keys: Any) -> Edit:
    kinds = [FULL_ATTENTION, SLIDING_ATTENTION]
    return lambda export: export.config.update(layer_types=kinds, **keys)


def _same(export: Export) -> None:
    """The setting itself is the trap."""


def _one_list(export: Export) -> None:
    export.rope["short_factor"] = export.rope["long_factor"]


def _shorter(name: str) -> Edit:
    return lambda export: export.rope[name].pop()


def _longlora(export: Export) -> None:
    """Fine-tuned at a longer length with scaled positions, published without a word of it."""
    export.config.update(rope_theta=1e4, max_position_embeddings=32768)
    export.tokenizer["model_max_length"] = 32768


BROKEN: Mapping[str, Broken] = {
    # 1. A setting that is a silent no-op.
    "scaling left out": Broken(
        "factors-dropped", "yarn", _without_scaling, also=frozenset({"attention-factor-dropped"})
    ),
    "no rope_type": Broken(
        "no-rope-type",
        "linear",
        _drop("rope_type"),
        also=frozenset({"factors-dropped"}),  # both engines count the factor nevertheless
    ),
    "a misspelt key": Broken("ignored-key", "linear", _set(scaling_factor=8.0), planned=False),
    "v5 keys read by v4": Broken(
        "factors-dropped", "any λ", _top(rope_theta=BASE), ("transformers-4",)
    ),
    "v5 keys alone read by v4": Broken("theta-lost", "any λ", _same, ("transformers-4",)),
    "longrope through the stock converter": Broken(
        "factors-dropped", "any λ", _same, ("llama.cpp",)
    ),
    "the same for qwen2": Broken("factors-dropped", "qwen2", _same, ("llama.cpp",)),
    # 2. The attention factor dropped, squared or ignored; truncate ignored.
    "attention_factor of yarn in SGLang": Broken(
        "attention-factor-ignored", "yarn", _set(attention_factor=1.05), planned=False
    ),
    "attention_factor of yarn in vLLM of 2025": Broken(
        "attention-factor-ignored",
        "yarn",
        _set(attention_factor=1.05),
        ("vllm-2025",),
        planned=False,
    ),
    "mscale of yarn in vLLM of 2025": Broken(
        "attention-factor-ignored",
        "yarn",
        _set(mscale=1.0, mscale_all_dim=0.5),
        ("vllm-2025",),
        planned=False,
    ),
    "attn_factor of yarn in SGLang": Broken(
        "attention-factor-squared", "yarn", _squared, ("sglang",)
    ),
    "attention_factor of longrope without mscale": Broken(
        "attention-factor-ignored", "searched", _drop("short_mscale", "long_mscale")
    ),
    "attention_factor of one": Broken(
        "attention-factor-dropped", "searched", _set(attention_factor=1.0), ("transformers",)
    ),
    "truncate inside a layer type": Broken(
        "truncate-ignored", "olmo3", _truncate_inside, planned=False
    ),
    "truncate in llama.cpp": Broken("truncate-ignored", "yarn, whole ramp", _same, ("llama.cpp",)),
    # 3. theta lost.
    "no rope_theta": Broken(
        "theta-missing", "any λ", _drop("rope_theta"), also=frozenset({"theta-lost"})
    ),
    "v4 without rope_theta": Broken("theta-lost", "plain", _top(rope_theta=1e4), ("transformers",)),
    "two bases": Broken("theta-conflict", "any λ", _top(rope_theta=1e4)),
    "two scalings": Broken(
        "scaling-conflict",
        "linear",
        _top(rope_scaling={"rope_type": "linear", "factor": 4.0, "rope_theta": BASE}),
        also=frozenset({"frequencies-differ", "length-limit"}),
    ),
    # 4. Extension that taxes short text.
    "dynamic NTK where it is static": Broken("short-text-taxed", "dynamic", _same, ("sglang",)),
    "dynamic NTK in vLLM": Broken("factors-dropped", "dynamic", _same, ("vllm",)),
    "one list for a plan of two": Broken(
        "short-text-taxed", "two lists", _one_list, ("transformers",)
    ),
    # 5. Factors that change under the cache.
    "two lists in transformers and SGLang": Broken(
        "switches-with-cache",
        "two lists",
        _same,
        ("transformers", "sglang"),
        also=frozenset({"one-position-lost"}),
    ),
    # Keys that contradict each other.
    "windows without their switch": Broken("window-missing", "qwen2", _windows(sliding_window=256)),
    "windows of no length": Broken(
        "window-missing", "qwen2", _windows(sliding_window=None, use_sliding_window=True)
    ),
    "windows that its class does not read": Broken(
        "window-missing", "any λ", _windows(sliding_window=256)
    ),
    # The limits.
    "the tokenizer's limit": Broken("tokenizer-limit", "any λ", _tokenizer(WINDOW)),
    "the tokenizer's limit by its older name": Broken("tokenizer-limit", "any λ", _older_limit),
    "a stated length that was not raised": Broken(
        "length-limit", "any λ", _top(max_position_embeddings=WINDOW)
    ),
    "linear with a raised length": Broken(
        "length-multiplied", "linear", _top(max_position_embeddings=TARGET)
    ),
    "longrope for neighbouring pairs": Broken("refused", "cohere", _same, ("vllm",)),
    "two rope types in vLLM": Broken(
        "refused", "yarn", _set(type="linear"), ("vllm",), also=frozenset({"assumption"})
    ),
    "keys that do not divide the heads": Broken("refused", "any λ", _top(num_key_value_heads=3)),
    # The factors.
    "too few factors": Broken("factor-count", "any λ", _shorter("long_factor")),
    "no original length": Broken(
        "original-length-missing",
        "yarn",
        _drop("original_max_position_embeddings"),
        also=frozenset({"frequencies-differ"}),
    ),
    "published without scaling": Broken("unscaled-length", "plain", _longlora, planned=False),
}
