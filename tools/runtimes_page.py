"""The page docs/runtimes.md: the matrix from the code, versions and losses from a recorded run.

    python -m tools.runtimes_page     measures the losses, and writes runtimes.json

`make figures` then writes the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import RopewalkError
from ropewalk.exporting.approximating import losses_between
from ropewalk.gguf.llama_cpp_run import runtime as llama_cpp_version
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import (
    BUNDLED_FOLDER,
    Config,
    load_config,
    present_plan,
    text_config,
)
from ropewalk.models.stock_config import stock_config
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import mlx_lm, named, targets
from ropewalk.runtimes.features import Matrix, Support, matrix
from ropewalk.runtimes.finding import TOLERANCE
from ropewalk.runtimes.model_classes import ENGINE_NAMES, TABLE, model_class
from tools.observatory.mlx_lm_classes import FOLLOWS

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "tests" / "golden" / "configs"
SERVING = ROOT / "tools" / "observatory" / "serving_rotary.json"
RESULTS = Path(__file__).with_name("runtimes.json")
MLX = SERVING.with_name("mlx_lm_classes.json")
MLX_LM = "mlx-lm"
LLAMA, OTHERS = "llama-2-7b", ("qwen2.5-7b-instruct-yarn", "smollm3-3b", "command-r")
PUBLISHED = ROOT / "tests" / "models" / "published"
OF_POSITIONS = {
    "Ministral 3": PUBLISHED / "ministral-3-8b.json",
    "Llama 4": PUBLISHED / "llama-4-scout.json",
    "Gemma 4": CONFIGS / "gemma-4-26b-a4b.json",
}
"""Models in which queries grow with their position, or some pairs rest."""
TARGET = 2**17


def plans(config: Config, target: int = TARGET) -> Iterator[ContextPlan]:
    """A plan for every feature."""

    def planned(methods: str, parameters: Any = None, **more: Any) -> ContextPlan:
        present = present_plan(config)
        return extend_plan(present, target, methods, parameters, from_original=True, **more)

    for methods in ("ntk", "linear", "yarn", "llama3", "ntk_mixed", "dynamic_ntk"):
        yield planned(methods)
    factors = planned("ntk_mixed")
    yield with_kept_positions(factors)
    yield planned("ntk_mixed", log_n="beyond")
    yield two_lists(factors)


def with_kept_positions(plan: ContextPlan, count: int = 16) -> ContextPlan:
    (step,) = plan.steps()
    kept = replace(step.schedule, kept_initial_positions=count)
    return replace(plan, schedules={"full_attention": (replace(step, schedule=kept),)})


def two_lists(plan: ContextPlan) -> ContextPlan:
    """Plain up to the original length, the plan's factors beyond."""
    (long,) = plan.steps()
    geometry = long.schedule.geometry
    short = replace(long.schedule, rescale_factors=np.ones(geometry.pairs))
    steps = (PlanStep(geometry.original_length, short), long)
    return replace(plan, schedules={"full_attention": steps})


def matrix_of(name: str) -> Matrix:
    """Every feature for one published config."""
    config = load_config(CONFIGS / f"{name}.json")
    cells: Matrix = {}
    for plan in plans(config):
        cells |= matrix(plan, config)
    return cells


