"""A simulated program, with what the page *Program* shows about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessel_core.model import DeviceMesh

if TYPE_CHECKING:  # all pages import this module, and most need no simulation
    from tessel_core.simulation import Trace
    from tessel_core.strategies.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Looked:
    """A program with its trace."""

    title: str
    trace: Trace
    mesh: DeviceMesh | None = None
    """Mesh of the devices. None if the program itself states all times."""
    by_mesh: bool = True
    """Whether times come from the cost model of the mesh. Only then a formula explains them."""
    samples: int | None = None
    """Samples per step, if known."""
    in_steps: bool = False
    """Whether one second of the trace stands for one step of the plan's abstract time unit."""
    ranks: Ranks | None = None
    """Rank numbers of a strategy. None for other programs."""
    costs_note: str = "Timed by the rules of DistIR's published code."
    """How the program is timed if not `by_mesh`."""
    notes: tuple[str, ...] = ()
    """Sentences below the title about the program."""

    @property
    def priced(self) -> DeviceMesh | None:
        """The mesh whose cost model explains the times, if there is one."""
        return self.mesh if self.by_mesh else None
