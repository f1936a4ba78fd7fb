"""A model as its server runs it: asked over HTTP, scored, and compared with the planned model."""
