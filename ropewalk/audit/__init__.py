"""The true behaviour of a model on disk in each runtime, and the traps it is in."""
