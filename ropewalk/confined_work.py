"""The child of confined.py. Run as a script, which imports nothing of ropewalk.

    python -P confined_work.py BYTES PATIENCE

It reads requests from standard input and answers on standard output: a JSON value, and bytes. The
system ends it beyond its memory, and beyond the seconds of computing that a request names, or
`PATIENCE` times as many by the clock.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from array import array
from itertools import chain
from typing import Any, NoReturn

_LENGTH = struct.Struct("<Q")
_tokenizer: Any = None


def load(text: str) -> tuple[None, bytes]:
    """Take a tokenizer, without the padding and the limit that its file may ask for."""
    from tokenizers import Tokenizer

    global _tokenizer
    _tokenizer = Tokenizer.from_str(text)
    _tokenizer.no_padding()
    _tokenizer.no_truncation()
    return None, b""


def largest() -> tuple[int, bytes]:
    """The largest id of the tokenizer."""
    return max(_tokenizer.get_vocab(with_added_tokens=True).values(), default=-1), b""


def encode(texts: list[str], special: bool, split: bool) -> tuple[list[int], bytes]:
    """The number of tokens of each text, and their ids."""
    _tokenizer.encode_special_tokens = split
    found = _tokenizer.encode_batch_fast(texts, add_special_tokens=special)
    more = array("I", chain.from_iterable(each.ids for each in found))
    return [len(each.ids) for each in found], more.tobytes()


def decode(tokens: list[list[int]], skip: bool) -> tuple[list[str], bytes]:
    """The text of each list of tokens."""
    return [_tokenizer.decode(each, skip_special_tokens=skip) for each in tokens], b""


def render(template: str, messages: list[Any], variables: dict[str, Any]) -> tuple[str, bytes]:
    """A conversation by a chat template."""
    from transformers.utils.chat_template_utils import render_jinja_template

    [text], _ = render_jinja_template(conversations=[messages], chat_template=template, **variables)
    return text, b""


def _answer(does: str, seconds: int, **request: Any) -> tuple[dict[str, Any], bytes]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    signal.alarm(int(sys.argv[2]) * seconds)
    try:
        found, more = {each.__name__: each for each in _WORK}[does](**request)
    except MemoryError:
        raise
    except BaseException as error:  # templates raise what they like, and Rust panics
        return {"error": str(error).strip() or type(error).__name__}, b""
    return {"found": found}, more


_WORK = (load, largest, encode, decode, render)


def main() -> NoReturn:
    # Data alone: code and files that are mapped take no memory, and threads reserve much of it.
    most = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asked, told = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    while len(head := asked.read(_LENGTH.size)) == _LENGTH.size:
        answer, more = _answer(**json.loads(asked.read(*_LENGTH.unpack(head))))
        for part in (json.dumps(answer).encode(), more):
            told.write(_LENGTH.pack(len(part)) + part)
        told.flush()
        signal.alarm(0)
    sys.exit()


if __name__ == "__main__":
    main()
