"""vLLM's and SGLang's own rotary modules, given exported configs, beside the plan's cos and sin.

    pip download vllm==0.33.0 sglang==0.5.23 --no-deps --dest WHEELS
    python -m tools.observatory.serving_rotary WHEELS tools/observatory/serving_rotary.json

Their engines need a GPU and a torch of their own, but the files that compute rotary embeddings need
only torch. They are taken out of the released wheels and imported with everything else of the
engine replaced by a stand-in; nothing of the wheels is installed. Queries that are 1 in the first
dimension of every pair and 0 in the second come out of the module as cos and sin. They are compared
with the schedule in float64 at every position up to the target: at once, as in prefill, and one by
one, as in decoding.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import math
import sys
import tempfile
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.models.config import Config, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import engines, targets
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.schedule import FloatArray, RotarySchedule
from tools.runtimes_page import two_lists

WINDOW, TARGET = 256, 2048
ROTARY = {
    "vllm": "vllm/model_executor/layers/rotary_embedding/",
    "sglang": "sglang/srt/layers/rotary_embedding/",
}
PATHS = ("prefill", "decoding")
_FLOAT32 = 2.0**-23
_FACTORS = np.random.default_rng(0).uniform(1, 8, 64).tolist()
METHODS: Mapping[str, Mapping[str, object]] = {
    "linear": {},
    "ntk": {},
    "yarn": {},
    "yarn truncate=False": {"truncate": False},
    "yarn attention_factor=1.3": {"attention_factor": 1.3},
    "llama3": {},
    "ntk_mixed": {},
    "longrope": {"factors": _FACTORS, "attention_factor": 1.17},
}
CONFIGS: Mapping[str, Config] = {
    "llama": {"model_type": "llama", "rope_theta": 1e4},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6},
    "phi3": {
        "model_type": "phi3",
        "rope_theta": 1e4,
        "original_max_position_embeddings": WINDOW,
    },
    "cohere (interleaved)": {"model_type": "cohere", "rope_theta": 1e4},
}
SIZES = {"hidden_size": 512, "num_attention_heads": 4, "max_position_embeddings": WINDOW}


class _Module(nn.Module):
    """The base of what an engine registers as its own operations."""

    def __init__(self, **_: object) -> None:
        super().__init__()

    @classmethod
    def register(cls, *_: object, **__: object) -> Callable[[type], type]:
        return lambda registered: registered

    @classmethod
    def enabled(cls) -> bool:
        return False


class _Nothing:
    """What an engine asks of its platform, settings and kernels: false, whatever it is."""

    def __call__(self, *_: object, **__: object) -> _Nothing:
        return self

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __bool__(self) -> bool:
        return False


class _Settings(_Nothing):
    """The settings of an engine's environment, of which only one is a number."""

    SGLANG_ROPE_CACHE_ALIGN = types.SimpleNamespace(get=lambda: 128)


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any module of an engine that was not taken out of its wheel."""

    def __init__(self, engine: str, length: int) -> None:
        self.engine = engine
        config = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=length))
        self.values: dict[str, object] = {
            "CustomOp": _Module,
            "BaseFusedOp": _Module,
            "init_logger": logging.getLogger,
            "is_cpu": lambda: True,
            "get_device": lambda: "cpu",
            "publish_role": lambda: None,
            "get_compiler_backend": lambda *_, **__: "eager",
            "get_current_vllm_config": lambda: config,
            "envs": _Settings(),
        }

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        if name.partition(".")[0] != self.engine or path is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = self.value  # type: ignore[method-assign]
        return module

    def value(self, name: str) -> object:
        if name.startswith("__"):  # those are Python's
            raise AttributeError(name)
        return self.values.get(name, _Nothing())

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def rotary_package(engine: str, wheel: Path, room: Path, length: int) -> Any:
    """The engine's rotary package, imported from its wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(room, [n for n in archive.namelist() if n.startswith(ROTARY[engine])])
    sys.path.insert(0, str(room))
    sys.meta_path.append(_StandIns(engine, length))
    name = ROTARY[engine].rstrip("/").replace("/", ".")
    return importlib.import_module(name if engine == "vllm" else f"{name}.factory")


def rotary_module(engine: str, package: Any, config: Config, geometry: Any) -> Any:
    """The module that the engine builds for a model with this config."""
    rope = dict(config["rope_parameters"])
    arguments: dict[str, Any] = {
        "head_size": geometry.head_dim,
        "max_position": config["max_position_embeddings"],
        "is_neox_style": geometry.pair_layout == "half",
        "dtype": torch.float32,
    }
    if engine == "vllm":
        return package.get_rope(**arguments, rope_parameters=rope)
    return package.get_rope(
        **arguments, rotary_dim=geometry.rotary_dim, base=rope["rope_theta"], rope_scaling=rope
    )


def cos_sin(module: Any, schedule: RotarySchedule, positions: Sequence[int]) -> FloatArray:
    """[2, positions, pairs]: what comes out of the module for queries that are 1 and 0 in turn."""
    geometry = schedule.geometry
    query_LD = torch.zeros(len(positions), geometry.head_dim)
    half = geometry.rotary_dim // 2
    split = geometry.pair_layout == "half"
    first = slice(0, half) if split else slice(0, geometry.rotary_dim, 2)
    second = slice(half, 2 * half) if split else slice(1, geometry.rotary_dim, 2)
    query_LD[:, first] = 1
    forward = getattr(module, "forward_native", None) or module.forward
    at = torch.tensor(list(positions))
    rotated_LD = forward(at, query_LD.clone(), query_LD.clone())[0].reshape(query_LD.shape)
    found = torch.stack((rotated_LD[:, first], rotated_LD[:, second]))
    return np.asarray(found.double().numpy())


