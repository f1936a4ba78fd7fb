"""mlx-lm's own model classes, run on a CPU: which keys of a config each of them reads.

    pip install --no-deps --target MLX mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2
    python -m tools.observatory.mlx_lm_classes MLX           shows where the table differs
    python -m tools.observatory.mlx_lm_classes MLX --write   writes the table and the evidence

Nothing is installed: the folder is put behind the installed packages. Tiny models of each family
are saved with the configs that exports write, in the keys of transformers 4 and of 5, and loaded by
mlx-lm. Two things are asked:

- queries that are 1 in the first dimension of every pair and 0 in the second, through each rotary
  module of the model. What comes out are cos and sin, and says what of the setting has arrived
  (ropewalk/runtimes/mlx_lm.py has the words);
- logits beyond the trained length, next to those of transformers for the same folder: where they
  agree, mlx-lm follows the whole setting.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, PlanStep
from ropewalk.errors import RopewalkError
from ropewalk.models.config import (
    QUERY_GROWTH,
    Config,
    ConfigReader,
    present_plan,
    text_config,
)
from ropewalk.models.stock_config import rope_settings, stock_config
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import mlx_lm as rules
from ropewalk.runtimes.reading import kind_of
from ropewalk.schedule import FloatArray, RotarySchedule
from tests.models.tiny import FAMILIES, RECENT, WINDOW, tiny_model, tokens

EVIDENCE = Path(__file__).with_suffix(".json")
TARGET = 4 * WINDOW
CLOSE = 1e-4
"""Of frequencies and scalings, in parts."""
FOLLOWS = 1e-2
"""Of logits, in parts of their standard deviation: two implementations in float32 on weights this
large differ by up to 2e-3, and by more than 0.3 where anything of the setting is lost."""
BASE = 54321.0
"""No class has it by default."""
METHODS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "default": ("ntk", {}),
    "linear": ("linear", {}),
    "llama3": ("llama3", {}),
    "yarn": ("yarn", {}),
    "longrope": ("ntk_mixed", {}),
    "dynamic": ("dynamic_ntk", {}),
}
# Beside the tiny families of the tests. Heads as large as most code takes for granted.
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_MORE: Mapping[str, dict[str, Any]] = {
    **{kind: {} for kind in ("seed_oss", "helium", "gemma", "phi", "glm", "glm4", "ernie4_5")},
    **{kind: {} for kind in ("hunyuan_v1_dense", "nemotron")},
    **{kind: {"num_experts": 4, **_EXPERTS} for kind in ("qwen3_moe", "qwen2_moe", "olmoe")},
    "cohere2": {"layer_types": [SLIDING_ATTENTION, FULL_ATTENTION]},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
# Windows as long as the sequences: mlx-lm leaves some out, which is not what is asked here.
_SIZES = {"hidden_size": 64, "sliding_window": 4 * TARGET}
_OWN_SIZES: Mapping[str, dict[str, Any]] = {
    "deepseek_v3": {},
    "deepseek_v2": {},
    "gpt_neox": {"hidden_size": 64, "intermediate_size": 256},
}
# Settings that no method plans for a family, as its published models have them.
_STATED: Mapping[str, Config] = {
    "ministral3": {
        "rope_type": "yarn",
        "rope_theta": BASE,
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": WINDOW,
        QUERY_GROWTH: 0.3,
    }
}
# What its classes look for beside what transformers writes.
_KEYS: Mapping[str, dict[str, Any]] = {
    "gemma3_text": {"sliding_window_pattern": 2},
    "cohere2": {"sliding_window_pattern": 2},
    "gemma4_text": {"global_head_dim": 32, "sliding_window_pattern": 2},
    "qwen3_moe": {"num_experts": 4},
    "llama4_text": {},
}


Turned = tuple[FloatArray, float]


class MLX:
    """mlx and mlx-lm, imported from a folder."""

    def __init__(self, folder: Path) -> None:
        sys.path.append(str(folder))
        mx, utils = map(importlib.import_module, ("mlx.core", "mlx_lm.utils"))
        self.mx, self.utils = mx, utils
        versions = metadata.distributions(path=[str(folder)])
        self.versions = {d.metadata["Name"]: d.version for d in versions}
        files = (Path(str(utils.__file__)).parent / "models").glob("*.py")
        names = {path.stem for path in files if "class ModelArgs" in path.read_text("utf-8")}
        self.served_as: dict[str, str] = dict(utils.MODEL_REMAPPING)
        self.classes = sorted({*names, *self.served_as})

    def built(self, config: Config) -> Any:
        """The model without weights: its arrays are made when they are read, which they never are.

        Raises whatever the class does.
        """
        try:
            model_class, arguments = self.utils._get_classes(config)
            return model_class(arguments.from_dict(config))
        except SystemExit as error:  # one of them asks for another package
            raise RuntimeError(str(error)) from None

    def rotations(self, model: Any) -> Iterator[tuple[str, Any]]:
        for name, module in model.named_modules():
            kind = type(module).__name__.lower()
            if ("rope" in kind or "rotary" in kind) and "indexer" not in name:
                yield name, module

    def logits(self, folder: Path, ids: torch.Tensor) -> torch.Tensor:
        model, _ = self.utils.load_model(folder)
        return torch.from_numpy(np.array(model(self.mx.array(ids.numpy()))))

    def turned(self, module: Any, schedule: RotarySchedule, length: int) -> Turned:
        """Angles by pair in one position, and what cos and sin are multiplied by."""
        geometry = schedule.geometry
        half = geometry.rotary_dim // 2
        split = geometry.pair_layout == "half"
        first = slice(0, half) if split else slice(0, 2 * half, 2)
        second = slice(half, 2 * half) if split else slice(1, 2 * half, 2)
        width = int(getattr(module, "dims", getattr(module, "dim", 0)) or geometry.rotary_dim)
        query = np.zeros((1, 1, length, max(width, geometry.rotary_dim)), np.float32)
        query[..., first] = query[..., geometry.rotary_dim :] = 1
        out = np.array(module(self.mx.array(query)), np.float64)[0, 0, 1]
        if np.any(out[geometry.rotary_dim :] != 1):  # it turns more of a head than it should
            return np.zeros(half), 1.0
        cos, sin = out[first], out[second]
        return np.arctan2(sin, cos), float(np.median(np.hypot(cos, sin)))


def same(turned: Turned, step: PlanStep) -> bool:
    angles, scaling = turned
    wanted = step.schedule.inverse_frequencies
    off = np.abs(angles - wanted) > CLOSE * np.maximum(wanted, np.abs(angles))
    return not off.any() and abs(scaling / step.schedule.attention_scaling - 1) <= CLOSE


def outcome(turned: Turned, config: Config, layer_type: str) -> str:
    """Which of the words of the rules says what came out."""
    reader = ConfigReader(config)
    rope = {k: v for k, v in reader.layer_settings()[layer_type].items() if v is not None}
    try:
        if same(turned, rules.rotary_steps(reader, rope)[-1]):
            return "own" if rope.get("rope_type", "default") != "default" else "plain"
    except RopewalkError:
        pass
    kept: Config = {
        k: rope[k] for k in ("rope_theta", "partial_rotary_factor", "layer_type") if k in rope
    }
    if same(turned, reader.steps(kept)[-1]):
        return "plain"
    angles, _ = turned
    geometry = reader.geometry(kept, WINDOW)
    if not angles[-1]:
        return "other"
    base = float(angles[-1]) ** (-geometry.pairs / (geometry.pairs - 1))
    for near in (base, round(base, -1), round(base, -2), round(base, -3)):
        if np.isfinite(near) and same(turned, reader.steps({**kept, "rope_theta": near})[-1]):
            nice = [n for n in (round(base, -3), round(base, -2), round(base, -1)) if n]
            found = next((n for n in nice if abs(n / base - 1) < CLOSE), near)
            return f"base {found:g}"
    return "other"


def v4(config: Config, written: Config) -> Config | None:
    """The same in the keys of transformers 4; None where those have no form for it."""
    inner = dict(written)
    rope = inner.pop("rope_parameters")
    family = ConfigReader(config).family
    if FULL_ATTENTION in rope:
        if not family.local_base:
            return None
        inner[family.local_base] = rope[SLIDING_ATTENTION]["rope_theta"]
        rope = rope[FULL_ATTENTION]
    scaling = dict(rope)
    base = scaling.pop("rope_theta")
    if "partial_rotary_factor" in scaling:
        inner["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    names = {"gpt_neox": "rotary_emb_base"}
    inner[names.get(str(inner["model_type"]), "rope_theta")] = base
    if "partial_rotary_factor" in inner and inner["model_type"] == "gpt_neox":
        inner["rotary_pct"] = inner.pop("partial_rotary_factor")
    plain = set(scaling) <= {"rope_type", "original_max_position_embeddings"}
    default = plain and scaling["rope_type"] == "default"
    inner["rope_scaling"] = None if default else {**scaling, "type": scaling["rope_type"]}
    return inner


def without_type(config: Config | None) -> Config | None:
    """The same with `rope_type` alone, as exports of ropewalk 0.x and newer checkpoints have it."""
    if config is None or not config["rope_scaling"]:
        return None
    scaling = {key: value for key, value in config["rope_scaling"].items() if key != "type"}
    return {**config, "rope_scaling": scaling}


def with_base(config: Config) -> Config:
    """The same model with a base of its own, so that a default is told from it."""
    changed = json.loads(json.dumps(config))
    for setting in rope_settings(text_config(changed)).values():
        setting["rope_theta"] = BASE
    return dict(changed)


def measured(mlx: MLX, family: str, own: dict[str, Any], room: Path) -> Iterator[dict[str, Any]]:
    """One line for each method and form of keys."""
    model = tiny_model(family, **{**own, **_OWN_SIZES.get(family, _SIZES)})
    model.save_pretrained(room)
    config = {**with_base(model.config.to_dict()), **_KEYS.get(family, {})}
    present = present_plan(config)
    ids = tokens(TARGET - 8)
    for kind, (method, parameters) in METHODS.items():
        try:
            plan = extend_plan(present, TARGET, method, dict(parameters))
            written = stock_config(config, plan)
        except RopewalkError as error:
            yield {"family": family, "type": kind, "not planned": str(error)[:100]}
            continue
        forms = {rules.V5: written, rules.V4: v4(config, written)}
        forms[rules.SHORT] = without_type(forms[rules.V4])
        for form, stated in forms.items():
            if stated is None:
                continue
            # Where stock code of a family has but one type, that is what is written.
            ropes = ConfigReader(stated).layer_settings().values()
            own_type = {kind_of(rope) for rope in ropes} - {"default"}
            line: dict[str, Any] = {"family": family, "keys": form}
            line["type"] = kind if kind in own_type or not own_type else own_type.pop()
            (room / "config.json").write_text(json.dumps(stated))
            if any(rope.get(QUERY_GROWTH) for rope in ropes):
                line["growth"] = True
            yield {**line, **asked(mlx, stated, room, ids)}

    if family in _STATED:
        stated = {**config, "rope_parameters": _STATED[family], "max_position_embeddings": TARGET}
        (room / "config.json").write_text(json.dumps(stated))
        line = {"family": family, "keys": rules.V5, "type": kind_of(_STATED[family])}
        yield {**line, "growth": True, **asked(mlx, stated, room, ids)}


def asked(mlx: MLX, config: Config, room: Path, ids: torch.Tensor) -> dict[str, Any]:
    try:
        model = mlx.built(config)
    except Exception as error:
        return {"refused": said(error)}
    plan = present_plan(config)
    length = min(TARGET, plan.target_length)  # dynamic NTK goes by the sequence at hand
    found: dict[str, set[str]] = {}
    kinds = config.get("layer_types")
    for name, module in mlx.rotations(model):
        at = next((int(part) for part in name.split(".") if part.isdecimal()), 0)
        layer_type = kinds[at] if isinstance(kinds, list) and at < len(kinds) else ""
        layer_type = layer_type if layer_type in plan.schedules else next(iter(plan.schedules))
        try:
            turned = mlx.turned(module, plan.longest(layer_type), length)
            found.setdefault(layer_type, set()).add(outcome(turned, config, layer_type))
        except Exception as error:
            return {"refused": said(error)}
    answer: dict[str, Any] = {
        "arrives": {k: v.pop() if len(v) == 1 else "other" for k, v in sorted(found.items())}
    }
    ropes = ConfigReader(config).layer_settings()
    kinds_of = {layer_type: kind_of(rope) for layer_type, rope in ropes.items()}
    if len(set(kinds_of.values())) > 1:
        answer["types"] = kinds_of
    try:
        stock = AutoModelForCausalLM.from_pretrained(room, dtype=torch.float32)
        with torch.no_grad():
            wanted = stock(ids).logits
        off = (mlx.logits(room, ids) - wanted).abs().max() / wanted.std()
        answer["logits"] = float(f"{float(off):.2g}")
    except Exception as error:
        answer["logits"] = said(error)
    return answer


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:120]


def table(
    version: str, classes: list[str], served_as: Mapping[str, str], lines: list[dict[str, Any]]
) -> dict[str, Any]:
    """The rows of the product, from the evidence; families of which nothing arrived are left out.

    Those miss keys of their own in what transformers writes, whatever is said of positions.
    """
    rows: dict[str, Any] = {}
    ran = {line["family"] for line in lines if "arrives" in line}
    for line in lines:
        if "keys" not in line or line["family"] not in ran:
            continue
        row = rows.setdefault(line["family"], {})
        layers = row.setdefault(line["keys"], {})
        if "refused" in line:
            layers.setdefault("", {})[line["type"]] = f"refused: {line['refused']}"
        for layer_type, arrived in line.get("arrives", {}).items():
            kind = line.get("types", {}).get(layer_type, line["type"])
            layers.setdefault(layer_type, {})[kind] = arrived
        agrees = isinstance(line.get("logits"), float) and line["logits"] < FOLLOWS
        if agrees and line.get("growth"):
            row["growth"] = True
    for row in rows.values():
        for form in (rules.V5, rules.V4, rules.SHORT):
            layers = row.get(form, {})
            for layer_type, arrived in layers.items():
                alike = len(set(arrived.values())) == 1 and len(arrived) > 2
                if alike and ("" not in layers or len(layers) == 1):
                    layers[layer_type] = {rules.ANY: next(iter(arrived.values()))}
        row["reads_v5"] = any(
            arrived in ("own", "plain")
            for layers in row.get(rules.V5, {}).values()
            for arrived in layers.values()
        )
    return {"version": version, "classes": classes, "served_as": served_as, "types": rows}


def text(found: dict[str, Any]) -> str:
    """One line for each family."""
    rows = ",\n  ".join(f"{json.dumps(n)}: {json.dumps(row)}" for n, row in found["types"].items())
    head = ",\n ".join(
        f'"{key}": {json.dumps(found[key])}' for key in ("version", "classes", "served_as")
    )
    return f'{{{head},\n "types": {{\n  {rows}\n }}}}\n'


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    mlx = MLX(given.folder)
    lines: list[dict[str, Any]] = []
    for family, own in {**FAMILIES, **RECENT, **_MORE}.items():
        if family not in mlx.classes:
            continue
        with tempfile.TemporaryDirectory() as room:
            try:
                lines += measured(mlx, family, dict(own), Path(room))
            except Exception as error:
                lines.append({"family": family, "not built": said(error)})
    found = table(mlx.versions["mlx-lm"], mlx.classes, mlx.served_as, lines)
    stored = json.loads(rules.TABLE.read_text("utf-8")) if rules.TABLE.exists() else {"types": {}}
    for name in sorted({*found["types"], *stored["types"]}):
        if found["types"].get(name) != stored["types"].get(name):
            print(name, found["types"].get(name))
    if given.write:
        rules.TABLE.write_text(text(found), encoding="utf-8")
        written = ",\n  ".join(map(json.dumps, lines))
        EVIDENCE.write_text(
            f'{{"versions": {json.dumps(mlx.versions)},\n "lines": [\n  {written}\n ]}}\n', "utf-8"
        )
    off = [line["logits"] for line in lines if isinstance(line.get("logits"), float)]
    followed = sum(value < FOLLOWS for value in off)
    print(f"{followed} of {len(off)} follow transformers in their logits")
    return 0 if found == stored else 1


if __name__ == "__main__":
    sys.exit(main())
