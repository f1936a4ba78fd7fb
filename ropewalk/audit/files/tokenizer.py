"""The tokenizer of a folder: it loads, and every id that it can give has a row in the embedding.

`tokenizer.json` is loaded by the library `tokenizers`, without torch. What there is in its place in
older folders is loaded by transformers, as any user of it would.

- `chat-template-broken`: a chat template is not valid Jinja
- `tokenizer-broken`: the tokenizer does not load, or makes no tokens
- `tokenizer-class-differs`: the class in its settings makes other tokens than tokenizer.json
- `token-beyond-vocabulary`: the tokenizer has an id for which the embedding has no row
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.audit.files.check import Checked, fault, passed, unknown, wrong
from ropewalk.confined import FAST, Confined, trial
from ropewalk.errors import InputError, MissingExtra, first_line, shortened
from ropewalk.exporting.tokens import PROBE, SETTINGS, TOKENIZER_LIMITS, tokenizer_files
from ropewalk.extras import required_by
from ropewalk.models.config import Config, ConfigReader
from ropewalk.runtimes.finding import Finding
from ropewalk.runtimes.reading import number, whole
from ropewalk.untrusted import read_json, read_text

MOST_BYTES = 64 * 2**20
ADDED = "added_tokens.json"
_TOKENS = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "pad", "sep", "cls", "mask"))
_MORE_TOKENS = ("additional_special_tokens", "extra_special_tokens")
_GENERAL = ("PreTrainedTokenizerFast", "TokenizersBackend")
_SIDES = ("left", "right")
SPECIAL, TEMPLATE = "special_tokens_map.json", "chat_template.json"
_broken = fault(
    "tokenizer-broken",
    "no runtime turns text into tokens with it",
    "copy the tokenizer files of the model again",
)
_unreadable = fault(
    "chat-template-broken",
    "llama-server does not start with it, and elsewhere each request for a chat fails",
    "copy the template again, or correct it",
)
_of_another_class = fault(
    "tokenizer-class-differs",
    "transformers, vLLM and SGLang read text by the class, and llama.cpp by the file",
    'name "PreTrainedTokenizerFast" as tokenizer_class if the file is right, or copy the tokenizer '
    "files of the model again",
)
_beyond = fault(
    "token-beyond-vocabulary",
    "a text with that token makes every runtime fail",
    "copy the tokenizer files of this very model",
)


class _Loaded(NamedTuple):
    largest: int
    probe: Sequence[int]
    """The tokens of the probe text."""
    other_class: str = ""
    """Says which class makes other tokens of it."""


def tokenizer(folder: Path, config: Config, rows: int | None) -> Checked:
    """Look at the tokenizer of a folder whose embedding has that many rows."""
    if not folder.is_dir():
        said = "only a config was given"
        return unknown("tokenizer", said, "give the folder that has the tokenizer too")
    files = tokenizer_files(folder)
    if not files:
        said = "none in this folder"
        return unknown("tokenizer", said, "copy the tokenizer files of the model there")
    # A missing library or custom code is no fault of the folder; a file that cannot load is one.
    try:
        beside = _side_files(folder)
        settings, more, special = (beside.get(name, {}) for name in (SETTINGS, ADDED, SPECIAL))
        if problem := _misstated(settings, {"__type"}) or _misstated(special, {"content"}):
            return wrong("tokenizer", _broken(problem))
        with required_by("loading the tokenizer"):
            named, is_fast = _named(settings, special, more), files[0] == FAST
            loaded = _fast(folder, settings, named) if is_fast else _older(folder, files, settings)
        added = list(_added(settings, more))
        broken = broken_templates(folder, _templates(folder, settings, beside.get(TEMPLATE, {})))
        if broken:
            return wrong("tokenizer", *broken)
    except (MissingExtra, _Unknown) as error:
        return unknown("tokenizer", str(error), getattr(error, "remedy", ""))
    except InputError as error:
        said = str(error).removeprefix(f"{folder}: ").partition("; ")[0]
        return wrong("tokenizer", _broken(said))
    if loaded.other_class:
        return wrong("tokenizer", _of_another_class(loaded.other_class))
    for key in TOKENIZER_LIMITS:
        if settings.get(key) is not None and number(settings[key]) is None:
            said = f"{SETTINGS}: {key} is {shortened(settings[key])}, not a number"
            return wrong("tokenizer", _broken(said))
    if not loaded.probe:
        return wrong("tokenizer", _broken(f"{files[0]}: text becomes no token at all"))
    # Every id needs a row of the embedding, those of added tokens and of the probe too.
    largest, most = max(loaded.largest, *added, *loaded.probe), _vocabulary(config, rows)
    if most is None:
        said = f"{files[0]} loads; the size of the vocabulary is stated nowhere"
        return unknown("tokenizer", said, "add vocab_size to the config")
    if largest >= most or min(loaded.probe) < 0:
        said = f"the tokenizer has the id {largest:,}, and the vocabulary has {most:,} rows"
        return wrong("tokenizer", _beyond(said))
    return passed("tokenizer", f"{files[0]} loads, its largest id {largest:,} of {most:,}")


class _Unknown(Exception):
    """It cannot be loaded here, which is no fault of the folder."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def broken_templates(place: Path, templates: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each chat template that is not valid Jinja."""
    child = Confined(str(place))
    faults = {name: child.template_fault(text) for name, text in templates.items()}
    return tuple(_unreadable(f"{name}: {said}") for name, said in faults.items() if said)


