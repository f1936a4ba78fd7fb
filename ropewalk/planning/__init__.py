"""Changes to a model's present plan: extend it, compare methods, choose a base."""
