"""Traps in the length that a model states or serves.

- `tokenizer-limit`: the tokenizer's `model_max_length` is below the length: transformers cuts
  longer text if truncation is on
- `generation-limit`: `max_length` of generation_config.json is below the length: `generate()`
  stops there; without a plan, a note
- `window-in-every-layer`: (note) every layer attends to a sliding window shorter than the length
- `short-by-default`: (note) Ollama serves 4k, 32k or 256k unless `num_ctx` says otherwise
- `length-limit`: the runtime accepts only shorter sequences
- `length-multiplied`: vLLM and SGLang multiply a length that is already extended by linear's
  factor
- `not-extended`: the model's setting serves less than the requested length
- `unscaled-length`: a long length over plain frequencies of a small base: at most a twentieth of
  the bound for that length (Men et al. 2024)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.lengths import format_length
from ropewalk.models.config import window_everywhere
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.reading import OLLAMA, STOCK, RotaryReading, kind_of
from ropewalk.theory.published import MEN_2024

FAR_BELOW = 20
"""The factor below the base that a length needs at which a base counts as not pretrained for it.
Nothing derives this: the bound says which base is enough, not which is too small to train with. It
lies between what is known of both sides: ERNIE 4.5 was pretrained with a base 16 times below, and a
Llama 2 that is extended fourfold, to 16k, lacks its scaling at 31 times. One that is extended to 8k
(8 times below) cannot be told from a pretrained model by its config."""


def unscaled_length(subject: ExaminedModel) -> Iterator[Finding]:
    """A long length stated over a plain base: fine-tuned with scaling, published without it."""
    plan, inner = subject.plan, subject.inner
    if plan is None or subject.planned or FULL_ATTENTION not in plan.schedules:
        return
    schedule = plan.longest()
    geometry = schedule.geometry
    if inner.get("sliding_window") or geometry.rotary_dim != geometry.head_dim:
        return
    if schedule.geometric_base is None or np.any(schedule.rescale_factors != 1):
        return
    needed = max((b for length, b in MEN_2024.items() if length <= schedule.length), default=0.0)
    if geometry.base * FAR_BELOW < needed:
        yield Finding(
            "unscaled-length",
            (),
            f"the config states {format_length(schedule.length)} over plain frequencies of base "
            f"{geometry.base:g}; such a length needs a base of about {needed:g}",
            "a model fine-tuned with scaled positions was probably published without its scaling: "
            "it runs unscaled and answers with garbage beyond its original length",
            "find out how it was trained, and add that rope setting",
        )


def not_extended(subject: ExaminedModel) -> Iterator[Finding]:
    plan = subject.plan
    if plan is None or plan.target_length >= subject.length:
        return
    serves = format_length(plan.target_length)
    plain = all(
        np.all(step.schedule.rescale_factors == 1)
        for steps in plan.schedules.values()
        for step in steps
    )
    yield Finding(
        "not-extended",
        (),
        f"it is asked for {format_length(subject.length)}, and its own setting serves {serves}"
        + (": nothing in it scales the rotation" if plain else ""),
        f"beyond {serves} the pairs turn to angles that training has not covered",
        f"extend it: ropewalk plan … --to {format_length(subject.length)}",
    )


def tokenizer_limit(subject: ExaminedModel) -> Iterator[Finding]:
    limit = subject.tokenizer_limit
    if limit is None or limit >= subject.length:
        return
    yield Finding(
        "tokenizer-limit",
        ("transformers",),
        f"the tokenizer's model_max_length is {limit}",
        "transformers cuts longer text where truncation is on",
        f"write model_max_length = {subject.length} into tokenizer_config.json",
    )


def generation_limit(subject: ExaminedModel) -> Iterator[Finding]:
    limit = subject.generation_limit
    if limit is not None and limit < subject.length:
        yield Finding(
            "generation-limit",
            ("transformers",),
            f"generation_config.json has max_length = {limit}",
            f"generate() stops at {format_length(limit)}, prompt included, by default",
            f"write max_length = {subject.length} there, or remove it (ropewalk export raises it)",
            wrong=subject.planned,
        )


def window_in_every_layer(subject: ExaminedModel) -> Iterator[Finding]:
    window = window_everywhere(subject.config)
    if window is None or window >= subject.length:
        return
    yield Finding(
        "window-in-every-layer",
        () if window else (STOCK,),
        f"every layer attends to the last {window} positions only (sliding_window)",
        f"no attention reaches as far as {format_length(subject.length)}: text further back is "
        "reached only through the positions between, and rescaling the rotation changes nothing "
        "about that",
        "fine-tune without the window (sliding_window = null), or choose a model without one",
        wrong=not window,
    )


def length_limit(subject: ExaminedModel) -> Iterator[Finding]:
    if any(not_extended(subject)):
        return
    # Where the config leaves its length open, the longer one is our own assumption.
    is_open = any(assumption.name == "length-open" for assumption in subject.assumptions)
    stated = "max_position_embeddings" if subject.config else "context_length"
    for reading in _serving(subject):
        limit = reading.limit
        if limit is None or limit >= subject.length:
            continue
        longest = format_length(subject.length)
        wanted = f"{longest} is asked for" if subject.asked else f"the config means {longest}"
        yield Finding(
            "length-limit",
            (reading.runtime,),
            f"takes sequences up to {format_length(limit)}, and {wanted}",
            "longer requests are refused or cut",
            f"raise {stated} to {subject.length} where the rope type allows it, or "
            + (
                reading.remedy
                or "override it when the server starts (ropewalk plan prints the line)"
            ),
            wrong=subject.asked or not is_open,
        )


def _serving(subject: ExaminedModel) -> Iterator[RotaryReading]:
    """The readings of runtimes that are known to load it."""
    return (reading for reading in subject.readings if not (reading.refused or reading.unread))


def short_by_default(subject: ExaminedModel) -> Iterator[Finding]:
    """Ollama serves less than a file can, and says so only in its log."""
    if any(reading.runtime == OLLAMA for reading in _serving(subject)):
        yield Finding(
            "short-by-default",
            (OLLAMA,),
            "without num_ctx or OLLAMA_CONTEXT_LENGTH, Ollama serves 4k, 32k or 256k, by the "
            "memory of the graphics cards, and never more than the file's context_length",
            "without warning, a longer chat loses its oldest messages, and a longer prompt its "
            "middle",
            f"write PARAMETER num_ctx {subject.length} into the Modelfile",
            wrong=False,
        )


def length_multiplied(subject: ExaminedModel) -> Iterator[Finding]:
    if not any(kind_of(rope) in ("linear", "dynamic") for rope in subject.ropes.values()):
        return
    stated = subject.reader.get("max_position_embeddings")
    for reading in subject.readings:
        limit = reading.limit
        if limit is None or not isinstance(stated, int) or stated < subject.length:
            continue
        if limit > stated:
            yield Finding(
                "length-multiplied",
                (reading.runtime,),
                f"max_position_embeddings = {stated} is the extended length already, and is "
                f"multiplied by the factor again, to {limit}",
                "it accepts, and reserves memory for, lengths at which the model fails",
                "with this rope type, leave max_position_embeddings at the original length",
            )