def _templates(folder: Path, settings: Config, processor: Config) -> dict[str, str]:
    """The chat templates of a folder by place. Files of their own come before settings."""
    files = [*folder.glob("chat_template.jinja"), *folder.glob("additional_chat_templates/*.jinja")]
    if files:
        return {path.name: read_text(path, max_bytes=MOST_BYTES) for path in files}
    stated = {SETTINGS: settings.get("chat_template"), TEMPLATE: processor.get("chat_template")}
    if isinstance(named := stated[SETTINGS], list):
        named = {each["name"]: each["template"] for each in named}
    if isinstance(named, dict):
        stated |= {f"{SETTINGS}: {name}": text for name, text in named.items()}
    return {place: text for place, text in stated.items() if isinstance(text, str)}


def _side_files(folder: Path) -> dict[str, Config]:
    """The settings, the added tokens and the special ones; whatever else transformers reads must be
    JSON too."""
    read: dict[str, Config] = {}
    for name in (SETTINGS, ADDED, SPECIAL, TEMPLATE):
        if not os.path.lexists(folder / name):
            continue
        value = read_json(folder / name, max_bytes=MOST_BYTES)
        if not isinstance(value, dict):
            raise InputError(f"{name}: is not a JSON object")
        read[name] = value
    return read


def _misstated(settings: Config, needed: set[str]) -> str:
    """A setting of a kind with which transformers does not load the tokenizer; a token may be text,
    or an object with these keys."""

    def is_token(value: object) -> bool:
        if not isinstance(value, Mapping):
            return isinstance(value, str)
        return isinstance(value.get("content"), str) and needed <= value.keys()

    def are_tokens(value: object) -> bool:
        tokens = [*value.values()] if isinstance(value, Mapping) else value
        return isinstance(tokens, list) and all(map(is_token, tokens))

    def are_numbered(value: object) -> bool:
        return isinstance(value, Mapping) and all(
            written.isdigit() and isinstance(each, Mapping) and isinstance(each.get("content"), str)
            for written, each in value.items()
        )

    def are_templates(value: object) -> bool:
        if isinstance(value, list):
            named = all(isinstance(each, Mapping) and "name" in each for each in value)
            return named and all(isinstance(each.get("template"), str) for each in value)
        texts = value.values() if isinstance(value, Mapping) else [value]
        return all(isinstance(text, str) for text in texts)

    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        **dict.fromkeys(_TOKENS, (is_token, "text or a token")),
        **dict.fromkeys(_MORE_TOKENS, (are_tokens, "a list of tokens")),
        **dict.fromkeys(("padding_side", "truncation_side"), (_SIDES.__contains__, "a side")),
        "added_tokens_decoder": (are_numbered, "tokens by number"),
        "chat_template": (are_templates, "text, or texts by name"),
        "tokenizer_class": (lambda value: isinstance(value, str), "text"),
        "model_input_names": (lambda value: isinstance(value, list), "a list"),
    }
    for key, (fits, rule) in rules.items():
        if settings.get(key) is not None and not fits(settings[key]):
            return f"{key} = {shortened(settings[key])}: must be {rule}"
    return ""


