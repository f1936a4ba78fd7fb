"""The cost of a model, in memory and time, before it is run: from its config alone. No torch."""
