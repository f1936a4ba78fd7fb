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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InvalidValue, Unsupported, shortened
from ropewalk.lengths import format_length
from ropewalk.models import config as configs
from ropewalk.models.config import SPECULATORS, Config, ConfigReader, drafter_layers
from ropewalk.models.source import Source
from ropewalk.runtimes import named, targets
from ropewalk.runtimes.finding import TOLERANCE
from ropewalk.runtimes.reading import whole
from ropewalk.runtimes.serving import Fit, Serving, export_line, model_argument
from ropewalk.untrusted import counted

if TYPE_CHECKING:
    from ropewalk.runtimes.runtime import Judgement

MTP, MODEL = "MTP layers", "a small model"
# What a form is called by vLLM, SGLang and llama.cpp; empty for what a runtime does not have.
_CALLED = {
    "DSpark": ("dspark", "DSPARK", "draft-dspark"),
    "DFlash": ("dflash", "DFLASH", "draft-dflash"),
    "EAGLE3": ("eagle3", "EAGLE3", "draft-eagle3"),
    "EAGLE": ("eagle", "EAGLE", ""),
    MTP: ("mtp", "NEXTN", "draft-mtp"),
    MODEL: ("draft_model", "STANDALONE", "draft-simple"),
}
_RUNTIMES = ("vllm", "sglang", "llama.cpp")
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
    """A drafter, found but not loaded."""

    source: Source
    form: str

    def turns_as(self, plan: ContextPlan) -> bool:
        """True if it should rotate as its target does: it was trained on the target's states."""
        return self.form != MODEL and _like(self.source.present_plan, plan)

    def astray(self, plan: ContextPlan) -> str:
        """The fault of its rotation at the target's length; empty if nothing is."""
        present = self.source.present_plan
        if not self.turns_as(plan):
            past = f"past {format_length(present.target_length)} it rotates to untrained angles"
            return past if present.target_length < plan.target_length else ""
        both = (each.longest(each.main_layer) for each in (present, plan))
        drafter, target = (np.append(s.inverse_frequencies, s.attention_scaling) for s in both)
        alike = np.allclose(drafter, target, rtol=TOLERANCE, atol=0)
        return "it rotates otherwise than the target, on whose states it was trained" * (not alike)


def _like(present: ContextPlan, plan: ContextPlan) -> bool:
    """True if both are of heads of one geometry."""
    drafter, target = (each.longest(each.main_layer).geometry for each in (present, plan))
    return replace(drafter, original_length=target.original_length) == target


def drafter_of(target: Source, source: Source) -> Drafter:
    """The drafter of a target: what `source` is, or the MTP layers in the target's own folder."""
    tokens, size = _vocabulary(source), _vocabulary(target)
    itself = target.path and source.path and source.path.resolve() == target.path.resolve()
    if itself and drafter_layers(target.config):
        return Drafter(target, MTP)
    if not (form := form_of(source.config)):
        raise Unsupported(
            f"{source.name}: {shortened(source.config.get('architectures'))} is no drafter that "
            f"ropewalk knows; it knows {', '.join(_CALLED)}"
        )
    if abs(tokens - size) > _PADDING:
        raise InvalidValue(
            f"{source.name}: vocab_size",
            tokens,
            f"the target has {size}, so a token of one is another token of the other",
            "give a drafter of the same tokenizer",
        )
    return Drafter(source, form)


def _vocabulary(source: Source) -> int:
    reader = ConfigReader(source.config)
    return counted(reader.need("vocab_size"), reader.written("vocab_size"), configs.MAX_WIDTH)


def form_of(config: Config) -> str:
    """The form of a drafter; empty if it is not known."""
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else ""
    said = str(config.get("speculators_model_type", first))
    for form in _CALLED:
        if re.search(rf"(?<!p){form}", said, re.IGNORECASE):
            return form
    if not re.search("For(CausalLM|ConditionalGeneration)$|^$", said):
        return ""
    if config.get("num_hidden_layers") != 1:
        return MODEL
    return "EAGLE3" if "draft_vocab_size" in config else "EAGLE"  # as its authors publish it


