"""Reads what the Python sources in a wheel hand to a function, without running them.

A value is read back to where it comes from: through assignments, attributes of `self`, base
classes, and the calls that construct a class. What comes out is a set of origins, one for each way
that the code may take:

    setting    the model's rope setting, whole, or one key of it
    attribute  a member of the config next to the setting, with the default that getattr has for it
    dict       a dict that the code writes itself, with the origins of its values
    constant   a value that stands in the code
    omitted    nothing is handed over
    whole      cut by int()
    unknown    anything else
"""

from __future__ import annotations

import ast
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from ropewalk.errors import InputError, shortened

SETTINGS = ("rope_parameters", "rope_scaling")
DEPTH = 24
MOST_STEPS = 300_000
"""The most steps of reading values back in one class; made-up code could ask for any number."""
Scope = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Origin:
    """The origin of a value."""

    kind: str
    what: str = ""
    items: tuple[tuple[str, frozenset[Origin]], ...] = ()
    inner: Origin | None = None

    def __str__(self) -> str:
        inside = [str(self.inner)] if self.inner else []
        inside += [f"{key}: {' or '.join(sorted(map(str, own)))}" for key, own in self.items]
        return f"{self.kind} {self.what}".strip() + (f" ({', '.join(inside)})" if inside else "")


Origins = frozenset[Origin]
WHOLE_SETTING, OF_LAYER = Origin("setting"), Origin("setting", "of a layer type")
WHOLE = frozenset({WHOLE_SETTING, OF_LAYER})
OMITTED = Origin("omitted")
NONE = Origin("constant", "None")


def unknown(node: ast.AST | str) -> Origins:
    text = node if isinstance(node, str) else " ".join(ast.unparse(node).split())
    return frozenset({Origin("unknown", text[:60])})


