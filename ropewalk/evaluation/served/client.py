"""Requests to a server, over the standard library: bounded, repeated where that may help, silent
about the key.

The key goes into one header of requests to one host. No redirect is followed and no proxy of the
environment is used, so it reaches nobody else; and wherever a server repeats it, it is taken out of
what is read, before anything is made of that.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ropewalk.errors import InputError, InvalidValue, RopewalkError, printable, shortened
from ropewalk.untrusted import parse_json, real_number

KEY = "ROPEWALK_API_KEY"
"""The environment variable that holds the server's key."""
MAX_BYTES = 16 * 2**20
"""The most bytes of an answer."""
ATTEMPTS = 6
LONGEST_WAIT = 120.0
"""Seconds between two attempts; a server that asks for more is asked again by the user."""
TIMEOUT = 600.0
"""Seconds for one request, from connecting to the last byte."""
_CONNECTING = 20.0
_PIECE = 65536
_SAID = 200
"""Characters of a server's response that an error repeats."""
_REPEATED = (408, 429, 500, 502, 503, 504, *range(520, 525), 529)


class ServerError(RopewalkError):
    """A server does not do what it is asked."""


class Refused(ServerError):
    """A server refuses this request, and would refuse it again."""

    def __init__(self, text: str, status: int, said: str) -> None:
        super().__init__(text)
        self.status, self.said = status, said


