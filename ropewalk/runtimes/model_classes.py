"""Settings that the model classes of vLLM and SGLang hand on: a table, and its reader.

The rotary modules of both engines compute what a setting says; a model class may hand them less, or
something else. tools/observatory read the table beside this file in the sources of released wheels,
and shows what a newer wheel changes. For each architecture:

    scaling     passed: the setting arrives whole. dropped: only the base arrives. fixed: the class
                builds a setting of its own from some keys. transformers: it has no class of its
                own, and transformers' code serves it. inner: the class of its language model
                decides. unknown: the sources were read, and do not say
    type        the rope type that a fixed setting has, if not the model's own
    keys, must  the keys that a fixed setting takes over, and those that it cannot be without
    renamed     rope types that the class writes over every other but `default`, with the condition
    base        whole: cut by int()
    by_layer    the class looks up the setting of a layer type
    part        a head turns in part where the config says so
    beside      what the class reads next to the setting only, with the default of its own:
                transformers 5 moves both keys into the setting, and leaves nothing of rope_theta
    softmax     the conditions under which logits are multiplied by DeepSeek's mscale, squared
    on_cpu      dropped: on a CPU with AMX another rotary module serves, which gets only the base
    reads       members of the config by which attention depends on positions

For an engine the table also holds the versions of transformers that it asks for, with which alone
the rows hold, what its own config classes keep next to the setting (`kept`), and those that are
registered for a model type and erase rope_parameters (`configs`): only the keys of transformers 4
reach the model then. `none_fails`: without a scaling, the class fails after such a config class.
`shares` are the shares of a head that transformers' config classes fill in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropewalk.errors import shortened
from ropewalk.models.config import QUERY_GROWTH, Config, ConfigReader, text_config
from ropewalk.runtimes.reading import number, without
from ropewalk.values import fields_of, table_in

TABLE = Path(__file__).with_name("model_classes.json")
ENGINE_NAMES: Mapping[str, str] = {"vllm": "vLLM", "sglang": "SGLang"}
CHECKED = ("yarn", "longrope", "llama3")
"""Rope types that transformers 5 checks against members of the config, such as its length."""
# The same formula in both, where the setting has the keys that the class reads.
_FORMULAS = {"deepseek_yarn": "yarn", "deepseek_llama_scaling": "yarn"}
ROUNDING = 2.0**-20
"""The relative tolerance of a base: twice the error of frequencies in float32."""
BASE_AND_SHARE = ("rope_theta", "partial_rotary_factor", "layer_type")
"""Keys that reach a rotary module whatever becomes of the scaling; the last is ropewalk's own."""
_OF_ROWS = (
    *("scaling", "type", "keys", "must", "renamed", "base", "by_layer", "by", "part", "reads"),
    "on_cpu",
)
BASE, SHARE = "rope_theta", "partial_rotary_factor"
_OWN_BASE: Mapping[str, str] = {"DbrxForCausalLM": "attn_config"}
"""Classes that take the base from this part of the config, and nothing from the rope setting."""
_MAY_BE_NULL = {"attention_factor", "mscale", "mscale_all_dim", "long_mscale", "short_mscale"}
GROWTH_IN_ROPE, GROWTH_BESIDE = QUERY_GROWTH, "llama_4_scaling"
"""Queries grow with their position: in a rope setting for transformers, next to it for vLLM."""


