"""Tables of schedulers, placers and others, to which other packages add entries through Python entry points.

A package names its entries in its `pyproject.toml`, under the group of a table:

| group | entries | table |
|---|---|---|
| `tessel.schedulers` | `tessel_core.scheduling.Scheduler` | `tessel_core.scheduling.SCHEDULERS` |
| `tessel.placers` | `tessel_core.placement.Placer` | `tessel_core.placement.PLACERS` |
| `tessel.networks` | `tessel_core.networks.graphs.spec.GraphFamily` | `tessel_core.networks.graphs.table.GRAPHS` |
| `tessel.exports` | `tessel_core.exports.Export` | `tessel_core.exports.EXPORTS` |
| `tessel.devices` | `tessel_core.costs.devices.DeviceKind` | `tessel_core.costs.devices.DEVICE_KINDS` |

`examples/extension` has one entry for each group. The command line, the app and the referee read these tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar, cast

from tessel_core.errors import InputError, find

T = TypeVar("T")

_log = logging.getLogger("tessel_core")


class Extended(Mapping[str, T]):
    """Built-in entries by name, followed by entries of installed packages from one entry-point group.

    Packages are loaded when the names are listed, or when a name that is not built in is looked up.  An entry that
    cannot be loaded or used is left out, and a warning gives the reason.

    Parameters
    ----------
    group : str
        The entry-point group, such as `tessel.schedulers`.
    what : str
        Word for one entry in messages, such as "scheduler".
    kind : type
        The dataclass of the entries.
    own : Mapping
        Built-in entries by name.  Packages cannot replace them.
    check : Callable
        Raises InputError for an entry that forms and the command line cannot use.
    named : str
        Name of the field that holds an entry's name.
    """

    def __init__(
        self,
        group: str,
        what: str,
        kind: type[T],
        own: Mapping[str, T],
        check: Callable[[T], object] = lambda entry: None,
        named: str = "name",
    ) -> None:
        self._group, self._what, self._kind, self._own = group, what, kind, own
        self._check, self._named = check, named

    def __getitem__(self, name: str) -> T:
        return self._own[name] if name in self._own else self.added[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self.added

    def __len__(self) -> int:
        return len(self._own) + len(self.added)

    def find(self, name: str) -> T:
        """Return the entry called `name`.  Raises InputError with the known names if there is none."""
        return find(self, name, self._what)

    @cached_property
    def added(self) -> dict[str, T]:
        """Entries of other packages by name, sorted by package and name."""
        added = dict[str, T]()
        points = entry_points(group=self._group) if self._group else ()
        for point in sorted(points, key=lambda each: (_package(each), each.name)):
            place = f"the {self._what} {point.name} of the package {_package(point)}"
            try:
                entry = self._read(point.load(), place)
                name = getattr(entry, self._named)
                if name in self._own or name in added:
                    raise InputError("name", f"{name!r} is taken")
            except (Exception, SystemExit) as error:
                _log.warning("%s is left out: %s", place, " ".join(_reason(error).split()))
            else:
                added[name] = entry
        return added

    def _read(self, loaded: object, place: str) -> T:
        if not isinstance(loaded, self._kind):
            raise InputError("type", f"must be {self._kind.__name__}, got {type(loaded).__name__}")
        self._check(loaded)
        return _with_named_failures(loaded, place)


def _package(point: EntryPoint) -> str:
    return "?" if point.dist is None else point.dist.name


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


def _with_named_failures(entry: T, place: str) -> T:
    """Return the entry with wrapped functions. If a function fails, the message names its package.

    Functions whose name ends in `objection` return the message. All others raise it as InputError.
    """
    functions = {each.name: getattr(entry, each.name) for each in fields(cast(Any, entry))}
    named = {
        name: partial(_call_objection if name.endswith("objection") else _call, function, place)
        for name, function in functions.items()
        if callable(function) and not isinstance(function, type)
    }
    marks = {"extension": place} if "extension" in functions else {}
    return cast(T, replace(cast(Any, entry), **named, **marks))


def _call(function: Callable[..., Any], place: str, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except InputError:
        raise
    except Exception as error:
        raise InputError(place, f"failed with {_reason(error)}") from error


def _call_objection(function: Callable[..., str], place: str, *arguments: Any) -> str:
    try:
        return function(*arguments)
    except Exception as error:
        return f"{place} failed with {_reason(error)}"