class Address(NamedTuple):
    """The address of a server."""

    scheme: str
    host: str
    port: int | None
    path: str
    """The path before `/v1`."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    @property
    def is_local(self) -> bool:
        return self.host in ("localhost", "127.0.0.1", "::1")


def address(url: object) -> Address:
    """The address in a URL, with or without `/v1` at its end, or a path within that."""
    remedy = "write http://localhost:8000"
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise InvalidValue("server", url, "must be a URL", remedy)
    try:
        split = urlsplit(url)
        port = split.port
        (split.hostname or "").encode("idna")  # as it is looked up
        split.path.encode("ascii")
    except ValueError:
        raise InvalidValue("server", url, "must be a URL", remedy) from None
    if "@" in split.netloc or split.query or split.fragment:
        # Not shown: it may hold a password or a key.
        raise InputError(
            "server: the URL must hold no user, password, query or fragment, since it is recorded; "
            f"put the key into the environment variable {KEY}"
        )
    if split.scheme not in ("http", "https") or not split.hostname:
        raise InvalidValue("server", url, "must begin with http:// or https://", remedy)
    path = re.sub(r"/v1(/(chat/)?completions|/models)?/*$", "", split.path).rstrip("/")
    return Address(split.scheme, split.hostname, port, path)


def check_key(key: str | None, where: Address) -> None:
    """Refuse a key that cannot be sent, or that is in the URL; it is not shown."""
    if key is None:
        return
    if not key.isascii() or not key.isprintable() or " " in key or len(key) < 2:
        raise InputError(f"{KEY} must be printable ASCII without spaces; set it anew")
    if any(key.lower() in text.lower() for text in (str(where), unquote(str(where)))):
        raise InputError(
            f"server: the URL holds the key of {KEY}, and would be recorded; take it out of the URL"
        )


@dataclass(eq=False)
class Client:
    """One server."""

    where: Address
    key: str | None = field(default=None, repr=False)
    timeout: float = TIMEOUT
    attempts: int = ATTEMPTS
    first_wait: float = 0.5
    """Seconds before the second attempt; doubled before each further one."""
    _stopped: threading.Event = field(default_factory=threading.Event, repr=False)
    _open: set[socket.socket] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        check_key(self.key, self.where)

    @classmethod
    def of(cls, server: str, timeout: float) -> Client:
        """The client of a server by its URL, with the key of the environment."""
        if not 0 < real_number(timeout, "timeout") <= 86400:
            raise InvalidValue("timeout", timeout, "must be above 0, up to 86400 s", "give 600")
        return cls(address(server), os.environ.get(KEY) or None, float(timeout))

    def get(self, path: str) -> object:
        """The JSON at a path, or None if there is none."""
        try:
            return self._answer("GET", path, None)
        except Refused as error:
            if error.status in (401, 403):
                raise
            return None

    def post(self, path: str, body: dict[str, object]) -> object:
        """The answer to a request."""
        return self._answer("POST", path, json.dumps(body, allow_nan=False).encode())

    def stop(self) -> None:
        """End all requests under way, and all to come."""
        self._stopped.set()
        with self._lock:
            for each in self._open:
                _shut(each)

    def clean(self, text: str) -> str:
        """A text without the key."""
        if not self.key:
            return text
        return re.sub(re.escape(self.key), "[key]", text, flags=re.IGNORECASE)

    def _answer(self, method: str, path: str, body: bytes | None) -> object:
        attempts = 2 if method == "GET" else self.attempts
        wait = self.first_wait
        for left in reversed(range(attempts)):
            if self._stopped.is_set():
                raise ServerError(f"{self.where}: not asked any more")
            try:
                status, text, asked_wait = self._ask(method, path, body)
            # A server may be starting, so it is asked again; a wrong certificate stays wrong.
            except (OSError, HTTPException) as error:
                why = f"{self.where} does not answer ({self.clean(_reason(error))})"
                if not left or self._stopped.is_set() or isinstance(error, ssl.SSLError):
                    raise ServerError(f"{why}; start it, or check the address") from None
            else:
                # Some errors pass after the wait that the server asks for; others are final.
                if status < 300:
                    return self._parsed(text)
                why = self._sentence(status, text)
                if status not in _REPEATED or (method == "GET" and status != 429):
                    raise self._refused(status, text)
                if asked_wait is not None and asked_wait > LONGEST_WAIT:
                    raise ServerError(
                        f"{why}, and asks to wait {asked_wait:,.0f} s; run the same command again "
                        "then, which resumes"
                    )
                if not left:
                    raise ServerError(f"{why}, {attempts} times; try again later")
                wait = max(wait, asked_wait or 0.0)
            self._stopped.wait(min(wait, LONGEST_WAIT))
            wait = min(2 * wait, LONGEST_WAIT)
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, float | None]:
        """One attempt: the status, the body, and how long the server asks to wait."""
        kind = HTTPSConnection if self.where.scheme == "https" else HTTPConnection
        host = self.where.host
        connection = kind(host, self.where.port, timeout=min(self.timeout, _CONNECTING))
        headers = {"Accept": "application/json", "User-Agent": "ropewalk"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        late = threading.Event()
        try:
            connection.connect()
            sock = connection.sock
            sock.settimeout(self.timeout)
            with self._lock:
                self._open.add(sock)
                if self._stopped.is_set():  # while it connected
                    _shut(sock)

            def end() -> None:
                late.set()
                _shut(sock)

            # A server may send a byte a minute, which no timeout of a socket notices.
            timer = threading.Timer(self.timeout, end)
            timer.daemon = True
            timer.start()
            try:
                connection.request(method, f"{self.where.path}{path}", body, headers)
                response = connection.getresponse()
                with response:  # which holds the socket, too
                    said = _body(response)
            finally:
                timer.cancel()
                with self._lock:
                    self._open.discard(sock)
            if late.is_set():
                raise TimeoutError
            if said is None:
                raise ServerError(
                    f"{self.where} answers with more than {MAX_BYTES:,} bytes; check that it is "
                    "the right server"
                )
            if 300 <= response.status < 400:
                raise self._redirected(response)
            return response.status, said, _wait(response)
        except (OSError, HTTPException):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            connection.close()

    def _parsed(self, said: bytes) -> object:
        try:
            text = said.decode()
        except UnicodeDecodeError:
            text = ""
        if not text.strip():
            raise ServerError(
                f"{self.where} answers with nothing that is JSON; check that the address is that "
                "of an OpenAI-compatible server"
            )
        source = f"the answer of {self.where}"
        try:
            return self._cleaned(parse_json(text, source=source))
        except RecursionError:
            source = f"{source}: is nested too deeply"
        except InputError as error:
            source = self.clean(str(error))
        raise ServerError(f"{source}; check that it is an OpenAI-compatible server")

    def _cleaned(self, value: object) -> object:
        if not self.key:
            return value
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        if isinstance(value, dict):
            return {self.clean(name): self._cleaned(item) for name, item in value.items()}
        return value

    def _redirected(self, response: HTTPResponse) -> ServerError:
        try:
            host = urlsplit(response.getheader("Location") or "").hostname
        except ValueError:
            host = None
        to = shortened(self.clean(host)) if host else "another path"
        return ServerError(
            f"{self.where} redirects to {to}, which is not followed; give the final address "
            "(`server`) if you trust it"
        )

    def _refused(self, status: int, said: bytes) -> Refused:
        message = self._message(said)
        answer = self._sentence(status, said)
        if status in (401, 403):
            key = "the one set is refused" if self.key else "none is set"
            remedy = f"put its key into the environment variable {KEY} ({key})"
        else:
            remedy = "check the address, the model's name, and the server's log"
        return Refused(f"{answer}; {remedy}", status, message)

    def _sentence(self, status: int, said: bytes) -> str:
        message = self._message(said)
        return f"{self.where} answers {status}" + (f": {message}" if message else "")

    def _message(self, said: bytes) -> str:
        """A server's reason for a refusal, in one line."""
        text = said[:65536].decode(errors="replace")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        for _ in range(3):
            if isinstance(value, dict):
                names = ("error", "message", "detail", "object")
                value = next((value[name] for name in names if name in value), None)
        shown = value if isinstance(value, str) else "" if text.lstrip()[:1] in "<" else text
        line = " ".join(self.clean(shown).split()).rstrip(".")
        return printable(line if len(line) <= _SAID else f"{line[:_SAID]}…")


def _body(response: HTTPResponse) -> bytes | None:
    """All of an answer; None if it is too long.

    It is read piece by piece: `read` believes the size of a chunk, and reads without end where that
    is negative.
    """
    said = bytearray()
    while part := response.read1(_PIECE):
        said += part
        if len(said) > MAX_BYTES:
            return None
    if response.length:
        raise HTTPException("the answer ends in its middle")
    return bytes(said)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):  # closed already
        each.shutdown(socket.SHUT_RDWR)


def _wait(response: HTTPResponse) -> float | None:
    """The seconds of `Retry-After`, which may also be a date."""
    after = response.getheader("Retry-After")
    if not after:
        return None
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", after):
        return float(after)
    try:
        until = parsedate_to_datetime(after)
    except (TypeError, ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, HTTPException):
        return "no HTTP" if not str(error) else f"no HTTP: {shortened(str(error))}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
