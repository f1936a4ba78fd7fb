"""Traps in the rotation of a runtime, compared with the plan's, and in what else positions decide.

- `factors-dropped`: pairs turn at their plain frequencies: the scaling is missing, or its keys
  are not read
- `dropped-on-cpu`: (note) SGLang's class for Gemma 3 drops the scaling on a CPU with AMX
- `frequencies-differ`: the frequencies differ for a reason that no other trap covers
- `factors-doubled`: the factors are applied twice
- `theta-lost`: the runtime uses another base
- `drafter-unscaled`: (note) vLLM's drafter of MTP layers ignores `--hf-overrides`: use an export
- `attention-factor-dropped`: cos and sin are multiplied by 1
- `attention-factor-squared`: the attention factor is applied twice: `attn_factor` in SGLang's
  yarn and in a GGUF file of type yarn
- `attention-factor-ignored`: the runtime uses its own formula: yarn in SGLang, and with `mscale`
  in vLLM before 2026; longrope without `short_mscale` and `long_mscale` in both
- `softmax-scaling-differs`: the runtime multiplies all logits by another factor than the plan:
  `mscale_all_dim` of DeepSeek's family
- `switches-with-cache`: factors change with the current length (two lists, dynamic NTK), but
  cached keys keep the old ones; in transformers a note
- `short-text-taxed`: short sequences are rotated by the long factors
- `one-position-lost`: (note) when decoding, SGLang rotates the token at longrope's original
  length as position 0
- `wrong-step`: the runtime uses the factors of another length of the plan; transformers with
  Phi-3.5-MoE always takes the short list
- `position-scaling-lost`: queries that grow with their position: transformers reads
  `llama_4_scaling_beta`, vLLM `llama_4_scaling`, and the config has the other
- `dual-chunk`: `dual_chunk_attention_config` (Qwen2.5-1M): no released runtime has that attention
  any more
- `eight-bit-keys`: (note) the config requests keys and values in 8 bits
- `kept-positions-lost`, `log-n-lost`: the plan needs something that no stock runtime supports
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ropewalk.context_plan import APPROXIMATES
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.lengths import format_length
from ropewalk.models.config import DUAL_CHUNK, ORIGINAL_LENGTH
from ropewalk.models.stock_config import is_dynamic, two_lists
from ropewalk.runtimes import named
from ropewalk.runtimes.drafters import beyond_overrides
from ropewalk.runtimes.finding import TOLERANCE, ExaminedModel, Finding
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.model_classes import GROWTH_BESIDE as BESIDE
from ropewalk.runtimes.model_classes import GROWTH_IN_ROPE as IN_ROPE
from ropewalk.runtimes.reading import STOCK, Effective, RotaryReading, kind_of
from ropewalk.scaling import rebuild
from ropewalk.schedule import MAX_BASE, FloatArray, RotarySchedule

_REWRITE = "write the setting anew: ropewalk export does"
_OTHER_FORM = "extend it by another base (ntk), which reaches every class, or use another runtime"


def rotation(subject: ExaminedModel) -> Iterator[Finding]:
    """Frequencies and attention scaling, layer type by layer type, step by step."""
    for reading, layer_type, want, got in _compared(subject):
        where = f"{layer_type} at {format_length(want.length)}: "
        if not _close(got.inverse_frequencies, want.inverse_frequencies):
            trap, what, remedy = _explained(subject, layer_type, want, got)
            yield Finding(
                trap,
                (reading.runtime,),
                f"{where}{what}{_because(reading)}",
                "the model rotates by the wrong angles, and fails beyond its old length",
                _remedy(reading, remedy),
            )
        wanted, scaling = want.attention_scaling, got.attention_scaling
        logits = want.softmax_scaling
        if not subject.config and want.geometry.rotary_dim == want.geometry.head_dim:
            # A GGUF file has no key for it, and an export multiplies cos and sin instead.
            wanted, logits = wanted * logits**0.5, 1.0
        if abs(got.softmax_scaling / logits - 1) > TOLERANCE:
            yield Finding(
                "softmax-scaling-differs",
                (reading.runtime,),
                f"{where}logits are multiplied by {got.softmax_scaling:.6g} instead of {logits:.6g}"
                f"{_because(reading)}",
                f"attention is {got.softmax_scaling / logits:.3g} times as sharp as it should be",
                _remedy(reading, _REWRITE),
            )
        if abs(scaling / wanted - 1) > TOLERANCE and not _rounded(scaling, wanted):
            yield Finding(
                _attention_trap(wanted, scaling),
                (reading.runtime,),
                f"{where}cos and sin are multiplied by {scaling:.6g} instead of {wanted:.6g}"
                f"{_because(reading)}",
                f"attention is {(scaling / wanted) ** 2:.3g} times as sharp as it should be",
                _remedy(reading, _attention_remedy(subject, reading.runtime, wanted)),
            )


def _remedy(reading: RotaryReading, usual: str) -> str:
    """The remedy of the runtime's class, if it has one of its own."""
    return reading.remedy or (_OTHER_FORM if reading.notes else usual)


