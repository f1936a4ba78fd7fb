"""Qwen3, which normalises queries and keys."""

from ropewalk.gguf.family import GGUFFamily

FAMILY = GGUFFamily(("qwen3",))
