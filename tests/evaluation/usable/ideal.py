"""A server that finds every fact that it reads: a word is a token, and prompts may be cut."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any

from tests.evaluation.served.bad_server import Reply, said

LENGTH = 4096
TEMPLATE = 9
"""The tokens around each message of a conversation."""
MISLEADING = "Was it 7654321? "
KNOWN = {"model", "messages", "max_tokens", "temperature", "stream"}


def answered(
    asked: dict[str, Any],
    *,
    reads: int = 10**9,
    uses: int = 10**9,
    counts: Callable[[int, int], int] = lambda sent, read: read,
) -> Reply:
    """The answer to a prompt of which the last `reads` words are read; it says that it `counts`.

    Facts are found in the last words that it `uses`; all that is read changes how text goes on.
    """
    written, count = _read(asked["prompt"], reads, uses, counts)
    choice = {"text": written, "index": 0}
    return said({"model": "m", "choices": [choice], "usage": {"prompt_tokens": count}})


def chatted(asked: dict[str, Any], *, thinks: int = 0, marks: str = "apart") -> Reply:
    """The answer to a conversation, after so many tokens of thoughts.

    They are apart from the answer, or before it between `marks`, or are not said at all. Nothing
    but conversations is answered, and no settings of templates are taken.
    """
    if "prompt" in asked:
        return said({"error": "chat only"}, 404)
    if not asked.keys() <= KNOWN:
        return said({"error": f"Unrecognized: {sorted(asked.keys() - KNOWN)}"}, 400)
    talk = [message["content"] for message in asked["messages"]]
    written, count = _read("\n".join(talk), 10**9, 10**9, lambda sent, read: read)
    message = {"role": "assistant", "content": written}
    is_cut = asked["max_tokens"] <= thinks
    if thinks and marks == "apart":
        message |= {"reasoning_content": MISLEADING}
    answer = "" if is_cut else written
    if thinks and "/" in marks:
        begin, end = marks.split(" ")
        answer = begin + MISLEADING + ("" if is_cut else end + written)
    message["content"] = answer
    return said(
        {
            "model": "m",
            "choices": [{"message": message, "finish_reason": "length" if is_cut else "stop"}],
            "usage": {"prompt_tokens": count + TEMPLATE * len(talk)},
        }
    )


def _read(prompt: str, reads: int, uses: int, counts: Callable[[int, int], int]) -> tuple[str, int]:
    words = re.findall(r"\S+\s*|\s+", prompt)
    read, used = ("".join(words[-most:]) for most in (reads, min(reads, uses)))
    text, _, question = used.rpartition("\n")
    stated = list(re.finditer(re.escape(question.strip()) + r'[\s"]*([\w-]+)', text))
    written = f" nothing {zlib.crc32(read.encode()):x}"
    if question.strip() and stated:
        written = f" {stated[-1][1]}.\n"
    return written, counts(len(words), min(reads, len(words)))
