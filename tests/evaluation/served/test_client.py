"""What bad servers do to a client: one line each, bounded in time and size, and never the key."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from typing import Any

import pytest

from ropewalk.errors import InputError, InvalidValue, RopewalkError
from ropewalk.evaluation.served import client as client_module
from ropewalk.evaluation.served.client import Client, Refused, ServerError, address
from tests.evaluation.served.bad_server import Reply, completed, misbehaving, said

KEY = "sk-verysecret-0123456789"
ASKED: dict[str, object] = {"model": "m", "prompt": [1, 2], "max_tokens": 1}


def client(url: str, key: str | None = KEY, **settings: Any) -> Client:
    return Client(address(url), key, **{"timeout": 10.0, "first_wait": 0.01, **settings})


def refusal(own: Client) -> str:
    with pytest.raises(RopewalkError) as caught:
        own.post("/v1/completions", ASKED)
    text = str(caught.value)
    assert KEY not in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("https://host/deep/v1", "https://host/deep"),
        ("https://host/deep/v1/chat/completions", "https://host/deep"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert str(address(url)) == shown


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8000", "ftp://x", "http://", "http://a:b", "", 3, "a b", "http://a:99999"),
        *("http://a..b", f"http://{'a' * 64}", "http://.", "http://[::1", "http://host/ä"),
    ],
)
def test_what_is_no_address_is_refused(url: object) -> None:
    with pytest.raises(InvalidValue, match="server"):
        address(url)


@pytest.mark.parametrize("url", [f"http://me:{KEY}@host", f"http://host/v1?key={KEY}"])
def test_an_address_with_a_key_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InputError, match="ROPEWALK_API_KEY") as caught:
        address(url)
    assert KEY not in str(caught.value)
    with pytest.raises(InputError, match="holds the key") as caught:
        client(f"http://host/{KEY}/v1")
    assert KEY not in str(caught.value)


def test_the_key_goes_into_a_header() -> None:
    with misbehaving(lambda asked, n: said(completed(asked))) as wire:
        client(wire.url).post("/v1/completions", ASKED)
        assert wire.keys == [f"Bearer {KEY}"]
        assert KEY not in repr(client(wire.url))


@pytest.mark.parametrize("key", ["with space", "line\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    with pytest.raises(InputError, match="ROPEWALK_API_KEY must be") as caught:
        client("http://host", key)
    assert key not in str(caught.value)


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = refusal(client(f"http://127.0.0.1:{port}", attempts=2))
    assert text == (
        f"http://127.0.0.1:{port} does not answer (Connection refused); start it, or check the "
        "address"
    )


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused(status: int) -> None:
    wrong = said({"error": {"message": f"Incorrect API key provided: {KEY}."}}, status)
    with misbehaving(lambda asked, n: wrong) as wire:
        assert refusal(client(wire.url)) == (
            f"{wire.url} answers {status}: Incorrect API key provided: [key]; put its key into the "
            "environment variable ROPEWALK_API_KEY (the one set is refused)"
        )
        assert wire.completions == 1  # not asked again with the same key


def test_a_key_that_is_missing() -> None:
    with misbehaving(lambda asked, n: said({"error": "no key"}, 401)) as wire:
        assert refusal(client(wire.url, None)).endswith("(none is set)")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int) -> None:
    def once(asked: dict[str, Any], number: int) -> Reply:
        return said({"error": "busy"}, status) if number < 2 else said(completed(asked))

    with misbehaving(once) as wire:
        assert client(wire.url).post("/v1/completions", ASKED) == completed({**ASKED})
        assert wire.completions == 3


def test_what_does_not_pass_ends_in_a_line() -> None:
    with misbehaving(lambda asked, n: said({"error": {"message": "boom"}}, 500)) as wire:
        text = refusal(client(wire.url, attempts=3))
        assert text == f"{wire.url} answers 500: boom, 3 times; try again later"
        assert wire.completions == 3


def test_a_server_says_how_long_to_wait() -> None:
    def once(asked: dict[str, Any], number: int) -> Reply:
        return said({}, 429, Retry_After="1") if number == 0 else said(completed(asked))

    with misbehaving(once) as wire:
        begun = time.monotonic()
        client(wire.url).post("/v1/completions", ASKED)
        assert time.monotonic() - begun >= 1


def test_a_server_that_asks_for_an_hour_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with misbehaving(lambda asked, n: said({}, 429, Retry_After="3600")) as wire:
        assert "asks to wait 3,600 s; run the same command again" in refusal(client(wire.url))
    with misbehaving(
        lambda asked, n: said({}, 429, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")
    ) as wire:
        assert "asks to wait" in refusal(client(wire.url))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "answers with nothing that is JSON"),
        (b"<html>hello</html>", "is not JSON"),
        (b"\xff\xfe", "answers with nothing that is JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"choices": [', "is not JSON"),
    ],
)
def test_what_is_no_json(body: bytes, told: str) -> None:
    with misbehaving(lambda asked, n: (200, {}, body)) as wire:
        text = refusal(client(wire.url))
        assert told in text
        assert wire.url in text


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BYTES", 1000)
    with misbehaving(lambda asked, n: (200, {}, b" " * 1001)) as wire:
        assert "answers with more than 1,000 bytes" in refusal(client(wire.url))


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with misbehaving(lambda asked, n: said(completed(asked))) as elsewhere:
        target = f"{elsewhere.url}/v1/completions"
        for status in (301, 302, 307, 308):
            with misbehaving(lambda asked, n, s=status: said({}, s, Location=target)) as wire:  # type: ignore[misc]
                assert "redirects to '127.0.0.1', which is not followed" in refusal(
                    client(wire.url)
                )
        with misbehaving(
            lambda asked, n: said({}, 302, Location=f"https://{KEY}.example/x")
        ) as wire:
            assert "[key].example" in refusal(client(wire.url))
    assert elsewhere.paths == []


def test_the_key_is_taken_out_of_answers() -> None:
    with misbehaving(lambda asked, n: said({"choices": [{"text": f"your {KEY}"}], KEY: 1})) as wire:
        answer = client(wire.url).post("/v1/completions", ASKED)
        assert answer == {"choices": [{"text": "your [key]"}], "[key]": 1}


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def raw(begun: bytes, forever: bytes = b"", pause: float = 0.0) -> Iterator[str]:
    """A server that writes these bytes whatever it is asked, and then some for ever."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                own, _ = listening.accept()
            except OSError:
                return
            with own, suppress(OSError):
                own.recv(65536)
                own.sendall(begun)
                while forever:
                    own.sendall(forever)
                    time.sleep(pause)
                own.shutdown(socket.SHUT_WR)
                while own.recv(65536):  # closed with bytes unread, it would reset the connection
                    pass

    threading.Thread(target=serve, daemon=True).start()
    with listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_drips_is_left_in_time() -> None:
    """A byte now and then keeps every timeout of a socket away."""
    with raw(PLAIN + b"Content-Length: 100000\r\n\r\n", forever=b" ", pause=0.05) as url:
        begun = time.monotonic()
        told = refusal(client(url, timeout=0.4, attempts=1))
        assert "does not answer (it took too long)" in told
        assert time.monotonic() - begun < 3


