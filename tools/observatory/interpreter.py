"""Computes what a small Python function returns, from its syntax tree, without running it.

It knows numbers, texts, lists, dicts, conditions and loops, and functions of the same wheel. What
comes from elsewhere is `Unknown`: it can be passed on, but a decision that depends on it ends the
reading with `Unreadable`. So does code that takes too many steps.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tools.observatory.sources import Place, Sources, defaults, parameters

STEPS = 20_000
DEPTH = 12
LARGEST = 2**63
"""No length or factor is larger; whole numbers of Python grow without end."""


class Unreadable(Exception):
    """The code contains something that is not known here."""


class Raised(Exception):
    """The code raises an error."""


class _Unknown:
    """A value from outside of the wheel."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = _Unknown()
Values = dict[str, Any]


class Members:
    """An object of the code, by its members; what it lacks is absent, as for `getattr`."""

    def __init__(self, **members: Any) -> None:
        self.members = members


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Left(Exception):
    """`break` or `continue`, which end a loop or one pass of it."""


_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "min": min,
    "max": max,
    "len": len,
    "bool": bool,
    "set": set,
    "list": list,
    "tuple": tuple,
    "any": any,
    "all": all,
    "abs": abs,
    "round": round,
}
_TYPES = {"dict": dict, "list": list, "str": str, "int": int, "float": float, "bool": bool}
_METHODS: Mapping[type, tuple[str, ...]] = {
    dict: ("get", "keys", "values", "items"),
    set: ("issubset",),
    str: ("endswith", "lower", "startswith"),
}


class Interpreter:
    """Follows functions of one wheel; `given` are the values of names from outside of it."""

    def __init__(self, sources: Sources, given: Values) -> None:
        self.sources, self.given, self.steps = sources, given, STEPS

    def result(self, place: Place, arguments: Values) -> Any:
        """The return value of a function; a generator returns its list."""
        try:
            return self.call(place, arguments, DEPTH)
        except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise Unreadable(f"{type(error).__name__} in {place.name}") from None

    def call(self, place: Place, arguments: Values, depth: int) -> Any:
        function = place.node
        if not isinstance(function, ast.FunctionDef) or depth <= 0:
            raise Unreadable(place.name)
        local: Values = {"": []}
        usual = defaults(function)
        frame = _Frame(self, place, local, depth)
        for name in parameters(function):
            if name in arguments:
                local[name] = arguments[name]
            else:
                local[name] = frame.value(usual[name]) if name in usual else UNKNOWN
        try:
            frame.run(function.body)
        except _Returned as returned:
            if not local[""]:
                return returned.value
        yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
        return local[""] if yields else None


