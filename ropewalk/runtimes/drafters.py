"""Drafters: what each runtime does with one at the length of its target.

A drafter proposes tokens that the target then checks. It has a config, and so a length, of its own:

    MTP layers            in the target's folder
    EAGLE, DFlash, DSpark heads over the target's hidden states, in a folder of their own; flat, or
                          in the part of the config that vllm-project/speculators writes
    a small model         of the target's vocabulary

A runtime must reach the target's length with it, and it must rotate as it was trained to: a head in
the target's geometry as the target does, any other by a setting of its own that reaches so far.
Read in the sources of three releases, not run:

    vLLM 0.33       --hf-overrides do not change the drafter's config. Its length is raised to the
                    target's if its rope type does not depend on that, but not a small model's.
                    Else the server's length is lowered to it; the older model runner stops drafting
                    there (config/speculative.py, config/vllm.py). Classes of MTP layers rotate by
                    the target's config, overridden, or by config.json.
    SGLang 0.5.23   It does not start with a drafter whose config states less than the target's
                    length (configs/model_config.py). --json-model-override-args change both
                    configs alike. It does not read the form of speculators.
    llama.cpp       The draft context is as long as the target's, whatever its file states, and
                    options such as --rope-scale apply to both (tools/server/server-context.cpp).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, Unsupported, shortened
from ropewalk.lengths import format_length
from ropewalk.models.config import (
    MAX_WIDTH,
    SPECULATORS,
    Config,
    ConfigReader,
    config_file,
    drafter_layers,
    rope_type,
)
from ropewalk.models.source import Source
from ropewalk.runtimes import every
from ropewalk.runtimes.finding import TOLERANCE, Finding
from ropewalk.runtimes.reading import whole
from ropewalk.runtimes.serving import MODEL as UNNAMED
from ropewalk.runtimes.serving import Fit, Serving, export_line, place
from ropewalk.untrusted import counted

MTP, MODEL, LLAMA_CPP = "MTP layers", "a small model", "llama.cpp"
# What a form is called by vLLM, SGLang and llama.cpp; empty for what a runtime does not have.
_CALLED = {
    "DSpark": ("dspark", "DSPARK", "draft-dspark"),
    "DFlash": ("dflash", "DFLASH", "draft-dflash"),
    "EAGLE3": ("eagle3", "EAGLE3", "draft-eagle3"),
    "EAGLE": ("eagle", "EAGLE", ""),
    MTP: ("mtp", "NEXTN", "draft-mtp"),
    MODEL: ("draft_model", "STANDALONE", "draft-simple"),
}
_MODELS = re.compile("For(CausalLM|ConditionalGeneration)$|^$")
# Rope types whose frequencies and table do not depend on the stated length, by vLLM's own list.
_RAISED = {"default", "linear", "llama3", "ntk", "proportional"}
# Model types whose class of MTP layers in vLLM rotates by the target's config.
_TURNS_AS_TARGET = (
    *("qwen3_next", "qwen3_5", "qwen3_5_moe", "glm4_moe", "ernie4_5_moe", "exaone_moe"),
    *("exaone4_5", "longcat_flash", "mimo", "mimo_v2_flash"),
)
_PADDING = 128
"""llama.cpp takes vocabularies for equal if their sizes differ by no more."""


@dataclass(frozen=True)
class Drafter:
    """A drafter, read."""

    source: Source
    form: str
    vocabulary: int

    @property
    def config(self) -> Config:
        return {} if self.source.kind == "GGUF file" else self.source.config

    @property
    def place(self) -> str:
        found = place(self.source)
        return "DRAFTER" if found == UNNAMED else found

    def is_like(self, plan: ContextPlan) -> bool:
        """True if its heads have the target's geometry."""
        own, target = (each.longest(each.main_layer) for each in (self.source.present_plan, plan))
        length = target.geometry.original_length
        return replace(own.geometry, original_length=length) == target.geometry

    def turns_as(self, plan: ContextPlan) -> bool:
        """True if it should rotate as its target does: it was trained on the target's states."""
        return self.form != MODEL and self.is_like(plan)

    def astray(self, plan: ContextPlan) -> str:
        """What is wrong with its rotation at the target's length; empty if nothing is."""
        present = self.source.present_plan
        if not self.turns_as(plan):
            past = f"past {format_length(present.target_length)} it rotates to untrained angles"
            return past if present.target_length < plan.target_length else ""
        both = (each.longest(each.main_layer) for each in (present, plan))
        own, target = (np.append(s.inverse_frequencies, s.attention_scaling) for s in both)
        alike = np.allclose(own, target, rtol=TOLERANCE, atol=0)
        return "it rotates otherwise than the target, on whose states it was trained" * (not alike)