def test_what_is_no_http() -> None:
    with raw(b"\x00\x01 hello\r\n\r\n") as url:
        assert "does not answer" in refusal(client(url, attempts=1))


@pytest.mark.parametrize(
    ("begun", "forever"),
    [
        (CHUNKED + b"-5\r\n", b"x" * 65536),
        (CHUNKED + b"-1\r\n", b"x" * 65536),
        (CHUNKED + b"FFFFFFFFFFFFFFFF\r\n", b"x" * 65536),
        (CHUNKED, (b"400\r\n" + b"x" * 1024 + b"\r\n") * 64),
        (PLAIN + b"\r\n", b"x" * 65536),
        (PLAIN + b"Content-Length: -5\r\n\r\n", b"x" * 65536),
        (PLAIN + b"Content-Length: 99999999999999999999\r\n\r\n", b"x" * 65536),
    ],
)
def test_bodies_without_end_are_left(begun: bytes, forever: bytes) -> None:
    with raw(begun, forever=forever) as url:
        begin = time.monotonic()
        assert "answers with more than 16,777,216 bytes" in refusal(client(url, attempts=1))
        assert time.monotonic() - begin < 8


@pytest.mark.parametrize(
    "said",
    [
        CHUNKED + b"-5\r\n{}\r\n0\r\n\r\n",
        CHUNKED + "²\r\n{}\r\n0\r\n\r\n".encode(),
        CHUNKED + b"9\r\n{}\r\n",
        PLAIN + b"Content-Length: 100\r\n\r\n{}",
        PLAIN + b"x: y\r\n" * 1000 + b"\r\n{}",
        PLAIN + b"x" * 70000 + b"\r\n\r\n{}",
        b"HTTP/1.1 -1 OK\r\n\r\n{}",
    ],
)
def test_an_answer_that_breaks_off_or_is_damaged(said: bytes) -> None:
    with raw(said) as url:
        text = refusal(client(url, attempts=1))
        assert "does not answer" in text or "is not JSON" in text
    if b"Content-Length" in said:
        assert "the answer ends in its middle" in text