@dataclass(frozen=True, eq=False)
class Module:
    """One source file."""

    name: str
    tree: ast.Module
    package: bool

    @cached_property
    def definitions(self) -> dict[str, Scope]:
        found: dict[str, Scope] = {}
        for node in _outside_functions(self.tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.setdefault(node.name, node)
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Module and name by the name here; the first of those that conditions choose among."""
        found: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                source = self._absolute(node)
                for alias in node.names:
                    found.setdefault(alias.asname or alias.name, (source, alias.name))
        return found

    @cached_property
    def stars(self) -> tuple[str, ...]:
        """The modules imported whole."""
        nodes = (node for node in self.tree.body if isinstance(node, ast.ImportFrom))
        return tuple(self._absolute(node) for node in nodes if node.names[0].name == "*")

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        return {
            target.id: node.value
            for node in _outside_functions(self.tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.package]
        return ".".join((*parts, *((node.module,) if node.module else ())))


@dataclass(frozen=True, eq=False)
class Place:
    """A class, or a function outside of one, and its module."""

    module: Module
    node: Scope

    @property
    def name(self) -> str:
        return self.node.name


MOST_ENTRIES = 200_000
MOST_BYTES = 8 * 2**20
"""The most bytes of one source file; vLLM, SGLang and transformers have half a million at most."""
MOST_READ = 64 * 2**20
"""The most bytes that are unpacked from one wheel."""


class Sources:
    """The modules of one wheel, parsed when they are needed.

    A wheel may come from anywhere: nothing of it is extracted or run, and sizes are bounded.
    """

    def __init__(self, wheel: Path) -> None:
        self.name = wheel.name
        if not wheel.is_file():  # a pipe would be waited for
            raise InputError(f"{wheel}: there is no such file; check the path")
        try:
            self.archive = zipfile.ZipFile(wheel)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{wheel}: is not a wheel: {error}; download it again") from None
        names = [entry.filename for entry in self.archive.infolist()]
        if len(names) > MOST_ENTRIES:
            raise InputError(f"{wheel}: has more than {MOST_ENTRIES:,} entries; check the file")
        for name in names:
            if name.startswith("/") or "\\" in name or ".." in name.split("/"):
                raise InputError(
                    f"{wheel}: the entry {shortened(name)} leads out of it; do not install it"
                )
        if len(set(names)) != len(names):
            raise InputError(f"{wheel}: has an entry twice, so the installed code is uncertain")
        self.files = {name for name in names if name.endswith(".py")}
        self.modules: dict[str, Module | None] = {}
        self.left = MOST_READ

    def text(self, name: str) -> bytes:
        """The content of one entry."""
        try:
            with self.archive.open(name) as entry:
                content = entry.read(MOST_BYTES + 1)
        except (OSError, ValueError, RuntimeError, EOFError, KeyError, NotImplementedError,
                zipfile.BadZipFile, zlib.error) as error:  # fmt: skip
            raise InputError(
                f"{self.name}: {shortened(name)} cannot be unpacked: {error}; download it again"
            ) from None
        self.left -= len(content)
        if len(content) > MOST_BYTES or self.left < 0:
            raise InputError(
                f"{self.name}: {shortened(name)} unpacks to more than the {MOST_BYTES:,} bytes of "
                f"a source file, or all of them to more than {MOST_READ:,}; check the file"
            )
        return content

    @cached_property
    def metadata(self) -> dict[str, list[str]]:
        """The fields of its METADATA."""
        found: dict[str, list[str]] = {}
        names = [
            n for n in self.archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)
        ]
        for line in self.text(names[0]).decode("utf-8", "replace").splitlines() if names else ():
            if not line:
                break  # the description begins
            key, _, value = line.partition(": ")
            found.setdefault(key, []).append(value)
        return found

    @property
    def version(self) -> str:
        """Its version by the metadata, which is only a label; empty if it states none."""
        return self.metadata.get("Version", [""])[0]

    def requirement(self, package: str) -> str:
        """The versions of another package that it asks for; empty if it says nothing."""
        for line in self.metadata.get("Requires-Dist", ()):
            found = re.match(rf"{package}(?:\[[^]]*\])?\s*\(?([=<>!~][^;)]*)", line)
            if found and "extra" not in line:
                return found[1].strip()
        return ""

    def module(self, name: str) -> Module | None:
        if name not in self.modules:
            path = name.replace(".", "/")
            file = next((f for f in (f"{path}.py", f"{path}/__init__.py") if f in self.files), None)
            self.modules[name] = None
            if file is not None:
                try:
                    tree = ast.parse(self.text(file))
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return None  # for this Python, it is no source
                self.modules[name] = Module(name, tree, file.endswith("__init__.py"))
        return self.modules[name]

    def resolve(self, module: Module | None, name: str, depth: int = 8) -> Place | None:
        """The class or function that a name stands for in a module."""
        if module is None or not depth:
            return None
        if name in module.definitions:
            return Place(module, module.definitions[name])
        if name in module.imports:
            source, own = module.imports[name]
            return self.resolve(self.module(source), own, depth - 1)
        alias = module.constants.get(name)
        if isinstance(alias, ast.Name):
            return self.resolve(module, alias.id, depth - 1)
        others = (self.resolve(self.module(star), name, depth - 1) for star in module.stars)
        return next((place for place in others if place is not None), None)

    def first(self, modules: Iterable[str], name: str) -> Place | None:
        """The class or function of a name in the first of these modules that has it."""
        places = (self.resolve(self.module(module), name) for module in modules)
        return next((place for place in places if place is not None), None)

    def bases(self, place: Place) -> list[Place]:
        """The class and its bases, as far as they are in the wheel."""
        found = [place]
        for base in place.node.bases if isinstance(place.node, ast.ClassDef) else ():
            resolved = self.resolve(place.module, base.id) if isinstance(base, ast.Name) else None
            if resolved is not None and resolved.node not in [known.node for known in found]:
                found += self.bases(resolved)
        return found


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a module, also those under a condition."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _outside_functions(node)


@dataclass(frozen=True, eq=False)
class Frame:
    """A function of a class, or one of its own, whose values are asked for."""

    place: Place
    function: ast.FunctionDef
    bound: dict[str, Origins] = field(default_factory=dict)
    """The origins of its parameters, if known."""


class Reader:
    """Reads values in what a class can reach."""

    def __init__(self, sources: Sources, reach: Sequence[Place]) -> None:
        self.sources, self.reach, self.steps = sources, reach, MOST_STEPS

    def calls(self, name: str) -> Iterator[tuple[Frame, ast.Call]]:
        """Every call of a function by this name, with its place."""
        for frame, call in self._calls:
            if called(call) == name:
                yield frame, call

    @cached_property
    def _calls(self) -> list[tuple[Frame, ast.Call]]:
        return [
            (Frame(place, function), node)
            for place in self.reach
            for function in functions(place.node)
            for node in ast.walk(function)
            if isinstance(node, ast.Call)
        ]

    def origins(self, node: ast.expr, frame: Frame, depth: int = DEPTH) -> Origins:
        """The origins of an expression's value."""
        self.steps -= 1
        if depth <= 0 or self.steps < 0:
            return unknown(node)
        read = getattr(self, f"_{type(node).__name__.lower()}", None)
        return read(node, frame, depth - 1) if read else unknown(node)

    def _constant(self, node: ast.Constant, frame: Frame, depth: int) -> Origins:
        return frozenset({Origin("constant", str(node.value))})

    def _dict(self, node: ast.Dict, frame: Frame, depth: int) -> Origins:
        items: dict[str, Origins] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            own = self.origins(value, frame, depth)
            if key is None and own & WHOLE:
                return own & WHOLE  # with a key or two of its own
            items[ast.unparse(key).strip("'") if key else "**"] = own
        return frozenset({Origin("dict", "", tuple(sorted(items.items(), key=lambda i: i[0])))})

    def _ifexp(self, node: ast.IfExp, frame: Frame, depth: int) -> Origins:
        return self.origins(node.body, frame, depth) | self.origins(node.orelse, frame, depth)

    def _boolop(self, node: ast.BoolOp, frame: Frame, depth: int) -> Origins:
        return frozenset().union(*(self.origins(value, frame, depth) for value in node.values))

    def _unaryop(self, node: ast.UnaryOp, frame: Frame, depth: int) -> Origins:
        known = self.origins(node.operand, frame, depth)
        turned = {"True": "False", "False": "True"}
        if not isinstance(node.op, ast.Not) or any(o.kind == "unknown" for o in known):
            return unknown(node)
        return frozenset(
            Origin("constant", turned[o.what]) if o.what in turned else o for o in known
        )

    def _subscript(self, node: ast.Subscript, frame: Frame, depth: int) -> Origins:
        return self._key(self.origins(node.value, frame, depth), node.slice, node)

    def _key(self, owners: Origins, key: ast.expr, node: ast.AST) -> Origins:
        found: set[Origin] = set()
        for owner in owners:
            if owner.kind == "constant":
                continue  # None has no keys: that way is not taken
            if owner.kind == "dict" and isinstance(key, ast.Constant):
                found |= dict(owner.items).get(str(key.value), frozenset())
                continue
            if owner.kind == "tuple" and isinstance(key, ast.Constant):
                found |= dict(owner.items).get(str(key.value), unknown(node))
            elif owner not in WHOLE:
                found |= unknown(node)
            elif isinstance(key, ast.Constant) and not str(key.value).endswith("attention"):
                found.add(Origin("setting", str(key.value)))
            else:
                found.add(OF_LAYER)
        return frozenset(found) or unknown(node)

    def _attribute(self, node: ast.Attribute, frame: Frame, depth: int) -> Origins:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._own(node, frame, depth)
        return self._of_config(node.value, node.attr) or unknown(node)

    def _of_config(self, owner: ast.expr, name: str) -> Origins | None:
        last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        if not any(word in str(last).lower() for word in ("config", "cfg")):
            return None
        return frozenset({WHOLE_SETTING if name in SETTINGS else Origin("attribute", name)})

    def _own(self, node: ast.Attribute, frame: Frame, depth: int) -> Origins:
        """An attribute of self: all that is assigned to it anywhere in the class."""
        found: set[Origin] = set()
        for place in self.sources.bases(frame.place):
            for function in functions(place.node):
                for value, index in assigned(function, ast.unparse(node)):
                    found |= self._element(value, index, Frame(place, function), depth)
            for line in place.node.body:
                targets = line.targets if isinstance(line, ast.Assign) else []
                targets = [line.target] if isinstance(line, ast.AnnAssign) else targets
                if any(isinstance(t, ast.Name) and t.id == node.attr for t in targets):
                    value = line.value  # type: ignore[attr-defined]
                    found |= self.origins(value, frame, depth) if value else frozenset()
            if found:
                break
        return frozenset(found) or unknown(node)

    def _element(self, value: ast.expr, index: int | None, frame: Frame, depth: int) -> Origins:
        known = self.origins(value, frame, depth)
        return known if index is None else self._key(known, ast.Constant(index), value)

    def _tuple(self, node: ast.Tuple, frame: Frame, depth: int) -> Origins:
        items = ((str(n), self.origins(e, frame, depth)) for n, e in enumerate(node.elts))
        return frozenset({Origin("tuple", "", tuple(items))})

    def _name(self, node: ast.Name, frame: Frame, depth: int) -> Origins:
        found: set[Origin] = set()
        for value, index in assigned(frame.function, node.id):
            if not any(isinstance(n, ast.Name) and n.id == node.id for n in ast.walk(value)):
                found |= self._element(value, index, frame, depth)
            elif called(value) == "int":
                found.add(Origin("whole", "", (), WHOLE_SETTING))
        if node.id in parameters(frame.function):
            found |= frame.bound.get(node.id) or self._parameter(node.id, frame, depth)
        if not found and node.id in frame.place.module.constants:
            return self.origins(frame.place.module.constants[node.id], frame, depth)
        return frozenset(found) or unknown(node)

    def _parameter(self, name: str, frame: Frame, depth: int) -> Origins:
        """The origins of a parameter's value, by the calls of the function."""
        found: set[Origin] = set()
        constructs = frame.function.name == "__init__"
        owner = frame.place.name if constructs else frame.function.name
        for caller, call in self._calls:
            if self._is_of(call, owner, caller.place, frame):
                given = handed(call, frame.function, name)
                if given is None:
                    found.add(self.default(frame.function, name))
                else:
                    found |= self.origins(given, caller, depth)
        if found:
            return frozenset(found)
        for caller, call in self._calls:  # the class goes by another name where it is called
            for word in call.keywords if not called(call).startswith("get_rope") else ():
                if word.arg == name and name.startswith("rope_"):
                    found |= self.origins(word.value, caller, depth - 4)
        return frozenset(found) or unknown(f"parameter {name} of {owner}")

    def _is_of(self, call: ast.Call, owner: str, place: Place, frame: Frame) -> bool:
        if called(call) == owner:
            return True
        if ast.unparse(call.func) != "super().__init__" or frame.function.name != "__init__":
            return False
        return any(base.node is frame.place.node for base in self.sources.bases(place)[1:])

    @staticmethod
    def default(function: ast.FunctionDef, name: str) -> Origin:
        default = defaults(function).get(name)
        if not isinstance(default, ast.Constant) or default.value is None:
            return OMITTED
        return Origin("constant", str(default.value))

    def _call(self, node: ast.Call, frame: Frame, depth: int) -> Origins:
        name = called(node)
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            known = self._of_config(node.args[0], str(node.args[1].value))
            if known is None or known & WHOLE or len(node.args) < 3:
                return known or unknown(node)
            defaults = self.origins(node.args[2], frame, depth)
            return frozenset(Origin(o.kind, o.what, (), d) for o in known for d in defaults)
        if name in ("int", "round"):
            inner = self.origins(node.args[0], frame, depth)
            return frozenset(Origin("whole", "", (), own) for own in inner)
        if name == "dict" and node.keywords and not node.args:
            items = ((w.arg or "**", self.origins(w.value, frame, depth)) for w in node.keywords)
            return frozenset({Origin("dict", "", tuple(items))})
        if name in ("float", "dict", "copy", "deepcopy"):
            owner = node.args[0] if node.args else getattr(node.func, "value", None)
            return self.origins(owner, frame, depth) if owner is not None else unknown(node)
        if name == "get" and isinstance(node.func, ast.Attribute) and node.args:
            found = self._key(self.origins(node.func.value, frame, depth), node.args[0], node)
            others = node.args[1:] or [ast.Constant(None)]
            default = (self.origins(own, frame, depth) for own in others)
            return found.union(*default)
        place = self.sources.resolve(frame.place.module, name)
        if place is None or not isinstance(place.node, ast.FunctionDef):
            return unknown(node)
        own = place.node
        bound = {
            name: self.origins(given, frame, depth)
            for name in parameters(own)
            if (given := handed(node, own, name)) is not None
        }
        inside = Frame(place, own, bound)
        ends = [line.value for line in ast.walk(own) if isinstance(line, ast.Return)]
        returned = (self.origins(end, inside, depth) for end in ends if end is not None)
        return frozenset().union(*returned) or unknown(node)


@cache
def functions(node: Scope) -> tuple[ast.FunctionDef, ...]:
    own = (node,) if isinstance(node, ast.FunctionDef) else tuple(node.body)
    return tuple(line for line in own if isinstance(line, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> list[str]:
    own = function.args
    return [each.arg for each in (*own.posonlyargs, *own.args, *own.kwonlyargs)]


def defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The expressions of its parameters' defaults, by name."""
    own = function.args
    pairs = (
        *zip(reversed([*own.posonlyargs, *own.args]), reversed(own.defaults), strict=False),
        *zip(own.kwonlyargs, own.kw_defaults, strict=True),
    )
    return {argument.arg: value for argument, value in pairs if value is not None}


def called(node: ast.AST) -> str:
    """The last part of the name of the called function."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def handed(call: ast.Call, function: ast.FunctionDef, name: str) -> ast.expr | None:
    """The expression that a call hands over as a parameter."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    own = function.args
    names = [argument.arg for argument in (*own.posonlyargs, *own.args)]
    names = names[1:] if names[:1] == ["self"] else names
    if name in names and names.index(name) < len(call.args):
        return call.args[names.index(name)]
    return None


def assigned(function: ast.FunctionDef, name: str) -> list[tuple[ast.expr, int | None]]:
    """Values assigned to a name, with any index in a tuple; not in branches for local layers."""
    return _assignments(function).get(name, [])


@cache
def _assignments(function: ast.FunctionDef) -> dict[str, list[tuple[ast.expr, int | None]]]:
    found: dict[str, list[tuple[ast.expr, int | None]]] = {}
    for node in _taken(function):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or not node.value:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            for n, part in enumerate(parts):
                if isinstance(part, ast.Name | ast.Attribute):
                    index = n if isinstance(target, ast.Tuple) else None
                    found.setdefault(ast.unparse(part), []).append((node.value, index))
    return found


def _taken(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes under this one, without branches that only layers with a window take."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and local(child.test):
            for line in child.orelse:
                yield from _taken(line)
        else:
            yield from _taken(child)


def local(test: ast.expr) -> bool:
    """True if a condition holds for layers with a window only."""
    said = ast.unparse(test)
    return (
        "not " not in said
        and "!=" not in said
        and any(
            word in said for word in ("is_sliding", "'sliding_attention'", "is_local", "is_swa")
        )
    )
