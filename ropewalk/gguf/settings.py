"""A plan as keys of a GGUF file, as far as the file's architecture honours them.

The plainest that is exact: a new base, one factor for all pairs, llama.cpp's own YaRN, and else a
tensor of factors, which only some architectures take (architectures.py). What multiplies cos and
sin besides is `rope.scaling.attn_factor`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.gguf.architectures import Architecture, architecture, build
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, GGUFHeader
from ropewalk.gguf.rewriting import Changes, number, text
from ropewalk.gguf.rotation import (
    default_yarn,
    geometry_of,
    has_own_windows,
    lengths_of,
    of_windows,
    unplanned,
    window_of,
)
from ropewalk.scaling import log_growth, yarn
from ropewalk.schedule import FloatArray, RotaryGeometry, RotarySchedule

_LENGTH, _ORIGINAL = "context_length", "rope.scaling.original_context_length"
_BASE, _ATTENTION = "rope.freq_base", "rope.scaling.attn_factor"
_TYPE, _FACTOR = "rope.scaling.type", "rope.scaling.factor"
_BETAS = ("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow")
_REPLACED = (
    *(_LENGTH, _ORIGINAL, _BASE, _ATTENTION, _TYPE, _FACTOR, *_BETAS),
    *("rope.scale_linear", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"),
)
"""The file's rotary keys, which a plan replaces as a whole."""
_LAYERS = {FULL_ATTENTION, SLIDING_ATTENTION}
_CLOSE = 1e-6
"""The tolerance of a base stored in float32."""
_PLAIN = "the plain frequencies"
_MOST_LENGTH = 2**32 - 1
_MOST_BASE = float(np.finfo(np.float32).max)


class NoFactors(Unsupported):
    """The architecture takes no factor for each pair."""


@dataclass(frozen=True, eq=False)
class GGUFSetting:
    """A schedule in llama.cpp's words."""

    base: float
    linear: float = 1.0
    yarn: float = 1.0
    """The factor of llama.cpp's own YaRN."""
    betas: tuple[float, float] = (32.0, 1.0)
    factors: FloatArray | None = None
    attention: float = 1.0
    """The factor of cos and sin next to that of YaRN."""
    said: str = field(default="", kw_only=True)
    """The same in words."""

    @property
    def by_flags(self) -> bool:
        """True if llama.cpp's flags can express it too, which have no factors."""
        return self.factors is None and self.attention == 1


def setting_of(header: GGUFHeader, schedule: RotarySchedule) -> GGUFSetting:
    """The setting that makes llama.cpp follow a schedule in this file."""
    setting = setting_in(usable(header), schedule)
    if has_own_windows(header):
        check_windows_unscaled(setting)
    return setting


def check_windows_unscaled(setting: GGUFSetting) -> None:
    """Refuse what would reach layers with a sliding window that turn by a base of their own."""
    if setting.attention != 1:
        raise Unsupported(
            f"an attention scaling ({_ATTENTION} = {setting.attention:.6g}) would multiply the "
            "layers with a sliding window as well, which the plan leaves unchanged; plan without "
            "that scaling, or with yarn's own"
        )


def _check_beside_factors(schedule: RotarySchedule) -> None:
    """Refuse what no file of any architecture can express besides factors and attention scaling."""
    if schedule.kept_initial_positions:
        raise Unsupported(
            "llama.cpp cannot keep initial positions "
            f"(kept_initial_positions = {schedule.kept_initial_positions}); plan with 0"
        )
    if schedule.log_n is not None:
        raise Unsupported("llama.cpp cannot scale queries by log n; plan without log n")


