"""The unmodified model and two methods at four times its window, on the same samples."""

import ropewalk as rw

found = rw.evaluate(
    "bundled",
    methods=["none", "yarn", "linear"],
    to="2k",
    lengths=["2k"],
    tasks=["kv", "perplexity"],
    samples=4,
)
print(found.summary())
