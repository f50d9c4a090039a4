"""Solvers, and tables of solvers whose entries load when they are looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, TypeVar, cast

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.extensions import Extended
from tessel_core.model import SolveReport
from tessel_core.options import check_options, options_of

Report = TypeVar("Report", bound=SolveReport[Any])


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Config of a solver without options."""


@dataclass(frozen=True, slots=True)
class Solver:
    """One entry of a table: `solve` takes a problem, a config of type `config` and a control, and returns a report."""

    kind: ClassVar[str]
    """Word for an entry in messages, such as "scheduler"."""

    name: str
    title: str
    source: str
    solve: Callable[..., Any]
    config: type = NoOptions
    extension: str = field(default="", kw_only=True)
    """Name of the entry and its package in messages; empty for built-in solvers."""

    def ask(
        self, problem: tuple[object, ...], config: object, control: Control | None, referee: Callable[[Report], None]
    ) -> Report:
        """Solve `problem` and check the answer with `referee`.

        Returns the report with the solver's name, config, wall time and history.  None as `config` or `control` means
        the default.

        Raises InputError if the config belongs to another solver, an option is out of range, or the solver of another
        package fails or breaks a rule of the referee.
        """
        config = self.config() if config is None else config
        if not isinstance(config, self.config):
            why = f"takes a {self.config.__name__}, got {type(config).__name__}"
            raise InputError(f"{self.kind} {self.name}", why)
        check_options(config)
        control = Control() if control is None else control
        report: Report = self.solve(*problem, config, control)
        self._judge(report, referee)
        history = tuple(control.history)
        return replace(report, solver=self.name, config=config, wall_s=control.elapsed_s, history=history)

    def _judge(self, report: Report, referee: Callable[[Report], None]) -> None:
        """Check an answer with the referee. If a solver of another package gave an invalid answer, raise InputError."""
        try:
            referee(report)
        except Exception as error:
            if not self.extension:
                raise
            raise InputError(self.extension, f"the referee refuses its answer: {error}") from error


Entry = TypeVar("Entry", bound=Solver)


class Registry(Extended[Entry]):
    """Solvers by name, in the order in which forms list them.

    `places` maps each name to a module in `package` and a constant in it, such as `"dp:DP"`.  The entries of the table
    `more` follow, then those of other packages under the entry-point group `group`.
    """

    def __init__(
        self,
        entry: type[Entry],
        package: str,
        places: Mapping[str, str],
        more: Registry[Entry] | None = None,
        group: str = "",
    ) -> None:
        self._places = {name: f"{package}.{place}" for name, place in places.items()}
        self._places |= {} if more is None else more._places
        own = _Late[Entry](self._places)
        super().__init__(group, entry.kind, entry, own, lambda solver: options_of(solver.config))


class _Late(Mapping[str, Entry]):
    """Built-in entries, each imported when it is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Entry:
        module, _, constant = self._places[name].partition(":")
        return cast(Entry, getattr(import_module(module), constant))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