def in_mlx_lm(plan: ContextPlan, config: Config) -> Matrix:
    """The same features in mlx-lm, by its rules: what it makes of the folder that is exported."""
    rows = matrix(plan, config)
    followed, _ = targets()["transformers"].expressible(plan, config, approximate=True)
    keys = "--v4-keys"
    reading = named(MLX_LM).read(text_config(stock_config(config, followed)))  # without its tower
    try:
        older = named(MLX_LM).read(text_config(stock_config(config, followed, v4_keys=True)))
    except RopewalkError:  # a setting for each layer type
        older = replace(reading, refused="")
    if older.refused is None and older.unread is None:
        reading = older
    else:
        keys = ""
    # Of a config with a part for text, as the model is published, mlx-lm's class was not measured.
    only = ["text-only configs"] if "text_config" in config else []
    fine = Support("exact", ", ".join([*only, *([keys] if keys else [])]))
    if why := reading.refused or reading.unread:
        cells = dict.fromkeys(rows, Support("refused" if reading.refused else "unknown", why))
        return {feature: {MLX_LM: cell} for feature, cell in cells.items()}
    turns, scales = fine, fine
    for layer_type, steps in followed.schedules.items():
        want, got = steps[-1].schedule, reading.layers[layer_type][-1]
        frequencies = want.inverse_frequencies
        if not np.allclose(got.inverse_frequencies, frequencies, rtol=TOLERANCE, atol=0):
            turns = Support("refused", "its class does not read it")
        if abs(got.attention_scaling / want.attention_scaling - 1) > TOLERANCE:
            scales = Support("refused", "its own formula, whatever the setting says")
    special = {
        "attention scaling": scales,
        "query growth": fine
        if named(MLX_LM).growth_key(text_config(config))
        else Support("refused", "not read"),
        "dynamic NTK": rows.get("dynamic NTK", {}).get("transformers", fine),
        "switching by length": Support("approximated", "the longest schedule at every length")
        if scales is fine
        else scales,
        **{name: rows[name]["transformers"] for name in _BESIDE if name in rows},
    }
    if turns is fine and "factors by pair" in rows and scales is not fine:
        turns = scales  # its class of longrope always multiplies by a factor of its own
    return {feature: {MLX_LM: special.get(feature, turns)} for feature in rows}


def temperature() -> dict[str, Support]:
    """Who reads by which key Llama 4 scales the queries of its layers without rotation.

    No setting changes it, and an export keeps the key: all that counts is who reads it.
    """
    config = load_config(OF_POSITIONS["Llama 4"])
    key = "attn_temperature_tuning"
    unknown = Support("unknown", "not looked at")
    cells = {"transformers": Support("exact", key), "llama.cpp": unknown, MLX_LM: unknown}
    for engine in ENGINE_NAMES:
        read = key in model_class(config, engine).reads
        cells[engine] = Support("exact", key) if read else Support("refused", "not read")
    return cells


_BESIDE = ("kept initial positions", "log-n")


def row_of(feature: str, cells: dict[str, Support]) -> str:
    """A reason is given once, for the first of the runtimes next to each other that share it."""
    own = [cells[runtime] for runtime in (*targets(), MLX_LM)]
    shown = [
        "same" if i and cell.how and cell == own[i - 1] else str(cell) for i, cell in enumerate(own)
    ]
    return f"| {feature} | {' | '.join(shown)} |"


def matrix_table() -> str:
    """The matrix of a llama, and what is otherwise elsewhere."""
    base = matrix_of(LLAMA)
    llama = load_config(CONFIGS / f"{LLAMA}.json")
    there: Matrix = {}
    for plan in plans(llama):  # the first plan with a feature has it in its usual form
        there = {**in_mlx_lm(plan, llama), **there}
    lines = [f"| feature | {' | '.join((*targets(), MLX_LM))} |", "|---" * 6 + "|"]
    lines += [row_of(feature, {**row, **there[feature]}) for feature, row in base.items()]
    for name, path in OF_POSITIONS.items():
        config = load_config(path)
        present = present_plan(config)
        own: Matrix = {}
        for method in ("ntk", "linear") if name == "Gemma 4" else ("ntk",):
            plan = present  # Ministral 3 is published as it was extended
            if name != "Ministral 3":
                plan = extend_plan(present, 2 * present.target_length, method)
            mlx = in_mlx_lm(plan, config)
            own |= {name: {**row, **mlx[name]} for name, row in matrix(plan, config).items()}
        lines += [
            row_of(f"{feature} ({name})", row)
            for feature, row in own.items()
            if feature == "query growth" or "resting" in feature
        ]
    lines.append(row_of("query growth in layers that do not rotate (Llama 4)", temperature()))
    lines += ["", "Models that differ:", ""]
    for name in OTHERS:
        differing = matrix_of(name)
        for runtime in targets():
            other: dict[str, list[str]] = {}
            for feature, row in differing.items():
                if row[runtime] != base.get(feature, row)[runtime]:
                    other.setdefault(str(row[runtime]), []).append(feature)
            told = [f"{', '.join(features)}: {cell}" for cell, features in other.items()]
            lines += [f"- {name} in {runtime}: {'; '.join(told)}"] * bool(told)
    return "\n".join(lines)