def as_drafter(config: Config) -> str:
    """Describe a model as a drafter; empty if it is no more than a model."""
    if (form := form_of(config)) not in ("", MODEL):
        return f"a drafter ({form}): `ropewalk verify TARGET --drafter` shows how far it drafts"
    layers = drafter_layers(config)
    return f"its {layers} MTP layers can draft for it" if layers else ""


def drafting(target: Source, drafter: Drafter, plan: ContextPlan) -> tuple[Serving, ...]:
    """Each runtime's use of the drafter at the length of the plan of its target."""
    return tuple(
        Serving(runtime, "impossible", why)
        if (why := lost(runtime, target, drafter))
        else _row(runtime, target, drafter, plan)
        for runtime in _RUNTIMES
    )


def lost(runtime: str, target: Source, drafter: Drafter) -> str:
    """Why a runtime can do nothing with a drafter, at any length."""
    if runtime not in _RUNTIMES or not _called(runtime, drafter):
        return f"{runtime} has no drafter of the form {drafter.form}"
    if runtime == "sglang" and SPECULATORS in drafter.source.config:
        return f"SGLang does not read {SPECULATORS}"
    unusable = [f for f in _judged(runtime, drafter).wrong if f.trap in ("refused", "not-causal")]
    if unusable:
        return f"{runtime} cannot draft with it: {unusable[0].what}; {unusable[0].remedy}"
    tokens, size = _vocabulary(drafter.source), _vocabulary(target)
    differ = runtime != "llama.cpp" and drafter.form == MODEL and tokens != size
    return f"{runtime} refuses a draft model of {tokens} tokens for a target of {size}" * differ


def _judged(runtime: str, drafter: Drafter) -> Judgement:
    """Whether a runtime follows a drafter's own setting.

    Heads are of the class that they begin with. Some are not causal: those that propose a whole
    block at once.
    """
    config, classes = drafter.source.config, drafter.source.config.get("architectures")
    if drafter.form not in (MTP, MODEL):
        heads = drafter.form.startswith("EAGLE") and isinstance(classes, list)
        names = [re.sub("Eagle3?", "", str(each), flags=re.IGNORECASE) for each in classes or ()]
        kind = ConfigReader(config).model_type
        config = {**config, "model_type": kind, "architectures": names if heads else []}
    return named(runtime).judge(config, drafter.source.present_plan, own_plan=True)


def _called(runtime: str, drafter: Drafter) -> str:
    return _CALLED[drafter.form][_RUNTIMES.index(runtime)]


def _row(runtime: str, target: Source, drafter: Drafter, plan: ContextPlan) -> Serving:
    """By the lines that serve the target, with the drafter."""
    server, length, config = targets()[runtime], plan.target_length, drafter.source.config
    served = server.serve(plan, target)
    if not served.lines:
        return served
    line, draft = served.lines[-1], model_argument(drafter.source)
    lines = [each for each in served.lines[:-1] if each.startswith("ropewalk export")]
    stated = _accepted(runtime, config)
    both = _changes_both(line, target, drafter, length)
    far, short, astray = "the options on the line change it too", "", ""
    if not (both and _like(drafter.source.present_plan, plan)):
        far, short = _far(runtime, drafter, length, stated)
        other = "the options that change the target would change its heads of another geometry"
        astray = drafter.astray(plan) or other * both
    if short or astray:
        name = Path(model_argument(target)).name
        out = f"{name}-{runtime}" if server.loads == "folder" else "MODEL.gguf"
        line = server.command(out, length)
        named = "" if drafter.form == MTP else f" --drafter {shlex.quote(draft)}"
        lines = [f"{export_line(target, runtime, out)}{named}"]
        draft, stated = str(beside(Path(out))), length  # which an export states
    # With longrope, vLLM would take the original length.
    longest = length if stated >= length else 0
    lines += drafted(runtime, line, drafter, draft, longest, model_argument(target))
    unknown = _judged(runtime, drafter).unknown
    fits: tuple[Fit, ...] = ("impossible", "unknown", "approximate", "exact")
    fit = next(fit for fit, why in zip(fits, (short, unknown, astray, "else"), strict=True) if why)
    reason = short or f"drafts up to there: {far}"
    return Serving(runtime, fit, "; ".join(filter(None, (reason, unknown, astray))), tuple(lines))


