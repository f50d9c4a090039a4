"""Limits for a server that is open to strangers: `TESSEL_HOSTED=1` in its environment.

No path is opened, no process is started for a visitor, workspaces of others are not listed, and the limits below hold.
"""

from __future__ import annotations

import os

COSTLY_OPTIONS = frozenset({"time_limit", "workers", "most_ideals"})
"""Options of solvers that take time, threads or memory: on a hosted server their default is the most."""
LONGEST_RUN_S = 120.0
"""Wall seconds after which any background run ends with the best answer so far."""
MOST_RUNS = 100_000
"""Blocks times micro-batches of one schedule."""
MOST_UPLOADED_MB = 50
MOST_WORKSPACES = 300
"""Workspaces that are kept; the oldest go first."""


def hosted() -> bool:
    """Whether this process serves strangers."""
    return os.environ.get("TESSEL_HOSTED") == "1"