def setting_in(
    arch: Architecture, schedule: RotarySchedule, *, by_factors: bool = False
) -> GGUFSetting:
    """The setting that makes llama.cpp follow a schedule in a file of an architecture.

    `by_factors`: YaRN as factors where they are taken. These are the same in every build, while
    what llama.cpp multiplies YaRN by has been changed (its pull request 17945).
    """
    _check_beside_factors(schedule)
    geometry = schedule.geometry
    attention = schedule.attention_scaling
    if schedule.softmax_scaling != 1:
        if geometry.rotary_dim != geometry.head_dim:
            raise Unsupported(
                "llama.cpp has no softmax scaling, and scaling cos and sin instead "
                f"reaches only {geometry.rotary_dim} of {geometry.head_dim} dimensions; "
                "plan without softmax scaling"
            )
        attention *= schedule.softmax_scaling**0.5
    setting = _plainest(arch, schedule, own_yarn=not (by_factors and arch.honours_factors))
    growth = log_growth(setting.yarn) if setting.yarn > 1 else 1
    setting = replace(setting, attention=attention / growth)
    if abs(setting.attention - 1) < _CLOSE:
        return replace(setting, attention=1.0)
    if not arch.attn_factor:
        raise Unsupported(
            f"architecture {arch.name}: normalises queries and keys after rotating them, so that "
            f"an attention scaling of {attention:.6g} has no effect; plan with an attention "
            f"scaling of {growth:.6g}"
        )
    return replace(setting, said=f"{setting.said}, {_ATTENTION} = {setting.attention:.6g}")


def stated(
    arch: Architecture, setting: GGUFSetting, length: int, original: int
) -> dict[str, int | float | str]:
    """The setting as keys of the metadata, by their names below the architecture's."""
    keys: dict[str, int | float | str] = {_LENGTH: length, _ORIGINAL: original, _BASE: setting.base}
    if setting.linear != 1 or setting.yarn != 1:
        keys[_TYPE] = "linear" if setting.yarn == 1 else "yarn"
        keys[_FACTOR] = setting.linear * setting.yarn
    if setting.yarn != 1 and arch.betas:
        keys |= dict(zip(_BETAS, setting.betas, strict=True))
    if setting.attention != 1:
        keys[_ATTENTION] = setting.attention
    return keys


def factor_tensors(arch: Architecture, setting: GGUFSetting) -> dict[str, FloatArray]:
    """The factors by pair as tensors of the file, by their names."""
    if setting.factors is None:
        return {}
    names = (FREQUENCIES,) if "rope_freqs" in arch.tensors else (LONG, SHORT)
    return dict.fromkeys(names, setting.factors)


def changes(header: GGUFHeader, setting: GGUFSetting, length: int, original: int) -> Changes:
    """The keys that the setting changes in a file, whatever they are now."""
    arch = architecture(header.architecture)
    keys = stated(arch, setting, length, original)
    return Changes(
        keys={f"{arch.name}.{key}": _coded(value) for key, value in keys.items()},
        without=frozenset(f"{arch.name}.{key}" for key in _REPLACED),
        tensors=factor_tensors(arch, setting),
        without_tensors=frozenset((FREQUENCIES, LONG, SHORT)),
    )


def _coded(value: int | float | str) -> bytes:
    """A value of the metadata as the file stores it."""
    if isinstance(value, str):
        return text(value)
    return number("<I" if isinstance(value, int) else "<f", value)


def without_scaling(header: GGUFHeader, length: int) -> Changes:
    """The changes that take all scaling from a file, and state another context length."""
    key = f"{header.architecture}.{_LENGTH}"
    return Changes(
        keys={key: number("<I", length)},
        without=frozenset(
            f"{header.architecture}.{name}" for name in _REPLACED if name not in (_LENGTH, _BASE)
        ),
        without_tensors=frozenset((FREQUENCIES, LONG, SHORT)),
    )


def flags_reach_all_layers(header: GGUFHeader) -> bool:
    """True if llama.cpp's flags turn the layers with a sliding window as the file's keys do."""
    windows = architecture(header.architecture).windows
    return windows in ("none", "same", "own") or window_of(header) is None


def check_plan(header: GGUFHeader, plan: ContextPlan) -> RotarySchedule:
    """The one schedule of a plan that is of this model, and leaves its windows alone."""
    kept = of_windows(header)
    windows = plan.schedules.get(SLIDING_ATTENTION)
    unchanged = windows is None or (kept is not None and plan.keeps(SLIDING_ATTENTION, kept))
    if not unchanged or not {FULL_ATTENTION} <= {*plan.schedules} <= _LAYERS:
        raise InvalidValue(
            "plan.schedules",
            sorted(plan.schedules),
            "the plan has settings by layer type, and a GGUF file has one setting for all layers "
            "but those with a sliding window and a base of their own, which keep it",
            "create the plan from this file",
        )
    geometry, planned = geometry_of(header), plan.longest().geometry
    if (lengths := lengths_of(header)).guess or lengths.doubt:  # who planned may know more
        geometry = replace(geometry, original_length=planned.original_length)
    same = _sizes(planned) == _sizes(geometry)
    if not same or abs(planned.base / geometry.base - 1) > _CLOSE:
        raise InvalidValue(
            "plan.schedules.full_attention",
            _in_words(planned),
            f"this file has {_in_words(geometry)}",
            "create the plan from this file",
        )
    _check_lengths(plan.target_length, geometry.original_length)
    return only_schedule(plan)


