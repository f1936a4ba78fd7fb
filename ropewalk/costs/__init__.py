"""What a model takes, in memory and time, before it is run: from its config alone. No torch."""