def drafter_of(target: Source, source: Source) -> Drafter:
    """The drafter of a target: what `source` is, or the MTP layers in the target's own folder."""
    size, own = _vocabulary(target), _vocabulary(source)
    places = {Path(config_file(each.path)).resolve() for each in (target, source) if each.path}
    if target.path and source.path and len(places) == 1:
        if not _layers(target):
            raise InputError(
                f"{source.name}: is the target itself, which has no MTP layers; give the drafter's "
                "folder"
            )
        return Drafter(target, MTP, size)
    if not (form := form_of(source)):
        raise Unsupported(
            f"{source.name}: {shortened(source.config.get('architectures'))} is no drafter that "
            f"ropewalk knows; it knows {', '.join(_CALLED)}"
        )
    if abs(own - size) > _PADDING:
        raise InvalidValue(
            f"{source.name}: vocab_size",
            own,
            f"the target has {size}, so a token of one is another token of the other",
            "give a drafter of the same tokenizer",
        )
    return Drafter(source, form, own)


def as_drafter(source: Source) -> str:
    """What a model is as a drafter, in words; empty if it is no more than a model."""
    form, layers = form_of(source), _layers(source)
    if form not in ("", MODEL):
        return f"a drafter ({form}): `ropewalk verify TARGET --drafter` tells how far it drafts"
    return f"its {layers} MTP layers can draft for it" if layers else ""


def form_of(source: Source) -> str:
    """The form of a drafter; empty if it is not known."""
    is_file = source.kind == "GGUF file"
    config = {} if is_file else source.config
    names = config.get("architectures")
    said = names[0] if isinstance(names, list) and names else ""
    said = str(
        source.header.architecture if is_file else config.get("speculators_model_type", said)
    )
    for form in _CALLED:
        if re.search(rf"(?<!p){form}", said, re.IGNORECASE):
            return form
    if not is_file and not _MODELS.search(said):
        return ""
    if config.get("num_hidden_layers") == 1:  # as the authors of EAGLE publish theirs
        return "EAGLE3" if "draft_vocab_size" in config else "EAGLE"
    return MODEL


def _layers(source: Source) -> int:
    return 0 if source.kind == "GGUF file" else drafter_layers(source.config)


def _vocabulary(source: Source) -> int:
    if source.kind == "GGUF file":
        return source.header.lengths.get("tokenizer.ggml.tokens", 0)
    reader = ConfigReader(source.config)
    return counted(reader.need("vocab_size"), reader.written("vocab_size"), MAX_WIDTH)


def drafting(
    target: Source, drafter: Drafter, plan: ContextPlan, length: int
) -> tuple[Serving, ...]:
    """What each runtime does with the drafter at a length, under the plan of its target."""
    rows = {LLAMA_CPP: _in_llama_cpp(target, drafter, plan)}
    if "GGUF file" not in (target.kind, drafter.source.kind):
        engines = ("vllm", "sglang")
        rows = {name: _in_engine(name, target, drafter, plan, length) for name in engines} | rows
    for name in rows:
        if why := lost(name, drafter, target):
            rows[name] = Serving(name, "impossible", why)
    return tuple(rows.values())


def lost(runtime: str, drafter: Drafter, target: Source) -> str:
    """Why a runtime can do nothing with a drafter, at any length."""
    if not _called(runtime, drafter):
        return f"{runtime} has no drafter of the form {drafter.form}"
    if runtime == "sglang" and SPECULATORS in drafter.config:
        return f"SGLang does not read {SPECULATORS}"
    own, size = drafter.vocabulary, _vocabulary(target)
    differ = runtime != LLAMA_CPP and drafter.form == MODEL and own != size
    return f"{runtime} refuses a draft model of {own} tokens for a target of {size}" * differ


def _called(runtime: str, drafter: Drafter) -> str:
    return _CALLED[drafter.form][("vllm", "sglang", LLAMA_CPP).index(runtime)]


