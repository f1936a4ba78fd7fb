"""The real llama.cpp on a GGUF file: its tokens, its log-probabilities, its text.

    with running(path, length=1024) as llama:
        llama.tokenize("Hello")
        llama.log_probabilities(tokens, start=500)
        llama.generate(tokens, 8)

llama.cpp runs in a process of its own (llama_cpp_server.py), on the CPU, with a float32 cache and
without flash attention. It is the one that the package `xllamacpp` carries.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from ropewalk.errors import InputError, InvalidValue, MissingExtra, RopewalkError, shortened
from ropewalk.extras import missing
from ropewalk.progress import Progress, Status

TOP = 64
"""The number of likeliest tokens asked for at each position. More of them cost only time."""
_CERTAIN = 1e6
"""Added to one logit, it is above all others."""
_STAMP = re.compile(r"^[\d.]+ [A-Z] ")
"""The beginning of llama.cpp's complaints: when, and how grave it is."""
_INVALID = "has invalid data"
"""Its complaint about a tensor with NaN or infinite numbers."""
_SMALL = 64 * 2**20
"""Bytes of a file whose threads would mostly wait for each other."""
_DYING = 1.0
"""Seconds to wait for the end of a process that no longer answers."""
_SERVER = Path(__file__).with_name("llama_cpp_server.py")


@dataclass(frozen=True, eq=False)
class LogProbabilities:
    """The likeliest tokens after some positions, and how likely they are over the whole vocabulary.

    Row i says what may follow `tokens[: positions[i] + 1]`.
    """

    positions: range
    tokens: NDArray[np.int64]
    """[positions, top]; each row from the likeliest down."""
    values: NDArray[np.float64]
    """[positions, top]"""


@dataclass(frozen=True)
class Flags:
    """llama.cpp's flags for rotation, which override the file."""

    base: float
    """--rope-freq-base"""
    kind: str
    """--rope-scaling: linear or yarn"""
    factor: float
    """--rope-scale"""
    original_length: int
    """--yarn-orig-ctx"""


def log_probabilities(
    path: str | Path, tokens: Sequence[int], *, flags: Flags | None = None, **asked: Any
) -> LogProbabilities:
    """Those of a llama.cpp that is run for them alone: `LlamaCpp.log_probabilities`."""
    with running(path, length=len(tokens) + 1, flags=flags) as llama:
        return llama.log_probabilities(tokens, **asked)


def available() -> bool:
    """True if llama.cpp is here to be run."""
    return importlib.util.find_spec("xllamacpp") is not None


def absent() -> MissingExtra:
    """The error for a missing llama.cpp."""
    return missing("running llama.cpp", "xllamacpp")


def runtime() -> str:
    """The llama.cpp that is run, with its version."""
    return f"llama.cpp (xllamacpp {version('xllamacpp')})"