def _rounded(scaling: float, wanted: float) -> bool:
    """True if a config states the same number, cut to four digits or more, as OLMo 3's 1.2079."""
    digits = len(repr(wanted).partition(".")[2])
    return digits >= 4 and round(scaling, digits) == wanted


def nothing_rotates(subject: ExaminedModel) -> Iterator[Finding]:
    if subject.plan is None or not subject.config:
        return
    try:
        subject.reader.rotating_layers()
    except Unsupported as error:
        lost = "no position has an effect, so the plan has none"
        yield Finding("frequencies-differ", (), str(error), lost, "take the key from its source")
    except RopewalkError:  # which its reading tells of
        return


def on_a_cpu(subject: ExaminedModel) -> Iterator[Finding]:
    """A class with another rotary module for CPUs."""
    kinds = list(map(kind_of, subject.ropes.values()))
    for reading in subject.readings:
        served = subject.served(reading.runtime)
        loads = not (reading.refused or reading.unread)
        if loads and served is not None and (lost := served.lost_on_a_cpu(kinds)):
            yield Finding(
                "dropped-on-cpu",
                (reading.runtime,),
                lost,
                "there, the pairs turn at their plain speeds, as if nothing were extended",
                "serve it on a GPU, or in another runtime",
                wrong=False,
            )


def _because(reading: RotaryReading) -> str:
    return "".join(f"; {note}" for note in reading.notes)


def beyond_stock(subject: ExaminedModel) -> Iterator[Finding]:
    """Find settings that no stock runtime can express at all."""
    if subject.plan is None:
        return
    for layer_type, steps in subject.plan.schedules.items():
        schedule = steps[-1].schedule
        if schedule.kept_initial_positions:
            yield Finding(
                "kept-positions-lost",
                (),
                f"{layer_type}: the plan keeps the first {schedule.kept_initial_positions} "
                "positions unscaled",
                "no stock runtime supports this",
                "plan with kept_initial_positions = 0",
            )
        if schedule.log_n is not None and schedule.log_n.form != "steps":
            # Growth by steps is the model's own, which `position_scaling_lost` follows.
            yield Finding(
                "log-n-lost",
                (),
                f"{layer_type}: the plan scales queries by log n",
                "no stock runtime supports this",
                "plan without log-n",
            )


def _compared(
    subject: ExaminedModel,
) -> Iterator[tuple[RotaryReading, str, RotarySchedule, Effective]]:
    if subject.plan is None:
        return
    for reading in subject.readings:
        for layer_type, steps in subject.plan.schedules.items():
            # What is chosen by the declared length is compared at the length that is declared.
            chosen = steps[-1:] if reading.switches == "by the declared length" else steps
            for step in chosen:
                got = reading.at(step.up_to_length, layer_type)
                if got is not None:
                    yield reading, layer_type, step.schedule, got


