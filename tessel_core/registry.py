"""Solvers: what an entry is, tables whose entries load when they are looked up, and how each is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar, cast

from tessel_core.control import Control
from tessel_core.errors import InputError, find
from tessel_core.model import SolveReport
from tessel_core.options import check_options

Report = TypeVar("Report", bound=SolveReport[Any])


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The config of a solver that has nothing to choose."""


@dataclass(frozen=True, slots=True)
class Solver:
    """One entry of a table: `solve` takes a problem, a config of type `config` and a control, and returns a report."""

    kind: ClassVar[str]
    """What an entry is called, such as "scheduler"."""

    name: str
    title: str
    source: str
    solve: Callable[..., Any]
    config: type = NoOptions

    def ask(
        self, problem: tuple[object, ...], config: object, control: Control | None, referee: Callable[[Report], None]
    ) -> Report:
        """The solver's report, once `referee` has passed it, with the solver's name, config, time and history.

        `config` and `control` default to the usual ones.

        Raises InputError for a config of another solver, and for an option out of range.
        """
        config = self.config() if config is None else config
        if not isinstance(config, self.config):
            why = f"takes a {self.config.__name__}, got {type(config).__name__}"
            raise InputError(f"{self.kind} {self.name}", why)
        check_options(config)
        control = Control() if control is None else control
        report: Report = self.solve(*problem, config, control)
        referee(report)
        history = tuple(control.history)
        return replace(report, solver=self.name, config=config, wall_s=control.elapsed_s, history=history)


Entry = TypeVar("Entry", bound=Solver)


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name, in the order in which people are offered them; those of another table, `more`, come last.

    `places` says per name the module in `package` and the constant there, as `"dp:DP"`.
    """

    def __init__(
        self, entry: type[Entry], package: str, places: Mapping[str, str], more: Registry[Entry] | None = None
    ) -> None:
        self._kind = entry.kind
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
        find(self._places, name, self._kind)
        return self[name]
