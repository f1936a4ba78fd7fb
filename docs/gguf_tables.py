"""The tables of docs/gguf.md: features each architecture honours, and memory for the KV cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from docs.figures import paragraph
from ropewalk.gguf.architectures import TABLE, Architecture, architecture, known_architectures
from tests.gguf import tiny_architectures

Groups = Sequence[tuple[str, Callable[[Architecture], bool]]]
# Layers, key heads and head size, as their configs state them.
MODELS = {
    "Llama 3.2 1B": (16, 8, 64),
    "Qwen3 4B, 8B": (36, 8, 128),
    "Llama 3.1 8B": (32, 8, 128),
    "Qwen2.5 7B": (28, 4, 128),
    "Qwen2.5 14B": (48, 8, 128),
    "Llama 3.1 70B": (80, 8, 128),
}
LENGTHS = (32 * 1024, 128 * 1024)
# Bytes a value: F16, and Q8_0 with a scale of two bytes for 32 values.
CACHES = {"F16": 2.0, "Q8_0": 34 / 32}
MANY = 60
"""Architectures of a kind from which on only those that were run are named."""


def blocks() -> dict[str, str]:
    return {"docs/gguf.md": f"{_memory()}\n\n{_architectures()}"}


def _memory() -> str:
    lines = [
        "Memory for the KV cache: 2 × layers × key heads × head size × bytes a value × length.",
        "",
        "| model | 32k, F16 | 32k, Q8_0 | 128k, F16 | 128k, Q8_0 |",
        "|---|---|---|---|---|",
    ]
    for name, (layers, heads, size) in MODELS.items():
        values = 2 * layers * heads * size
        cells = (
            f"{values * length * held / 2**30:.3g} GiB"
            for length in LENGTHS
            for held in CACHES.values()
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _architectures() -> str:
    content = json.loads(TABLE.read_text(encoding="utf-8"))
    tested = {*tiny_architectures.known()}
    rows = [architecture(name) for name in known_architectures()]
    known = [row for row in rows if row.known and row.rotates]
    groups: Groups = (
        (
            "factors by pair as `rope_freqs`, and all below",
            lambda a: a.honours_factors and "rope_freqs" in a.tensors,
        ),
        (
            "factors by pair as `rope_factors_long` and `_short` only, and all below",
            lambda a: a.honours_factors and "rope_freqs" not in a.tensors,
        ),
        (
            "loads factors by pair and ignores them; base, linear, YaRN",
            lambda a: a.factors == "ignored",
        ),
        (
            "refuses a file with factors by pair; base, linear, YaRN",
            lambda a: a.factors == "refused",
        ),
    )
    lines = [
        paragraph(
            f"Read in the source of llama.cpp {content['llama_cpp']}, which {content['source']} "
            f"publishes (its archive, of SHA-256 {content['sha256'][:16]}…, names no commit): "
            f"{len(rows)} architectures, of which {len(known)} are known to rotate. "
            f"The {len(tested & {row.name for row in known})} in bold were run with and without "
            "each setting, beyond the original window (tests/gguf/test_architectures.py)."
        ),
        "",
    ]
    for said, belongs in groups:
        own = [row for row in known if belongs(row)]
        names = [_named(row, tested) for row in own if row.name in tested or len(own) < MANY]
        if len(names) < len(own):
            names.append(f"and {len(own) - len(names)} checked only in the source")
        lines += [f"- {said}: {', '.join(names)}"]
    features: Groups = (
        ("an attention factor has no effect", lambda a: not a.attn_factor),
        ("YaRN's betas are read; elsewhere they are 32 and 1", lambda a: a.betas),
        ("layers with a sliding window keep a base of their own", lambda a: a.windows == "own"),
        (
            "layers with a sliding window take the base and no scaling",
            lambda a: a.windows == "same base, unscaled",
        ),
        (
            "layers with a sliding window follow the file, and not llama.cpp's flags",
            lambda a: a.windows == "same in the file, not by flags",
        ),
    )
    for said, belongs in features:
        lines += [f"- {said}: {', '.join(_named(row, tested) for row in known if belongs(row))}"]
    unknown = ", ".join(row.name for row in rows if not row.known)
    return "\n".join([*lines, f"- not known: {unknown}"])


def _named(row: Architecture, tested: set[str]) -> str:
    return f"**{row.name}**" if row.name in tested else row.name
