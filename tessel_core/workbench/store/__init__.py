"""Saved work of one user: workspaces with their history, and answers by question, in one SQLite file.

A file that cannot be used (read-only, damaged, another version, another program) is never written to. A store in
memory replaces it until the process ends, and says why.
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
