"""Limits of a public server, which runs with `TESSEL_HOSTED=1` in its environment.

A public server opens no paths, starts no processes for a visitor, lists no workspaces of other visitors, and applies
the limits below.
"""

from __future__ import annotations

import os

COSTLY_OPTIONS = frozenset({"time_limit", "workers", "most_ideals"})
"""Solver options that cost time, threads or memory.  A public server allows at most their defaults."""
MAX_JOB_SECONDS = 120.0
"""Wall seconds after which a background job ends and returns its best answer so far."""
MAX_SCHEDULE_RUNS = 100_000
"""Largest number of runs (blocks times micro-batches) of one schedule."""
MAX_UPLOAD_MB = 50
MAX_WORKSPACES = 300
"""Number of stored workspaces.  The oldest are deleted first."""


def hosted() -> bool:
    """Return whether this process runs on a public server."""
    return os.environ.get("TESSEL_HOSTED") == "1"