def excess(found: FloatArray, schedule: RotarySchedule, positions: Sequence[int]) -> float:
    """The largest error of cos and sin, in parts of what float32 angles may be off by."""
    angles = np.abs(schedule.angles(list(positions)))
    ramp = 4 + math.log(schedule.geometry.base) + float(schedule.rescale_factors.max())
    allowed = schedule.attention_scaling * _FLOAT32 * (4 + ramp * angles)
    wanted = np.stack(schedule.cos_sin(list(positions)))
    return float((np.abs(found - wanted) / allowed).max())


def checks(engine: str, package: Any) -> Iterator[dict[str, Any]]:
    """One line a family and method."""
    for family, own in CONFIGS.items():
        config = {**SIZES, **own}
        for method, parameters in METHODS.items():
            plan = extend_plan(
                present_plan(config, family), TARGET, method.split()[0], dict(parameters)
            )
            yield {"model": family, "method": method, **_check(engine, package, config, plan)}


def _check(engine: str, package: Any, config: Config, plan: ContextPlan) -> dict[str, object]:
    schedule = plan.longest(FULL_ATTENTION)
    try:
        targets()[engine].expressible(plan, config, approximate=False)
    except Unsupported as error:
        return {"refused": str(error)}
    written = engines()[engine].written_config(config, plan)
    module = rotary_module(engine, package, written, schedule.geometry)
    everywhere = range(TARGET)
    at_once = cos_sin(module, schedule, everywhere)
    singly = np.concatenate([cos_sin(module, schedule, [p]) for p in everywhere], axis=1)
    return {
        "rope_type": written["rope_parameters"]["rope_type"],
        "prefill": excess(at_once, schedule, everywhere),
        "decoding": excess(singly, schedule, everywhere),
    }


def one_of_two_lists(package: Any, length: int) -> float:
    """vLLM, started at a length, with a folder of two lists: beside the one that serves it."""
    config = {**SIZES, **CONFIGS["llama"]}
    plan = two_lists(extend_plan(present_plan(config, "llama"), TARGET, "ntk_mixed"))
    targets()["vllm"].expressible(plan, config, approximate=False)
    written = engines()["vllm"].written_config(config, plan)
    importlib.import_module(
        "vllm.config"
    ).get_current_vllm_config().model_config = types.SimpleNamespace(max_model_len=length)
    package._ROPE_DICT.clear()  # it keeps a module for each setting, whatever the length
    schedule = plan.schedule(length)
    module = rotary_module("vllm", package, written, schedule.geometry)
    return excess(cos_sin(module, schedule, range(length)), schedule, range(length))


def boundary_of_sglang(package: Any) -> float:
    """What cos and sin are off by at the original length, were that written for SGLang's longrope.

    One by one, that position is looked up behind the end of the short table, where the long one
    begins: it is turned as position 0 is.
    """
    config = {**SIZES, **CONFIGS["llama"]}
    plan = extend_plan(present_plan(config, "llama"), TARGET, "ntk_mixed")
    schedule = plan.longest()
    written = engines()["vllm"].written_config(config, plan)
    module = rotary_module("sglang", package, written, schedule.geometry)
    found, wanted = cos_sin(module, schedule, [WINDOW]), np.stack(schedule.cos_sin([WINDOW]))
    return float(np.abs(found - wanted).max())


def beyond_the_table(package: Any, method: str) -> float:
    """What SGLang's cos and sin are off by in rows that are added once a table is too short.

    Linear's are added without its factor (sglang issue 35171, open), YaRN's were before #38786.
    """
    config = {**SIZES, **CONFIGS["llama"]}
    plan = extend_plan(present_plan(config), TARGET, method)
    schedule = plan.longest()
    written = engines()["sglang"].written_config(config, plan)
    module = rotary_module("sglang", package, written, schedule.geometry)
    rows = len(module.cos_sin_cache)
    module._ensure_cos_sin_cache_length(2 * rows)
    added = list(range(rows, 2 * rows))
    wanted = np.concatenate(schedule.cos_sin(added), axis=-1)
    package._ROPE_DICT.clear()
    return float(np.abs(module.cos_sin_cache[added].double().numpy() - wanted).max())


def main(wheels: Path, result: Path) -> int:
    torch.set_grad_enabled(False)
    torch.compiler.set_stance("force_eager")
    answer: dict[str, Any] = {}
    for engine in ENGINE_NAMES:
        found = sorted(wheels.glob(f"{engine}-*.whl"))
        if not found:
            answer[engine] = {"verified": False, "why": f"no wheel of {engine} in the folder given"}
            continue
        with tempfile.TemporaryDirectory() as room:
            package = rotary_package(engine, found[-1], Path(room), TARGET)
            lines = list(checks(engine, package))
            worst = max(float(line[key]) for line in lines for key in PATHS if key in line)
            answer[engine] = {
                "verified": bool(worst <= 1),
                "version": found[-1].name.split("-")[1],
                "worst": worst,
                "checks": lines,
            }
            if engine == "vllm":
                own = {n: one_of_two_lists(package, n) for n in (WINDOW, WINDOW + 1, TARGET)}
                answer[engine]["two_lists"] = own
                answer[engine]["verified"] &= max(own.values()) <= 1
            if engine == "sglang":
                answer[engine]["error_at_original_length"] = boundary_of_sglang(package)
                beyond = {
                    method: beyond_the_table(package, method) for method in ("linear", "yarn")
                }
                answer[engine]["error_beyond_the_table"] = beyond
    result.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
    for name, own in answer.items():
        print(name, {key: value for key, value in own.items() if key != "checks"})
    return 0 if all(own["verified"] for own in answer.values()) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
