"""The store of this process: on disk where that can be, else in memory, with the reason."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tessel_core.workbench.store.answers import Answers
from tessel_core.workbench.store.database import Database, StoreError, open_in_memory, open_on_disk
from tessel_core.workbench.store.place import data_folder
from tessel_core.workbench.store.workspaces import Workspaces

FILE_NAME = "tessel.sqlite3"


@dataclass(frozen=True)
class Store:
    """Everything that is kept for one person."""

    database: Database
    workspaces: Workspaces
    answers: Answers
    refused: str = ""
    """Why this store is in memory and ends with the process; empty for one on disk."""

    @property
    def trouble(self) -> str:
        """Why the latest change is not on disk, in one sentence without its full stop; empty where it is."""
        return self.refused or self.database.trouble


def open_store(folder: Path) -> Store:
    """The store in `folder`, made where there is none; in memory where it cannot be used."""
    path = folder / FILE_NAME
    try:
        database, refused = open_on_disk(path), ""
    except StoreError as error:
        database, refused = open_in_memory(path), str(error)
    return Store(database, Workspaces(database), Answers(database), refused)


_LOCK = threading.Lock()
_opened = lru_cache(open_store)


def find_store() -> Store:
    """The store of whoever runs this process, opened once."""
    with _LOCK:
        return _opened(data_folder())
