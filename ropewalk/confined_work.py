"""The child of confined.py. Run as a script, which imports nothing of ropewalk.

    python -P confined_work.py PIPE BYTES PATIENCE

It reads requests from a pipe and answers each there: a JSON value, then bytes. The system ends it
beyond its memory, and beyond the seconds of computing that a request names, or `PATIENCE` times as
many by the clock.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from array import array
from contextlib import suppress
from itertools import chain
from math import ceil
from multiprocessing.connection import Connection
from typing import Any

_tokenizer: Any = None


def load(text: str) -> tuple[None, bytes]:
    """Take a tokenizer, without the padding and the limit that its file may ask for."""
    from tokenizers import Tokenizer

    global _tokenizer
    _tokenizer = Tokenizer.from_str(text)
    if '"added_tokens"' not in text:  # transformers reads it, if only to find it empty
        raise ValueError("it has no added_tokens")
    _tokenizer.no_padding()
    _tokenizer.no_truncation()
    return None, b""


def largest(named: list[str]) -> tuple[int, bytes]:
    """The largest id of the tokenizer, to which transformers adds the tokens that are named."""
    ids = [*_tokenizer.get_vocab(with_added_tokens=True).values(), -1]
    new = {text for text in named if _tokenizer.token_to_id(text) is None}
    size = _tokenizer.get_vocab_size(with_added_tokens=False)
    first = max(size, *(each + 1 for each in _tokenizer.get_added_tokens_decoder()), 0)
    return max(*ids, first + len(new) - 1 if new else -1), b""


def encode(texts: list[str], special: bool, split: bool) -> tuple[list[int], bytes]:
    """The number of tokens of each text, and their ids."""
    _tokenizer.encode_special_tokens = split
    encodings = _tokenizer.encode_batch_fast(texts, add_special_tokens=special)
    more = array("I", chain.from_iterable(each.ids for each in encodings))
    return [len(each.ids) for each in encodings], more.tobytes()


def spans(text: str) -> tuple[None, bytes]:
    """The beginning and end of each token of a text, none of which is special."""
    _tokenizer.encode_special_tokens = False
    offsets = _tokenizer.encode(text, add_special_tokens=False).offsets
    return None, array("I", chain.from_iterable(offsets)).tobytes()


def decode(tokens: list[list[int]], skip: bool) -> tuple[list[str], bytes]:
    """The text of each list of tokens."""
    return [_tokenizer.decode(each, skip_special_tokens=skip) for each in tokens], b""


def render(template: str, messages: list[Any], variables: dict[str, Any]) -> tuple[str, bytes]:
    """A conversation by a chat template."""
    from transformers.utils.chat_template_utils import render_jinja_template

    [text], _ = render_jinja_template(conversations=[messages], chat_template=template, **variables)
    return text, b""


def parse(template: str) -> tuple[None, bytes]:
    """Compile a chat template, in the dialect of transformers, and run nothing of it."""
    from jinja2 import TemplateSyntaxError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class AnswerTag(Extension):
        """The tag around what a model says, by which its tokens are found."""

        tags = {"generation"}  # noqa: RUF012  # as the base class declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    try:
        ImmutableSandboxedEnvironment(extensions=[AnswerTag, loopcontrols]).compile(template)
    except TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.message}") from None
    return None, b""


_WORK = {each.__name__: each for each in (load, largest, encode, spans, decode, render, parse)}


def _answer(does: str, seconds: int, **request: Any) -> tuple[dict[str, Any], bytes]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, ceil(used.ru_utime + used.ru_stime) + seconds)
    signal.alarm(int(sys.argv[3]) * seconds)
    try:
        result, more = _WORK[does](**request)
    except MemoryError:
        raise
    except BaseException as error:  # templates raise what they like, and Rust panics
        return {"error": str(error).strip() or type(error).__name__}, b""
    finally:
        signal.alarm(0)
    return {"found": result}, more


def _limit(kind: int, most: int) -> None:
    """Set a limit of the system, which may have a lower one that nobody can raise."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> None:
    # Data alone: code and files that are mapped take no memory, and threads reserve much of it.
    _limit(resource.RLIMIT_DATA, int(sys.argv[2]))
    _limit(resource.RLIMIT_CORE, 0)
    pipe = Connection(int(sys.argv[1]))
    with suppress(EOFError):  # nobody asks any more
        while True:
            answer, more = _answer(**json.loads(pipe.recv_bytes()))
            pipe.send_bytes(json.dumps(answer).encode())
            pipe.send_bytes(more)


if __name__ == "__main__":
    main()
