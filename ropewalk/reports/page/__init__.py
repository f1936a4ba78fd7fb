"""One HTML page from plain values: what to show (blocks), how to draw it (svg), the document."""
