"""What a release of a runtime does with a model, read in the sources of its wheel; none is run."""