def classes_list() -> str:
    """What the model classes of each engine do to a setting, by the generated table."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    lines = []
    for engine, name in ENGINE_NAMES.items():
        rows = table[engine]["architectures"]
        lines += [f"{name} {table[engine]['version']}, {len(rows)} architectures:", ""]
        for words, chosen in _KINDS.items():
            found = sorted(n.removesuffix("ForCausalLM") for n, row in rows.items() if chosen(row))
            found = [n for n in found if not n.endswith("ForConditionalGeneration")]
            if found:
                lines.append(f"- {words}: {', '.join(found)}")
        if erasing := table[engine]["configs"]:
            lines.append(
                f"- a config class of its own erases rope_parameters: {', '.join(erasing)}"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


_KINDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "only the base arrives": lambda row: row["scaling"] == "dropped",
    "the base is cut to a whole number": lambda row: row.get("base") == "whole",
    "the base is read next to the setting only": lambda row: "rope_theta" in row.get("beside", ()),
    "its own setting, from some keys": lambda row: row["scaling"] == "fixed",
    "every type becomes DeepSeek's YaRN": lambda row: bool(row.get("renamed")),
    "served by transformers' code": lambda row: row["scaling"] == "transformers",
    "unknown": lambda row: row["scaling"] == "unknown" and "reach" not in row.get("why", ""),
}


def mlx_lm_types() -> dict[str, Any]:
    types: dict[str, Any] = json.loads(mlx_lm.TABLE.read_text(encoding="utf-8"))["types"]
    return types


def mlx_lm_list() -> str:
    """Its classes, by what becomes of a setting in them."""
    kinds: dict[str, list[str]] = {}
    for name, row in sorted(mlx_lm_types().items()):
        form = mlx_lm.V5 if row["reads_v5"] else mlx_lm.V4
        older = row.get(form, {})
        found = {said.partition(":")[0] for own in older.values() for said in own.values()}
        # Layers that turn plainly in every class of their family do not count as lost.
        whole = "own" in found and not found - {"own", "plain"}
        kind = (
            "read today's keys, with every scaling that was tried"
            if row["reads_v5"]
            else "read every scaling that was tried, in the keys of transformers 4 only"
            if whole
            else "fail on some scalings, or make something else of them"
            if found - {"plain"}
            else "drop every scaling: only another base arrives, in the keys of transformers 4"
        )
        kinds.setdefault(kind, []).append(name)
    return "\n".join(f"- {kind}: {', '.join(names)}" for kind, names in sorted(kinds.items()))


def measured_losses(target: int = 4096) -> list[list[str]]:
    """What each approximation costs the bundled model."""
    config = load_config(BUNDLED_FOLDER)
    rows = []
    for plan in plans(config, target):
        alike: dict[tuple[str, str], list[str]] = {}
        for runtime in targets():
            followed, near = targets()[runtime].expressible(plan, config, approximate=True)
            # Dynamic NTK under its own name is measured by its export.
            if near and followed.schedules != plan.schedules:
                [loss] = losses_between(Checkpoint.open("bundled"), plan, [followed])
                alike.setdefault(("; ".join(near), str(loss)), []).append(runtime)
        rows += [
            [str(plan.provenance["methods"]), near, ", ".join(runtimes), loss]
            for (near, loss), runtimes in alike.items()
        ]
    return rows


def losses_table(rows: list[list[str]]) -> str:
    lines = ["| plan to 4k | approximated | in | cost |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def versions(ran: dict[str, str]) -> str:
    serving = json.loads(SERVING.read_text(encoding="utf-8"))
    lines = [
        f"- {ran['transformers']}: tested, and run in every export.",
        f"- {ran['llama.cpp']}: tested, and run in every export to it.",
    ]
    for engine, name in (("vllm", "vLLM"), ("sglang", "SGLang")):
        own = serving[engine]
        refused = sum("refused" in line for line in own["checks"])
        lines.append(
            f"- {name} {own['version']}: rotary modules of the released wheel equal the plan in "
            f"{len(own['checks']) - refused} of {len(own['checks'])} cases (families × methods), "
            f"{refused} are refused by name; worst error {own['worst']:.0%} of the float32 "
            "tolerance. The engine was reviewed in the source, not run."
        )
    mlx = json.loads(MLX.read_text(encoding="utf-8"))
    off = [line["logits"] for line in mlx["lines"] if isinstance(line.get("logits"), float)]
    followed = sum(value < FOLLOWS for value in off)
    lines.append(
        f"- mlx-lm {mlx['versions']['mlx-lm']}: run on a CPU (mlx {mlx['versions']['mlx']}) with "
        f"tiny models of {len(mlx_lm_types())} classes, each with six rope types in the keys of "
        f"transformers 4 and 5. In {followed} of the {len(off)} models that it loads, logits equal "
        "those of transformers. In the others the setting or the base is silently lost, longrope "
        "uses its own attention factor, or the model differs even without a setting (olmo3)."
    )
    lines.append(
        "- Ollama 0.33.0-rc2: reviewed in the source, not run. It serves GGUF files with "
        "llama.cpp, so the column of llama.cpp applies."
    )
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    return {"docs/runtimes.md": page(json.loads(RESULTS.read_text(encoding="utf-8")))}


def page(measured: dict[str, Any]) -> str:
    serving = json.loads(SERVING.read_text(encoding="utf-8"))
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    return _PAGE.format(
        versions=versions(measured["ran"]),
        matrix=matrix_table(),
        classes=classes_list(),
        requirement={engine: table[engine]["transformers"] for engine in ENGINE_NAMES},
        mlx=mlx_lm_list(),
        losses=losses_table(measured["losses"]),
        boundary=serving["sglang"]["error_at_original_length"],
        beyond=serving["sglang"]["error_beyond_the_table"],
    )


_PAGE = """\
# Runtimes

    ropewalk export MODEL --plan plan.json --dry-run                 # which runtime can express it
    ropewalk export MODEL --plan plan.json --runtime vllm -o OUT