@dataclass(frozen=True)
class RotaryType:
    """The keys of a rope type that an engine's rotary module reads."""

    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelClass:
    """The class that serves a model in an engine."""

    engine: str
    version: str
    architecture: str
    scaling: str
    type: str = ""
    keys: tuple[str, ...] = ()
    must: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    by_layer: bool = False
    by: str = ""
    part: bool = False
    reads: tuple[str, ...] = ()
    types: Mapping[str, RotaryType] = field(default_factory=dict)
    """The rope types that the engine's rotary modules know."""
    on_cpu: str = ""
    beside: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """The keys of `beside` that the config's class does not lose."""
    own_base: float | None = None
    """The base in the part of the config that it reads instead of the setting."""
    own_share: float | None = None
    """The same of the share of a head that turns."""
    old_keys: Config | None = None
    """The defaults next to the setting, if the config's class erases rope_parameters."""
    none_fails: bool = False

    def __str__(self) -> str:
        return f"{ENGINE_NAMES[self.engine]} {self.version}'s class for {self.architecture}"

    def passed_on(self, setting: Config, *, nested: bool = False) -> Config:
        """The setting that its rotary module gets.

        Raises a KeyError where it looks for a key that is not there.
        """
        kind = str(setting.get("rope_type") or setting.get("type") or "default")
        if self.none_fails and kind == "default":
            raise KeyError("a setting with a scaling")
        plain = {key: setting[key] for key in BASE_AND_SHARE if key in setting}
        if self.architecture in _OWN_BASE:
            if self.own_base is None:
                raise KeyError(f"{_OWN_BASE[self.architecture]}.rope_theta")
            return {**plain, "rope_theta": int(self.own_base)}
        if BASE in self.beside:
            if self.own_base is None:
                raise KeyError(f"{BASE} next to the rope setting")
            plain[BASE] = self.own_base
            setting = {**setting, **plain}
        base = plain.get("rope_theta")
        if self.base == "whole" and isinstance(base, int | float) and math.isfinite(base):
            plain["rope_theta"] = int(base)
            setting = {**setting, **plain}
        if self.scaling == "dropped":
            return plain
        one = not (self.by_layer or self.by or self.old_keys is not None)
        if nested and self.scaling == "passed" and one:
            raise KeyError("rope_type")  # it looks for one setting for all layers
        if self.scaling == "fixed":
            values = {key: setting[key] for key in (*BASE_AND_SHARE, *self.keys) if key in setting}
            self._need(self.must, setting)
            return {**values, **({"rope_type": self.type} if self.type else {})}
        if self.renamed and kind != "default":
            name = self._name(setting)
            keys = self.types[name]
            self._need(keys.must, setting)
            values = {k: setting[k] for k in (*keys.must, *keys.may) if k in setting}
            return {**plain, **values, "rope_type": _FORMULAS[name]}
        if self.scaling == "passed" and not self.by and not self._divides(kind):
            return {key: value for key, value in setting.items() if key != "factor"}
        return setting

    def as_loaded(self, config: Config) -> Config:
        """The config as its class keeps it."""
        if self.old_keys is None:
            return config
        return {**self.old_keys, **without(config, {"rope_parameters"})}

    def erased(self, config: Config) -> str:
        """The setting that the config's class erases, in words; empty if it keeps all."""
        if self.old_keys is None or not isinstance(config.get("rope_parameters"), Mapping):
            return ""
        return (
            f"{ENGINE_NAMES[self.engine]} {self.version}'s own config class for model type "
            f"{shortened(config.get('model_type'))} erases rope_parameters, and keeps rope_theta "
            "and rope_scaling only"
        )

    def lost_on_a_cpu(self, kinds: Iterable[str]) -> str:
        """The loss of a scaling on a CPU, in words; empty if there is none."""
        if not self.on_cpu or not set(kinds) - {"default"}:
            return ""
        return f"on a CPU with AMX, {self} uses another rotary module, without the scaling"

    @property
    def turns_parts(self) -> bool:
        """True if a head turns only in part when the config says so."""
        return self.part or self.scaling in ("transformers", "unknown") or bool(self.by)

    @property
    def growth_key(self) -> str | None:
        """The key by which it reads how queries grow; empty if none is read; None if not known."""
        if self.scaling == "transformers":
            return GROWTH_IN_ROPE
        if self.scaling == "unknown":
            return None
        return next((name for name in (GROWTH_IN_ROPE, GROWTH_BESIDE) if name in self.reads), "")

    @property
    def remedy(self) -> str:
        """The remedy if another base in the setting does not help."""
        part = _OWN_BASE.get(self.architecture)
        if self.kept:
            return f"write {' and '.join(self.kept)} next to the rope setting too (export does)"
        if BASE in self.beside and not part:
            return "use another runtime: this one reads no base of the rope setting"
        return f"write the base into {part}.rope_theta, or use another runtime" if part else ""

    def refusal(self, setting: Config, *, nested: bool = False) -> str:
        """Why a setting has no effect, or another, in this class; empty if it has its own."""
        kind = str(setting.get("rope_type", "default"))
        # First the faults that no setting avoids, then those with this setting.
        if not self.turns_parts and setting.get("partial_rotary_factor", 1) < 1:
            return f"{self} rotates whole heads, whatever partial_rotary_factor says"
        if self.own_share not in (None, setting.get(SHARE, 1.0)):
            return f"{self} reads {SHARE} next to the rope setting only: it is {self.own_share:g}"
        try:
            got = self.passed_on(setting, nested=nested)
        except KeyError as error:
            return f"{self} fails on rope type {kind!r}, for it looks for {error.args[0]}"
        # Several differences have one cause: the first of these that holds is named.
        part = _OWN_BASE.get(self.architecture)
        if part and (kind != "default" or got["rope_theta"] != setting.get("rope_theta")):
            return f"{self} reads the base from {part}.rope_theta, and nothing of the rope setting"
        if BASE in self.beside and not part and _differ(got[BASE], setting.get(BASE)):
            return f"{self} reads {BASE} next to the rope setting only: it is {got[BASE]:g}"
        if kind != "default" and str(got.get("rope_type", "default")) == "default":
            return f"{self} does not pass the scaling on; only another base (ntk) reaches it"
        if got.get("rope_type", "default") != kind:
            return f"{self} makes {got['rope_type']} of every rope type, here {kind}"
        lost = [key for key in sorted(set(setting) - set(got)) if _matters(key, setting)]
        if "factor" in lost and not self._divides(kind):
            engine, factor = f"{ENGINE_NAMES[self.engine]} {self.version}", setting["factor"]
            return f"{engine}'s rope type {kind!r} ignores the factor, here {factor:g}"
        if kind != "default" and lost:
            return f"{self} does not pass on {', '.join(lost)}"
        if kind != "default" and self.cuts(setting.get("rope_theta")):
            return f"{self} cuts the base {setting['rope_theta']} to a whole number"
        return ""

    def fails_on(self, setting: Config) -> str:
        """Why its rotary module cannot compute a setting that transformers' completes."""
        kind = str(setting.get("rope_type") or setting.get("type") or "default")
        keys = self.types.get(kind, RotaryType())
        null = {k for k in (*keys.must, *keys.may) if setting.get(k, 0) is None} - _MAY_BE_NULL
        if kind == "yarn" and setting.get("factor") is None:
            null.add("factor")
        return f"{self} needs a value for {', '.join(sorted(null))}" if null else ""

    def written_beside(self, setting: Config) -> Config:
        """Keys that an export writes next to the rope setting, for classes that read only these."""
        return {key: setting[key] for key in self.kept if key in setting}

    def cuts(self, base: object) -> bool:
        """True if it makes another base of this one, by more than rounding."""
        if not isinstance(base, int | float) or self.base != "whole":
            return False
        if not math.isfinite(base) or not base:
            return False  # which no rotary module turns by
        return abs(int(base) / base - 1) > ROUNDING

    def _divides(self, kind: str) -> bool:
        """True if the engine's rotary module reads the factor of a rope type, or needs none."""
        keys = self.types.get(kind)
        if kind == "default" or keys is None or "long_factor" in keys.must:
            return True
        return "factor" in (*keys.must, *keys.may)

    def _name(self, setting: Config) -> str:
        """The type that is written over that of the setting."""
        for name, condition in self.renamed.items():
            key, _, value = condition.partition(" == ")
            if condition and key in setting and str(float(setting[key])) == value:
                return name
        return next(name for name, condition in self.renamed.items() if not condition)

    @staticmethod
    def _need(keys: tuple[str, ...], setting: Config) -> None:
        for key in keys:
            if key not in setting:
                raise KeyError(key)