def _in_engine(
    runtime: str, target: Source, drafter: Drafter, plan: ContextPlan, length: int
) -> Serving:
    at, draft, stated = place(target), drafter.place, _accepted(runtime, drafter.config)
    short, lines = "", []
    if runtime == "vllm" and _limits_vllm(drafter.config, drafter.form, length):
        short = (
            f"vLLM lowers the server's length to the {stated} of the drafter's config (its older "
            "model runner stops drafting there)"
        )
    elif runtime == "sglang" and stated < length:
        short = (
            f"SGLang does not start, for the drafter's config states {stated} "
            "(SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 raises that, and changes no rotation)"
        )
    raised = "vLLM raises the length of such a drafter to the target's"
    reason = (
        short or f"drafts up to there: {'its config states it' if stated >= length else raised}"
    )
    if (astray := drafter.astray(plan)) or short:
        out = f"{Path(at).name}-{runtime}"
        line = export_line(target, runtime, out)
        lines = [line if drafter.form == MTP else f"{line} --drafter {shlex.quote(draft)}"]
        at, draft, stated = out, str(beside(Path(out))), length  # which an export states
    spec: dict[str, object] = {"method": _called(runtime, drafter), "model": draft}
    if drafter.form == MTP:
        del spec["model"]
    options = f"--speculative-algorithm {spec['method']}"
    options += f" --speculative-draft-model-path {shlex.quote(draft)}" * ("model" in spec)
    if runtime == "vllm":
        spec["num_speculative_tokens"] = _at_once(drafter)
        if stated >= length:  # with longrope, it would be the original one
            spec["max_model_len"] = length
        options = f"--speculative-config {shlex.quote(json.dumps(spec))}"
    line_of = every()[runtime].line
    assert line_of is not None, "engines are served by a command"
    fit: Fit = "impossible" if short else "approximate" if astray else "exact"
    reason = f"{reason}; {astray}" if astray else reason
    return Serving(runtime, fit, reason, (*lines, f"{line_of(at, length, None)} {options}"))


def _in_llama_cpp(target: Source, drafter: Drafter, plan: ContextPlan) -> Serving:
    """By the lines that serve the target: its RoPE options reach the drafter too."""
    serve = every()[LLAMA_CPP].serve
    assert serve is not None, "it is served by a command"
    served = serve(plan, target)
    if not served.lines:
        return served
    *lines, line = served.lines
    draft, reason = drafter.place, "drafts up to there: its context is as long as the target's"
    at = UNNAMED if target.kind == "GGUF file" else place(target)
    if " --rope-" in line:
        astray = "" if drafter.is_like(plan) else "to heads of another geometry"
        reason += f", and the RoPE options apply to it too{f', {astray}' * bool(astray)}"
    elif astray := drafter.astray(plan):
        reason += f"; {astray}"
        if lines and drafter.form != MTP:
            lines[-1] += f" --drafter {shlex.quote(draft)}"
            draft = str(beside(Path(UNNAMED)))
    options = f"--spec-type {_called(LLAMA_CPP, drafter)}"
    if drafter.form != MTP:
        if drafter.source.kind != "GGUF file":
            heads = [] if drafter.form == MODEL else ["--target-model-dir", at]
            file = f"{draft}.gguf"
            words = ["python", "convert_hf_to_gguf.py", draft, "--outfile", file, *heads]
            lines, draft = [*lines, shlex.join(words)], file
        options += f" --spec-draft-model {shlex.quote(draft)}"
    fit: Fit = "approximate" if astray else "exact"
    return Serving(LLAMA_CPP, fit, reason, (*lines, f"{line} {options}"))


def _accepted(runtime: str, config: Config) -> int:
    accepts = every()[runtime].accepts
    return (accepts and accepts(config)) or 0


def _limits_vllm(config: Config, form: str, length: int) -> bool:
    """True if vLLM cuts the target's length to the drafter's."""
    reader = ConfigReader(config)
    # Of a model of several parts vLLM looks for settings in the outermost, where none are.
    ropes = {} if reader.outer_type else reader.layer_settings()
    raised = form != MODEL and {rope_type(rope) for rope in ropes.values()} <= _RAISED
    return not raised and _accepted("vllm", config) < length


def beyond_overrides(config: Config, length: int) -> str:
    """What --hf-overrides do not change of vLLM's drafter of MTP layers; empty if nothing."""
    layers, reader = drafter_layers(config), ConfigReader(config)
    if layers and _limits_vllm(config, MTP, length):
        return (
            f"its {layers} MTP layers keep the length of config.json, and vLLM lowers the server's "
            "to that if they draft"
        )
    if not layers or reader.model_type.removesuffix("_text") in _TURNS_AS_TARGET:
        return ""
    return f"its {layers} MTP layers rotate by config.json, and beyond its length few drafts hold"


def _at_once(drafter: Drafter) -> int:
    """The tokens that it proposes in one step."""
    block = whole(drafter.config.get("block_size")) or 16
    return {"DSpark": block, "DFlash": block - 1, MTP: 1, MODEL: 5}.get(drafter.form, 3)


def beside(out: Path) -> Path:
    """The folder that an export writes the drafter to."""
    return out.with_name(f"{out.name.removesuffix('.gguf')}-drafter")


def shortfalls(rows: Iterable[Serving], runtimes: Iterable[str]) -> Iterator[Finding]:
    """A finding for each runtime of a verification that does not reach the length."""
    for row in rows:
        if row.fit == "impossible" and row.runtime in runtimes:
            yield Finding(
                "drafter-short",
                (row.runtime,),
                "the drafter does not reach the length",
                row.reason,
                "serve both by the lines for it" if row.lines else "give another drafter",
            )
