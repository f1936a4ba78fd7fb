"""ropewalk: extend the context window of a RoPE language model, with the evidence."""

__version__ = "0.1.0"
