"""A tokenizer that does not load, or gives ids that the model has no row for."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from ropewalk.models.config import BUNDLED_FOLDER
from tests.audit.files.folders import bundled, edit, judged

FAST, VOCAB = "tokenizer.json", "vocab.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bundled(tmp_path / "model")


def _fast(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: edit(folder / FAST, change)


def _no_words(value: dict[str, Any]) -> None:
    value["model"].update(vocab={}, merges=[])
    value.update(added_tokens=[], post_processor=None)


def _no_list(value: dict[str, Any]) -> None:
    del value["added_tokens"]


def _another_id(value: dict[str, Any]) -> None:
    value["added_tokens"][0]["id"] = 5000


def _special(value: dict[str, Any]) -> None:
    value["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "x", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"x": {"id": "x", "ids": [99_999], "tokens": ["x"]}},
    }


def _no_json(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("[[")


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "garbage": (
        lambda folder: (folder / FAST).write_text('{"garbage": 1}'),
        "tokenizer-broken",
        "its tokenizer cannot be used",
    ),
    "cut": (
        lambda folder: (folder / FAST).write_bytes((folder / FAST).read_bytes()[:20_000]),
        "tokenizer-broken",
        "cannot be used",
    ),
    "empty": (lambda folder: (folder / FAST).write_bytes(b""), "tokenizer-broken", "cannot be"),
    "no words": (_fast(_no_words), "tokenizer-broken", "text becomes no token at all"),
    "an id too large": (_fast(_special), "token-beyond-vocabulary", "has the id 99,999"),
    "a word too many": (
        _fast(lambda value: value["model"]["vocab"].update({"zzzz": 1024})),
        "token-beyond-vocabulary",
        "has the id 1,024, and the vocabulary has 1,024 rows",
    ),
    "no list of added tokens": (
        _fast(_no_list),
        "tokenizer-broken",
        "it has no added_tokens",
    ),
    "a limit that is text": (
        lambda folder: edit(
            folder / "tokenizer_config.json", lambda own: own.update(model_max_length="512")
        ),
        "tokenizer-broken",
        "model_max_length is '512', not a number",
    ),
    "settings that are no JSON": (
        lambda folder: (folder / "tokenizer_config.json").write_text("{"),
        "tokenizer-broken",
        "is not JSON",
    ),
    "a padding token without a row": (
        lambda folder: edit(
            folder / "tokenizer_config.json", lambda own: own.update(pad_token="[PAD]")
        ),
        "token-beyond-vocabulary",
        "has the id 1,024, and the vocabulary has 1,024 rows",
    ),
    "a special token without a row, in a file of its own": (
        lambda folder: (folder / "special_tokens_map.json").write_text(
            '{"additional_special_tokens": ["<a>", {"content": "<b>"}]}'
        ),
        "token-beyond-vocabulary",
        "has the id 1,025",
    ),
    "an added token too large": (
        lambda folder: edit(
            folder / "tokenizer_config.json",
            lambda value: value.update(added_tokens_decoder={"7000": {"content": "<x>"}}),
        ),
        "token-beyond-vocabulary",
        "has the id 7,000",
    ),
    "an added token too large, in a file of its own": (
        lambda folder: (folder / "added_tokens.json").write_text('{"zz": 99999}'),
        "token-beyond-vocabulary",
        "has the id 99,999",
    ),
    "an added token without a number": (
        lambda folder: (folder / "added_tokens.json").write_text('{"zz": "a"}'),
        "tokenizer-broken",
        "not a number",
    ),
    **{
        f"{name} that is no JSON": (_no_json(name), "tokenizer-broken", f"{name}: is not JSON")
        for name in ("added_tokens.json", "special_tokens_map.json", "chat_template.json")
    },
    "a side file that is a list": (
        lambda folder: (folder / "special_tokens_map.json").write_text("[]"),
        "tokenizer-broken",
        "special_tokens_map.json: is not a JSON object",
    ),
    "older files that are garbage": (
        lambda folder: (folder / FAST).rename(folder / "merges.txt").with_name(VOCAB).touch(),
        "tokenizer-broken",
        f"{VOCAB}: cannot be loaded",
    ),
}


def _template(text: str, name: str = "chat_template.jinja") -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    return write


def _stated(value: object, name: str = "tokenizer_config.json") -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        if not (folder / name).exists():
            (folder / name).write_text("{}")
        edit(folder / name, lambda own: own.update(chat_template=value))

    return write


OPEN = "{{ bos_token }}\n{% for m in messages %}{{ m['content'] }}"
BROKEN |= {
    "a template that never ends": (
        _template(OPEN),
        "chat-template-broken",
        "chat_template.jinja: line 2: Unexpected end of template",
    ),
    "a second template": (
        _template("{{ a | turned }}", "additional_chat_templates/tool_use.jinja"),
        "chat-template-broken",
        "tool_use.jinja: line 1: No filter named 'turned'",
    ),
    "a template that is a number": (_stated(5), "tokenizer-broken", "chat_template = 5"),
    "a named one that is a number": (_stated({"default": 5}), "tokenizer-broken", "'default': 5"),
    "one of a list": (_stated([{"name": "a", "template": 5}]), "tokenizer-broken", "5}]"),
    "one of an object": (
        _stated({"default": "{{ 1 }}", "b": "{% x %}"}),
        "chat-template-broken",
        "tokenizer_config.json: b: line 1: Encountered unknown tag 'x'",
    ),
    "a template in the settings": (_stated("{{ messages[0 }}"), "chat-template-broken", "line 1:"),
    "a named one": (
        _stated([{"name": "default", "template": "{{ 1 }}"}, {"name": "b", "template": "{% x %}"}]),
        "chat-template-broken",
        "tokenizer_config.json: b: line 1: Encountered unknown tag 'x'",
    ),
    "the template of a processor": (
        _stated(OPEN, "chat_template.json"),
        "chat-template-broken",
        "chat_template.json: line 2",
    ),
}


def test_templates_in_the_dialect_of_transformers_are_valid(folder: Path) -> None:
    _stated(OPEN)(folder)  # which the file of its own replaces
    _template(
        "{% for m in messages %}{% if m.a %}{% continue %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}{{ strftime_now('%Y') }}"
    )(folder)
    assert judged(folder).verdict == "OK"


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tokenizer_is_wrong(folder: Path, name: str) -> None:
    damage, trap, complaint = BROKEN[name]
    damage(folder)
    found = judged(folder)
    assert found.verdict == found.verdict_in("vllm") == "wrong"
    (finding,) = found.wrong
    assert finding.trap == trap
    assert complaint in finding.what


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("tokenizer_config.json", "bos_token", 3),
        ("tokenizer_config.json", "bos_token", {"content": "<s>"}),
        ("special_tokens_map.json", "eos_token", ["<s>"]),
        ("tokenizer_config.json", "chat_template", ["a"]),
        ("tokenizer_config.json", "extra_special_tokens", ["a", 3]),
        ("tokenizer_config.json", "added_tokens_decoder", {"x": {"content": "a"}}),
        ("tokenizer_config.json", "added_tokens_decoder", {"5": "a"}),
        ("tokenizer_config.json", "padding_side", "up"),
        ("tokenizer_config.json", "tokenizer_class", 3),
    ],
)
def test_a_setting_with_which_transformers_does_not_load_it(
    name: str, key: str, value: object, folder: Path
) -> None:
    file = folder / name
    stated = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**stated, key: value}))
    (finding,) = judged(folder).wrong
    assert finding.trap == "tokenizer-broken"
    assert key in finding.what
    with pytest.raises((TypeError, ValueError, AttributeError, KeyError)):
        AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    ("named", "traps"),
    [
        ("GPT2Tokenizer", ["tokenizer-class-differs"]),
        ("ByT5Tokenizer", ["tokenizer-class-differs"]),
        ("BertTokenizer", ["tokenizer-broken"]),
        ("LlamaTokenizer", []),
        ("TokenizersBackend", []),
    ],
)
def test_the_class_of_a_tokenizer_makes_the_tokens_of_its_file(
    named: str, traps: list[str], folder: Path
) -> None:
    edit(folder / "tokenizer_config.json", lambda own: own.update(tokenizer_class=named))
    assert [finding.trap for finding in judged(folder).wrong] == traps


def test_tokens_as_objects_are_taken(folder: Path) -> None:
    stated = json.loads((folder / "tokenizer_config.json").read_text())
    token = {"__type": "AddedToken", "content": stated["bos_token"]}
    more = {"bos_token": token, "extra_special_tokens": [], "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**stated, **more}))
    content = {"content": stated["bos_token"], "lstrip": False}
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": content}))
    assert judged(folder).verdict == "OK"


def test_a_tokenizer_of_a_model_with_more_rows_is_wrong_by_the_embedding(folder: Path) -> None:
    """The config alone would allow the id."""
    edit(folder / FAST, lambda value: value["model"]["vocab"].update({"zzzz": 1024}))
    edit(folder / "config.json", lambda config: config.update(vocab_size=2000))
    traps = {finding.trap for finding in judged(folder).wrong}
    assert traps == {"weights-differ", "token-beyond-vocabulary"}


def test_older_files_are_loaded_by_transformers(folder: Path) -> None:
    """The same words and merges, as GPT-2 kept them."""
    model = json.loads((folder / FAST).read_text(encoding="utf-8"))["model"]
    (folder / FAST).unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = (own if isinstance(own, str) else " ".join(own) for own in model["merges"])
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")
    # Words of the vocabulary, where the class would add its own behind them.
    own = {"tokenizer_class": "GPT2Tokenizer", "unk_token": "<|end|>"}
    edit(folder / "tokenizer_config.json", lambda value: value.update(own))
    found = judged(folder)
    assert "vocab.json loads" in found.checks[1].what
    assert found.verdict == "OK"


def test_what_cannot_be_loaded_here_is_not_established(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tokenizers", None)
        (line,) = judged(folder).not_established
    assert "pip install 'ropewalk[models]'" in line
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    (folder / FAST).rename(folder / "tokenizer.model")
    (line,) = judged(folder).not_established
    assert line == (
        "tokenizer: loading tokenizer.model needs sentencepiece, which is not installed; "
        "pip install sentencepiece protobuf"
    )
    edit(
        folder / "tokenizer_config.json",
        lambda value: value.update(auto_map={"AutoTokenizer": "x"}),
    )
    (line,) = judged(folder).not_established
    assert "custom code, which ropewalk never runs" in line
    (folder / "tokenizer.model").unlink()
    assert judged(folder).not_established == (
        "tokenizer: none in this folder; copy the tokenizer files of the model there",
    )


def test_it_is_loaded_from_where_a_link_leads(folder: Path) -> None:
    """As in the hub's cache."""
    (folder / FAST).unlink()
    (folder / FAST).symlink_to(BUNDLED_FOLDER / FAST)
    assert judged(folder).verdict == "OK"
    shutil.rmtree(folder)
