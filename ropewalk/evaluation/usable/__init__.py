"""The length up to which a model or a server answers as well as at its own short lengths."""
