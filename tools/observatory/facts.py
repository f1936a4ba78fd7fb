"""The facts of a runtime's release, in the form of the tables that ropewalk records.

vLLM and SGLang: which keys the rotary module reads, what each model's class hands to it, the
options of the command line, and the longest sequence that is accepted for a config. transformers
and mlx-lm: the keys that each rope type reads, and for mlx-lm the fields of each model's class. All
of it comes from the code; the version in a wheel's name or metadata is only a label.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from ropewalk.errors import InputError, InvalidValue, RopewalkError, shortened
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader, rope_type
from tools.observatory.classes import SHARE, Factory, configs, kept, registry, row_of, types
from tools.observatory.interpreter import UNKNOWN, Interpreter, Members, Raised, Unreadable
from tools.observatory.sources import Place, Sources, called

OPTIONS = {
    "vllm": (("vllm.engine.arg_utils",), ("hf-overrides", "rope-scaling", "rope-theta")),
    "sglang": (
        ("sglang.srt.server_args", "sglang.srt.arg_groups.fields.model"),
        ("json-model-override-args", "context-length"),
    ),
}
_LIMITS = {
    "vllm": ("vllm.config.model", "vllm.config"),
    "sglang": ("sglang.srt.utils.hf_transformers.common", "sglang.srt.utils.hf_transformers_utils"),
}
_LONGEST = 2**32
RUNTIMES = ("vllm", "sglang", "mlx-lm", "transformers")


def read(path: Path) -> tuple[str, Sources, dict[str, Any]]:
    """The runtime of a wheel, its sources, and the facts in them."""
    sources = Sources(path)
    name = re.sub("[-_.]+", "-", "".join(sources.metadata.get("Name", ())[:1]).lower())
    if name not in RUNTIMES:
        raise InvalidValue(
            "wheel",
            sources.name[:80],
            f"is {f'of the package {shortened(name)}' if name else 'without METADATA'}, and only "
            f"wheels of {', '.join(RUNTIMES)} are read",
            "pip download --no-deps vllm==VERSION",
        )
    facts = {"mlx-lm": mlx_lm, "transformers": transformers}
    try:
        return name, sources, facts[name](sources) if name in facts else engine(name, sources)
    except RopewalkError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise InputError(
            f"{sources.name}: its code has a form that is not read here; extend tools/observatory"
        ) from None


def options(engine: str, sources: Sources) -> list[str]:
    """The options of the command line that concern RoPE."""
    files, names = OPTIONS[engine]
    said = set()
    for module in map(sources.module, files):
        for node in ast.walk(module.tree) if module else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.add(node.value.removeprefix("--"))
            elif isinstance(node, ast.AnnAssign) and engine == "sglang":
                said.add(ast.unparse(node.target).replace("_", "-"))
    return [f"--{name}" for name in names if name in said]


def engine(name: str, sources: Sources) -> dict[str, Any]:
    """The facts of vLLM or SGLang: its row in ropewalk/runtimes/model_classes.json."""
    rows: dict[str, Any] = {}
    for architecture, place in registry(name, sources):
        if architecture not in rows:
            rows[architecture] = row_of(name, sources, place)
    return {
        "version": sources.version,
        "transformers": sources.requirement("transformers"),
        "setting": Factory(name, sources).setting,
        "options": options(name, sources),
        "kept": kept(name, sources),
        "configs": configs(name, sources),
        "types": types(name, sources),
        "architectures": dict(sorted(rows.items())),
    }


def transformers(sources: Sources) -> dict[str, Any]:
    """The facts of transformers."""
    return {"version": sources.version, "types": rope_functions(sources)}


def mlx_lm(sources: Sources) -> dict[str, Any]:
    """The facts of mlx-lm: its rope types, and each class of a model type."""
    kinds = (re.fullmatch(r"mlx_lm/models/(\w+)\.py", file) for file in sorted(sources.files))
    said = {kind[1]: mlx_lm_fields(sources, kind[1]) for kind in kinds if kind}
    classes = {kind: fields for kind, fields in said.items() if fields}
    return {"version": sources.version, "types": mlx_lm_types(sources), "classes": classes}


def limit_of(engine: str, sources: Sources, config: Config) -> int | None:
    """The longest sequence that an engine's own function accepts; None if it refuses none."""
    names = {"vllm": "_get_and_verify_max_len", "sglang": "get_context_length"}
    place = sources.first(_LIMITS[engine], names[engine])
    if place is None:
        raise Unreadable(f"there is no {names[engine]}")
    seen = _as_loaded(config)
    given = {
        "ALLOWED_LAYER_TYPES": ["full_attention", "sliding_attention", "chunked_attention"],
        "envs": Members(VLLM_ALLOW_LONG_MAX_MODEL_LEN=False),
    }
    interpreter = Interpreter(sources, given)
    if engine == "sglang":
        try:
            found = interpreter.result(place, {place.node.args.args[0].arg: seen})  # type: ignore[union-attr]
        except Raised as error:
            raise Unreadable(str(error)) from None
        if not isinstance(found, int | float):
            raise Unreadable("its result depends on more than the config")
        return int(found)
    arguments = {
        "hf_config": seen,
        "tokenizer_config": None,
        "disable_sliding_window": False,
        "sliding_window": None,
        "spec_target_max_model_len": None,
        "encoder_config": None,
    }
    wanted = [argument.arg for argument in place.node.args.args]  # type: ignore[union-attr]
    if "model_arch_config" in wanted:
        derived = _derived(interpreter, sources, seen)
        arguments["model_arch_config"] = Members(derived_max_model_len_and_key=derived)

    def accepts(length: int) -> bool:
        try:
            found = Interpreter(sources, given).result(
                place, {**arguments, "max_model_len": length}
            )
        except Raised:
            return False
        if found is UNKNOWN:
            raise Unreadable("its result depends on more than the config")
        return True

    low, high = 0, _LONGEST
    if not accepts(1):
        raise Unreadable("it refuses every length")
    if accepts(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return low


def _derived(interpreter: Interpreter, sources: Sources, seen: Members) -> Any:
    """The length that newer versions of vLLM take from a config in a method of its own."""
    home = sources.module("vllm.transformers_utils.model_arch_config_convertor")
    for node in ast.walk(home.tree) if home else ():
        if isinstance(node, ast.FunctionDef) and node.name == "derive_max_model_len_and_key":
            found = interpreter.result(Place(home, node), {"self": Members(hf_text_config=seen)})  # type: ignore[arg-type]
            if isinstance(found, tuple) and UNKNOWN not in found:
                return found
    raise Unreadable("the length that it takes from the config")


def _as_loaded(config: Config) -> Members:
    """The config as transformers hands it to an engine: one setting, under today's names."""
    reader = ConfigReader(config)
    members = {k: v for k, v in reader.config.items() if isinstance(k, str)}
    length = reader.get("max_position_embeddings")
    settings = {}
    for name, rope in reader.layer_settings().items():
        kind = rope_type(rope)
        own = {key: value for key, value in rope.items() if key not in ("type", "layer_type")}
        settings[name] = {**own, "rope_type": kind}
        if kind in ("yarn", "longrope", "llama3"):
            settings[name].setdefault(ORIGINAL_LENGTH, length)
    nested = len(settings) > 1
    setting = settings if nested else next(iter(settings.values()), None)
    plain = not nested and (setting or {}).get("rope_type") == "default"
    members |= {"rope_parameters": setting, "rope_scaling": None if plain else setting}
    members |= {"model_type": reader.model_type, "max_position_embeddings": length}
    return Members(**{key: value for key, value in members.items() if value is not None})


def rope_functions(sources: Sources) -> dict[str, list[str]]:
    """The keys of a setting, and members of a config, that each of transformers' types reads."""
    module = sources.module("transformers.modeling_rope_utils")
    lines = module.tree.body if module else []
    targets = {
        ast.unparse(target): line.value
        for line in lines
        if isinstance(line, ast.Assign | ast.AnnAssign)
        for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
    }
    table = targets.get("ROPE_INIT_FUNCTIONS")
    found: dict[str, list[str]] = {}
    if module is None or not isinstance(table, ast.Dict):
        return found
    for key, value in zip(table.keys, table.values, strict=True):
        place = sources.resolve(module, getattr(value, "id", ""))
        if isinstance(key, ast.Constant) and place is not None:
            found[str(key.value)] = _keys_read(place.node)
    plain = sources.resolve(module, "_compute_default_rope_parameters")
    found.setdefault("default", _keys_read(plain.node) if plain else ["rope_theta"])
    return dict(sorted(found.items()))


def _keys_read(node: ast.AST) -> list[str]:
    """The constants by which a function looks something up, and members of a config."""
    found = set()
    for line in ast.walk(node):
        key: ast.AST | None = None
        if isinstance(line, ast.Subscript):
            key = line.slice
        elif called(line) in ("get", "setdefault") and line.args:  # type: ignore[attr-defined]
            key = line.args[0]  # type: ignore[attr-defined]
        elif called(line) == "getattr" and len(line.args) > 1:  # type: ignore[attr-defined]
            key = line.args[1]  # type: ignore[attr-defined]
        elif isinstance(line, ast.Attribute) and ast.unparse(line.value) == "config":
            found.add(line.attr)
        elif isinstance(line, ast.Compare) and isinstance(line.left, ast.Constant):
            key = line.left
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.add(key.value)
    return sorted(found - {"standardize_rope_params"})


def mlx_lm_fields(sources: Sources, kind: str) -> str:
    """The RoPE fields that mlx-lm's class of a model type takes, and what it makes with them."""
    module = sources.module(f"mlx_lm.models.{kind}")
    place = sources.resolve(module, "ModelArgs")
    if module is None or place is None:
        return ""
    nodes = [node for own in sources.bases(place) for node in own.node.body]
    fields = [
        ast.unparse(node).split("#")[0].strip() for node in nodes if isinstance(node, ast.AnnAssign)
    ]
    named = ("rope", "rotary", SHARE)
    fields = [line for line in fields if any(word in line.partition(":")[0] for word in named)]
    makes = sorted({n for n in map(called, ast.walk(module.tree)) if "rope" in n.lower()})
    return f"takes {', '.join(sorted(fields)) or 'nothing'}; makes {', '.join(makes) or 'nothing'}"


def mlx_lm_types(sources: Sources) -> dict[str, list[str]]:
    """The keys that each rope type of mlx-lm's rotary classes reads."""
    module = sources.module("mlx_lm.models.rope_utils")
    place = sources.resolve(module, "initialize_rope")
    found: dict[str, list[str]] = {}
    for node in ast.walk(place.node) if place else ():
        if isinstance(node, ast.If) and ast.unparse(node.test).startswith("rope_type"):
            kinds = [n.value for n in ast.walk(node.test) if isinstance(n, ast.Constant)]
            body = ast.Module(node.body, [])
            lists = (n.elts for n in ast.walk(body) if isinstance(n, ast.List))
            named = {e.value for own in lists for e in own if isinstance(e, ast.Constant)}
            for kind in kinds:
                found.setdefault(str(kind), sorted({*_keys_read(body), *map(str, named)}))
    return dict(sorted(found.items()))
