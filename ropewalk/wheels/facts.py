"""The facts of a runtime's release about one model, next to the version that ropewalk records.

vLLM and SGLang: which keys the rotary module reads, what the model's class hands to it, the longest
sequence that is accepted, and the options of the command line. transformers and mlx-lm: the keys
that each rope type reads, and for mlx-lm the fields of the model's class. All of it comes from the
code; the version in a wheel's name or metadata is only a label.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropewalk.errors import InputError, InvalidValue, RopewalkError, shortened
from ropewalk.models.config import ORIGINAL_LENGTH, Config, ConfigReader, rope_type
from ropewalk.runtimes import every
from ropewalk.runtimes.model_classes import (
    architectures,
    engine_table,
)
from ropewalk.runtimes.reading import table_in
from ropewalk.values import Value
from ropewalk.wheels.classes import SHARE, Factory, kept, registry, row_of, types
from ropewalk.wheels.interpreter import UNKNOWN, Interpreter, Members, Raised, Unreadable
from ropewalk.wheels.sources import Place, Sources, called

RECORDED = Path(__file__).with_name("recorded.json")
"""The same facts of the recorded transformers and mlx-lm; the engines have their table."""
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
_WORDS = {
    "passed": "the whole setting arrives",
    "dropped": "only the base arrives",
    "fixed": "it builds a setting of its own",
    "transformers": "transformers' code serves it",
    "unknown": "unknown",
    "inner": "the class of its language model decides",
}


@dataclass(frozen=True, eq=False)
class WheelReading(Value):
    """The facts of a wheel about a model, and their differences from the recorded version."""

    runtime: str
    file: str
    version: str
    recorded: str
    """The version whose rules ropewalk records."""
    facts: Mapping[str, str]
    changed: tuple[str, ...]
    unread: tuple[str, ...]
    table: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The rows that the rules of vLLM and SGLang are applied with."""
    limit: int | None = None


