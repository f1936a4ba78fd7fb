"""What every result promises, and that a command prints what its function returns."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Collection, Mapping
from io import StringIO
from typing import Any, TypeVar

import pytest
from matplotlib.figure import Figure

from ropewalk.api.plan import plan
from ropewalk.blocks import Paragraph, Table
from ropewalk.errors import InvalidValue
from ropewalk.models.source import Model
from ropewalk.planning.comparison import Comparison
from ropewalk.reports.markdown import markdown
from ropewalk.reports.page.html import block_of
from ropewalk.reports.terminal import Terminal, show
from ropewalk.values import SHOWN, FrozenDict, FrozenList, Result, Value
from tests.cli.calling import result_of

R = TypeVar("R", bound=Result)

_DRAWN: set[type[Result]] = set()
"""Kinds of results whose picture has been rendered here; of others, the figure is enough."""


def compared(model: Model, to: int | str, **options: Any) -> Comparison:
    """The plan without a method: all of them."""
    found = plan(model, to, **options)
    assert isinstance(found, Comparison)
    return found


def check_result(result: R) -> R:
    """JSON and back without losing a bit, a summary of one paragraph, a picture where promised."""
    text = json.dumps(result.to_json(), allow_nan=False)
    value = json.loads(text)
    again = type(result).from_json(value)
    assert json.dumps(again.to_json()) == text
    assert again == result
    assert hash(again) == hash(result)
    with pytest.raises(InvalidValue):
        type(result).from_json({**value, "smuggled": 1})
    for key in value.keys() - set(getattr(type(result), "_optional", ())):
        with pytest.raises(InvalidValue, match=key):
            type(result).from_json({other: value[other] for other in value if other != key})
    assert json.dumps(value) == text, "reading changes nothing"
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result
    summary = result.summary()
    assert summary == str(result)
    assert summary.strip() == summary
    assert summary
    assert "\n" not in summary
    shown = repr(result)
    assert shown.startswith(f"<{type(result).__name__}: {summary[:40]}")
    assert len(shown) <= SHOWN
    assert "\n" not in shown
    check_frozen(result)
    rows = result.to_rows()
    assert rows
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert not any(isinstance(cell, dict) for row in rows for cell in row.values())
    check_drawn(result)
    if not hasattr(result, "figure"):
        assert result._repr_html_()
    elif type(result) in _DRAWN:
        assert isinstance(result.figure(), Figure)
    else:
        _DRAWN.add(type(result))
        shown = result._repr_html_()
        assert "data:image/png;base64," in shown
        assert "<svg" not in shown, "the style sheet that colours it is not there"
    return result


_OF_A_SHELL = re.compile(
    r"^(?!.*\bropewalk ).*(?<![\w-])--(json|run|method|methods|set)(?![\w-])", re.M
)
"""An option of a command, in a line that isn't one to paste: a notebook shows it too."""


def check_drawn(result: Result) -> None:
    """Each block is drawn: in a narrow terminal, in a wide one, as HTML and as Markdown."""
    blocks = list(result.blocks())
    assert blocks
    for each in blocks:
        if isinstance(each, Paragraph | Table):
            said = each.text if isinstance(each, Paragraph) else each.caption
            assert not _OF_A_SHELL.search(said.replace("(--set in a shell)", "")), said
    for width in (40, 200):
        paper = StringIO()
        show(blocks, Terminal(paper, width=width), details=True)
        assert paper.getvalue().strip()
        assert "\x1b" not in paper.getvalue()
    pages = [block_of(each) for each in blocks]  # a chart without values is nothing
    assert any(pages)
    assert markdown(blocks, {})


def check_frozen(value: Any) -> None:
    """Nothing within a value can be changed."""
    if isinstance(value, Value):
        for member in vars(value).values():
            check_frozen(member)
    elif isinstance(value, Mapping):
        if isinstance(value, dict):
            assert type(value) is FrozenDict
        for member in value.values():
            check_frozen(member)
    elif isinstance(value, tuple):
        for member in value:
            check_frozen(member)
    elif hasattr(value, "setflags"):
        assert not value.flags.writeable
    else:
        assert not isinstance(value, set)
        assert not isinstance(value, list) or type(value) is FrozenList


def run_command(*arguments: object) -> Any:
    """What a command prints with --json; errors are raised as they are."""
    return json.loads(result_of(*arguments, "--json").stdout)


def check_command(result: Result, *arguments: object, but: Collection[str] = ()) -> None:
    """The command's JSON is the function's, `but` for members that hold times or places."""
    printed, own = run_command(*arguments), json.loads(json.dumps(result.to_json()))
    for key in but:
        printed.pop(key)
        own.pop(key)
    assert printed == own
