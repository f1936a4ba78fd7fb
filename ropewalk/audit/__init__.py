"""What a model on disk will really do in each runtime, and the traps it is in."""