def _explained(
    subject: ExaminedModel, layer_type: str, want: RotarySchedule, got: Effective
) -> tuple[str, str, str]:
    """The trap's name, effect and remedy, for frequencies other than those wanted."""
    frequencies, geometry = got.inverse_frequencies, want.geometry
    if frequencies.shape != want.inverse_frequencies.shape:
        return (
            "frequencies-differ",
            f"its heads have {frequencies.size} rotary pairs instead of {geometry.pairs}",
            "create the plan from this model's config",
        )
    if _close(frequencies, geometry.plain_frequencies):
        return (
            "factors-dropped",
            "the pairs turn at their plain speeds, as if nothing were extended",
            _REWRITE,
        )
    last = want.recipe[-1] if want.recipe else None
    if last is not None and last.parameters.get("truncate") is False:
        cut = replace(last, parameters={**last.parameters, "truncate": True})
        if _close(frequencies, rebuild((*want.recipe[:-1], cut), geometry).inverse_frequencies):
            return (
                "truncate-ignored",
                "truncate = false is ignored, and the ramp begins and ends at whole pairs",
                "write the factors as longrope (ropewalk export does)",
            )
    others = subject.plan.steps(layer_type) if subject.plan else ()
    for step in others:
        if _close(frequencies, step.schedule.inverse_frequencies):
            longer = format_length(step.up_to_length)
            if step.up_to_length > want.length:
                return (
                    "short-text-taxed",
                    f"short sequences turn by the factors that are for {longer}",
                    "serve short text from the model without this setting, or plan one schedule "
                    "for all lengths",
                )
            return (
                "wrong-step",
                f"it turns by the factors that are for {longer}",
                "write one list of factors for all lengths",
            )
    lost = _lost_base(want, frequencies)
    if lost is not None:
        return (
            "theta-lost",
            f"the pairs turn as those of base {lost:g}; the model's is {geometry.base:g}",
            'write "rope_theta" into rope_parameters, and for transformers 4 beside it',
        )
    if _close(frequencies * want.rescale_factors, want.inverse_frequencies):
        return ("factors-doubled", "the factors are applied twice", _REWRITE)
    turning = geometry.turning_pairs
    if frequencies[turning:].any():
        return ("frequencies-differ", f"pair {turning} turns, and should rest", _REWRITE)
    worst = int(np.argmax(np.abs(frequencies[:turning] / want.inverse_frequencies[:turning] - 1)))
    ratio = frequencies[worst] / want.inverse_frequencies[worst]
    return (
        "frequencies-differ",
        f"pair {worst} turns {ratio:.6g} times as fast as it should",
        _REWRITE,
    )


def _lost_base(want: RotarySchedule, frequencies: FloatArray) -> float | None:
    """The base of these frequencies, if only the base is not the one wanted."""
    geometry = want.geometry
    if geometry.pairs < 3:
        return None
    for factors in (want.rescale_factors, np.ones(geometry.pairs)):
        plain = frequencies * factors
        if plain[1] <= 0 or plain[1] >= 1:
            continue
        base = float(plain[1] ** (-geometry.rotary_dim / 2))
        if 1 < base <= MAX_BASE:
            of_base = replace(geometry, base=base).plain_frequencies
            if np.allclose(plain, of_base, rtol=geometry.pairs * TOLERANCE, atol=0):
                return float(f"{base:.4g}")
    lost = replace(geometry, base=1e4)
    try:
        if _close(frequencies, rebuild(want.recipe, lost).inverse_frequencies):
            return lost.base
    except RopewalkError:
        return None
    return None


def _attention_trap(wanted: float, scaling: float) -> str:
    if abs(scaling - 1) <= TOLERANCE:
        return "attention-factor-dropped"
    if abs(scaling / wanted**2 - 1) <= TOLERANCE:
        return "attention-factor-squared"
    return "attention-factor-ignored"


