"""Qwen3, which normalises queries and keys."""

from ropewalk.gguf.family import Family

FAMILY = Family(("qwen3",))