@pytest.mark.parametrize(
    "wait",
    [
        "\xb2",
        "-5",
        "1e9",
        "Fri, 31 Dec 99999999999999999999 23:59:59 GMT",
        "Fri, 31 Dec 2100 23:59:59 +99999999999999",
    ],
)
def test_a_wait_that_is_nonsense_is_none(wait: str) -> None:
    with misbehaving(lambda asked, n: said({}, 429, Retry_After=wait)) as wire:
        assert "answers 429: {}, 2 times; try again later" in refusal(client(wire.url, attempts=2))


@pytest.mark.parametrize("depth", [200, 400, 700, 950, 5000])
def test_deep_answers_with_a_key(depth: int) -> None:
    body = b"[" * depth + b"]" * depth
    with misbehaving(lambda asked, n: (200, {}, body)) as wire, suppress(ServerError):
        client(wire.url).post("/v1/completions", ASKED)  # and no other error


def test_a_client_that_is_stopped_leaves_at_once() -> None:
    hold = threading.Event()

    def slow(asked: dict[str, Any], number: int) -> Reply:
        hold.wait(20)
        return said(completed(asked))

    with misbehaving(slow) as wire:
        own = client(wire.url)
        threading.Timer(0.2, own.stop).start()
        begun = time.monotonic()
        with pytest.raises(ServerError):
            own.post("/v1/completions", ASKED)
        assert time.monotonic() - begun < 5
        hold.set()


def test_a_refusal_keeps_what_was_said() -> None:
    with misbehaving(lambda asked, n: said({"detail": "too\nlong"}, 400)) as wire:
        with pytest.raises(Refused) as caught:
            client(wire.url).post("/v1/completions", ASKED)
        assert (caught.value.status, caught.value.said) == (400, "too long")
        assert client(wire.url).get("/nowhere") is None


@pytest.mark.parametrize("line", [f"{KEY} is your key", f"HTTP/1.1 {KEY}"])
def test_a_key_in_the_status_line_is_taken_out(line: str) -> None:
    with raw(f"{line}\r\n\r\n".encode()) as url:
        refusal(client(url, attempts=1))


def test_a_key_that_a_server_writes_otherwise_is_taken_out_too() -> None:
    def answer(asked: object, n: int) -> Reply:
        return said({}, 302, Location=f"https://{KEY.upper()}.example/x")

    with misbehaving(answer) as wire:
        assert KEY.lower() not in refusal(client(wire.url)).lower()
    with pytest.raises(InputError, match="holds the key"):
        client("http://host/%73k-verysecret-0123456789/v1")


def test_a_client_that_is_stopped_while_it_connects_leaves_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with raw(PLAIN + b"Content-Length: 100000\r\n\r\n", forever=b" ", pause=0.05) as url:
        own = client(url)
        connects = HTTPConnection.connect

        def slowly(connection: HTTPConnection) -> None:
            connects(connection)
            own.stop()

        monkeypatch.setattr(HTTPConnection, "connect", slowly)
        began = time.monotonic()
        with pytest.raises(ServerError):
            own.post("/v1/completions", ASKED)
        assert time.monotonic() - began < 5


def test_a_number_beyond_float64_is_an_error_of_the_server() -> None:
    with (
        misbehaving(lambda asked, n: said({"data": [10**350]})) as wire,
        pytest.raises(ServerError, match=r"data\[0\].*is too large for float64"),
    ):
        client(wire.url).post("/v1/completions", ASKED)
