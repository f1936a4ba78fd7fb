"""Wheels with a few sources of the form that vLLM, SGLang, mlx-lm and transformers have."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

LIMIT_OLD = """
def _get_and_verify_max_len(hf_config, tokenizer_config, max_model_len, encoder_config=None):
    derived = float("inf")
    for key in ["max_position_embeddings", "seq_length"]:
        length = getattr(hf_config, key, None)
        if length is not None:
            derived = min(derived, length)
    if tokenizer_config:
        derived = min(derived, tokenizer_config.get("model_max_length", derived))
    rope_scaling = getattr(hf_config, "rope_scaling", None)
    if rope_scaling is not None and "gemma3" not in hf_config.model_type:
        if rope_scaling["rope_type"] not in ("su", "longrope", "llama3"):
            factor = rope_scaling.get("factor", 1.0)
            if rope_scaling["rope_type"] == "yarn":
                derived = rope_scaling["original_max_position_embeddings"]
            derived *= factor
    if max_model_len is None:
        max_model_len = int(derived)
    elif max_model_len > derived:
        logger.warning("%s is too long", max_model_len)
        if not envs.VLLM_ALLOW_LONG_MAX_MODEL_LEN:
            raise ValueError(f"{max_model_len} is greater than {derived}")
    return int(max_model_len)
"""
LIMIT_NEW = """
from vllm.transformers_utils.config import each

def _get_and_verify_max_len(hf_config, model_arch_config, tokenizer_config, max_model_len):
    (derived, key) = model_arch_config.derived_max_model_len_and_key
    settings = list(each(hf_config))
    if settings:
        factor = 1.0
        for rp in settings:
            if rp["rope_type"] not in ("longrope", "llama3", "yarn", "deepseek_yarn"):
                factor = rp.get("factor", factor)
        derived *= factor
    if max_model_len is not None and max_model_len > derived:
        raise ValueError(key)
    return max_model_len
"""
EACH = """
def nested(settings):
    if not settings:
        return False
    return set(settings.keys()).issubset({*ALLOWED_LAYER_TYPES, "main"})

def each(config):
    settings = getattr(config, "rope_parameters", None)
    if nested(settings):
        yield from (p for p in settings.values() if isinstance(p, dict) and p)
    elif settings:
        yield settings
"""
CONVERTOR = """
class Convertor:
    def derive_max_model_len_and_key(self):
        derived = float("inf")
        key = None
        for name in ["max_position_embeddings", "max_seq_len"]:
            if (length := getattr(self.hf_text_config, name, None)) is not None:
                key = name if length < derived else key
                derived = min(derived, length)
        return derived, key
"""
FACTORY_OLD = """
def get_rope(head_size, rotary_dim, max_position, base, is_neox_style=True, rope_scaling=None):
    if rope_scaling is None:
        return 0
    scaling_type = rope_scaling["rope_type"]
    if scaling_type == "yarn":
        own = {k: v for k, v in rope_scaling.items() if k in ("attn_factor", "beta_fast")}
        return rope_scaling["factor"], rope_scaling["original_max_position_embeddings"], own
    elif scaling_type == "deepseek_yarn":
        return rope_scaling["factor"], {k for k in rope_scaling if k in ("mscale",)}
"""
FACTORY_NEW = """
def get_rope(head_size, max_position, is_neox_style=True, rope_parameters=None):
    scaling_type = rope_parameters["rope_type"]
    if scaling_type == "yarn":
        return rope_parameters["factor"], rope_parameters["original_max_position_embeddings"], {
            k: v for k, v in rope_parameters.items()
            if k in ("attention_factor", "beta_fast", "mscale", "mscale_all_dim", "truncate")
        }
    elif scaling_type in ["deepseek_yarn", "deepseek_llama_scaling"]:
        return rope_parameters["factor"], {k for k in rope_parameters if k in ("mscale",)}
"""
CALL_OLD = "get_rope(64, 64, 9, base=config.rope_theta, rope_scaling=config.rope_scaling)"
CALL_NEW = "get_rope(64, max_position=9, rope_parameters=config.rope_parameters)"
MODEL = """
from vllm.model_executor.layers.rotary_embedding import get_rope

class Attention:
    def __init__(self, config):
        self.rotary_emb = {call}

class ForCausalLM:
    def __init__(self, config):
        self.layers = [Attention(config)]
"""
OLD_OPTIONS = 'group.add_argument("--hf-overrides")\ngroup.add_argument("--rope-scaling")\n'
NEW_OPTIONS = 'group.add_argument("--hf-overrides")\n'
REGISTRY = '_TEXT_GENERATION_MODELS = {"Qwen3ForCausalLM": ("qwen3", "ForCausalLM")}\n'
HOME = "vllm/model_executor"
OLD: Mapping[str, str] = {
    f"{HOME}/layers/rotary_embedding/__init__.py": FACTORY_OLD,
    f"{HOME}/models/registry.py": REGISTRY,
    f"{HOME}/models/qwen3.py": MODEL.format(call=CALL_OLD),
    "vllm/config/model.py": LIMIT_OLD,
    "vllm/engine/arg_utils.py": OLD_OPTIONS,
}
NEW: Mapping[str, str] = {
    **OLD,
    f"{HOME}/layers/rotary_embedding/__init__.py": FACTORY_NEW,
    f"{HOME}/models/qwen3.py": MODEL.format(call=CALL_NEW),
    "vllm/config/model.py": LIMIT_NEW,
    "vllm/transformers_utils/config.py": EACH,
    "vllm/transformers_utils/model_arch_config_convertor.py": CONVERTOR,
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