- `exact`: the runtime has a setting for it.
- `equivalent`: another setting gives the same numbers.
- `approximated`: refused unless `--approximate` allows it; the cost is then measured.
- `refused`: the runtime has nothing close to it, or its class of this model loses it.
- `unknown`: the source of that class leaves it open.

An export gets its final name after it has been loaded back and compared with the plan.

## The matrix

For a llama, from the code (`ropewalk/runtimes/features.py`); "same" repeats the reason to the left:

{matrix}

The export of a folder to GGUF writes only the model types that [gguf.md](gguf.md) lists, and only
heads of which all dimensions rotate. GGUF files of some hundred architectures can be extended
directly.

## Settings that an export writes

- **transformers.** A native rope type if one expresses the plan exactly, otherwise `longrope` with
  equal lists and an explicit attention factor. `max_position_embeddings` and the tokenizer's limit
  are raised. `--v4-keys` writes `rope_theta` and `rope_scaling`.
- **vLLM.** The same, with `short_mscale` and `long_mscale`, the only attention scalings that its
  longrope reads. Pass `--max-model-len`; without it vLLM serves a longrope model only to its
  original length. It multiplies the stated length by the factor of linear scaling, so that stays.
- **SGLang.** `attn_factor` with YaRN. With longrope, the target as the original length, since
  decoding rotates the position at the original length as position 0 (cos and sin off by
  {boundary:.1f}). `rope_theta` and `rope_scaling` for model types whose config classes erase
  `rope_parameters`. No export reaches the rows that it adds to linear's table without scaling them
  (sglang issue 35171: cos and sin off by {beyond[linear]:.1f}; YaRN's are right since #38786, to
  {beyond[yarn]:.0e}). The printed line for `--json-model-override-args` sets stale keys to no
  effect, since SGLang merges it into a model's setting key by key.
