"""The real llama.cpp on a GGUF file: its tokens, its log-probabilities, its text.

    with running(path, length=1024) as llama:
        llama.tokenize("Hello")
        llama.log_probabilities(tokens, start=500)
        llama.generate(tokens, 8)

llama.cpp runs in a process of its own (llama_cpp_server.py): the one that the package `xllamacpp`
carries, or a user's `llama-server`. `running` is exact: on the CPU, with a float32 cache, without
flash attention. `serving` may also leave these to llama.cpp.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from ropewalk.errors import (
    InputError,
    InvalidValue,
    RopewalkError,
    Unsupported,
    printable,
    shortened,
)
from ropewalk.extras import environment, imported, missing, unusable
from ropewalk.gguf.flags import Flags
from ropewalk.progress import Progress, Status
from ropewalk.untrusted import check_between, whole_number

TOP = 64
"""The number of likeliest tokens asked for at each position. More of them cost only time."""
_ALL = 2**20
"""More tokens than a vocabulary has."""
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
_AGAIN = 0.02
"""Seconds until a server that loads its file is asked again."""
_WAIT = 30.0
"""Seconds within which a program tells its version."""
_ERRORS_ONLY = "1"
_MOST = 9999
"""Threads, or layers, of any machine or model."""
CACHES = ("f16", "f32", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""The types of a cache of keys and values, by llama.cpp's names; it takes the first by itself."""
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
class Engine:
    """The llama.cpp that is run, and the part of this machine that it takes."""

    llama_server: Path | None = None
    """A user's own `llama-server`; None for the one that `xllamacpp` carries."""
    threads: int | None = None
    """None for half as many as there are processors."""
    gpu_layers: int | None = None
    """None for all that llama.cpp itself puts on a GPU, if it was built for one."""

    def __post_init__(self) -> None:
        for key, value, least in (("threads", self.threads, 1), ("gpu_layers", self.gpu_layers, 0)):
            if value is not None:
                check_between(whole_number(value, key), least, _MOST, key, "leave it out")

    def refuse(self, cache: str = CACHES[0]) -> None:
        """Refuse options of llama.cpp where it runs nothing."""
        options = {"cache": cache != CACHES[0]}
        options |= {key: value is not None for key, value in asdict(self).items()}
        for key in filter(options.get, options):
            raise Unsupported(f"`{key}` is for a GGUF file, which llama.cpp runs; leave it out")

    @property
    def available(self) -> bool:
        """True if this llama.cpp is here to be run."""
        return self.llama_server is not None or available()

    @cached_property
    def name(self) -> str:
        """The llama.cpp that is run, with its version."""
        if self.llama_server is None:
            return f"llama.cpp (xllamacpp {version('xllamacpp')})"
        return f"llama-server {_version_of(self.llama_server)}"

    def on(self, path: Path) -> Engine:
        """The same, with the threads that a file has work for.

        They wait for each other by spinning: where another process takes one of the processors,
        as many threads as there are of these are far slower than one.
        """
        if self.threads is not None:
            return self
        small = path.stat().st_size < _SMALL
        return replace(self, threads=1 if small else max(1, (os.cpu_count() or 1) // 2))

    @property
    def used(self) -> dict[str, object]:
        """The part that a run records."""
        layers = "all that fit" if self.gpu_layers is None else self.gpu_layers
        return {"llama_cpp": self.name, "threads": self.threads, "gpu_layers": layers}


_OURS = Engine()


class Scored(NamedTuple):
    """Some tokens of a text, scored."""

    losses: NDArray[np.float64]
    """-log p of each, in nats; NaN where the model gives no number."""
    chosen: NDArray[np.int64]
    """The likeliest token in its place."""


def log_probabilities(
    path: str | Path, tokens: Sequence[int], *, flags: Flags | None = None, **options: Any
) -> LogProbabilities:
    """Those of a llama.cpp that is run for them alone: `LlamaCpp.log_probabilities`."""
    with running(path, length=len(tokens) + 1, flags=flags) as llama:
        return llama.log_probabilities(tokens, **options)


def available() -> bool:
    """True if the llama.cpp of xllamacpp is here, and starts."""
    return _installed() and not _fault()


def _installed() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None


@cache
def _fault() -> str:
    """Why the xllamacpp that is installed cannot be imported; empty if it can."""
    return imported(["xllamacpp"])[0].get("xllamacpp", "") if _installed() else ""


def absent() -> Unsupported:
    """The error for a llama.cpp that is missing, or broken."""
    if not (fault := _fault()):
        return missing("running llama.cpp", "xllamacpp")
    return Unsupported(f"{unusable('xllamacpp', fault)} (Debian has libgomp.so.1 in libgomp1)")


def runtime() -> str:
    """The llama.cpp of xllamacpp, with its version."""
    return _OURS.name


def _version_of(program: Path) -> str:
    """The version that a `llama-server` tells of itself; another program is refused."""
    remedy = "give the path of llama.cpp's `llama-server`, or leave it out to use xllamacpp's"
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace", timeout=_WAIT
        )
        said = f"{answer.stdout}\n{answer.stderr}".strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"no answer within {_WAIT:.0f} s"
        raise InvalidValue(
            "llama_server", str(program), f"cannot be run ({reason})", remedy
        ) from None
    if (version := re.search(r"^version: (.+)$", said, re.MULTILINE)) is None:
        rule = f"is not a llama-server: `--version` prints {shortened(said.partition(chr(10))[0])}"
        raise InvalidValue("llama_server", str(program), rule, remedy)
    return printable(version[1])


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
    process: subprocess.Popen[bytes]
    complaints: IO[str]

    def is_ready(self) -> bool:
        """True once the file is loaded, and it answers."""
        where = urlsplit(self.address)
        with closing(HTTPConnection(where.hostname or "", where.port, timeout=_DYING)) as server:
            try:
                server.request("GET", "/health")
                return server.getresponse().status == HTTPStatus.OK
            except (OSError, HTTPException):
                return False

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
    cache: str = "f16",
    engine: Engine = _OURS,
) -> Iterator[LlamaServer]:
    """llama.cpp's server on a free local port, until the end of the `with` block.

    `exact`: on the CPU, with a float32 cache and without flash attention; else as llama.cpp does by
    itself, with a `cache` of this type. `keeps_prompts`: a prompt is read from where it differs
    from the one before. How it is cut then depends on what was asked before, and rounding with it.
    """
    if not engine.available:
        raise absent()
    if not Path(path).is_file():
        raise InputError(f"{path}: there is no such file; give a GGUF file")
    port = _free_port()
    words = _words(Path(path), length, exact, keeps_prompts, cache, engine.on(Path(path)))
    words += () if flags is None else flags.words
    own = engine.llama_server
    program = () if own is None else ("--program", str(own.resolve()))
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        # -P: the folder of the script holds modules that are named after what they write for.
        process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), *program, *words, "--port", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env=_environment(),
        )
        with process:  # waits for its end, and closes its pipes
            served = LlamaServer(f"http://127.0.0.1:{port}", process, complaints)
            try:
                while not served.is_ready():
                    if process.poll() is not None:
                        raise CannotLoad(Path(path), _reason(complaints, process))
                    time.sleep(_AGAIN)
                yield served
            finally:
                if process.stdin is not None:
                    process.stdin.close()  # its own child ends with it
                if own is None:
                    process.kill()


