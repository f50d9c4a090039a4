"""Tables of what there is to choose from: schedulers, placers.  An entry's module is loaded when it is looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar, cast

from tessel_core.errors import InputError

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name, in the order in which people are offered them.

    Parameters
    ----------
    kind
        What an entry is called, such as "scheduler".
    package
        Where the modules are.
    places
        Per name, the module and the constant there, as `"dp:DP"`.
    more
        Another table, whose entries come after these.
    """

    def __init__(self, kind: str, package: str, places: Mapping[str, str], more: Registry[Entry] | None = None) -> None:
        self._kind = kind
        self._places = {name: f"{package}.{place}" for name, place in places.items()}
        self._places |= {} if more is None else more._places

    def __getitem__(self, name: str) -> Entry:
        module, _, constant = self._places[name].partition(":")
        return cast(Entry, getattr(import_module(module), constant))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def find(self, name: str) -> Entry:
        """The entry of this name; InputError with the known names where there is none."""
        if name not in self._places:
            raise InputError(self._kind, f"{name!r} is not known, known are {', '.join(self)}")
        return self[name]
