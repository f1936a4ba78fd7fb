"""The values that model classes of vLLM and SGLang hand to rotary modules, read in wheels' sources.

Nothing of a wheel is run or imported: its sources are read with `ast` (sources.py), and what cannot
be read is `unknown`. Which class serves which architecture comes from the engines' registries. The
rows are those of ropewalk/runtimes/model_classes.py, which explains them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from ropewalk.errors import InputError
from tools.observatory.sources import (
    NONE,
    OF_LAYER,
    OMITTED,
    SETTINGS,
    WHOLE,
    Frame,
    Origin,
    Origins,
    Place,
    Reader,
    Sources,
    called,
    functions,
    local,
    parameters,
)

Row = dict[str, Any]
MODELS = {"vllm": "vllm.model_executor.models", "sglang": "sglang.srt.models"}
FACTORIES = {
    "vllm": ("vllm.model_executor.layers.rotary_embedding",),
    "sglang": (
        "sglang.srt.layers.rotary_embedding.factory",
        "sglang.srt.layers.rotary_embedding",
    ),
}
CONFIGS = {
    "vllm": r"vllm/transformers_utils/configs/\w+\.py",
    "sglang": r"sglang/srt/configs/\w+\.py",
}
REGISTRIES = {
    "vllm": ("vllm.transformers_utils.config",),
    "sglang": ("sglang.srt.utils.hf_transformers.common", "sglang.srt.utils.hf_transformers_utils"),
}
SHARE = "partial_rotary_factor"
GET_ROPE = ("get_rope", "get_rope_wrapper")
DROPPED: Row = {"scaling": "dropped"}
RENAMES = ("deepseek_yarn", "deepseek_llama_scaling")
FROM_CONFIG = ("setting", "attribute")
BY_POSITION = (
    *("llama_4_scaling", "llama_4_scaling_beta", "attn_temperature_tuning"),
    "dual_chunk_attention_config",
)
"""Members of a config by which attention depends on positions, besides its rotation."""
_NOT_TEXT = re.compile(
    "Vision|Visual|V[iI][tT]|Audio|Image|Video|Speech|Whisper|Encoder|Processor|Processing|Dummy"
    "|Draft|MTP|Eagle|NextN|Loader|Quant|Indexer|CrossAttention"
)
_BY_REGISTRY = ("init_vllm_registered_model", "resolve_model_cls")
_OTHER_DEVICES = ("_cpu", "_npu", "_hip", "_xpu")
_NO_GENERATION = re.compile("Draft|MTP|Eagle|NextN|DSpark|Reward|Classif|Embedding|TorchNative")


class Factory:
    """The function that makes rotary modules, which names and orders its parameters by version."""

    def __init__(self, engine: str, sources: Sources) -> None:
        place = sources.first(FACTORIES[engine], "get_rope")
        if place is None or not isinstance(place.node, ast.FunctionDef):
            raise InputError(
                f"{sources.name}: has no get_rope where earlier versions of {engine} have it, so "
                "its rotation cannot be read; add its new place to tools/observatory/classes.py"
            )
        self.node = place.node
        self.names = [argument.arg for argument in place.node.args.args]
        self.setting = next((name for name in SETTINGS if name in self.names), "")

    def argument(self, reader: Reader, calls: list[tuple[Frame, ast.Call]], name: str) -> Origins:
        """The origins of what these calls hand over as a parameter."""
        at = self.names.index(name) if name in self.names else len(self.names)
        found: set[Origin] = set()
        for frame, call in calls:
            given = next((word.value for word in call.keywords if word.arg == name), None)
            if given is None and len(call.args) > at:
                given = call.args[at]
            found |= {OMITTED} if given is None else reader.origins(given, frame)
        return frozenset(found)


def registry(engine: str, sources: Sources) -> Iterator[tuple[str, Place]]:
    """The class that serves each architecture which generates text."""
    for architecture, place in _registered(engine, sources):
        if place is not None and not _NO_GENERATION.search(architecture):
            yield architecture, place


def _registered(engine: str, sources: Sources) -> Iterator[tuple[str, Place | None]]:
    package = MODELS[engine]
    if engine == "sglang":
        for file in sorted(sources.files):
            if not re.fullmatch(rf"{package.replace('.', '/')}/\w+\.py", file):
                continue
            module = sources.module(file[:-3].replace("/", "."))
            entry = module.constants.get("EntryClass") if module else None
            for name in entry.elts if isinstance(entry, ast.List | ast.Tuple) else [entry]:
                if isinstance(name, ast.Name):
                    yield name.id, sources.resolve(module, name.id)
        return
    module = sources.module(f"{package}.registry")
    constants = module.constants if module else {}
    for table in ("_TEXT_GENERATION", "_MULTIMODAL", "_TRANSFORMERS_SUPPORTED"):
        served = constants.get(f"{table}_MODELS", ast.Dict([], []))
        for architecture, (home, name) in ast.literal_eval(served).items():
            full = home if home.startswith("vllm.") else f"{package}.{home}"
            yield architecture, sources.resolve(sources.module(full), name)


def reach(sources: Sources, start: Place, package: str) -> list[Place]:
    """The classes and functions of models that this one may use, itself first."""
    found, todo = {start.node: start}, [start]
    while todo:
        place = todo.pop()
        names = {n.id for n in ast.walk(place.node) if isinstance(n, ast.Name)}
        for name in sorted(names):  # also those that a table of the module holds
            table = place.module.constants.get(name)
            names |= {n.id for n in ast.walk(table or ast.Pass()) if isinstance(n, ast.Name)}
        others = [sources.resolve(place.module, name) for name in sorted(names)]
        for other in (*others, *_of_modules(sources, place)):
            if other is None or other.node in found or _NOT_TEXT.search(other.name):
                continue
            home = other.module.name
            if not home.startswith((package, f"{package.partition('.')[0]}.models.")):
                if "rotary" in home or not home.startswith(package.partition(".")[0]):
                    continue
                if other.name not in ("get_rope_config", "BailingMoELinearAttention"):
                    continue
            found[other.node] = other
            todo.append(other)
    return list(found.values())


def _of_modules(sources: Sources, place: Place) -> Iterator[Place | None]:
    """The members of imported modules that a class uses."""
    for node in ast.walk(place.node):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            home = place.module.imports.get(node.value.id)
            if home is not None:
                yield sources.resolve(sources.module(".".join(home)), node.attr)


def row_of(engine: str, sources: Sources, place: Place) -> Row:
    """The values that a class hands over."""
    factory = Factory(engine, sources)
    row: Row = {"class": f"{place.module.name}.{place.name}"}
    if ".transformers" in place.module.name or place.name.startswith("TransformersFor"):
        return {**row, "scaling": "transformers"}
    places = reach(sources, place, MODELS[engine])
    reader = Reader(sources, places)
    row |= _members_read(places)
    calls = [pair for name in GET_ROPE for pair in reader.calls(name)]
    if _by_formulas(places):
        elsewhere = [(frame, call) for frame, call in calls if _dead(frame)]
        handed = factory.argument(reader, elsewhere, factory.setting)
        if elsewhere and _scaling(handed) == DROPPED:
            row["on_cpu"] = "dropped"
        calls = [(frame, call) for frame, call in calls if not _dead(frame)]
    calls = [pair for pair in calls if not _for_windows(*pair)] or calls
    if not calls:
        return {**row, **_without_calls(places)}
    scaling = factory.argument(reader, calls, factory.setting)
    own = "base" in factory.names
    base = factory.argument(reader, calls, "base") if own else frozenset()
    layout = factory.argument(reader, calls, "is_neox_style")
    row |= _scaling(scaling)
    if row["scaling"] == "unknown":
        row["why"] = "; ".join(sorted(str(o) for o in scaling))[:160]
    if any(origin.kind == "whole" for origin in base):
        row["base"] = "whole"
    row |= _beside(base, places)
    row["neox"] = _layout(layout, places)
    if engine == "vllm" or any(map(_in_part, calls)):
        row["part"] = True
    if when := _softmax(places):
        row["softmax"] = when
    if _looks_in_none(places):
        row["none_fails"] = True
    renamed = _renames(places)
    return {**row, "renamed": renamed} if renamed else row


def _beside(base: Origins, places: list[Place]) -> Row:
    """The keys that the class reads only next to the rope setting, with their defaults.

    transformers 5 moves rope_theta into the setting, so there the default is what is left.
    """
    found: dict[str, float | None] = {}
    own = {o.inner if o.kind == "whole" and o.inner else o for o in base}
    if own and all(o.kind == "attribute" and o.what == "rope_theta" for o in own):
        found["rope_theta"] = _number({o.inner.what for o in own if o.inner})
    nodes = [node for place in places for node in ast.walk(place.node)]
    inside = [n for n in nodes if isinstance(n, ast.Subscript) or called(n) == "get"]
    keys = (n.slice if isinstance(n, ast.Subscript) else (n.args or [n])[0] for n in inside)  # type: ignore[attr-defined]
    if not any(isinstance(key, ast.Constant) and key.value == SHARE for key in keys):
        asked = [n for n in nodes if called(n) == "getattr" and _names_share(n)]
        plain = [n for n in nodes if isinstance(n, ast.Attribute) and n.attr == SHARE]
        if asked or any("config" in ast.unparse(n.value) for n in plain):
            found[SHARE] = _number({ast.unparse(n.args[2]) for n in asked if len(n.args) > 2})  # type: ignore[attr-defined]
    return {"beside": found} if found else {}


def _names_share(node: ast.AST) -> bool:
    name = node.args[1] if isinstance(node, ast.Call) and len(node.args) > 1 else None
    return isinstance(name, ast.Constant) and name.value == SHARE


def _number(said: set[str]) -> float | None:
    """The one number of these; None if there is none, or several."""
    try:
        (only,) = set(map(float, said))
    except ValueError:
        return None
    return only


def kept(engine: str, sources: Sources) -> dict[str, dict[str, float | None]]:
    """The keys that an engine's config classes keep next to the rope setting, with defaults."""
    found: dict[str, dict[str, float | None]] = {}
    for kind, place in _config_classes(engine, sources):
        own = {
            name: _number({Reader.default(function, name).what})
            for base in reversed(sources.bases(place))
            for function in functions(base.node)
            if function.name == "__init__"
            for name in parameters(function)
            if name in ("rope_theta", SHARE)
        }
        if own:
            found[kind] = own
    return dict(sorted(found.items()))