def only_schedule(plan: ContextPlan) -> RotarySchedule:
    """The schedule of a plan that does not change with the length of a sequence."""
    if len(plan.steps()) > 1:
        raise Unsupported(
            "llama.cpp does not change factors with the length of a sequence, and this plan has "
            f"steps up to {', '.join(str(step.up_to_length) for step in plan.steps())}; plan with "
            "one set of factors"
        )
    return plan.longest()


def expressible(schedule: RotarySchedule, *, own_attention: bool = False) -> RotarySchedule:
    """The schedule nearest to one by its factors, of those that need no tensor of factors.

    The plain frequencies with another base, slowed by one factor, or by YaRN's ramp, each fitted by
    least squares of the factors' logarithms. The attention scaling stays, or with `own_attention`
    becomes what llama.cpp takes for itself.
    """
    wanted, geometry = np.log(schedule.rescale_factors), schedule.geometry
    plain = RotarySchedule.plain(geometry)
    exponents = np.arange(geometry.pairs) * 2 / geometry.rotary_dim
    ratio = np.exp(wanted @ exponents / (exponents @ exponents))
    scales = np.geomspace(1.01, max(1.02, float(schedule.rescale_factors.max())), 32)
    ramps = [yarn.schedule(plain, schedule.length, factor=float(s)) for s in scales]
    simple = [np.power(ratio, exponents), np.full(geometry.pairs, np.exp(wanted.mean()))]
    candidates = [*simple, *(ramp.rescale_factors for ramp in ramps)]
    misses = [float(np.square(np.log(each) - wanted).mean()) for each in candidates]
    best = int(np.argmin(misses))
    if best < len(simple):
        nearest = replace(schedule, rescale_factors=np.maximum(simple[best], 1e-9), recipe=())
        attention = 1.0
    else:
        ramp = ramps[best - len(simple)]
        nearest = replace(schedule, rescale_factors=ramp.rescale_factors, recipe=ramp.recipe)
        attention = ramp.attention_scaling
    if own_attention:
        return replace(nearest, attention_scaling=attention, softmax_scaling=1.0)
    return nearest


def nearest(header: GGUFHeader, schedule: RotarySchedule) -> RotarySchedule:
    """The nearest schedule that a file of this architecture can state."""
    fixed = has_own_windows(header) or not architecture(header.architecture).attn_factor
    return expressible(schedule, own_attention=fixed)


def nearest_in_words(header: GGUFHeader, schedule: RotarySchedule) -> str:
    """The nearest schedule that the architecture can express, as the file would state it."""
    try:
        said = setting_of(header, nearest(header, schedule)).said
        return f"the nearest that it can express ({said})"
    except Unsupported:
        return "the nearest that it can express"


def warnings(header: GGUFHeader, setting: GGUFSetting) -> tuple[str, ...]:
    """The layers that the architecture keeps from following the plan, in words."""
    arch = architecture(header.architecture)
    window = window_of(header)
    if arch.windows == "none" or window is None:
        return ()
    said = {
        "own": "turn by a base of their own and stay as they are",
        "same base, unscaled": "take the new base and are not scaled",
    }.get(arch.windows, "follow the plan too")
    if setting.factors is not None:
        said += ", as far as the file gives them the factors"
    return (f"the layers with a sliding window of {window:,} {said}, by llama.cpp's rules",)


