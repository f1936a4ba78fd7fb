"""Seed-OSS, with biases on queries, keys and values."""

from ropewalk.gguf.families import GGUFFamily

FAMILY = GGUFFamily(("seed_oss",))