def _environment() -> dict[str, str]:
    """The environment of a server: a user's own options of his build, but no key or other path."""
    others = ("LLAMA_API_KEY", "LLAMA_ARG_API_KEY_FILE", "LLAMA_ARG_API_PREFIX")
    variables = {name: value for name, value in environment().items() if name not in others}
    return variables | {"GGML_NO_BACKTRACE": "1"}  # else a debugger writes first


def _words(
    path: Path, length: int, exact: bool, keeps_prompts: bool, cache: str, engine: Engine
) -> tuple[str, ...]:
    """The command line of `llama-server`, which that of xllamacpp takes too."""
    threads = str(engine.threads)
    layers = 0 if exact else engine.gpu_layers
    kind = "f32" if exact else cache
    return (
        *("--model", str(path.resolve()), "--alias", path.name, "--ctx-size", str(length)),
        *("--threads", threads, "--threads-batch", threads, "--parallel", "1"),
        *(() if layers is None else ("--gpu-layers", str(layers))),
        *("--cache-type-k", kind, "--cache-type-v", kind),
        *(("--flash-attn", "off") if exact else ()),
        # Else a model with windows reads each prompt that is shorter than these from its beginning.
        "--swa-full" if keeps_prompts else "--no-cache-prompt",
        *("--fit", "off"),  # it would lower the context without a word
        *("--cache-ram", "0", "--ctx-checkpoints", "0", "--no-warmup"),
        "--check-tensors",  # else weights that are NaN load, and no answer is right
        *("--verbosity", _ERRORS_ONLY),
    )


def _free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
    return port