def configs(engine: str, sources: Sources) -> dict[str, Row]:
    """The config classes that are loaded instead of transformers', if they lose rope_parameters.

    `architecture`: the model class that serves it, where the config class names another one.
    """
    modules = filter(None, map(sources.module, REGISTRIES[engine]))
    found = (module.constants.get("_CONFIG_REGISTRY") for module in modules)
    registry = next(filter(None, found), ast.Dict([], []))
    names = {getattr(n, "id", getattr(n, "value", None)) for n in ast.walk(registry)}
    rows: dict[str, Row] = {}
    for kind, place in _config_classes(engine, sources):
        if place.name in names and any(map(_erases, functions(place.node))):
            row: Row = {"old_keys": True}
            text = ast.unparse(place.node)
            if named := re.search(r"\['architectures'\]\.append\('(\w+)'\)", text):
                row["architecture"] = named[1]
            rows[kind] = row
    return dict(sorted(rows.items()))


def _erases(function: ast.FunctionDef) -> bool:
    """True if the setting of transformers 4, or None, is written over what transformers 5 read."""
    if function.name != "__init__" or SETTINGS[0] in parameters(function):
        return False
    lines = [ast.unparse(line) for line in function.body]
    read = next((n for n, line in enumerate(lines) if line.startswith("super().__init__(")), None)
    return read is not None and any(f"self.{s} = rope_scaling" in lines[read:] for s in SETTINGS)


