"""Arguments of the wrong kind are refused by name, in every verb alike; never a Python error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.errors import InputError, InvalidValue
from ropewalk.values import Result
from tests.evaluation import tiny

LLAMA = "llama-2-7b"


@pytest.mark.parametrize("length", [8192, "8k", np.int64(8192), ["8k", 8192]])
def test_a_length_is_a_number_or_a_text(length: object) -> None:
    assert [row.length for row in rw.bound(length, only="infimum").rows] == [8192]  # type: ignore[arg-type]


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("lengths = 8192.0: must be a list", lambda: rw.bound(8192.0)),  # type: ignore[arg-type]
    ("lengths = b'8k': must be a list", lambda: rw.bound(b"8k")),
    ("lengths = True: must be a length", lambda: rw.bound(True)),
    ("unknown method 3", lambda: rw.plan(LLAMA, "8k", 3)),  # type: ignore[arg-type]
    (r"unknown method \['yarn'\]", lambda: rw.plan(LLAMA, "8k", ["yarn"])),  # type: ignore[arg-type]
    ("parameters = 3: must be a mapping", lambda: rw.plan(LLAMA, "8k", "yarn", parameters=3)),  # type: ignore[arg-type]
    ("unknown parameter of yarn 3", lambda: rw.plan(LLAMA, "8k", "yarn", parameters={3: 4})),  # type: ignore[dict-item]
    ("layers = 'full': must be a list", lambda: rw.plan(LLAMA, "8k", layers="full")),
    (r"layers\[0\] = \['a'\]: is a list in", lambda: rw.plan(LLAMA, "8k", layers=[["a"]])),  # type: ignore[list-item]
    ("layers = array.*: must be a list", lambda: rw.plan(LLAMA, "8k", layers=np.array(3))),  # type: ignore[arg-type]
    ("unknown method array", lambda: rw.plan(LLAMA, "8k", np.array(["yarn", "ntk"]))),  # type: ignore[arg-type]
    ("only = array", lambda: rw.bound("8k", only=np.array(["a", "b"]))),  # type: ignore[arg-type]
    ("on = array", lambda: rw.cost(LLAMA, "8k", on=np.array(["a", "b"]))),  # type: ignore[arg-type]
    ("unknown dtype array", lambda: rw.fingerprint("bundled", dtype=np.array(["a", "b"]))),  # type: ignore[arg-type]
    ("plan = 3: must be a plan", lambda: rw.verify("x", plan=3)),  # type: ignore[arg-type]
    ("field = 'a': is the name of a field of rows", lambda: rw.evaluate("bundled", field="a")),
    ("field = 'a': is the name", lambda: rw.extend("bundled", field="a", corpus=["a text"])),
    ("field = 'a': is the name", lambda: rw.search("bundled", "1k", field="a", corpus="a.txt")),
    ("runtimes = 'vllm': must be a list", lambda: rw.verify("x", runtimes="vllm")),
]  # fmt: skip


def test_an_array_of_layers_is_a_list() -> None:
    both = np.array(["full_attention", "sliding_attention"])
    assert rw.plan("gemma-3-4b", "256k", "ntk", layers=both).plan  # type: ignore[arg-type]
    assert rw.plan(LLAMA, "8k", layers=np.array([])).plan  # type: ignore[arg-type]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_a_wrong_argument_is_one_line(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("corpus = 3: must be a path or a list", {"corpus": 3}),
        ("text 1 = 3: must be a string", {"corpus": [3]}),
        ("seed = -1: must be at least 0", {"seed": -1}),
        ("seed = 'x': must be a whole number", {"seed": "x"}),
        ("budget = 'six': must be a whole number", {"budget": "six"}),
        ("run = 3: must be a path", {"run": 3}),
        ("must be a path", {"run": "a\0b"}),
        ("device = None: is not a device", {"device": None}),
        (r"unknown dtype \['float32'\]", {"dtype": ["float32"]}),
    ],
)
@pytest.mark.parametrize("verb", [rw.search, rw.extend])
def test_search_and_extend_refuse_alike(
    message: str, given: dict[str, object], verb: Callable[..., object], model: Path
) -> None:
    more = {"corpus": tiny.documents(8), **given}
    with pytest.raises(InputError, match=message):
        verb(str(model), 2 * tiny.WINDOW, **more)


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("documents = 3: must be three numbers", {"documents": 3}),
        (r"documents = \(1, 2\): must be three numbers", {"documents": (1, 2)}),
        ("documents = 1.5: must be a whole number", {"documents": (1.5, 1, 1)}),
        (r"unknown strategy \['adaptive'\]", {"strategy": ["adaptive"]}),
        ("unknown objective 3", {"objective": 3}),
        ("ranks_per_copy = 0: must be at least 1", {"ranks_per_copy": 0}),
    ],
)
def test_search_refuses(message: str, given: dict[str, object], model: Path) -> None:
    with pytest.raises(InputError, match=message):
        rw.search(str(model), 2 * tiny.WINDOW, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("out", [3, "a\0b"])
def test_an_export_goes_to_a_path(out: object, model: Path) -> None:
    plan = rw.plan(str(model), 2 * tiny.WINDOW, "yarn")
    with pytest.raises(InputError, match=r"out = .*: must be a path"):
        rw.export(str(model), plan, out, "transformers")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "key"),
    [
        (lambda: rw.plan(LLAMA, "8k", "yarn"), "layers"),
        (lambda: rw.plan(LLAMA, "8k"), "layers"),
        (lambda: rw.plan(LLAMA, "8k"), "candidates"),
    ],
)
def test_a_result_without_its_first_member_is_refused(
    result: Callable[[], Result], key: str
) -> None:
    found = result()
    with pytest.raises(InvalidValue, match=f"{key} = .*: must not be empty"):
        type(found).from_json({**found.to_json(), key: []})


def test_a_preview_that_leaves_out_a_runtime_is_refused() -> None:
    found = rw.export.preview("bundled", rw.plan("bundled", "1k", "yarn"))
    damaged = {**found.to_json(), "matrix": {"attention scaling": {}}}
    with pytest.raises(InvalidValue, match="attention scaling = 'transformers': must be one of"):
        type(found).from_json(damaged)
