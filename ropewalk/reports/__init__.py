"""From values to pictures and pages, without torch: first what to draw, then how."""
