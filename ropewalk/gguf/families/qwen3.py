"""Qwen3, which normalises queries and keys."""

from ropewalk.gguf.families import GGUFFamily

FAMILY = GGUFFamily(("qwen3",))
