"""A process in which real files of vLLM or SGLang run, and load a model through their own loader.

    python -m tests.rotation.engine_process ENGINE CASES ROOM

ROOM holds the files of the archive next to this file, taken out of the released wheel (`files`).
They are the engine's own: its plugin loader and hook registry, the class that loads models, and all
its rotary modules. What else they import is replaced by stand-ins. The entry points are those of
pyproject.toml, found as an installed package's are.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import sys
import tomllib
import types
import zipfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from ropewalk.errors import RopewalkError
from tools.observatory.serving_rotary import _Nothing, _StandIns

VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}
FILES = {
    "vllm": (
        "vllm/plugins/__init__.py",
        "vllm/model_executor/model_loader/__init__.py",
        "vllm/model_executor/model_loader/base_loader.py",
        "vllm/model_executor/model_loader/tensorizer_loader.py",
        "vllm/model_executor/layers/rotary_embedding/",
        "vllm-0.33.0.dist-info/licenses/LICENSE",
    ),
    "sglang": (
        "sglang/srt/plugins/",
        "sglang/srt/model_executor/model_runner.py",
        "sglang/srt/layers/rotary_embedding/",
        "sglang-0.5.23.dist-info/licenses/LICENSE",
    ),
}


def archive(engine: str) -> Path:
    return Path(__file__).with_name(f"{engine}-{VERSIONS[engine]}.zip")


def pack(engine: str, wheel: Path) -> None:
    """Write the archive from a wheel: `pip download --no-deps vllm==0.33.0 sglang==0.5.23`."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(archive(engine), "w") as target:
        for name in sorted(source.namelist()):
            if name.startswith(FILES[engine]):
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_LZMA
                target.writestr(info, source.read(name))


class Anything(_Nothing):
    """Stands for what real code passes on, formats, subtracts or enters."""

    def __init__(self, **known: object) -> None:
        vars(self).update(known)

    def __call__(self, *_: object, **__: object) -> Anything:
        return self

    def __getattr__(self, name: str) -> Anything:
        return self

    def __or__(self, other: object) -> Any:
        return Any

    def __sub__(self, other: object) -> Anything:
        return self

    def __format__(self, form: str) -> str:
        return ""

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class StandIns(_StandIns):
    def value(self, name: str) -> object:
        found = super().value(name)
        return Anything() if type(found) is _Nothing else found


class _Logger(logging.Logger):
    """vLLM's, which have a method for what is said once."""

    info_once = debug_once = warning_once = logging.Logger.info


