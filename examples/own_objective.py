"""A search for an objective of one's own: answers count twice as much as text."""

import ropewalk as rw


def answers_twice(text: float, answers: float, retrieved: float) -> float:
    """Nats a token, of one document under one schedule; lower is better."""
    return text + 2 * answers


if __name__ == "__main__":
    # So few documents show the way and prove nothing: by default there are many more of each.
    found = rw.search("bundled", "1k", objective=answers_twice, budget=6, documents=(1, 2, 1))
    print(found.summary())
    print(found.plan.provenance)