def _config_classes(engine: str, sources: Sources) -> Iterator[tuple[str, Place]]:
    """The engine's own config classes, registered or not, by model type."""
    homes = sorted(f for f in sources.files if re.match(CONFIGS[engine], f))
    for module in (sources.module(f[:-3].replace("/", ".")) for f in homes):
        for node in module.definitions.values() if module else ():
            if (kind := model_type(node)) is not None:
                yield kind, Place(module, node)  # type: ignore[arg-type]


def model_type(node: ast.AST) -> str | None:
    """The model type that a config class states."""
    for line in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "model_type":
            return line.value.value if isinstance(line.value, ast.Constant) else None  # type: ignore[return-value]
    return None


def _scaling(origins: Origins) -> Row:
    """The part of the setting that arrives.

    None, or a dict of type default, next to the whole setting is for a config that has none, or
    for layers with a window.
    """
    told = {o for o in origins if not (o in (NONE, OMITTED) or _plain(o))}
    if not told:
        return DROPPED
    if told <= WHOLE:
        if OMITTED in origins:
            return {"scaling": "unknown"}
        return {"scaling": "passed", **({"by_layer": True} if OF_LAYER in told else {})}
    (own, *others) = told
    if own.kind != "dict" or others:
        return {"scaling": "unknown"}
    given = {k: v for k, v in own.items if any(o.kind in FROM_CONFIG for o in v)}
    keys = {"keys": sorted(given), "must": sorted(k for k, v in given.items() if len(v) == 1)}
    kinds = {o for o in dict(own.items).get("rope_type", ()) if o.what != "default"}
    if len(kinds) == 1 and "rope_type" not in given:
        return {"scaling": "fixed", "type": kinds.pop().what, **keys}
    return {"scaling": "fixed", **keys} if "rope_type" in given else {"scaling": "unknown"}