def _attention_remedy(subject: ExaminedModel, runtime: str, wanted: float) -> str:
    longrope = any(kind_of(rope) == "longrope" for rope in subject.ropes.values())
    if longrope and runtime.startswith(tuple(ENGINE_NAMES)):
        return f"set short_mscale and long_mscale to {wanted:.6g} in the rope setting"
    return f"write the setting anew: ropewalk export --runtime {runtime.partition('-')[0]} does"


def _close(one: FloatArray, other: FloatArray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=TOLERANCE, atol=0)


_STEP_IN_SGLANG = 16384
"""The default of its class for Ministral 3."""


def position_scaling_lost(subject: ExaminedModel) -> Iterator[Finding]:
    inside = [r[IN_ROPE] for r in subject.ropes.values() if r.get(IN_ROPE) is not None]
    other = subject.inner.get(BESIDE)
    beta = other.get("beta") if isinstance(other, Mapping) else None
    for reading in subject.readings:
        key, value = named(reading.runtime).growth_key(subject.config), (inside or [beta])[0]
        if not value or key is None:
            continue
        if reading.runtime == "sglang" and key == IN_ROPE and inside:
            yield from _other_steps(subject)
        if not (inside if key == IN_ROPE else beta if key == BESIDE else None):
            there, missing = (IN_ROPE, BESIDE) if inside else (BESIDE, IN_ROPE)
            yield Finding(
                "position-scaling-lost",
                (reading.runtime,),
                f"the config scales queries by their position ({there} = {value}), but this "
                f"runtime reads {key or f'neither {IN_ROPE} nor {BESIDE}'}",
                "attention beyond the original length is less sharp than the model was trained for",
                f"write {missing} too (ropewalk export does, for vLLM)"
                if key
                else "serve it in a runtime that reads it",
            )


def growth_differs(subject: ExaminedModel) -> Iterator[Finding]:
    """Queries that grow otherwise than in the plan, which no reading of the rotation shows."""
    if not (subject.planned and subject.plan and subject.config):
        return
    for layer_type, rope in subject.ropes.items():
        steps = subject.plan.schedules.get(layer_type)
        if not steps or not subject.reader.family.steps_log_n:
            continue
        want = steps[-1].schedule.log_n
        want = want if want is not None and want.form == "steps" else None
        try:
            got = subject.reader.steps(rope)[-1].schedule.log_n
            same, why = got == want, f"{got or 'none'}"
        except RopewalkError as error:
            same, why = False, str(error)
        if not same:
            yield Finding(
                "position-scaling-lost",
                (),
                f"{layer_type}: the plan scales queries by {want or 'no growth'}; in the config: "
                f"{why}",
                "attention beyond the original length is not as sharp as planned",
                _REWRITE,
            )


def _other_steps(subject: ExaminedModel) -> Iterator[Finding]:
    """SGLang takes the length of a step next to rope_parameters, whatever these contain."""
    taken = subject.inner.get(ORIGINAL_LENGTH, _STEP_IN_SGLANG)
    for rope in subject.ropes.values():
        stated = rope.get(ORIGINAL_LENGTH)
        if rope.get(IN_ROPE) and stated is not None and stated != taken:
            yield Finding(
                "position-scaling-lost",
                ("sglang",),
                f"the config scales queries in steps of {stated} positions, but SGLang takes "
                f"{taken}, the {ORIGINAL_LENGTH} beside rope_parameters ({_STEP_IN_SGLANG} without "
                "it)",
                "attention beyond the original length is not as sharp as the model was trained for",
                f"write {ORIGINAL_LENGTH} beside rope_parameters too (ropewalk export does)",
            )