def read(path: str | Path, config: Config) -> WheelReading:
    """Read how the wheel's code treats the model of a config."""
    sources = Sources(Path(path))
    name = re.sub("[-_.]+", "-", "".join(sources.metadata.get("Name", ())[:1]).lower())
    reads = {"vllm": _engine, "sglang": _engine, "mlx-lm": _mlx_lm, "transformers": _transformers}
    if name not in reads:
        raise InvalidValue(
            "wheel",
            sources.name[:80],
            f"is {f'of the package {shortened(name)}' if name else 'without METADATA'}, and only "
            "wheels of vllm, sglang, mlx-lm and transformers are read",
            "pip download --no-deps vllm==VERSION",
        )
    try:
        return reads[name](name, sources, config)
    except RopewalkError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise InputError(
            f"{sources.name}: its code has a form that is not read here; verify against the "
            "recorded version (without --wheel)"
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


def table_of(engine: str, sources: Sources, names: set[str] | None = None) -> dict[str, Any]:
    """The table of an engine, with the rows of these architectures; all of them without names."""
    rows: dict[str, Any] = {}
    for name, place in registry(engine, sources, names):
        if name not in rows:
            rows[name] = row_of(engine, sources, place)
            inner = rows[name].get("architecture")
            if names is not None and inner and inner not in names:
                names.add(inner)
                rows |= table_of(engine, sources, {inner})["architectures"]
    return {
        "version": sources.version,
        "transformers": sources.requirement("transformers"),
        "setting": Factory(engine, sources).setting,
        "options": options(engine, sources),
        "kept": kept(engine, sources),
        "types": types(engine, sources),
        "architectures": dict(sorted(rows.items())),
    }


def _engine(engine: str, sources: Sources, config: Config) -> WheelReading:
    names = architectures(config)
    here = table_of(engine, sources, set(names))
    if before_5(here):  # whose config classes keep what those of transformers 5 move
        rows = here["architectures"].items()
        here["architectures"] = {n: {**row, "beside": {}} for n, row in rows}
    recorded = engine_table(engine)
    accepts = every()[engine].accepts
    assert accepts is not None, "engines have a longest sequence"
    unread, limits = [], {"here": "unknown", "recorded": str(accepts(config))}
    limit = None
    try:
        limit = limit_of(engine, sources, config)
        limits["here"] = str(limit)
    except Unreadable as error:
        unread.append(f"the longest sequence that it accepts ({shortened(str(error))})")
    facts, before = (
        _words(table, config, names, longest)
        for table, longest in ((here, limits["here"]), (recorded, limits["recorded"]))
    )
    if facts[_class(names)] == "unknown":
        unread.append(f"what its class for {names[0] if names else 'the model'} hands over")
    return _reading(engine, sources, facts, before, recorded["version"], unread, here, limit)


def before_5(table: Mapping[str, Any]) -> bool:
    """True if an engine is made for transformers 4, of which it reads rope_scaling."""
    majors = re.findall(r"(?<![\d.])\d+", table["transformers"])
    return table["setting"] == "rope_scaling" and "4" in majors


def _class(names: tuple[str, ...]) -> str:
    return f"class for {names[0] if names else 'this model'}"


def _words(
    table: Mapping[str, Any], config: Config, names: tuple[str, ...], longest: str
) -> dict[str, str]:
    """The facts of an engine in words."""
    rows = [table["architectures"].get(name) for name in names]
    row = next((own for own in rows if own and own["scaling"] != "inner"), None)
    kinds = sorted({rope_type(rope) for rope in ConfigReader(config).layer_settings().values()})
    told = "transformers' code serves it, or nothing does" if row is None else _told(row)
    renamed = sorted(row.get("renamed", ())) if row else []
    return {
        "command line": ", ".join(table["options"]) or "no option for RoPE",
        "rope setting": table["setting"],
        _class(names): told,
        **{f"rope type {kind}": _keys(table, kind) for kind in (*kinds, *renamed)},
        "longest sequence": longest,
    }


def _told(row: Mapping[str, Any]) -> str:
    parts = [_WORDS[row["scaling"]]]
    if row.get("renamed"):
        parts.append(f"every type becomes {' or '.join(sorted(row['renamed']))}")
    if row.get("base") == "whole":
        parts.append("the base is cut to a whole number")
    if row.get("beside"):
        parts.append(f"next to the setting only, it reads {' and '.join(row['beside'])}")
    if row.get("softmax"):
        parts.append(f"logits times mscale squared if {' or if '.join(row['softmax'])}")
    if row.get("on_cpu"):
        parts.append("on a CPU with AMX only the base arrives")
    if row["scaling"] == "fixed":
        parts.append(f"from {', '.join(row['keys'])}")
    return "; ".join(parts)


def _keys(table: Mapping[str, Any], kind: str) -> str:
    row = table["types"].get(kind)
    if row is None:
        return "not known to it"
    keys = sorted({*row["must"], *row["may"]})
    return f"reads {', '.join(keys)}" if keys else "reads no key of its own"


def _reading(
    runtime: str,
    sources: Sources,
    facts: Mapping[str, str],
    before: Mapping[str, str],
    recorded: str,
    unread: list[str],
    table: Mapping[str, Any] | None = None,
    limit: int | None = None,
) -> WheelReading:
    changed = tuple(
        f"{name}: {_change(facts.get(name, 'nothing'), before.get(name, 'nothing'))}"
        for name in dict.fromkeys((*facts, *before))
        if facts.get(name) != before.get(name) and facts.get(name) != "unknown"
    )
    version = sources.version[:40]
    return WheelReading(
        runtime, sources.name, version, recorded, facts, changed, tuple(unread), table or {}, limit
    )


def _change(here: str, before: str) -> str:
    """The difference of a fact from the recorded one; of two lists, the items that only one has."""
    for start in ("reads ", "--"):
        if here.startswith(start) and before.startswith(start):
            one, other = (said.removeprefix("reads ").split(", ") for said in (here, before))
            more, less = ([k for k in a if k not in b] for a, b in ((one, other), (other, one)))
            parts = [f"has {', '.join(more)}"] if more else []
            parts += [f"lacks {', '.join(less)}"] if less else []
            return "; ".join(parts)
    return f"{here}; recorded: {before}"


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


def _transformers(runtime: str, sources: Sources, config: Config) -> WheelReading:
    here, recorded = rope_functions(sources), table_in(RECORDED)[runtime]
    kinds = sorted({rope_type(rope) for rope in ConfigReader(config).layer_settings().values()})
    facts, before = (_of_types(table, kinds) for table in (here, recorded["types"]))
    unread = [] if here else ["the functions of its rope types"]
    return _reading(runtime, sources, facts, before, recorded["version"], unread)


def _of_types(table: Mapping[str, list[str]], kinds: list[str]) -> dict[str, str]:
    return {
        f"rope type {kind}": f"reads {', '.join(table[kind])}" if kind in table else "unknown"
        for kind in kinds
    }


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


def _mlx_lm(runtime: str, sources: Sources, config: Config) -> WheelReading:
    kind = ConfigReader(config).model_type
    recorded = table_in(RECORDED)[runtime]
    kinds = sorted({rope_type(rope) for rope in ConfigReader(config).layer_settings().values()})
    here = mlx_lm_types(sources)
    facts, before = (_of_types(table, kinds) for table in (here, recorded["types"]))
    fields = mlx_lm_fields(sources, kind)
    facts[f"class of {kind}"] = fields
    before[f"class of {kind}"] = recorded["classes"].get(kind, "has no class")
    unread = [] if here else ["the function that makes its rotary modules"]
    return _reading(runtime, sources, facts, before, recorded["version"], unread)


def mlx_lm_fields(sources: Sources, kind: str) -> str:
    """The RoPE fields that mlx-lm's class of a model type takes, and what it makes with them."""
    safe = re.fullmatch(r"\w{1,80}", kind)
    module = sources.module(f"mlx_lm.models.{kind}") if safe else None
    place = sources.resolve(module, "ModelArgs")
    if module is None or place is None:
        return "has no class"
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
