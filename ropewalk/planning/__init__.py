"""What to make of a model's present plan: extend it, compare methods, choose a base."""