def _plain(origin: Origin) -> bool:
    """True if it is a dict without any scaling."""
    kinds = dict(origin.items).get("rope_type", frozenset())
    return origin.kind == "dict" and all(o == Origin("constant", "default") for o in kinds)


def _layout(origins: Origins, places: list[Place]) -> str:
    later = {
        ast.unparse(line.value)
        for place in places
        for line in ast.walk(place.node)
        if isinstance(line, ast.Assign)
        if any(isinstance(t, ast.Attribute) and t.attr == "is_neox_style" for t in line.targets)
        if not ast.unparse(line.targets[0]).startswith("self.")
    }
    if later:
        return "halves" if later == {"True"} else "neighbours" if later == {"False"} else "unknown"
    said = {"True" if o == OMITTED else o.what for o in origins if o.kind not in FROM_CONFIG}
    known = {frozenset({"True"}): "halves", frozenset({"False"}): "neighbours"}
    if any(o.kind in FROM_CONFIG for o in origins):
        return "by the config"
    return known.get(frozenset(said), "unknown")


def _renames(places: list[Place]) -> dict[str, str]:
    """The types that a class writes over that of the setting, with the condition of each."""
    found: dict[str, str] = {}
    for place in places:
        for line in ast.walk(place.node):
            if not isinstance(line, ast.Assign):
                continue
            (target, *_) = line.targets
            if not isinstance(target, ast.Subscript) or ast.unparse(target.slice) != "'rope_type'":
                continue
            ways = [("", line.value)]
            if isinstance(line.value, ast.IfExp):
                ways = [(_key_of(line.value.test), line.value.body), ("", line.value.orelse)]
            for when, value in ways:
                if isinstance(value, ast.Constant) and value.value in RENAMES:
                    found[str(value.value)] = when
    return found


def _softmax(places: list[Place]) -> list[str]:
    """The conditions under which a class multiplies its logits by DeepSeek's mscale, squared."""
    return sorted(
        {
            " ".join(ast.unparse(node.test).split())
            for place in places
            for node in ast.walk(place.node)
            if isinstance(node, ast.If)
            for line in node.body
            if isinstance(line, ast.Assign | ast.AugAssign) and "scaling" in ast.unparse(line)
            if ast.unparse(line.value).count("mscale") >= 2 and "yarn_get" not in ast.unparse(line)
        }
    )


def _looks_in_none(places: list[Place]) -> bool:
    """True if a class looks for a key in a setting that may be None."""
    inside = (
        node.comparators[0]
        for place in places
        for node in ast.walk(place.node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In)
    )
    names = (n.args[1] for n in inside if called(n) == "getattr" and len(n.args) == 3)  # type: ignore[attr-defined]
    return any(isinstance(name, ast.Constant) and name.value == SETTINGS[0] for name in names)


def _key_of(test: ast.expr) -> str:
    """`attention_factor == 1.0` of `….get("attention_factor") == 1.0`."""
    if isinstance(test, ast.Compare) and isinstance(test.comparators[0], ast.Constant):
        keys = [str(n.value) for n in ast.walk(test.left) if isinstance(n, ast.Constant)]
        if len(keys) == 1:
            return f"{keys[0]} == {test.comparators[0].value!r}"
    return ast.unparse(test)


def _members_read(places: list[Place]) -> Row:
    read = set()
    for place in places:
        for node in ast.walk(place.node):
            name = getattr(node, "attr", None) or getattr(node, "value", None)
            if not isinstance(name, str) or name not in BY_POSITION:
                continue
            if not ast.unparse(node).startswith("self."):
                read.add(name)
    return {"reads": sorted(read)} if read else {}


