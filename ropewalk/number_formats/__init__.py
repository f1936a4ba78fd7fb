"""The effect of each step's number format on RoPE's relative positions."""
