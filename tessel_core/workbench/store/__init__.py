"""Saved work: workspaces with their history, and answers by question, in one SQLite file of the person's own.

A store that cannot be used (read-only, damaged, of another version, another program's) is never written to: a store in
memory takes its place until the process ends, and says so.
"""

from tessel_core.workbench.store.database import StoreError
from tessel_core.workbench.store.store import FILE_NAME, Answers, Store, data_folder, find_store, open_store
from tessel_core.workbench.store.workspaces import Conflict, SavedWorkspace, Workspaces, new_token

__all__ = [
    "FILE_NAME",
    "Answers",
    "Conflict",
    "SavedWorkspace",
    "Store",
    "StoreError",
    "Workspaces",
    "data_folder",
    "find_store",
    "new_token",
    "open_store",
]
