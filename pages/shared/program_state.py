"""The state of the Program page in one browser tab."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pages.shared.in_address import Address, InAddress, Read, choice
from tessel_core.errors import InputError
from tessel_core.model import DeviceMesh
from tessel_core.workbench.store import new_token

if TYPE_CHECKING:  # every tab remembers this, and other pages load no simulation
    from tessel_core.formats.onnx import OnnxModel
    from tessel_core.ir.program import Program
    from tessel_core.simulation import Trace
    from tessel_core.strategies.ranks import Ranks

STRATEGY, SCHEDULE, FILE = "Strategy", "Schedule", "File"
SOURCES = (STRATEGY, SCHEDULE, FILE)


@dataclass(frozen=True, eq=False)
class Looked:
    """A program that is looked at, with its trace."""

    title: str
    trace: Trace
    mesh: DeviceMesh | None = None
    """Whose devices they are; None where the program says itself how long everything takes."""
    by_mesh: bool = True
    """Whether the mesh's own costs made the times; else no formula says them."""
    samples: int | None = None
    """Of a step, where they are known."""
    in_steps: bool = False
    """Whether a second stands for one step of an abstract unit."""
    ranks: Ranks | None = None
    """How a strategy numbers the devices; None for other programs."""
    costs_note: str = "Its time is counted as DistIR's code does."
    """How the times came about where they are not `by_mesh`."""
    notes: tuple[str, ...] = ()
    """Sentences below the title about what is shown."""

    @property
    def priced(self) -> DeviceMesh | None:
        """The mesh by whose costs the times can be explained."""
        return self.mesh if self.by_mesh else None


@dataclass(frozen=True, eq=False)
class Uploaded:
    """A program from a file."""

    name: str
    program: Program
    notes: tuple[str, ...] = ()
    """Warnings of its reader."""


_SHELF_HOLDS = 32


@lru_cache(maxsize=1)
def _shelf() -> dict[str, Uploaded]:
    """The latest uploads of all tabs by token, so that a reload still finds its own while the server runs."""
    return {}


@dataclass
class ProgramState(InAddress):
    """The address alone keeps a part of it, and names an upload on a shelf."""

    strategy: Looked | None = None
    """The configuration that the Strategies page showed last."""
    uploaded: Uploaded | None = None
    token: str = ""
    """By which the address names what was uploaded."""
    model: OnnxModel | None = None
    """The ONNX model of the file that came last, if it was one."""
    read: tuple[OnnxModel, Mapping[str, int]] | None = None
    """A model and its open sizes, as they were read last."""
    complaint: str = ""
    """One sentence about a file that could not be read."""
    source: str = ""
    """Which of `SOURCES` is looked at; empty for the first that there is."""
    switched: int = 0
    """Part of the key of the switch between sources, which begins again where another page chooses one."""
    generation: int = 0
    """Part of the keys of the text's widgets, which begin again where a click in the trace chooses what they show."""
    shown: Looked | None = None
    turn: int = 0
    """The number of programs shown so far; part of the keys of widgets that belong to one."""
    rank: int = 1
    """The device whose lines are shown, if the program has it."""
    selected: int | None = None
    """The operation that is looked at, by its place in the program."""
    place: str = ""
    """The place that the timeline told last."""
    wanted: str = ""
    """The place that the timeline is to select, and the number of the request; empty once another is selected."""
    wishes: int = 0
    seen: dict[str, object] = field(default_factory=dict)
    """By key, the selection of each widget when it was last looked at."""

    def follow(self, address: Address, read: Read) -> None:
        self.source = read(lambda: choice("of", address, {source.lower(): source for source in SOURCES})) or ""
        read(lambda: self.find(address.get("program", "")))

    def in_address(self) -> dict[str, str]:
        wanted = {"of": self.source.lower(), "program": self.token}
        return {key: value for key, value in wanted.items() if value}

    def upload(self, uploaded: Uploaded) -> None:
        """Look at a program from a file."""
        self.uploaded, self.token = uploaded, new_token()
        shelf = _shelf()
        shelf[self.token] = uploaded
        for token in list(shelf)[:-_SHELF_HOLDS]:
            shelf.pop(token, None)

    def find(self, token: str) -> None:
        """Look again at a program that was uploaded; InputError where it is not there any more."""
        self.uploaded = _shelf().get(token)
        self.token = "" if self.uploaded is None else token
        if token and not self.token:
            raise InputError("program", "is not kept any more, so its file must be uploaded again")

    def show(self, source: str) -> None:
        """Have the page show this source, whatever its switch said."""
        self.source = source
        self.switched += 1

    def look_at(self, looked: Looked) -> None:
        """Show a program; the longest operation of a new one is selected."""
        from tessel_core.simulation.waiting import longest_operation

        if looked is not self.shown:
            self.shown, self.selected = looked, longest_operation(looked.trace)
            self.place = self.wanted = ""
            self.turn += 1
            self.seen.clear()
            self.show_selected()

    def show_selected(self) -> None:
        """Have the text show the selected operation, on the rank that it shows or on another."""
        from tessel_core.simulation.waiting import runs_of

        devices = [] if self.selected is None or self.shown is None else runs_of(self.shown.trace, self.selected)
        if devices:
            ranks = [run.device for run in devices]
            self.rank = self.rank if self.rank in ranks else ranks[0]
            self.generation += 1

    def wish(self, place: str) -> None:
        """Have the timeline select what somebody chose beside it; nothing where that has no place."""
        self.wishes += 1
        self.wanted = f"{place or 'none'} {self.wishes}"

    def select(self, key: str, operation: int | None) -> bool:
        """Take over what a widget has selected, if that is news; whether it is."""
        if self.seen.get(key) == operation:
            return False
        self.seen[key] = operation
        if operation is not None:
            self.selected = operation
        return operation is not None
