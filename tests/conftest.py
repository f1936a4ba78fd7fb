"""Shared by all tests: how hypothesis searches."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The same examples every time: a red build means a changed program, not a lucky draw. To search
# further than that: HYPOTHESIS_PROFILE=explore.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=500,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