- **llama.cpp.** [gguf.md](gguf.md#what-is-written) has the keys.

## Approximation costs

Measured on the bundled model (`python -m tools.runtimes_page`). `nats per token` is the
mean Kullback-Leibler divergence of the next-token distribution from the planned one. `--dry-run`
measures it for your model.

{losses}

Dynamic NTK in transformers is measured during its export, against its own cached decoding.

## Verification

{versions}

For transformers, vLLM and SGLang, a fresh process without ropewalk loads the folder and computes
sequences below the trained length, beyond it, and with gaps up to the target, at once and through
the cache. Its inverse frequencies must equal the plan's up to float32 rounding, and its logits
those of the planned model to 1e-5 (of their standard deviation, if that is above 1).

If they differ by up to a hundred times that, the model's own rounding is measured, and the output
names both tolerances. A fault that moves logits by less than that rounding passes:
[how small a planted fault is found](verify.md#the-smallest-fault-that-is-found).

These two commands repeat the check of the rotary modules of vLLM and SGLang:

    pip download vllm==0.33.0 sglang==0.5.23 --no-deps --dest WHEELS
    python -m tools.observatory.serving_rotary WHEELS tools/observatory/serving_rotary.json

## mlx-lm and Ollama

mlx-lm loads an export for transformers if its class of the model reads the setting. Most classes
read only `rope_theta` and `rope_scaling`: `ropewalk export --runtime transformers --v4-keys` writes
these, and `ropewalk verify OUT --runtime mlx-lm` shows the effect. Its YaRN and longrope compute
their own attention factor, so searched schedules are not followed. It checks no length. Classes
that were run:

{mlx}

The first command fetches mlx-lm without installing it, the second compares a newer release:

    pip install --no-deps --target MLX mlx mlx-cpu mlx-lm
    python -m tools.observatory.mlx_lm_classes MLX [--write]

Ollama serves the GGUF file of `ropewalk export --runtime llama.cpp`, up to the file's
`context_length`. Without `PARAMETER num_ctx` in the Modelfile (or OLLAMA_CONTEXT_LENGTH) it serves
4k, 32k or 256k, depending on the memory of the graphics cards, and silently truncates longer
prompts. `ollama create` from a folder uses its own converter, which keeps linear and llama3 only
for Llama: check with `ropewalk verify OUT --runtime ollama`.

## Model classes

A model class of vLLM or SGLang may not pass every setting on to its rotary module. If a class loses
something, `export` refuses it by name and `verify` finds it. This list was read in the sources of
the released wheels; other classes pass the whole setting on.

{classes}

The lists hold for the versions of transformers that each engine requires: vLLM {requirement[vllm]},
SGLang {requirement[sglang]}. Under transformers 5.23, classes of SGLang that read
`partial_rotary_factor` next to the setting (StableLM, Phi, Persimmon, Llama and its relatives)
rotate whole heads, and EXAONE 4 and EXAONE MoE use their own default base. One command reads wheels
of other releases, without running them, and shows the changes; `--write` stores them:

    python -m tools.observatory [--write] WHEEL ...
"""


if __name__ == "__main__":
    torch.set_num_threads(1)
    ran = {
        "transformers": f"transformers {transformers.__version__}",
        "llama.cpp": llama_cpp_version(),
    }
    content = {"ran": ran, "losses": measured_losses()}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