def install(engine: str, room: Path) -> StandIns:
    """Make the engine's files importable, and ropewalk's entry points those of a package."""
    with zipfile.ZipFile(archive(engine)) as files:
        files.extractall(room)
    pyproject = tomllib.loads(
        (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    )
    lines = []
    for group, points in pyproject["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    info = room / "ropewalk_of_this_tree-0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: ropewalk-of-this-tree\nVersion: 0\n"
    )
    sys.path.insert(0, str(room))
    stand_ins = StandIns(engine, 32768)
    logging.setLoggerClass(_Logger)
    stand_ins.values |= {
        "instrument": lambda **_: lambda function: function,
        "set_default_torch_dtype": contextlib.nullcontext,
        "TensorizerConfig": dict,
        "OnlineQuantizationConfig": dict,
        "VLLM_PLUGINS": None,
        "VLLM_LOG_MODEL_INSPECTION": False,
        "envs": types.SimpleNamespace(
            SGLANG_PLUGINS=types.SimpleNamespace(get=lambda: None),
            SGLANG_PLATFORM=types.SimpleNamespace(get=lambda: None),
            SGLANG_ROPE_CACHE_ALIGN=types.SimpleNamespace(get=lambda: 128),
            SGLANG_ROPE_CACHE_FP32=types.SimpleNamespace(get=lambda: False),
        ),
    }
    sys.meta_path.append(stand_ins)
    return stand_ins


def rotary(engine: str, rope: dict[str, Any], length: int, **changes: Any) -> Any:
    """A rotary module by the engine's own factory."""
    own = "vllm.model_executor" if engine == "vllm" else "sglang.srt"
    package: Any = importlib.import_module(f"{own}.layers.rotary_embedding.{_FACTORY[engine]}")
    package._ROPE_DICT.clear()
    given: dict[str, Any] = {"head_size": 64, "max_position": length, "dtype": torch.float32}
    if "dtype" in changes:
        changes["dtype"] = getattr(torch, changes["dtype"])
    if engine == "vllm":
        rope = {**rope, "rope_dim": changes.pop("rotary_dim", 64)}
        return package.get_rope(**{**given, **changes}, rope_parameters=rope)
    given |= {"rotary_dim": 64, "base": rope["rope_theta"]}
    scaling = None if rope["rope_type"] == "default" else {**rope, "attn_factor": 1.0}
    return package.get_rope(**{**given, **changes}, rope_scaling=scaling)


_FACTORY = {"vllm": "__init__", "sglang": "factory"}


def damage(module: Any, kind: str) -> None:
    """Plant a fault where a module computes its table, or in the table."""
    inverse = module._compute_inv_freq
    if kind == "short":
        module.cos_sin_cache = module.cos_sin_cache[:4096]
    elif kind in ("dropped", "squared"):
        module.cos_sin_cache *= module.mscale ** (1 if kind == "squared" else -1)
    else:
        plain = module.base ** -(torch.arange(0, 64, 2) / 64)
        changed = {
            "rounded": lambda given: inverse(given).bfloat16().float(),
            "twice": lambda given: inverse(given) ** 2 / plain,
        }
        module._compute_inv_freq = changed[kind]
        module.cos_sin_cache = module._compute_cos_sin_cache()
        if kind == "twice":
            module.cos_sin_cache *= module.mscale


def model_of(modules: list[Any], config: Any) -> Any:
    """A model whose layers have these rotary modules, where the engine's models have them."""
    model = torch.nn.Module()
    model.model = torch.nn.Module()
    model.model.layers = torch.nn.ModuleList()
    for module in modules:
        layer = torch.nn.Module()
        layer.self_attn = torch.nn.Module()
        layer.self_attn.rotary_emb = module
        model.model.layers.append(layer)
    if config:
        model.config = AutoConfig.for_model(**config)
    return model


def load_in_vllm(model: Any, folder: str, served: int, drafter: bool) -> None:
    """What a worker does: plugins, then a model by its loader."""
    importlib.import_module("vllm.plugins").load_general_plugins()
    base = importlib.import_module("vllm.model_executor.model_loader").BaseModelLoader

    class Loader(base):  # type: ignore[misc, valid-type]
        def create_model(self, **_: object) -> Any:
            return model

        def load_weights(self, *_: object) -> None:
            pass

        def download_model(self, *_: object) -> None:
            pass

    config = types.SimpleNamespace(
        model=folder,
        max_model_len=served,
        dtype=torch.float32,
        runner_type="draft" if drafter else "generate",
    )
    device = types.SimpleNamespace(device="cpu")
    given = types.SimpleNamespace(
        device_config=device, load_config=device, model_config=config, quant_config=None
    )
    torch.accelerator.empty_cache = lambda: None  # this machine has none
    Loader(device).load_model(vllm_config=given, model_config=config)


def load_in_sglang(model: Any, folder: str, served: int, drafter: bool) -> None:
    """What a scheduler's process does: plugins, then a model by its runner."""
    importlib.import_module("sglang.srt.plugins").load_plugins()
    module = importlib.import_module("sglang.srt.model_executor.model_runner")

    class Runner(module.ModelRunner):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.model_config = Anything(model_path=folder, context_len=served)
            self.is_draft_worker = drafter

        def __getattr__(self, name: str) -> Any:
            return Anything()

    loaded = Anything(model=model, startup_weight_load=None)
    vars(module)["load_model_with_memory_saver"] = lambda **_: loaded
    Runner().load_model()


def main(engine: str, cases: str, room: str) -> None:
    """Print what became of each start, and the lines that the engine would show."""
    stand_ins = install(engine, Path(room))
    os.chdir(Path(cases).parent)
    log: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: log.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    engine_config: Any = stand_ins.values["get_current_vllm_config"]
    load = load_in_vllm if engine == "vllm" else load_in_sglang
    told = {}
    for name, case in json.loads(Path(cases).read_text(encoding="utf-8")).items():
        log.clear()
        os.environ.update(case.get("env", {}))
        served = case.get("served", 32768)
        engine_config().model_config.max_model_len = served
        changes = case.get("changes", {})
        modules = [rotary(engine, dict(rope), 32768, **changes) for rope in case["ropes"]]
        for kind in filter(None, [case.get("damage")]):
            damage(modules[-1], kind)
        model = model_of(modules, case.get("config"))
        try:
            load(model, case.get("folder", ""), served, case.get("drafter", False))
            told[name] = "loaded"
        except RopewalkError as error:
            told[name] = f"{type(error).__name__}: {error}"
        told[name] += "".join(f"; {line}" for line in log if line.startswith("ropewalk: "))
        for key in case.get("env", {}):
            del os.environ[key]
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