class _Frame:
    def __init__(self, of: Interpreter, place: Place, local: Values, depth: int) -> None:
        self.of, self.place, self.local, self.depth = of, place, local, depth

    def run(self, body: list[ast.stmt]) -> None:
        for line in body:
            self._step(line)
            self._line(line)

    def _step(self, node: ast.AST) -> None:
        self.of.steps -= 1
        if self.of.steps < 0:
            raise Unreadable(f"more than {STEPS} steps")

    def _line(self, line: ast.stmt) -> None:
        match line:
            case ast.Expr():
                self.value(line.value)
            case ast.Assign():
                value = self.value(line.value)
                for target in line.targets:
                    self._bind(target, value)
            case ast.AnnAssign():
                if line.value is not None:
                    self._bind(line.target, self.value(line.value))
            case ast.AugAssign():
                self._bind(line.target, self._binary(line.op, line.target, line.value))
            case ast.If():
                self.run(line.body if self._truth(line.test) else line.orelse)
            case ast.For():
                for item in self._items(line.iter):
                    self._bind(line.target, item)
                    try:
                        self.run(line.body)
                    except _Left as left:
                        if left.args[0] == "break":
                            return
                self.run(line.orelse)
            case ast.Return():
                raise _Returned(None if line.value is None else self.value(line.value))
            case ast.Raise():
                raise Raised(ast.unparse(line)[:80])
            case ast.Pass() | ast.Import() | ast.ImportFrom():
                pass
            case ast.Break():
                raise _Left("break")
            case ast.Continue():
                raise _Left("continue")
            case _:
                raise Unreadable(type(line).__name__)

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.local[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, tuple | list):
            for part, each in zip(target.elts, value, strict=False):
                self._bind(part, each)
        elif isinstance(target, ast.Tuple):
            for part in target.elts:
                self._bind(part, UNKNOWN)
        else:
            raise Unreadable(ast.unparse(target)[:60])

    def _items(self, node: ast.expr) -> list[Any]:
        found = self.value(node)
        if not isinstance(found, list | tuple | set | dict):
            raise Unreadable(ast.unparse(node)[:60])
        self.of.steps -= len(found)  # each takes memory
        return list(found)

    def _truth(self, node: ast.expr) -> bool:
        found = self.value(node)
        if isinstance(found, _Unknown):
            raise Unreadable(ast.unparse(node)[:60])
        return True if isinstance(found, Members | Place) else bool(found)

    def value(self, node: ast.expr) -> Any:
        self._step(node)
        read = getattr(self, f"_{type(node).__name__.lower()}", None)
        return UNKNOWN if read is None else read(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.local:
            return self.local[node.id]
        if node.id in self.of.given:
            return self.of.given[node.id]
        module = self.place.module
        if node.id in module.constants:
            return _Frame(self.of, self.place, {"": []}, self._deeper()).value(
                module.constants[node.id]
            )
        source, name = module.imports.get(node.id, ("", ""))
        other = self.of.sources.module(source) if source else None
        if other is not None and name in other.constants:
            there = Place(other, self.place.node)
            return _Frame(self.of, there, {"": []}, self._deeper()).value(other.constants[name])
        return self.of.sources.resolve(module, node.id) or UNKNOWN

    def _deeper(self) -> int:
        if self.depth <= 0:
            raise Unreadable(self.place.name)
        return self.depth - 1

    def _elements(self, nodes: list[ast.expr]) -> list[Any]:
        found = []
        for each in nodes:
            if isinstance(each, ast.Starred):
                found += self._items(each.value)
            else:
                found.append(self.value(each))
        return found

    def _list(self, node: ast.List) -> Any:
        return self._elements(node.elts)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._elements(node.elts))

    def _set(self, node: ast.Set) -> Any:
        return set(self._elements(node.elts))

    def _dict(self, node: ast.Dict) -> Any:
        found: Values = {}
        for key, value in zip(node.keys, node.values, strict=True):
            own = self.value(value)
            if key is not None:
                found[self.value(key)] = own
            elif isinstance(own, dict):
                found |= own
            else:
                return UNKNOWN
        return found

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if self._truth(node.test) else node.orelse)

    def _boolop(self, node: ast.BoolOp) -> Any:
        found: Any = UNKNOWN
        for each in node.values:
            found = self.value(each)
            if isinstance(found, _Unknown):
                raise Unreadable(ast.unparse(each)[:60])
            if bool(found) == isinstance(node.op, ast.Or):
                break
        return found

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._truth(node.operand)
        found = self.value(node.operand)
        return -found if isinstance(node.op, ast.USub) and _number(found) else UNKNOWN

    def _binop(self, node: ast.BinOp) -> Any:
        return self._binary(node.op, node.left, node.right)

    def _binary(self, kind: ast.AST, left: ast.expr, right: ast.expr) -> Any:
        one, other = self.value(left), self.value(right)
        return self._apply(kind, one, other)

    def _apply(self, kind: ast.AST, one: Any, other: Any) -> Any:
        compute = _BINARY.get(type(kind))
        identity = isinstance(kind, ast.Is | ast.IsNot) and None in (one, other)
        if compute is None or (not identity and UNKNOWN in (one, other)):
            return UNKNOWN
        arithmetic = isinstance(kind, ast.operator)
        if arithmetic and not (_number(one) and _number(other)):
            return UNKNOWN
        try:
            return compute(one, other)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise Raised(str(error)) from None

    def _compare(self, node: ast.Compare) -> Any:
        one = self.value(node.left)
        for kind, right in zip(node.ops, node.comparators, strict=True):
            other = self.value(right)
            held = self._apply(kind, one, other)
            if isinstance(held, _Unknown) or not held:
                return held
            one = other
        return True

    def _namedexpr(self, node: ast.NamedExpr) -> Any:
        found = self.value(node.value)
        self._bind(node.target, found)
        return found

    def _joinedstr(self, node: ast.JoinedStr) -> Any:
        return ""  # messages decide nothing

    def _subscript(self, node: ast.Subscript) -> Any:
        owner, key = self.value(node.value), self.value(node.slice)
        if UNKNOWN in (owner, key) or not isinstance(owner, dict | list | tuple):
            return UNKNOWN
        try:
            return owner[key]
        except (KeyError, IndexError, TypeError) as error:
            raise Raised(f"{type(error).__name__} {error}") from None

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Members):
            if node.attr not in owner.members:
                raise Raised(f"no {node.attr}")
            return owner.members[node.attr]
        return UNKNOWN

    def _generatorexp(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp) -> Any:
        return [self.value(node.elt) for _ in self._passes(node.generators)]

    _listcomp = _setcomp = _generatorexp

    def _dictcomp(self, node: ast.DictComp) -> Any:
        passes = self._passes(node.generators)
        return {self.value(node.key): self.value(node.value) for _ in passes}

    def _passes(self, generators: list[ast.comprehension]) -> Iterator[None]:
        if len(generators) > 1:
            raise Unreadable("a loop in a loop")
        loop = generators[0]
        for item in self._items(loop.iter):
            self._bind(loop.target, item)
            if all(self._truth(test) for test in loop.ifs):
                yield

    def _yield(self, node: ast.Yield) -> Any:
        self.local[""].append(None if node.value is None else self.value(node.value))

    def _yieldfrom(self, node: ast.YieldFrom) -> Any:
        self.local[""] += self._items(node.value)

    def _call(self, node: ast.Call) -> Any:
        given = [self.value(each) for each in node.args]
        words = {word.arg: self.value(word.value) for word in node.keywords if word.arg}
        if isinstance(node.func, ast.Attribute):
            return self._method(node.func, given)
        name = getattr(node.func, "id", "")
        if name == "getattr" and len(given) > 1 and isinstance(given[0], Members):
            if given[1] in given[0].members:
                return given[0].members[given[1]]
            if len(given) < 3:
                raise Raised(f"no {given[1]}")
            return given[2]
        if name == "hasattr" and isinstance(given[0], Members):
            return given[1] in given[0].members
        if name == "isinstance" and isinstance(node.args[1], ast.Name | ast.Tuple):
            names = [getattr(n, "id", "") for n in ast.walk(node.args[1])]
            known = [_TYPES[n] for n in names if n in _TYPES]
            return UNKNOWN if isinstance(given[0], _Unknown) else isinstance(given[0], tuple(known))
        if name in _BUILTINS:
            if _has_unknown(given):
                return UNKNOWN
            try:
                return _BUILTINS[name](*given)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise Raised(str(error)) from None
        place = self.of.sources.resolve(self.place.module, name) if name else None
        if place is None or not isinstance(place.node, ast.FunctionDef):
            return UNKNOWN
        names = [argument.arg for argument in (*place.node.args.posonlyargs, *place.node.args.args)]
        return self.of.call(
            place, {**dict(zip(names, given, strict=False)), **words}, self._deeper()
        )

    def _method(self, function: ast.Attribute, given: list[Any]) -> Any:
        owner = self.value(function.value)
        for kind, names in _METHODS.items():
            if isinstance(owner, kind) and function.attr in names:
                if _has_unknown(given):
                    return UNKNOWN
                found = getattr(owner, function.attr)(*given)
                kept = isinstance(found, dict | list | str | int | float | bool | None)
                return found if kept else list(found)
        return UNKNOWN


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and (isinstance(value, float) or abs(value) < LARGEST)


def _has_unknown(values: list[Any]) -> bool:
    inside: Iterator[Any] = (
        each for value in values if isinstance(value, list | tuple | set) for each in value
    )
    return any(isinstance(each, _Unknown) for each in (*values, *inside))