def dual_chunk(subject: ExaminedModel) -> Iterator[Finding]:
    """Qwen2.5-1M turns positions by chunks, and only its vLLM of early 2025 did so too."""
    setting = subject.chunks
    if not isinstance(setting, Mapping):
        return
    trained = setting.get("original_max_position_embeddings")
    within = isinstance(trained, int) and subject.length <= trained
    remedy = f"remove {DUAL_CHUNK}, and serve up to {trained}, where it changes nothing"
    for reading in subject.readings:
        name = reading.runtime
        served = subject.served(name)
        if served is not None and DUAL_CHUNK in served.reads:
            yield Finding(
                "dual-chunk",
                (name,),
                f"{served} hands {DUAL_CHUNK} to its rotary module, but no longer has the "
                "attention that goes with it",
                "it fails at the start, or attends with wrong angles",
                remedy,
            )
        elif not within:
            yield Finding(
                "dual-chunk",
                (name,),
                f"the config has {DUAL_CHUNK}, which {name} ignores: positions are not turned by "
                "chunks",
                f"beyond {format_length(trained) if isinstance(trained, int) else 'its training'} "
                "the pairs turn to angles that training has not covered",
                remedy,
            )


def eight_bit_keys(subject: ExaminedModel) -> Iterator[Finding]:
    for config in (subject.inner, subject.config):
        quantization = config.get("quantization_config")
        scheme = quantization.get("kv_cache_scheme") if isinstance(quantization, Mapping) else None
        if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
            yield Finding(
                "eight-bit-keys",
                ("vllm", "sglang"),
                "the config asks for a cache of keys and values in 8 bits",
                "keys are rounded after they are rotated; the scales were chosen at the length of "
                "calibration, and nobody has measured them at a longer one",
                "measure the extended model with this cache, or serve it with kv-cache-dtype auto",
                wrong=False,
            )
            return


def drafter_unscaled(subject: ExaminedModel) -> Iterator[Finding]:
    """A setting that only the command line of vLLM would state, which its drafters do not read."""
    short = [r for r in subject.readings if r.runtime == "vllm" and (r.limit or 0) < subject.length]
    if short and subject.asked and (why := beyond_overrides(subject.config, subject.length)):
        yield Finding(
            "drafter-unscaled",
            ("vllm",),
            f"the config states less than {format_length(subject.length)}, and --hf-overrides, "
            "which would raise it, do not reach the drafter in the checkpoint",
            why,
            "write the setting into config.json (ropewalk export), or serve without a drafter",
            wrong=False,
        )


def cache_switch(subject: ExaminedModel) -> Iterator[Finding]:
    """Wrong, unless that is how transformers has the plan: two lists, dynamic, or one near it."""
    plan = subject.plan
    intended = plan is not None and (
        APPROXIMATES in plan.provenance
        or is_dynamic(plan)
        or all(len(steps) == 1 or two_lists(steps) for steps in plan.schedules.values())
    )
    for reading in subject.readings:
        if reading.switches == "by the length at hand":
            yield Finding(
                "switches-with-cache",
                (reading.runtime,),
                "the factors change with the current length, but cached keys keep the factors that "
                "they were computed with",
                "decoding across the change gives other text than a full recompute; a long "
                "sequence changes the short ones of its batch",
                "write one list of factors for all lengths (ropewalk export does)",
                wrong=not intended or reading.runtime != STOCK,
            )


def one_position(subject: ExaminedModel) -> Iterator[Finding]:
    for reading in subject.readings:
        for rope in subject.ropes.values() if reading.runtime == "sglang" else ():
            original = rope.get("original_max_position_embeddings")
            original = subject.inner.get("original_max_position_embeddings", original)
            if kind_of(rope) != "longrope" or not isinstance(original, int):
                continue
            if original < subject.length:
                yield Finding(
                    "one-position-lost",
                    (reading.runtime,),
                    f"longrope with original_max_position_embeddings = {original}",
                    "SGLang, decoding one token at a time, turns the token at that position as if "
                    "it were the first",
                    "export it for SGLang (ropewalk export --runtime sglang), which sets it to the "
                    "target",
                    wrong=False,
                )


def declared_switch(subject: ExaminedModel) -> Iterator[Finding]:
    for reading in subject.readings:
        if reading.switches == "by the declared length":
            yield Finding(
                "short-text-taxed",
                (reading.runtime,),
                "the factors are chosen once, by the length that the server declares",
                "a server started for long sequences serves short ones with the long factors too",
                "start a second server with a short --max-model-len for short text",
                wrong=False,
            )