def _differ(base: float, other: object) -> bool:
    return isinstance(other, int | float) and abs(base / other - 1) > ROUNDING if other else False


def _matters(key: str, setting: Config) -> bool:
    """True if a key that is lost differed from the default."""
    defaults = {"truncate": True, "factor": 1}
    return key != "type" and not (key in defaults and setting[key] == defaults[key])


def engine_table(engine: str) -> Mapping[str, Any]:
    """All that is recorded of an engine."""
    table: Mapping[str, Any] = table_in(TABLE)[engine]
    return table


def recorded(engine: str) -> str:
    """The release that the table was read in."""
    return str(engine_table(engine)["version"])


def model_class(config: Config, engine: str) -> ModelClass:
    """The class that serves a model: by its architecture, or that of its model type."""
    table = engine_table(engine)
    kind = ConfigReader(config).model_type
    loaded = table["configs"].get(kind, {}) if not ConfigReader(config).path else {}
    name = loaded.get("architecture") or architecture(config)
    row = table["architectures"].get(name)
    if row is not None and row["scaling"] == "inner":
        inner = row.get("architecture") or architecture(text_config(config))
        row = table["architectures"].get(inner)
        row = row if row is None or row["scaling"] != "inner" else None
        name = inner or name
    if row is None:  # without a class of its own, transformers' code serves what it knows
        stock = name in table_in(TABLE)["model_types"].values()
        row = {"scaling": "transformers" if stock else "unknown"}
    beside = row.get("beside", {}) if row["scaling"] in ("passed", "dropped", "fixed") else {}
    kept = table["kept"].get(kind, {})
    values = {key: _value_beside(key, config, beside, kept) for key in beside}
    return ModelClass(
        engine,
        table["version"],
        (name or str(config.get("model_type")))[:80],
        types={kind: RotaryType(**fields_of(keys)) for kind, keys in table["types"].items()},
        **fields_of({key: row[key] for key in _OF_ROWS if key in row}),
        beside=tuple(beside),
        kept=tuple(key for key in beside if key in kept or key == SHARE),
        own_base=_own_base(config, name) if name in _OWN_BASE else values.get(BASE),
        own_share=values.get(SHARE) if row.get("part") else None,
        old_keys=kept if loaded else None,
        none_fails=bool(loaded) and row.get("none_fails", False),
    )


def _value_beside(key: str, config: Config, defaults: Config, kept: Config) -> float | None:
    """The value for a class that reads a key only next to the rope setting.

    Of transformers' own config classes, those that SGLang asks for keep the share, and no base.
    """
    stated = number(text_config(config).get(key))
    if key in kept or key == SHARE:
        if stated is not None:
            return float(stated)
        default = kept.get(key)
        if default is None and key == SHARE:
            default = table_in(TABLE)["shares"].get(ConfigReader(config).model_type)
        defaults = defaults if default is None else {key: default}
    return defaults[key]  # type: ignore[no-any-return]


def _own_base(config: Config, name: str) -> float | None:
    part = text_config(config).get(_OWN_BASE.get(name, ""))
    base = number(part.get("rope_theta")) if isinstance(part, Mapping) else None
    return float(base) if base is not None and math.isfinite(base) else None


def architecture(config: Config) -> str:
    """The class that a config names, or else that of its model type; empty if unknown."""
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0]
    types: Mapping[str, str] = table_in(TABLE)["model_types"]
    return types.get(str(config.get("model_type")), "")