def _changes_both(line: str, target: Source, drafter: Drafter, length: int) -> bool:
    """True if the options by which a line changes the target change the drafter too."""
    if " --hf-overrides " in line:
        return drafter.form == MTP and not beyond_overrides(target.config, length)
    if " --json-model-override-args " in line:  # to the same part of both configs
        return ConfigReader(target.config).path == ConfigReader(drafter.source.config).path
    return " --rope-" in line


def _far(runtime: str, drafter: Drafter, length: int, stated: int) -> tuple[str, str]:
    """Why a runtime drafts up to the length, and what it does instead."""
    if runtime == "llama.cpp":
        return "its context is as long as the target's", ""
    if stated >= length:
        return "its config states it", ""
    if runtime == "sglang":
        return "", (
            f"SGLang does not start, for the drafter's config states {stated} "
            "(SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 raises that, and no rotation)"
        )
    if not _limits_vllm(drafter.source.config, drafter.form, length):
        return f"vLLM does not hold such a drafter to the {stated} of its config", ""
    return "", (
        f"vLLM lowers the server's length to the {stated} of the drafter's config (its older "
        "model runner stops drafting there)"
    )


def drafted(
    runtime: str, line: str, drafter: Drafter, draft: str, longest: int = 0, target: str = "MODEL"
) -> list[str]:
    """The command that serves a target, with its drafter; `longest` is what a config states."""
    called, mtp, path = _called(runtime, drafter), drafter.form == MTP, shlex.quote(draft)
    if runtime == "vllm":
        block = whole(drafter.source.config.get("block_size")) or 16
        tokens = {"DSpark": block, "DFlash": block - 1, MTP: 1}.get(drafter.form, 3)
        spec: dict[str, object] = {"method": called, "num_speculative_tokens": tokens}
        spec |= {} if mtp else {"model": draft}
        spec |= {"max_model_len": longest} if longest else {}
        return [f"{line} --speculative-config {shlex.quote(json.dumps(spec))}"]
    if runtime == "sglang":
        named = "" if mtp else f" --speculative-draft-model-path {path}"
        return [f"{line} --speculative-algorithm {called}{named}"]
    if mtp:
        return [f"{line} --spec-type {called}"]
    heads = "" if drafter.form == MODEL else f" --target-model-dir {shlex.quote(target)}"
    converted = f"python convert_hf_to_gguf.py {path} --outfile {path}.gguf{heads}"
    return [converted, f"{line} --spec-type {called} --spec-draft-model {path}.gguf"]


def _accepted(runtime: str, config: Config) -> int:
    return named(runtime).accepts(config) or 0


def _limits_vllm(config: Config, form: str, length: int) -> bool:
    """True if vLLM cuts the target's length to the drafter's."""
    reader = ConfigReader(config)
    # Of a model of several parts vLLM looks for settings in the outermost, where none are.
    ropes = {} if reader.outer_type else reader.layer_settings()
    raised = form != MODEL and {configs.rope_type(rope) for rope in ropes.values()} <= _RAISED
    return not raised and _accepted("vllm", config) < length


def beyond_overrides(config: Config, length: int) -> str:
    """The parts of vLLM's drafter of MTP layers that --hf-overrides leave; empty if none."""
    layers, reader = drafter_layers(config), ConfigReader(config)
    if layers and _limits_vllm(config, MTP, length):
        return (
            f"its {layers} MTP layers keep the length of config.json, and vLLM lowers the server's "
            "to that if they draft"
        )
    if not layers or reader.model_type.removesuffix("_text") in _TURNS_AS_TARGET:
        return ""
    return f"its {layers} MTP layers rotate by config.json, and beyond its length few drafts hold"


def beside(out: Path) -> Path:
    """The folder that an export writes the drafter to."""
    return out.with_name(f"{out.name.removesuffix('.gguf')}-drafter")
