"""Wheels with a few sources of the form that vLLM, SGLang, mlx-lm and transformers have."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

SOURCES = Path(__file__).with_name("sources")


def source(name: str) -> str:
    """A file of a wheel; of a template, the text before `format`."""
    return (SOURCES / f"{name}.txt").read_text(encoding="utf-8")


CALL_OLD = "get_rope(64, 64, 9, base=config.rope_theta, rope_scaling=config.rope_scaling)"
CALL_NEW = "get_rope(64, max_position=9, rope_parameters=config.rope_parameters)"
MODEL = source("model")
OLD_OPTIONS = 'group.add_argument("--hf-overrides")\ngroup.add_argument("--rope-scaling")\n'
NEW_OPTIONS = 'group.add_argument("--hf-overrides")\n'
REGISTRY = '_TEXT_GENERATION_MODELS = {"Qwen3ForCausalLM": ("qwen3", "ForCausalLM")}\n'
HOME = "vllm/model_executor"
OLD: Mapping[str, str] = {
    f"{HOME}/layers/rotary_embedding/__init__.py": source("factory_old"),
    f"{HOME}/models/registry.py": REGISTRY,
    f"{HOME}/models/qwen3.py": MODEL.format(call=CALL_OLD),
    "vllm/config/model.py": source("limit_old"),
    "vllm/engine/arg_utils.py": OLD_OPTIONS,
}
NEW: Mapping[str, str] = {
    **OLD,
    f"{HOME}/layers/rotary_embedding/__init__.py": source("factory_new"),
    f"{HOME}/models/qwen3.py": MODEL.format(call=CALL_NEW),
    "vllm/config/model.py": source("limit_new"),
    "vllm/transformers_utils/config.py": source("each"),
    "vllm/transformers_utils/model_arch_config_convertor.py": source("convertor"),
    "vllm/engine/arg_utils.py": NEW_OPTIONS,
}
REQUIRES = {"old": "transformers>=4.55.2", "new": "transformers<5.21.0,>=5.16.1"}


def wheel(
    folder: Path,
    files: Mapping[str, str | bytes],
    *,
    name: str = "vllm",
    version: str = "1.0",
    requires: str = REQUIRES["new"],
) -> Path:
    """A wheel with these files and its metadata."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    said = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Dist: {requires}\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(file, content)
        if name:
            archive.writestr(f"{name}-{version}.dist-info/METADATA", f"{said}\nA description\n")
    return path
