"""Entry points of vLLM and SGLang: each worker checks its rotation once its model is loaded.

An engine calls its entry point at every start, in processes that load no model too. So nothing is
imported here until the engine itself imports the module that loads models, and nothing is compared
without a plan: in `ROPEWALK_PLAN`, or in the folder of the model. `ROPEWALK_ROTATION` is `error`
(the default: a model that rotates differently stops the start) or `warn`.

vLLM has no hook after loading, so its loaders are wrapped. SGLang has one in its registry.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PLAN, MODE = "ROPEWALK_PLAN", "ROPEWALK_ROTATION"
_VLLM = "vllm.model_executor.model_loader"
_SGLANG = "sglang.srt.model_executor.model_runner"


def vllm() -> None:
    """The entry point `vllm.general_plugins`."""
    _once_imported(_VLLM, _wrap_loaders)


def sglang() -> None:
    """The entry point `sglang.srt.plugins`."""
    _once_imported(_SGLANG, _hook_runner)


class _Waiting(MetaPathFinder):
    """Calls a function as soon as a module was imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self.then(module)

            loader.exec_module = execute_and_call
        return spec


def _once_imported(name: str, then: Callable[[Any], None]) -> None:
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Waiting(name, then))


def _wrap_loaders(package: Any) -> None:
    loaders = [package.BaseModelLoader]
    for loader in loaders:  # it grows: classes below inherit, or bring a method of their own
        loaders += loader.__subclasses__()
        load = vars(loader).get("load_model")
        if load is not None and not hasattr(load, "_ropewalk"):
            loader.load_model = _checked(load)


def _checked(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_model(self: Any, vllm_config: Any, model_config: Any, *args: Any, **kw: Any) -> Any:
        model = load(self, vllm_config, model_config, *args, **kw)
        if model_config.runner_type != "draft":
            _check("vllm", model, model_config.model, model_config.max_model_len)
        return model

    load_model._ropewalk = True  # type: ignore[attr-defined]
    return load_model


def _hook_runner(module: Any) -> None:
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    # A model's tables have their full length once its runner has loaded it.
    loaded = f"{_SGLANG}.ModelRunner.load_model"
    hooks.HookRegistry.register(loaded, _after_loading, hooks.HookType.AFTER)
    hooks.HookRegistry.apply_hooks()


def _after_loading(result: object, runner: Any) -> None:
    config = runner.model_config
    if not runner.is_draft_worker:
        _check("sglang", runner.model, config.model_path, config.context_len)


def _check(engine: str, model: Any, folder: str, length: int) -> None:
    """Compare a loaded model with its plan, up to the length that the engine serves."""
    variable = os.environ.get(PLAN)
    place = Path(variable or folder)
    file = place / "plan.json" if place.is_dir() else place
    if variable is None and not file.is_file():
        return
    from ropewalk.context_plan import ContextPlan
    from ropewalk.errors import InputError, RopewalkError
    from ropewalk.rotation.check import assert_rotation

    log = logging.getLogger(f"{engine}.ropewalk")  # a name whose lines the engine shows
    try:
        plan = ContextPlan.read(file)
        served = min(length, plan.target_length)
        log.info("ropewalk: %s", assert_rotation(model, plan, lengths=(served,)).summary())
    except RopewalkError as error:
        # Nobody asked for a check by a plan that merely lies in the folder.
        unasked = variable is None and isinstance(error, InputError)
        if os.environ.get(MODE) != "warn" and not unasked:
            raise
        log.warning("ropewalk: %s", error)
