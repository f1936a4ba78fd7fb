"""How far the number format of each step moves RoPE away from relative positions."""