def _in_part(where: tuple[Frame, ast.Call]) -> bool:
    """True if a call of SGLang's may turn less than the whole head."""
    _, call = where
    words = {word.arg: ast.unparse(word.value) for word in call.keywords}
    for name, given in zip(("head_size", "rotary_dim"), call.args, strict=False):
        words[name] = ast.unparse(given)
    return "partial_rotary_factor" in words or words.get("rotary_dim") != words.get("head_size")


def _for_windows(frame: Frame, call: ast.Call) -> bool:
    """True if a call is in a branch that only layers with a window take."""
    return any(
        isinstance(node, ast.If)
        and local(node.test)
        and any(inside is call for line in node.body for inside in ast.walk(line))
        for node in ast.walk(frame.function)
    )


def _dead(frame: Frame) -> bool:
    """True if nothing that runs on a GPU in the class uses the module that is built here."""
    methods = {function.name: function for function in functions(frame.place.node)}
    starts = [name for name in methods if name.startswith("forward")]
    todo, seen = [name for name in starts if not name.endswith(_OTHER_DEVICES)], set()
    while todo:
        name = todo.pop()
        if name in seen or name not in methods:
            continue
        seen.add(name)
        used = {node.attr for node in ast.walk(methods[name]) if isinstance(node, ast.Attribute)}
        if "rotary_emb" in used:
            return False
        todo += (own for own in used if not own.endswith(_OTHER_DEVICES))
    return bool(starts)


def _by_formulas(places: list[Place]) -> bool:
    """True if a rotary module of the model's own computes with transformers' formulas."""
    return any(
        isinstance(node, ast.Subscript) and ast.unparse(node.value) == "ROPE_INIT_FUNCTIONS"
        for place in places
        for node in ast.walk(place.node)
    )


def _without_calls(places: list[Place]) -> Row:
    """A class whose rotary module is its own, or whose language model is another's."""
    if _by_formulas(places):
        return {"scaling": "passed", "by": "transformers' formulas"}
    nodes = [node for place in places for node in ast.walk(place.node)]
    loads = [node for node in nodes if called(node) in _BY_REGISTRY]
    if loads:
        words = [w.value for n in loads for w in n.keywords if w.arg == "architectures"]  # type: ignore[attr-defined]
        named = [n.value for w in words for n in ast.walk(w) if isinstance(n, ast.Constant)]
        named = [name for name in named if isinstance(name, str)]
        return {"scaling": "inner", **({"architecture": named[0]} if len(named) == 1 else {})}
    rotary = any("rotary" in f"{getattr(n, 'attr', '')} {getattr(n, 'id', '')}" for n in nodes)
    why = "a rotary module of its own" if rotary else "no rotary module in reach"
    return {"scaling": "unknown", "why": why}


def types(engine: str, sources: Sources) -> dict[str, Row]:
    """The rope types that the rotary modules know, with the keys that each must and may have."""
    factory = Factory(engine, sources)
    found: dict[str, Row] = {}
    for node in ast.walk(factory.node):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        if ast.unparse(node.test.left) != "scaling_type":
            continue
        keys = _keys(ast.Module(node.body, []), factory.setting)
        for name in (
            ast.literal_eval(node.test.comparators[0])
            if isinstance(node.test.ops[0], ast.In)
            else [ast.literal_eval(node.test.comparators[0])]
        ):
            found[name] = keys
    return dict(sorted(found.items()))


def _keys(body: ast.AST, setting: str) -> Row:
    must, may = set(), set()
    for node in ast.walk(body):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == setting:
            must.add(ast.literal_eval(node.slice))
        elif isinstance(node, ast.Compare) and ast.unparse(node.left) == "k":
            may |= set(ast.literal_eval(node.comparators[0]))
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
            may.add(node.left.value)
        elif called(node) == "get" and ast.unparse(node.func.value) == setting:  # type: ignore[attr-defined]
            may.add(ast.literal_eval(node.args[0]))  # type: ignore[attr-defined]
        elif called(node) == "_get_rope_param":
            may.add(ast.literal_eval(node.args[1]))  # type: ignore[attr-defined]
    return {"must": sorted(must - may), "may": sorted(may)}