class CannotLoad(InputError):
    """llama.cpp refuses a file, or ends while it loads it."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: llama.cpp cannot load it: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return CannotLoad, (self.path, self.reason)


class LlamaServer(NamedTuple):
    """A running llama.cpp: its address, and its process."""

    address: str
    process: subprocess.Popen[str]
    complaints: IO[str]

    def end(self) -> str | None:
        """Why it ended; None while it runs.

        A process that dies closes its connections a moment before its end can be seen.
        """
        try:
            self.process.wait(_DYING)
        except subprocess.TimeoutExpired:
            return None
        return _reason(self.complaints, self.process)


@contextmanager
def running(
    path: str | Path, *, length: int, flags: Flags | None = None
) -> Iterator[RunningLlamaCpp]:
    """llama.cpp with this file loaded, until the end of the `with` block.

    `length` is the context to reserve. llama.cpp serves no more than the length that the file
    itself states. `flags` are llama.cpp's own, in the place of what the file says of its rotation.
    """
    with serving(path, length=length, flags=flags) as served:
        yield RunningLlamaCpp(Path(path), served)


@contextmanager
def serving(
    path: str | Path,
    *,
    length: int,
    exact: bool = True,
    keeps_prompts: bool = True,
    flags: Flags | None = None,
) -> Iterator[LlamaServer]:
    """llama.cpp's server on a free local port, until the end of the `with` block.

    `exact`: with a float32 cache and without flash attention; else as llama.cpp does by itself.
    `keeps_prompts`: a prompt is read from where it differs from the one before. How it is cut then
    depends on what was asked before, and rounding with it.
    """
    if not available():
        raise absent()
    if not Path(path).is_file():
        raise InputError(f"{path}: there is no such file; give a GGUF file")
    asked: dict[str, object] = {
        "path": str(Path(path).resolve()),
        "name": Path(path).name,
        "length": length,
        "threads": _threads(Path(path)),
        "exact": exact,
        "keeps_prompts": keeps_prompts,
    }
    if flags is not None:
        asked["flags"] = asdict(flags)
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        # -P: the folder of the script holds modules that are named after what they write for.
        process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # else a debugger writes first
        )
        with process:  # waits for its end, and closes its pipes
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip()
                if not address:
                    process.wait()
                    raise CannotLoad(Path(path), _reason(complaints, process))
                yield LlamaServer(address, process, complaints)
            finally:
                process.kill()


def _threads(path: Path) -> int:
    """Half as many as there are processors, for a model that has work for them.

    They wait for each other by spinning: where another process takes one of the processors, as
    many threads as there are of these are far slower than one.
    """
    return 1 if path.stat().st_size < _SMALL else max(1, (os.cpu_count() or 1) // 2)


class RunningLlamaCpp:
    """A llama.cpp that runs, and answers."""

    def __init__(self, path: Path, served: LlamaServer) -> None:
        self._path, self._served = path, served

    def tokenize(self, text: str) -> list[int]:
        """A text as tokens; with BOS and EOS if the file says so, and special tokens as such."""
        asked = {"content": text, "add_special": True, "parse_special": True}
        tokens: list[int] = self._ask("/tokenize", asked)["tokens"]
        return tokens

    def log_probabilities(
        self,
        tokens: Sequence[int],
        *,
        start: int = 0,
        step: int = 1,
        top: int = TOP,
        told: Callable[[int], None] = lambda read: None,
    ) -> LogProbabilities:
        """Log-probabilities after every `step`-th token from position `start` on.

        `told` hears how many of the tokens have been read.
        """
        if not 0 <= start < len(tokens):
            raise InvalidValue(
                "start", start, f"there are {len(tokens)} tokens", "give one of their positions"
            )
        # llama.cpp answers with probabilities only where what it goes on to write is whole text,
        # neither EOS nor half a character. So it must write this; the probabilities are of the
        # model as it is, before any bias.
        (*_, whole_text) = self._ask("/tokenize", {"content": "a"})["tokens"]
        rows, positions = [], range(start, len(tokens), step)
        for end in positions:  # each prompt begins with the one before, which is not read again
            asked = {"n_probs": top, "logit_bias": [[whole_text, _CERTAIN]]}
            (answer,) = self._complete(tokens[: end + 1], 1, **asked)["completion_probabilities"]
            rows.append(answer["top_logprobs"])
            told(end + 1)
        return LogProbabilities(
            positions=positions,
            tokens=np.array([[entry["id"] for entry in row] for row in rows]),
            values=np.array(  # what is not a number is null in JSON
                [[entry["logprob"] for entry in row] for row in rows], dtype=np.float64
            ),
        )

    def generate(self, tokens: Sequence[int], count: int) -> list[int]:
        """The likeliest continuation, greedily, up to `count` tokens or the end of the text."""
        generated: list[int] = self._complete(tokens, count)["tokens"]
        return generated

    def _complete(self, tokens: Sequence[int], count: int, **settings: object) -> Any:
        asked = {
            "prompt": [int(token) for token in tokens],
            "n_predict": count,
            "temperature": 0.0,
            "cache_prompt": True,
            "return_tokens": True,
            "response_fields": ["tokens", "completion_probabilities"],
            **settings,
        }
        return self._ask("/completion", asked)

    def _ask(self, endpoint: str, asked: dict[str, object]) -> Any:
        where = urlsplit(self._served.address)
        try:
            # A connection of its own: llama.cpp closes one that was idle for five seconds.
            with closing(HTTPConnection(where.hostname or "", where.port)) as connection:
                connection.request(
                    "POST", endpoint, json.dumps(asked), {"Content-Type": "application/json"}
                )
                answer = json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError) as error:
            if (reason := self._served.end()) is not None:
                told = f"llama.cpp ended while it ran: {reason}"
            else:
                said = f"{type(error).__name__}: {shortened(str(error))}"
                told = f"llama.cpp runs, and its answer cannot be read ({said})"
            raise RopewalkError(f"{self._path}: {told}; run the command again") from None
        if "error" in answer:
            raise RopewalkError(f"{self._path}: llama.cpp refuses: {answer['error']['message']}")
        return answer


def _reason(complaints: IO[str], process: subprocess.Popen[str]) -> str:
    """The first thing that llama.cpp complained of; what follows are its callers' complaints."""
    complaints.seek(0)
    lines = [_STAMP.sub("", line.strip()) for line in complaints if line.strip()]
    if not lines:
        return f"no reason given, {_status(process.returncode)}"
    tensors = [line for line in lines if _INVALID in line]  # its first line names none
    return f"{tensors[0]} ({lines[0]})" if tensors else lines[0]


def _status(code: int) -> str:
    """An exit status in words: below zero, it is the signal that ended the process."""
    if code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    memory = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"ended by {name}{memory}"


def reading(
    progress: Progress, begun: float, what: str, count: int, share: float = 0.5
) -> Callable[[int], None]:
    """The progress of a reading of the text, by default one of two."""

    def told(read: int) -> None:
        detail = f"llama.cpp reads {what}: {read:,} of {count:,} tokens"
        progress(Status("compare", begun + share * read / count, detail))

    told(0)
    return told
