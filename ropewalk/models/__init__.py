"""Everything that knows how a model of transformers is built."""
