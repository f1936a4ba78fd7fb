"""Twenty servers that misbehave on real sockets, each asked by three verbs.

The first answers are good, so that there is something to lose; then the server does what its name
says. The key must reach no other host, no file and no output, what was kept must still be there,
and the same command must go on when the server is well again.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ropewalk as rw
from ropewalk.__main__ import run
from ropewalk.evaluation.served import client as client_module
from tests.evaluation.served.bad_server import completed
from tests.evaluation.usable.ideal import LENGTH, answered
from tools.reliability.row import Case, Row

KEY = "sk-verysecret-0123456789"
GOOD = 6
"""Completions that are answered well before the fault begins."""
Asked = dict[str, Any]
Fault = Callable[[socket.socket, Asked, "Wire"], None]


class Wire:
    """A server on a socket of its own: good until `GOOD` completions, then as `fault` has it."""

    def __init__(self, fault: Fault | None, elsewhere: Wire | None = None, port: int = 0) -> None:
        self.fault, self.elsewhere = fault, elsewhere
        self.completions, self.heard = 0, b""
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                own = self._socket.accept()[0]
                threading.Thread(target=self._answer, args=(own,), daemon=True).start()

    def _answer(self, own: socket.socket) -> None:
        with own, contextlib.suppress(OSError, ValueError):
            raw = b""
            while b"\r\n\r\n" not in raw:
                raw += own.recv(65_536)
            head, _, body = raw.partition(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == LENGTH_OF),
                0,
            )
            while len(body) < length:
                body += own.recv(65_536)
            self.heard += raw
            if b" /v1/models " in head.split(b"\r\n")[0]:
                return send(own, {"data": [{"id": "m", "max_model_len": LENGTH}]})
            if not body:
                return send(own, {}, 404)
            self.completions += 1
            asked = json.loads(body)
            if self.fault is None or self.completions <= GOOD:
                return send(own, good(asked))
            return self.fault(own, asked, self)


LENGTH_OF = b"content-length:"


def good(asked: Asked) -> dict[str, Any]:
    if isinstance(asked["prompt"], list):
        return completed(asked)
    said: dict[str, Any] = json.loads(answered(asked)[2])
    return said


def send(own: socket.socket, value: object, status: int = 200, *headers: str) -> None:
    whole(own, json.dumps(value).encode(), status, *headers)


def whole(own: socket.socket, body: bytes, status: int = 200, *headers: str) -> None:
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    own.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)


def _text(asked: Asked) -> str:
    prompt = asked["prompt"]
    return bytes(max(0, t - 1) % 256 for t in prompt).decode("latin-1") if isinstance(
        prompt, list) else prompt  # fmt: skip


def _saying(**changes: Any) -> Fault:
    """A good answer with other members."""

    def fault(own: socket.socket, asked: Asked, wire: Wire) -> None:
        made = {key: value(asked) if callable(value) else value for key, value in changes.items()}
        send(own, {**good(asked), **made})

    return fault


def _raw(body: bytes, status: int = 200, *headers: str) -> Fault:
    return lambda own, asked, wire: whole(own, body, status, *headers)


def _choice(asked: Asked, text: object, **more: object) -> list[dict[str, object]]:
    return [{"text": text, "index": 0, **more}]


def _slow(own: socket.socket, asked: Asked, wire: Wire) -> None:
    time.sleep(0.02)
    send(own, good(asked))


def _dribble(own: socket.socket, asked: Asked, wire: Wire) -> None:
    own.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(600):
        own.sendall(b" ")
        time.sleep(0.2)


def _cut(own: socket.socket, asked: Asked, wire: Wire) -> None:
    body = json.dumps(good(asked)).encode()
    own.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body[:-9]))


def _busy_once(own: socket.socket, asked: Asked, wire: Wire) -> None:
    if wire.completions == GOOD + 1:
        send(own, {"error": "busy"}, 429, "Retry-After: 0")
    else:
        send(own, good(asked))


def _elsewhere(own: socket.socket, asked: Asked, wire: Wire) -> None:
    assert wire.elsewhere is not None
    to = f"http://localhost:{wire.elsewhere.port}/v1/completions"
    send(own, {}, 307, f"Location: {to}")


def _chunks(own: socket.socket, asked: Asked, wire: Wire) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    own.sendall(head + (b"-1\r\n" if wire.completions % 2 else b"zz;\r\n") + b"{}\r\n" * 1_000)


def _headers(own: socket.socket, asked: Asked, wire: Wire) -> None:
    own.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n{}")


_ALTERNATIVES = {"top_logprobs": [{"a": float(5), "b": "x", "c": True, "token_id:-4": -(10**400)}]}
FAULTS: dict[str, tuple[Fault, bool]] = {
    "slow": (_slow, True),
    "a byte now and then": (_dribble, False),
    "cut off in the middle": (_cut, False),
    "closes without a word": (lambda own, asked, wire: None, False),
    "a page of HTML": (_raw(b"<html><script>x</script></html>"), False),
    "a list for an object": (_raw(b"[[]]"), False),
    "nested without end": (_raw(b'{"a":' * 100_000), False),
    "numbers that are none": (_raw(b'{"choices": [NaN, 1e999], "choices": []}'), False),
    "another model": (_saying(model="another"), False),
    "an echo": (_saying(choices=lambda a: _choice(a, _text(a) + " 12345")), False),
    "an answer too long": (_saying(choices=lambda a: _choice(a, "12345 " * 5_000)), False),
    "no text": (_saying(choices=lambda a: _choice(a, 12345)), False),
    "logprobs that are none": (
        _saying(choices=lambda a: _choice(a, " 12345", logprobs=_ALTERNATIVES)), True
    ),
    "tokens that nobody sent": (_saying(usage={"prompt_tokens": 10**30}), False),
    "too many requests, for an hour": (_raw(b"{}", 429, "Retry-After: 3600"), False),
    "too many requests, once": (_busy_once, True),
    "a redirect to another host": (_elsewhere, False),
    "a stream": (_raw(b'data: {"choices": []}\n\ndata: [DONE]\n\n'), False),
    "chunks of no size": (_chunks, False),
    "compressed zeros": (_raw(gzip.compress(bytes(2**27), 1), 200, "Content-Encoding: gzip"),
                         False),
}  # fmt: skip
"""Each with whether its answers are still answers."""
VERBS = ("evaluate", "fingerprint", "howlong")


def _words(verb: str, url: str, room: Path, base: Path) -> list[str]:
    model, timeout = str(base / "model"), ["--timeout", "3"]
    if verb == "evaluate":
        tasks = ["--tasks", "kv", "--lengths", "128", "--samples", "12"]
        return [verb, "--server", url, "--tokenizer", model, *tasks, *timeout,
                "--run", str(room / "run")]  # fmt: skip
    if verb == "fingerprint":
        return [verb, str(base / "fingerprint.json"), "--server", url, *timeout]
    return [verb, url, "--need", "1k", *timeout, "--run", str(room / "run")]


def _asked(words: list[str]) -> tuple[int, str]:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        status = run(words)
    return status, told.getvalue()


def _judged(base: Path, room: Path, verb: str, fault: Fault, answers: bool) -> str | None:
    os.environ[client_module.KEY] = KEY
    client_module.Client.first_wait = 0.01
    defaults = client_module.Client.__init__.__defaults__ or ()
    client_module.Client.__init__.__defaults__ = tuple(
        0.01 if value == 0.5 else value for value in defaults
    )
    room.mkdir()
    elsewhere = Wire(None)
    wire = Wire(fault, elsewhere)
    words = _words(verb, wire.url, room, base)
    status, told = _asked(words)
    about = f"({' '.join(told.split())[-300:]})"
    wire.close()
    kept = _lines(room)
    if status not in (0, 1, 2, 3) or "Traceback" in told:
        return f"status {status} {about}"
    if elsewhere.heard:
        return f"another host was asked {about}"
    written = b"".join(path.read_bytes() for path in room.rglob("*") if path.is_file())
    if KEY in told or KEY.encode() in written:
        return f"the key was written {about}"
    asked = wire.completions > GOOD
    if status == 0 and asked and not answers:
        return f"accepted {about}"
    judged = status == 3 and "cannot be judged" in told  # an echo has nothing that was asked for
    if status != 0 and "error: " not in told and not judged and verb != "fingerprint":
        return f"status {status} without an error {about}"
    if verb == "fingerprint":
        return None
    again = Wire(None, port=wire.port)
    status, told = _asked(words)
    again.close()
    if status not in (0, 3):
        return f"does not go on when the server is well: status {status} ({told[-300:]})"
    now = _lines(room)
    lost = [name for name, lines in kept.items() if now.get(name, [])[: len(lines)] != lines]
    return f"lines of {lost[0]} were lost" if lost else None


def _lines(room: Path) -> dict[str, list[bytes]]:
    """The whole lines of the journals of answers."""
    return {
        path.name: path.read_bytes().splitlines(keepends=True)
        for path in room.rglob("*.jsonl")
        if path.name != "events.jsonl"
    }


def cases(room: Path, seed: int) -> Iterator[Case]:
    from tests.evaluation import tiny

    model = tiny.folder_of(tiny.model(), room / "model")
    corpus = room / "corpus.txt"
    corpus.write_text("\n".join(document.text for document in tiny.documents(4)), encoding="utf-8")
    for name, (fault, answers) in FAULTS.items():
        for verb in VERBS:
            own = room / f"{name} {verb}"
            file = room / "fingerprint.json"
            if verb == "fingerprint" and not file.exists():
                plan = rw.plan(model, "256", "yarn").plan
                made = rw.fingerprint(model, plan=plan, length=128, corpus=corpus, progress=None)
                file.write_text(made.dumps(), encoding="utf-8")
            yield Case(f"{verb}: {name}", partial(_judged, room, own, verb, fault, answers))


ROWS = (
    Row(
        "servers",
        "servers that are slow, cut off, echo, redirect, stream, or answer anything but what was "
        "asked, on real sockets; asked by `evaluate`, `fingerprint` and `howlong`",
        "a clear error, nothing lost, the key nowhere else, no score of an echo",
        60,
        cases,
        seconds=60,
        sample=1,
    ),
)
