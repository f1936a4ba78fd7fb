"""A real HTTP server that misbehaves as told: what bad servers do on the wire."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


@dataclass
class Wire:
    """What a server was asked, and where it is."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def completions(self) -> int:
        return self.paths.count("/v1/completions")


def said(value: object, status: int = 200, **headers: str) -> Reply:
    return status, headers, json.dumps(value).encode()


def listed(*names: str, owner: str = "someone", **more: object) -> Reply:
    return said({"data": [{"id": name, "owned_by": owner, **more} for name in names]})


def completed(asked: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An answer as it should be, with changes."""
    prompt = asked["prompt"]
    count = len(prompt) if isinstance(prompt, list) else len(prompt.split())
    return {
        "model": asked["model"],
        "choices": [{"text": " 12345", "index": 0, "logprobs": None}],
        "usage": {"prompt_tokens": count},
        **changes,
    }


@contextmanager
def misbehaving(
    complete: Callable[[dict[str, Any], int], Reply],
    models: Callable[[], Reply] = lambda: listed("m"),
    other: Callable[[str], Reply] = lambda path: said({}, 404),
) -> Iterator[Wire]:
    """A server whose n-th completion is `complete(request, n)`, from 0 on."""
    wire = Wire()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._note()
            self._send(models() if self.path.endswith("/v1/models") else other(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = json.loads(body)
            with lock:
                number = len(wire.asked)
                wire.asked.append(asked)
            self._note()
            self._send(complete(asked, number))

        def _note(self) -> None:
            with lock:
                wire.paths.append(self.path)
                wire.keys.append(self.headers.get("Authorization"))

        def _send(self, reply: Reply) -> None:
            status, headers, body = reply
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that went away is no news."""

    server = Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    wire.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield wire
    finally:
        server.shutdown()
        server.server_close()
