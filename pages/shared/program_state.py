"""State of the Program page in one browser tab."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pages.shared.in_address import Address, InAddress, Read, choice
from tessel_core.errors import InputError
from tessel_core.workbench.looked import Looked
from tessel_core.workbench.store import new_token

if TYPE_CHECKING:  # all pages import this module, and most need no simulation
    from tessel_core.formats.onnx import OnnxModel
    from tessel_core.ir.program import Program

STRATEGY, SCHEDULE, FILE = "Strategy", "Schedule", "File"
SOURCES = (STRATEGY, SCHEDULE, FILE)


@dataclass(frozen=True, eq=False)
class Uploaded:
    """A program from a file."""

    name: str
    program: Program
    notes: tuple[str, ...] = ()
    """Warnings from reading the file."""


_MAX_UPLOADS = 32


@lru_cache(maxsize=1)
def _shelf() -> dict[str, Uploaded]:
    """Return the latest uploads of all tabs by token, so that a reloaded tab finds its upload while the server runs."""
    return {}


@dataclass
class ProgramState(InAddress):
    """State of the Program page. The address keeps a part of it, and the token of an upload."""

    strategy: Looked | None = None
    """Configuration that the Strategies page showed last."""
    uploaded: Uploaded | None = None
    token: str = ""
    """Token of the upload in the address."""
    model: OnnxModel | None = None
    """Latest uploaded ONNX model, if the latest file was one."""
    read: tuple[OnnxModel, Mapping[str, int]] | None = None
    """Model and sizes that were read last."""
    complaint: str = ""
    """Why the latest file could not be read, in one sentence."""
    source: str = ""
    """Shown source, one of `SOURCES`. Empty: the first that has a program."""
    switched: int = 0
    """Part of the key of the source switch. A new number resets the switch after another page chose the source."""
    generation: int = 0
    """Part of the keys of the text's widgets. A new number resets them after a click in the trace."""
    shown: Looked | None = None
    turn: int = 0
    """Number of programs shown so far. Part of the keys of widgets that belong to one program."""
    rank: int = 1
    """Device whose lines are shown, if the program uses it."""
    selected: int | None = None
    """Index of the selected operation in the program."""
    place: str = ""
    """Selected place that the timeline reported last."""
    wanted: str = ""
    """Place that the timeline should select, and the number of the request. Empty once the user selects another."""
    wishes: int = 0
    """Number of requests to the timeline so far."""
    seen: dict[str, object] = field(default_factory=dict)
    """Last seen selection of each widget, by key."""

    def follow(self, address: Address, read: Read) -> None:
        self.source = read(lambda: choice("of", address, {source.lower(): source for source in SOURCES})) or ""
        read(lambda: self.find(address.get("program", "")))

    def in_address(self) -> dict[str, str]:
        wanted = {"of": self.source.lower(), "program": self.token}
        return {key: value for key, value in wanted.items() if value}

    def upload(self, uploaded: Uploaded) -> None:
        """Show a program from a file."""
        self.uploaded, self.token = uploaded, new_token()
        shelf = _shelf()
        shelf[self.token] = uploaded
        for token in list(shelf)[:-_MAX_UPLOADS]:
            shelf.pop(token, None)

    def find(self, token: str) -> None:
        """Show an uploaded program again. Raises InputError if the server no longer has it."""
        self.uploaded = _shelf().get(token)
        self.token = "" if self.uploaded is None else token
        if token and not self.token:
            raise InputError("program", "is no longer in memory. Upload its file again")

    def show(self, source: str) -> None:
        """Make the page show this source."""
        self.source = source
        self.switched += 1

    def look_at(self, looked: Looked) -> None:
        """Show a program. If it is new, select its longest operation."""
        from tessel_core.simulation.waiting import longest_operation

        if looked is not self.shown:
            self.shown, self.selected = looked, longest_operation(looked.trace)
            self.place = self.wanted = ""
            self.turn += 1
            self.seen.clear()
            self.show_selected()

    def show_selected(self) -> None:
        """Scroll the text to the selected operation, on the current rank if that runs it, or else on another."""
        from tessel_core.simulation.waiting import runs_of

        devices = [] if self.selected is None or self.shown is None else runs_of(self.shown.trace, self.selected)
        if devices:
            ranks = [run.device for run in devices]
            self.rank = self.rank if self.rank in ranks else ranks[0]
            self.generation += 1

    def wish(self, place: str) -> None:
        """Ask the timeline to select a place that the user chose in a table. An empty place clears the selection."""
        self.wishes += 1
        self.wanted = f"{place or 'none'} {self.wishes}"

    def select(self, key: str, operation: int | None) -> bool:
        """Select the operation of a widget if its selection is new. Return whether this selected an operation."""
        if self.seen.get(key) == operation:
            return False
        self.seen[key] = operation
        if operation is not None:
            self.selected = operation
        return operation is not None
