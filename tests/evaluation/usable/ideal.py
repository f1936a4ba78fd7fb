"""A server that finds every fact that it reads: a word is a token, and prompts may be cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.evaluation.served.bad_server import Reply, said

LENGTH = 4096


def answered(
    asked: dict[str, Any],
    *,
    reads: int = 10**9,
    counts: Callable[[int, int], int] = lambda sent, read: read,
) -> Reply:
    """The answer to a prompt of which the last `reads` words are read; it says that it `counts`."""
    words = re.findall(r"\S+\s*|\s+", asked["prompt"])
    prompt = "".join(words[-reads:])
    text, _, question = prompt.rpartition("\n")
    stated = list(re.finditer(re.escape(question.strip()) + r'[\s"]*([\w-]+)', text))
    written = f" {stated[-1][1]}.\n" if question.strip() and stated else " nothing"
    count = counts(len(words), min(reads, len(words)))
    return said(
        {
            "model": "m",
            "choices": [{"text": written, "index": 0}],
            "usage": {"prompt_tokens": count},
        }
    )
