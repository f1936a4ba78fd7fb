"""Work that a stranger's file asks for, in a process with limits of memory and time.

A tokenizer.json is a program: its steps replace, split and repeat text, and five of them ask for
more memory than any machine has. So is a chat template. Neither a look at such a file nor a trial
on other text says what it will take, so the work itself is done by a child, which the system ends
beyond its limits. The child imports neither torch nor ropewalk, starts in a tenth of a second and
is kept for all who need the same tokenizer. It uses every core, as a tokenizer does here, and a
pipe carries tokens faster than Python makes lists of them.

Time is limited on every system, memory by Linux alone: others, as macOS, count only a part of what
a process asks for as its data, so there such work may take all memory until its time is over.

What is left in the process of the caller is loading, which `trial` does in a child before, and
tokenizers without a tokenizer.json, whose files hold vocabularies and no steps.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakSet, finalize

import numpy as np
from numpy.typing import NDArray

from ropewalk.errors import InputError, Unsupported, first_line
from ropewalk.extras import environment
from ropewalk.untrusted import read_json, read_text

MEMORY: Final = 4 * 2**30
"""Bytes of data that a child may have. A million characters of ordinary text take a tenth."""
SECONDS: Final = 60
"""Seconds of computing for one request, and one more for `PER_SECOND` characters."""
PER_SECOND: Final = 10_000
PATIENCE: Final = 10
"""Seconds by the clock for each of computing: a library without memory may wait for ever, and a
machine may be busy with other work."""
_SCRIPT = str(Path(__file__).with_name("confined_work.py"))
# Rust would make a backtrace of having no memory, which takes memory.
_SET = {"RUST_BACKTRACE": "0", "HF_HUB_OFFLINE": "1"}
_MOST_ANSWERED = MEMORY // 8
_MOST_BYTES = 64 * 2**20  # of a file
FAST = "tokenizer.json"
"""The one file from which the library `tokenizers` makes a whole tokenizer."""
_READ = (
    *("*token*.json", "vocab.*", "merges.txt", "*.model", "*.tiktoken"),
    *("*.jinja", "additional_chat_templates/*.jinja"),
)
"""The files that transformers makes a tokenizer and its templates of."""
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
Numbers: TypeAlias = NDArray[np.uint32]


_all: WeakSet[Confined] = WeakSet()


def _forked() -> None:
    """A new process has no thread but its own, which waits for no answer here."""
    for each in _all:
        each._lock, each._owner = threading.Lock(), 0


if hasattr(os, "register_at_fork"):  # else the system has no forks
    os.register_at_fork(after_in_child=_forked)


class Confined:
    """A child that has the tokenizer.json of `text`, if any; `name` is for errors."""

    _process: subprocess.Popen[bytes]
    _pipe: Connection
    _loaded: bool

    def __init__(self, name: str, text: str = "") -> None:
        self._name, self._text = name, text
        self._lock = threading.Lock()
        self._owner = 0
        """The process that started the child: one that was forked from it needs its own."""
        self._end: Callable[[], object] = lambda: None
        _all.add(self)

    def largest(self, named: Sequence[str]) -> int:
        """The largest id of the tokenizer, with the tokens that its settings name."""
        token: int = self._tokenizer("largest", 0, named=named)[0]
        return token

    def encode(self, texts: Sequence[str], *, special: bool, split: bool = False) -> list[Numbers]:
        """The ids of each text; `split`: none is special, whatever the text spells."""
        how = {"special": special, "split": split}
        counts, raw = self._tokenizer("encode", sum(map(len, texts)), texts=texts, **how)
        ends = np.cumsum(counts, dtype=np.int64)[:-1]
        return np.split(np.frombuffer(raw, np.uint32), ends)

    def spans(self, text: str) -> NDArray[np.int64]:
        """The beginning and end of each token of a text, in characters."""
        _, raw = self._tokenizer("spans", len(text), text=text)
        return np.frombuffer(raw, np.uint32).astype(np.int64).reshape(-1, 2)

    def decode(self, tokens: Sequence[Sequence[int]], *, skip: bool) -> list[str]:
        """The text of each list of tokens; `skip`: without the special ones."""
        ids = [list(map(int, each)) for each in tokens]
        decoded, _ = self._tokenizer("decode", sum(map(len, ids)), tokens=ids, skip=skip)
        texts: list[str] = decoded
        return texts

    def rendered(self, template: str, messages: Sequence[Any], variables: dict[str, object]) -> str:
        """A conversation by a chat template, whose own error is a ValueError."""
        characters = len(template) + sum(len(str(each)) for each in messages)
        arguments = {"template": template, "messages": messages, "variables": variables}
        remedy = "measure without it (`chat` off), or copy it again from its publisher"
        text: str = self._ask("render", characters, "chat template", remedy, **arguments)[0]
        return text

    def template_fault(self, template: str) -> str:
        """Why a chat template is not valid Jinja, with its line; empty if it is valid."""
        if find_spec("jinja2") is None:
            return ""
        try:
            self._ask(
                "parse", len(template), "chat template", "write a shorter one", template=template
            )
        except (ValueError, InputError) as error:
            return first_line(error)[:200]
        return ""

    def _tokenizer(self, does: str, characters: int, **arguments: object) -> tuple[Any, bytes]:
        remedy = "copy the tokenizer files of the model there, or split texts without line breaks"
        try:
            return self._ask(does, characters, "tokenizer", remedy, **arguments)
        except ValueError as error:
            raise InputError(
                f"{self._name}: its tokenizer cannot be used ({first_line(error)[:200]}); {remedy}"
            ) from None

    def _ask(
        self, does: str, characters: int, what: str, remedy: str, **arguments: object
    ) -> tuple[Any, bytes]:
        seconds = SECONDS + characters // PER_SECOND
        with self._lock:
            if self._owner != os.getpid() or self._process.poll() is not None:
                self._start()
            try:
                if self._text and not self._loaded:
                    self._answer("load", SECONDS, text=self._text)
                    self._loaded = True
                return self._answer(does, seconds, **arguments)
            except ValueError:  # an answer
                raise
            except BaseException as error:
                self._end()  # what it may still answer would be taken for the next answer
                if not isinstance(error, EOFError | OSError):
                    raise
                most = {
                    -signal.SIGXCPU: f"{seconds} s of computing",
                    -signal.SIGALRM: f"{PATIENCE * seconds} s",
                }.get(self._process.returncode, f"{MEMORY >> 20:,} MiB of memory")
                raise InputError(
                    f"{self._name}: its {what} takes more than {most} for a text of {characters:,} "
                    f"characters, the limit for files from elsewhere; {remedy}"
                ) from None

    def _start(self) -> None:
        self._end()
        self._pipe, theirs = Pipe()
        with theirs:
            # A session of its own: Ctrl-C is for the parent, whose end closes the pipe.
            arguments = map(str, (theirs.fileno(), MEMORY, PATIENCE))
            self._process = subprocess.Popen(
                [sys.executable, "-P", _SCRIPT, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment(), **_SET},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._owner, self._loaded = os.getpid(), False
        self._end = finalize(self, _end, self._process, self._pipe, self._owner)

    def _answer(self, does: str, seconds: int, **arguments: object) -> tuple[Any, bytes]:
        request = json.dumps({"does": does, "seconds": seconds, **arguments}, ensure_ascii=False)
        self._pipe.send_bytes(request.encode("utf-8", "surrogatepass"))
        answer = json.loads(self._pipe.recv_bytes(_MOST_ANSWERED))
        more = self._pipe.recv_bytes(_MOST_ANSWERED)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["found"], more


def _end(process: subprocess.Popen[bytes], pipe: Connection, owner: int) -> None:
    pipe.close()
    if owner == os.getpid():
        process.kill()
        process.wait()


_shared = lru_cache(maxsize=4)(Confined)


class Words:
    """A tokenizer of transformers as ropewalk uses it: what its files ask for is confined."""

    def __init__(self, tokenizer: Any) -> None:
        self._own = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._in_steps = backend is not None
        self._child = _shared(str(tokenizer.name_or_path), backend.to_str() if backend else "")

    def __reduce__(self) -> tuple[object, ...]:
        return Words, (self._own,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __len__(self) -> int:
        return len(self._own)

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        add_special_tokens: bool = True,
        split_special_tokens: bool = False,
        verbose: bool = False,
    ) -> dict[str, Any]:
        if not self._in_steps:
            how = {"split_special_tokens": True} if split_special_tokens else {}
            encoding: dict[str, Any] = self._own(
                text, add_special_tokens=add_special_tokens, verbose=verbose, **how
            )
            return encoding
        ids = self._child.encode(
            [text] if isinstance(text, str) else text,
            special=add_special_tokens,
            split=split_special_tokens,
        )
        return {"input_ids": ids[0].tolist() if isinstance(text, str) else ids}

    def spans(self, text: str) -> NDArray[np.int64]:
        if not self._in_steps:
            raise Unsupported(
                f"{self._own.name_or_path}: its tokenizer does not say which characters a token "
                "covers, so another cannot be compared; give an evaluator with the same tokenizer"
            )
        return self._child.spans(text)

    def decode(self, tokens: Sequence[int], **how: Any) -> str:
        return self.batch_decode([tokens], **how)[0]

    def batch_decode(
        self,
        tokens: Sequence[Sequence[int]],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        base, clean = self._own, clean_up_tokenization_spaces
        if not self._in_steps:
            how = {"skip_special_tokens": skip_special_tokens}
            return [base.decode(each, clean_up_tokenization_spaces=clean, **how) for each in tokens]
        texts = self._child.decode(tokens, skip=skip_special_tokens)
        clean = base.clean_up_tokenization_spaces if clean is None else clean
        # As transformers, which leaves BPE out.
        if clean and type(base.backend_tokenizer.model).__name__ != "BPE":
            return list(map(base.clean_up_tokenization, texts))
        return texts

    def apply_chat_template(self, messages: Sequence[Any], **variables: object) -> str:
        variables = {**self._own.special_tokens_map, **variables}
        return self._child.rendered(self._own.get_chat_template(), messages, variables)


def confined(tokenizer: Any) -> Any:
    """A tokenizer of transformers in a child; another kind as it is."""
    ours = isinstance(tokenizer, Words) or not hasattr(tokenizer, "get_chat_template")
    return tokenizer if ours else Words(tokenizer)


def trial(folder: Path, *texts: str) -> Confined | None:
    """The child that has loaded a folder's tokenizer.json, and read these texts and all that
    loading reads; None for a folder without one. A file that is too large to load is refused."""
    for path in (path for kind in _READ for path in folder.glob(kind)):
        if path.is_file() and path.stat().st_size > _MOST_BYTES:
            raise InputError(
                f"{path}: is larger than the limit of {_MOST_BYTES:,} bytes for a file of a "
                "tokenizer; copy it again from its publisher, or remove it"
            )
    if not (folder / FAST).is_file():
        return None
    # Not "", which is no tokenizer: an empty file is to be loaded, and fails.
    child = _shared(str(folder), read_text(folder / FAST, max_bytes=_MOST_BYTES) or " ")
    beside = [folder / name for name in _BESIDE if (folder / name).is_file()]
    values = [read_json(path, max_bytes=_MOST_BYTES) for path in beside]
    child.encode([*texts, *_strings(values)], special=True)
    return child


def _strings(value: object) -> Iterator[str]:
    """All strings, as the added tokens among them are read once; no template."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        yield from value
        yield from _strings([each for key, each in value.items() if key != "chat_template"])