class RunningLlamaCpp:
    """A llama.cpp that runs, and answers."""

    def __init__(self, path: Path, served: LlamaServer) -> None:
        self._path, self._served = path, served
        self.read = 0
        """The tokens that the model has read so far."""

    def tokenize(self, text: str) -> list[int]:
        """A text as tokens; with BOS and EOS if the file says so, and special tokens as such."""
        body = {"content": text, "add_special": True, "parse_special": True}
        tokens: list[int] = self.post("/tokenize", body)["tokens"]
        return tokens

    def log_probabilities(
        self,
        tokens: Sequence[int],
        *,
        start: int = 0,
        step: int = 1,
        top: int = TOP,
        report: Callable[[int], None] = lambda read: None,
    ) -> LogProbabilities:
        """Log-probabilities after every `step`-th token from position `start` on.

        `report` hears how many of the tokens have been read.
        """
        if not 0 <= start < len(tokens):
            raise InvalidValue(
                "start", start, f"there are {len(tokens)} tokens", "give one of their positions"
            )
        # llama.cpp answers with probabilities only where what it goes on to write is whole text,
        # neither EOS nor half a character. So it must write this; the probabilities are of the
        # model as it is, before any bias.
        rows, positions = [], range(start, len(tokens), step)
        for end in positions:  # each prompt begins with the one before, which is not read again
            options = {"n_probs": top, "logit_bias": [[self._whole_text, _CERTAIN]]}
            (answer,) = self._complete(tokens[: end + 1], 1, **options)["completion_probabilities"]
            rows.append(answer["top_logprobs"])
            report(end + 1)
        return LogProbabilities(
            positions=positions,
            tokens=np.array([[entry["id"] for entry in row] for row in rows]),
            values=np.array(  # what is not a number is null in JSON
                [[entry["logprob"] for entry in row] for row in rows], dtype=np.float64
            ),
        )

    def scores(
        self,
        tokens: Sequence[int] | NDArray[np.int64],
        positions: Sequence[int],
        scored: Callable[[], None] = lambda: None,
    ) -> Scored:
        """The losses of some tokens, each given all before it, and the first choices there.

        `scored` is called after each.
        The first request reads all that stands before, so nothing depends on what was asked
        earlier; each further one reads what is new. llama.cpp is made to write the token itself,
        whose probability it then tells, before any bias. Of a token that is no whole text it
        tells none: then it must name the whole vocabulary.
        """
        losses, chosen = [], []
        for number, position in enumerate(positions):
            before, token = tokens[:position], int(tokens[position])
            settings: dict[str, Any] = {"cache_prompt": number > 0, "n_probs": 1}
            answer = self._complete(before, 1, logit_bias=[[token, _CERTAIN]], **settings)
            if not (rows := answer.get("completion_probabilities")):
                rows = self._complete(
                    *(before, 1),
                    **{**settings, "cache_prompt": True, "n_probs": _ALL},
                    logit_bias=[[self._whole_text, _CERTAIN]],
                )["completion_probabilities"]
                matches = [each for each in rows[0]["top_logprobs"] if each["id"] == token]
                rows[0] |= matches[0]
            values = rows[0]["logprob"], rows[0]["top_logprobs"][0]["id"]
            losses.append(np.nan if values[0] is None else -float(values[0]))
            chosen.append(int(values[1]))
            scored()
        return Scored(np.array(losses), np.array(chosen, dtype=np.int64))

    @cached_property
    def _whole_text(self) -> int:
        """A token that is whole text, neither EOS nor half a character."""
        (*_, token) = self.post("/tokenize", {"content": "a"})["tokens"]
        return int(token)

    def generate(self, tokens: Sequence[int], count: int, *, again: bool = True) -> list[int]:
        """The likeliest continuation, greedily, up to `count` tokens or the end of the text.

        Unless `again`, the prompt is read from its beginning, whatever was asked before.
        """
        generated: list[int] = self._complete(tokens, count, cache_prompt=again)["tokens"]
        return generated

    def _complete(
        self, tokens: Sequence[int] | NDArray[np.int64], count: int, **settings: object
    ) -> Any:
        body = {
            "prompt": [int(token) for token in tokens],
            "n_predict": count,
            "temperature": 0.0,
            "cache_prompt": True,
            "return_tokens": True,
            "response_fields": ["tokens", "completion_probabilities", "timings"],
            **settings,
        }
        answer = self.post("/completion", body)
        timings = answer["timings"]
        self.read += timings["prompt_n"] + max(0, timings["predicted_n"] - 1)
        return answer

    @property
    def serves(self) -> int:
        """The longest sequence, with what is written."""
        return int(self.post("/props")["default_generation_settings"]["n_ctx"])

    def post(self, endpoint: str, content: dict[str, object] | None = None) -> Any:
        """llama.cpp's answer."""
        where = urlsplit(self._served.address)
        try:
            # A connection of its own: llama.cpp closes one that was idle for five seconds.
            with closing(HTTPConnection(where.hostname or "", where.port)) as connection:
                if content is None:
                    connection.request("GET", endpoint)
                else:
                    body = json.dumps(content)
                    connection.request("POST", endpoint, body, {"Content-Type": "application/json"})
                answer = json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError) as error:
            if (reason := self._served.end()) is not None:
                fault = f"llama.cpp stopped unexpectedly: {reason}"
            else:
                said = f"{type(error).__name__}: {shortened(str(error))}"
                fault = f"llama.cpp is running, but its answer cannot be read ({said})"
            raise RopewalkError(
                f"{self._path}: {fault}; run the same command again (it resumes from its `run`); "
                "give shorter lengths if memory ran out"
            ) from None
        if "error" in answer:
            raise RopewalkError(f"{self._path}: llama.cpp refuses: {answer['error']['message']}")
        return answer


def _reason(complaints: IO[str], process: subprocess.Popen[bytes]) -> str:
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

    def report(read: int) -> None:
        detail = f"llama.cpp reads {what}: {read:,} of {count:,} tokens"
        progress(Status("compare", begun + share * read / count, detail))

    report(0)
    return report