def _fast(folder: Path, settings: Config, named: Iterator[str]) -> _Loaded:
    import tokenizers  # noqa: F401  # so that it is named if it is not installed

    child = trial(folder, PROBE)
    if child is None:
        raise InputError(f"{FAST}: is not a file")
    plain, probe = (child.encode([PROBE], special=each)[0].tolist() for each in (False, True))
    kind = settings.get("tokenizer_class")
    # These take the file as it is. Other classes make steps of their own, with or without a file.
    usual = kind in _GENERAL or settings.get("auto_map") or find_spec("transformers") is None
    same = usual or _tokens(_by_class(folder, FAST), FAST, special=False) == plain
    other = f"{kind or 'the class of the model type'} makes other tokens of a text than {FAST}"
    return _Loaded(child.largest([*named]), probe, "" if same else other)


def _older(folder: Path, files: Sequence[str], settings: Config) -> _Loaded:
    if settings.get("auto_map"):
        said = f"{SETTINGS} names custom code, which ropewalk never runs"
        raise _Unknown(said, "use a tokenizer.json")
    if files[0].endswith(".model") and find_spec("sentencepiece") is None:
        said = f"loading {files[0]} needs sentencepiece, which is not installed"
        raise _Unknown(said, "pip install sentencepiece protobuf")
    loaded = _by_class(folder, files[0])
    probe = _tokens(loaded, files[0], special=True)
    return _Loaded(max(loaded.get_vocab().values(), default=-1), probe)


def _by_class(folder: Path, name: str) -> Any:
    """The tokenizer of a folder as transformers' class for it reads the files."""
    from transformers import AutoTokenizer

    return _guarded(
        name,
        lambda: AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        ),
    )


def _tokens(tokenizer: Any, name: str, *, special: bool) -> list[int]:
    ids: list[int] = _guarded(
        name, lambda: tokenizer(PROBE, add_special_tokens=special, verbose=False)["input_ids"]
    )
    return ids


def _guarded(name: str, load: Callable[[], Any]) -> Any:
    """Load a file; all that libraries raise for a broken one, Rust panics too, is one error."""
    try:
        return load()
    except ImportError as error:
        raise _Unknown(f"{name}: {first_line(error)[:200]}", "install that package") from None
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{name}: cannot be loaded ({first_line(error)[:200]})") from None


def _added(settings: Config, more: Config) -> Iterator[int]:
    """The ids of the tokens that the settings and the file of added tokens add."""
    for token, value in more.items():
        if whole(value) is None:
            raise InputError(
                f"{ADDED}: {shortened(token)} has the id {shortened(value)}, not a number"
            )
        yield value
    added = settings.get("added_tokens_decoder")
    for written in added if isinstance(added, dict) else ():
        if written.isascii() and written.isdigit() and len(written) < 20:
            yield int(written)


def _named(settings: Config, special: Config, more: Config) -> Iterator[str]:
    """The tokens that settings name; transformers adds those that are new to the tokenizer."""
    numbered = settings.get("added_tokens_decoder")
    stated = settings if numbered is not None else {**settings, **special}
    values: list[Any] = [stated.get(key) or () for key in (*_TOKENS, *_MORE_TOKENS)]
    for value in (*values, numbered or {}):
        is_one = isinstance(value, str) or "content" in value
        for each in [value] if is_one else value.values() if isinstance(value, Mapping) else value:
            yield str(each["content"] if isinstance(each, Mapping) else each)
    yield from more


def _vocabulary(config: Config, rows: int | None) -> int | None:
    counts = (whole(ConfigReader(config).get("vocab_size")), rows)
    return min((count for count in counts if count is not None), default=None)
