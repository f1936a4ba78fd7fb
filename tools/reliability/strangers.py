"""Sixty models, tokenizers and texts of strangers that want to run code, or take all memory.

Code in them would make a file, the canary. Limits of the child process are lowered to seconds, so
that a case that reaches them is over soon; that they are reached is what counts.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ropewalk as rw
from ropewalk import confined
from ropewalk.__main__ import run
from tools.reliability.row import Case, Row

CANARY = "canary"
SECONDS, MEMORY = 3, 2**29
Prepare = Callable[[Path, Path], None]
"""Change a model's folder; the second path is what its code would write."""


class Pickled:
    """Unpickling this makes the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.canary,)


def _edit(path: Path, **changes: object) -> None:
    value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**value, **changes}), encoding="utf-8")


def _code(folder: Path, canary: Path, *names: str) -> None:
    text = f"from pathlib import Path\nPath({str(canary)!r}).touch()\n"
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text + "class Evil:\n    pass\n", encoding="utf-8")


def _remote(file: str, **changes: object) -> Prepare:
    """A folder whose settings name classes in files of its own."""

    def prepare(folder: Path, canary: Path) -> None:
        _edit(folder / file, **changes)
        names = ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py")
        _code(folder, canary, *names, "custom_generate/generate.py", "__init__.py", "torch.py",
              "sitecustomize.py", "handler.py")  # fmt: skip

    return prepare


def _pickle(*names: str, without: str = "", index: str = "") -> Prepare:
    """A folder with pickles that make the canary."""

    def prepare(folder: Path, canary: Path) -> None:
        for name in names:
            (folder / name).write_bytes(pickle.dumps(Pickled(canary)))
        if without:
            (folder / without).unlink()
        if index:
            own = {"weight_map": {"model.embed_tokens.weight": names[0]}}
            (folder / index).write_text(json.dumps(own), encoding="utf-8")

    return prepare


def _header(change: Callable[[dict[str, Any]], object], length: int | None = None) -> Prepare:
    """Weights whose header lies."""

    def prepare(folder: Path, canary: Path) -> None:
        path = folder / "model.safetensors"
        raw = path.read_bytes()
        (end,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + end])
        changed = change(header)
        text = json.dumps(header if changed is None else changed).encode()
        size = len(text) if length is None else length
        path.write_bytes(struct.pack("<Q", size) + text + raw[8 + end :])

    return prepare


def _first(**changes: object) -> Prepare:
    return _header(lambda header: header[min(set(header) - {"__metadata__"})].update(changes))


def _gguf(*parts: bytes, counts: tuple[int, int] = (0, 1), size: int = 0) -> Prepare:
    """A GGUF file of these keys and tensors; `size` makes it a sparse file of so many bytes."""

    def prepare(folder: Path, canary: Path) -> None:
        with (folder / "model.gguf").open("wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join(parts))
            if size:
                file.truncate(size)

    return prepare


def _key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


ARCHITECTURE = _key("general.architecture", 8, struct.pack("<Q", 5) + b"llama")
LIST, TEXT = 9, 8


def _tensor(*sizes: int, offset: int = 0, kind: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return struct.pack("<Q", 1) + b"t" + shape + struct.pack("<IQ", kind, offset)


def _template(text: str, *, file: bool = False) -> Prepare:
    def prepare(folder: Path, canary: Path) -> None:
        own = text.replace("CANARY", str(canary))
        if file:
            (folder / "chat_template.jinja").write_text(own, encoding="utf-8")
        else:
            _edit(folder / "tokenizer_config.json", chat_template=own)

    return prepare


def _tokenizer(**changes: object) -> Prepare:
    return lambda folder, _: _edit(folder / "tokenizer.json", **changes)


def _replacing(steps: int) -> dict[str, object]:
    step = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 100}
    return {"type": "Sequence", "normalizers": [step] * steps}


def _nested(depth: int) -> dict[str, object]:
    step: dict[str, object] = {"type": "NFC"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


def _holding(name: str, content: bytes) -> Prepare:
    def prepare(folder: Path, canary: Path) -> None:
        (folder / name).write_bytes(content)

    return prepare


def _split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


CLASSES = {
    "AutoConfig": "configuration_evil.Evil",
    "AutoModel": "modeling_evil.Evil",
    "AutoModelForCausalLM": "modeling_evil.Evil",
    "AutoTokenizer": ["tokenization_evil.Evil", "tokenization_evil.Evil"],
}
_ESCAPE = "{{ %s.__init__.__globals__.__builtins__.open('CANARY', 'w') }}"
TEMPLATES = {
    "a loop without end": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "a text that doubles": "{% set n = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(40) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
    "a text of 10 GB": "{{ 'a' * 10000000000 }}",
    "a number of a billion digits": "{{ 10 ** 1000000000 }}",
    "a width of a billion": "{{ '%1000000000d' % 1 }}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "globals of cycler": _ESCAPE % "cycler",
    "globals of lipsum": "{{ lipsum.__globals__['os'].system('touch CANARY') }}",
    "globals of a macro": "{% macro m() %}{% endmacro %}" + _ESCAPE % "m",
    "attributes by a filter": "{{ (messages|attr('__class__')|attr('__base__')"
    "|attr('__subclasses__'))() }}",
    "attributes by format": "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
    "a file included": "{% include '/etc/passwd' %}",
    "a module imported": "{% import 'os' as os %}{{ os.system('touch CANARY') }}",
}
CONFIG, WORDS = "config.json", "tokenizer_config.json"


def _judge(folder: Path) -> list[list[str]]:
    return [["inspect", str(folder)], ["verify", str(folder), "--runtime", "vllm", "--no-run"]]


def _use(folder: Path) -> list[list[str]]:
    """What could load the model."""
    small = ["--lengths", "64", "--samples", "1", "--tasks", "passkey"]
    return [
        *_judge(folder),
        ["verify", str(folder), "--runtime", "transformers"],
        ["evaluate", str(folder), *small],
    ]


def _export(folder: Path) -> list[list[str]]:
    plan = ["--plan", str(folder.parent / "plan.json"), "--runtime", "vllm"]
    return [["export", str(folder), *plan, "-o", str(folder.parent / "exported")]]


def _look(folder: Path) -> list[list[str]]:
    file = str(folder / "model.gguf")
    return [["inspect", file], ["verify", file, "--no-run"]]


def _chat(folder: Path) -> list[list[str]]:
    small = ["--lengths", "128", "--samples", "1", "--tasks", "passkey"]
    return [["evaluate", str(folder), *small, "--chat", "on"]]


def _read(name: str = "corpus.txt") -> Callable[[Path], list[list[str]]]:
    def words(folder: Path) -> list[list[str]]:
        store = str(folder.parent / "store")
        return [["data", "build", str(folder), "--corpus", str(folder / name), "-o", store]]

    return words


def strangers() -> Iterator[tuple[str, Prepare, Callable[[Path], list[list[str]]]]]:
    """Each with its name, the change to a good folder, and the commands that it is given to."""
    yield from _liars()
    loaded = {
        "classes in config.json": _remote(CONFIG, auto_map=CLASSES),
        "classes and trust in config.json": _remote(
            CONFIG, auto_map=CLASSES, trust_remote_code=True
        ),
        "an unknown type with classes": _remote(CONFIG, auto_map=CLASSES, model_type="evil"),
        "classes of another repository": _remote(
            CONFIG, auto_map={key: f"evil/repo--{value}" for key, value in CLASSES.items()}
        ),
        "classes outside the folder": _remote(
            CONFIG, auto_map={"AutoModelForCausalLM": "../evil/modeling_evil.Evil"}
        ),
        "a tokenizer's class": _remote(
            WORDS, auto_map=CLASSES, tokenizer_class="Evil", trust_remote_code=True
        ),
        "a tokenizer's class of transformers": _remote(WORDS, tokenizer_class="PretrainedConfig"),
        "a processor's class": _remote("processor_config.json", auto_map=CLASSES),
        "a generation of its own": _remote(
            "generation_config.json", custom_generate=".", auto_map=CLASSES, trust_remote_code=True
        ),
        "modules with names of packages": _remote(CONFIG),
        "quantisation by a class": _remote(
            CONFIG, quantization_config={"quant_method": "evil", "auto_map": CLASSES}
        ),
        "an adapter of its own": _remote(
            "adapter_config.json", base_model_name_or_path=".", auto_mapping=CLASSES
        ),
        "pickled weights": _pickle("pytorch_model.bin", without="model.safetensors"),
        "pickles next to weights": _pickle(
            "pytorch_model.bin", "optimizer.pt", "training_args.bin", "scheduler.pt",
            "rng_state.pth",
        ),
        "a pickle with the name of weights": _pickle("model.safetensors"),
        "an index of a pickle": _pickle(
            "evil.bin", without="model.safetensors", index="model.safetensors.index.json"
        ),
        "an index of a pickle elsewhere": _pickle(
            "../evil.bin", without="model.safetensors", index="model.safetensors.index.json"
        ),
        "an index of pickled parts": _pickle(
            "pytorch_model-00001-of-00001.bin", without="model.safetensors",
            index="pytorch_model.bin.index.json",
        ),
        "a pickle with the name of a tokenizer": _pickle("tokenizer.json"),
        "a pickled vocabulary": _pickle("vocab.pkl", "vocab.txt", "tokenizer.model",
                                        without="tokenizer.json"),
    }  # fmt: skip
    for number, (name, prepare) in enumerate(loaded.items(), 1):
        yield name, prepare, _use if number != 2 else _export
    for name, text in TEMPLATES.items():
        yield f"template: {name}", _template(text, file="loop" in name), _chat
    yield from _exploding()


def _liars() -> Iterator[tuple[str, Prepare, Callable[[Path], list[list[str]]]]]:
    many = struct.pack("<IQ", 4, 2**62)
    for name, prepare in {
        "a header of 2**63 bytes": _header(lambda _: None, 2**63),
        "a header as long as the file says": _header(lambda _: None, 2**27),
        "a tensor beyond the file": _first(data_offsets=[0, 2**50]),
        "a tensor that ends before it begins": _first(data_offsets=[1000, 0]),
        "a shape of 2**80 numbers": _first(shape=[2**40, 2**40]),
        "a shape below zero": _first(shape=[-1, -4]),
        "ten thousand tensors in one place": _header(
            lambda _: {f"t{i}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
                       for i in range(10_000)}
        ),
        "a header that is a list": _header(lambda _: [[]] * 1_000),
    }.items():  # fmt: skip
        yield name, prepare, _judge
    deep = b"".join(struct.pack("<IQ", LIST, 1) for _ in range(5_000))
    for name, prepare in {
        "GGUF: 2**63 keys": _gguf(ARCHITECTURE, counts=(0, 2**63)),
        "GGUF: 2**63 tensors": _gguf(ARCHITECTURE, counts=(2**63, 1)),
        "GGUF: a text of 2**63 bytes": _gguf(_key("a", TEXT, struct.pack("<Q", 2**63))),
        "GGUF: a list of 2**62 numbers": _gguf(_key("a", LIST, many)),
        "GGUF: a list of 2**28 texts in a sparse file": _gguf(
            _key("a", LIST, struct.pack("<IQ", TEXT, 2**28)), size=2**34
        ),
        "GGUF: lists in lists": _gguf(_key("a", LIST, deep)),
        "GGUF: a tensor of 2**80 numbers": _gguf(
            ARCHITECTURE, _tensor(2**40, 2**40), counts=(1, 1)
        ),
        "GGUF: a tensor of 2**20 dimensions": _gguf(
            ARCHITECTURE, struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**20), counts=(1, 1)
        ),
    }.items():
        yield name, prepare, _look


def _exploding() -> Iterator[tuple[str, Prepare, Callable[[Path], list[list[str]]]]]:
    token = {"special": False, "lstrip": False, "rstrip": False, "single_word": False}
    added = [
        {"id": 300 + i, "content": f"x{i}", "normalized": True, **token} for i in range(50_000)
    ]
    fixed = {"direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<s>"}
    for name, prepare in {
        "tokenizer: text that grows": _tokenizer(normalizer=_replacing(4)),
        "tokenizer: steps in steps": _tokenizer(normalizer=_nested(300)),
        "tokenizer: a pattern that backtracks": _tokenizer(
            pre_tokenizer=_split(r"(([a-z ]+)+)+\d{9}x")
        ),
        "tokenizer: padding to 2**40": _tokenizer(
            padding={"strategy": {"Fixed": 2**40}, "pad_to_multiple_of": None, **fixed}
        ),
        "tokenizer: 50,000 added tokens": _tokenizer(added_tokens=added),
        "tokenizer: a charsmap of zeros": _tokenizer(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}
        ),
        "tokenizer: a million bytes of brackets": _holding("tokenizer.json", b"[" * 10**6),
    }.items():
        yield name, prepare, _read()
    bomb = gzip.compress(b'{"text": "' + b"a" * 2**27 + b'"}\n', 1)
    for name, prepare in {
        "bomb.jsonl.gz": _holding("bomb.jsonl.gz", bomb),
        "deep.jsonl": _holding("deep.jsonl", b'{"text": ' + b"[" * 10**6 + b"\n"),
        "zeros.txt": _holding("zeros.txt", bytes(2**20)),
        "surrogates.jsonl": _holding("surrogates.jsonl", b'{"text": "\\ud800 \\udfff"}\n' * 100),
    }.items():
        yield f"text: {name}", prepare, _read(name)


def _judged(
    base: Path, room: Path, prepare: Prepare, words: Callable[[Path], list[list[str]]]
) -> str | None:
    shutil.rmtree(room, ignore_errors=True)
    folder = Path(shutil.copytree(base, room / "model"))
    shutil.copyfile(base.parent / "plan.json", room / "plan.json")
    confined.SECONDS, confined.MEMORY = SECONDS, MEMORY  # type: ignore[misc]
    confined._shared.cache_clear()
    canary = room / CANARY
    prepare(folder, canary)
    for call in words(folder):
        out, told = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
            status = run(call)
        about = f"{call[0]} ({' '.join(told.getvalue().split())[-300:]})"
        if canary.exists():
            return f"code of a stranger ran in {about}"
        if status not in (0, 1, 2, 3) or "Traceback" in told.getvalue():
            return f"status {status} of {about}"
        if "root:x:0" in out.getvalue() + told.getvalue():
            return f"a file of this machine was read by {about}"
    return None


def cases(room: Path, seed: int) -> Iterator[Case]:
    from tests.evaluation import tiny

    base = tiny.folder_of(tiny.model(), room / "base")
    text = "\n".join(document.text for document in tiny.documents(1))[:3_000]
    (base / "corpus.txt").write_text(text, encoding="utf-8")
    (room / "plan.json").write_text(rw.plan(base, "256", "linear").plan.dumps(), encoding="utf-8")
    for number, (name, prepare, words) in enumerate(strangers()):
        yield Case(name, partial(_judged, base, room / str(number), prepare, words))


ROWS = (
    Row(
        "strangers",
        "models with code of their own, pickles, headers that lie, chat templates, tokenizers and "
        "texts that take all time or memory",
        "nothing of it runs, and the limits of the child process end it (lowered to 3 s and "
        "512 MiB for these runs)",
        60,
        cases,
        seconds=300,
        sample=8,
        mended=(
            "a `tokenizer_class` that names another class of transformers ended `evaluate` with "
            "status 70; it is refused by name",
        ),
    ),
)
