"""The treatment of a model by a runtime's release, read in its wheel's sources; none is run."""
