"""Traps in what depends on positions besides their rotation.

position-scaling-lost, dual-chunk, eight-bit-keys, drafter-unscaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ropewalk.lengths import format_length
from ropewalk.models.config import DUAL_CHUNK, ORIGINAL_LENGTH
from ropewalk.runtimes import named
from ropewalk.runtimes.drafters import beyond_overrides
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.model_classes import GROWTH_BESIDE as BESIDE
from ropewalk.runtimes.model_classes import GROWTH_IN_ROPE as IN_ROPE

_STEP_IN_SGLANG = 16384
"""The default of its class for Ministral 3."""


def position_scaling_lost(subject: ExaminedModel) -> Iterator[Finding]:
    inside = [r[IN_ROPE] for r in subject.ropes.values() if r.get(IN_ROPE) is not None]
    other = subject.inner.get(BESIDE)
    own = other.get("beta") if isinstance(other, Mapping) else None
    for reading in subject.readings:
        key, value = named(reading.runtime).growth_key(subject.config), (inside or [own])[0]
        if not value or key is None:
            continue
        if reading.runtime == "sglang" and key == IN_ROPE and inside:
            yield from _other_steps(subject)
        if not (inside if key == IN_ROPE else own if key == BESIDE else None):
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
        own = config.get("quantization_config")
        scheme = own.get("kv_cache_scheme") if isinstance(own, Mapping) else None
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
