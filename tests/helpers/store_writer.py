"""Script that saves a workspace repeatedly, and prints each saved state to stdout.

`python store_writer.py FOLDER TOKEN BASE FIRST COUNT [STATEMENT]` saves COUNT states whose `micro_batches` count up
from FIRST, each based on the one before.  With STATEMENT, it kills itself, like `kill -9`, when SQLite is about to run
a statement that begins with STATEMENT.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from helpers.stores import simple_workspace
from tessel_core.networks import build_shape
from tessel_core.workbench.store import Conflict, Store, open_store


def main() -> None:
    folder, token, base, first, count, *deadly = sys.argv[1:]
    store = open_store(Path(folder))
    assert not store.refused, store.refused
    if deadly:
        _die_at(store, deadly[0])
    revision = int(base)
    for micro_batches in range(int(first), int(first) + int(count)):
        outcome = store.workspaces.save(token, revision, simple_workspace(build_shape("v-shape"), micro_batches))
        kept = outcome.mine if isinstance(outcome, Conflict) else outcome
        token, revision = kept.token, kept.revision
        print(micro_batches, flush=True)


def _die_at(store: Store, statement: str) -> None:
    def look(text: str) -> None:
        if text.startswith(statement):
            os.kill(os.getpid(), signal.SIGKILL)

    store.database._connection.set_trace_callback(look)


if __name__ == "__main__":
    main()