def usable(header: GGUFHeader) -> Architecture:
    """The file's architecture, if it is known what llama.cpp makes of its settings."""
    arch = architecture(header.architecture)
    if not arch.known:
        raise Unsupported(
            f"architecture {header.architecture!r}: it is not known which settings llama.cpp "
            f"{build()} honours for it, so no file is written; convert and check it with llama.cpp "
            "itself"
        )
    if not arch.rotates:
        raise Unsupported(
            f"architecture {arch.name!r}: does not rotate in llama.cpp, so there is nothing to "
            "extend; give a model with RoPE"
        )
    if special := unplanned(header):
        raise Unsupported(
            f"{header.path}: {special} changes the rotation in a way specific to {arch.name}, "
            "which no plan replaces; export from the folder that the file was converted from"
        )
    return arch


def _plainest(arch: Architecture, schedule: RotarySchedule, *, own_yarn: bool) -> GGUFSetting:
    """The plainest setting of the frequencies; the attention scaling comes later."""
    geometry, factors = schedule.geometry, schedule.rescale_factors
    if arch.freq_base and (base := schedule.geometric_base) is not None:
        return GGUFSetting(_stored(base), said=_said(geometry, base))
    s = float(factors[0])
    base = replace(schedule, rescale_factors=factors / s).geometric_base
    if arch.linear and base is not None and (arch.freq_base or _said(geometry, base) == _PLAIN):
        others = () if _said(geometry, base) == _PLAIN else (_said(geometry, base),)
        said = ", ".join((*others, f"{_TYPE} = linear, {_FACTOR} = {s:.6g}"))
        return GGUFSetting(_stored(base), linear=s, said=said)
    setting = _own_yarn(arch, schedule) if own_yarn else None
    if setting is not None:
        return setting
    if not arch.honours_factors:
        effect = "refuses a file with factors by pair"
        if arch.factors == "ignored":
            effect = "loads factors by pair and computes without them"
        raise NoFactors(f"architecture {arch.name}: llama.cpp {effect}")
    tensors = "rope_freqs" if "rope_freqs" in arch.tensors else "rope_factors_long and _short"
    said = f"{tensors}, from {factors.min():.4g} to {factors.max():.4g}"
    return GGUFSetting(geometry.base, factors=factors, said=said)


def _said(geometry: RotaryGeometry, base: float) -> str:
    """A base in words."""
    return _PLAIN if abs(base / geometry.base - 1) < _CLOSE else f"{_BASE} = {base:.10g}"


def _stored(base: float) -> float:
    """A base that a file can state."""
    if base > _MOST_BASE:
        raise Unsupported(
            f"{_BASE} = {base:.4g}: a GGUF file states it in float32, up to {_MOST_BASE:.4g}; "
            "plan for a shorter length, or by another method"
        )
    return base


def _own_yarn(arch: Architecture, schedule: RotarySchedule) -> GGUFSetting | None:
    """llama.cpp's YaRN, if the factors are its very own over the plain frequencies."""
    s = default_yarn(schedule, betas=arch.betas) if arch.yarn else None
    if s is None:
        return None
    parameters = schedule.recipe[0].parameters
    betas = float(str(parameters["beta_fast"])), float(str(parameters["beta_slow"]))
    said = f"{_TYPE} = yarn, {_FACTOR} = {s:.6g}"
    base = float(str(parameters["base"] or schedule.geometry.base))
    if base != schedule.geometry.base:
        if not arch.freq_base:
            return None
        said = f"{_said(schedule.geometry, base)}, {said}"
    return GGUFSetting(_stored(base), yarn=s, betas=betas, said=said)


def _check_lengths(target: int, original: int) -> None:
    """Both are unsigned numbers of four bytes in llama.cpp."""
    for key, value in (("plan.target_length", target), (_ORIGINAL, original)):
        if value > _MOST_LENGTH:
            raise InvalidValue(
                key,
                value,
                f"a GGUF file states lengths up to {_MOST_LENGTH:,}",
                "plan for a shorter length" if key != _ORIGINAL else "convert the model again",
            )


def _sizes(geometry: RotaryGeometry) -> tuple[int, int, int]:
    return geometry.head_dim, geometry.pairs, geometry.original_length


def _in_words(geometry: RotaryGeometry) -> str:
    return (
        f"heads of {geometry.head_dim}, of which {geometry.rotary_dim} turn, base "
        f"{geometry.base:g}, original length {geometry.original_length}"
    )
