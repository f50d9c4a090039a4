"""State of the Compare page in one browser tab."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from pages.shared.in_address import Address, InAddress, Read, choice
from pages.shared.session import session
from tessel_core.editing.what_if import WhatIf
from tessel_core.errors import InputError
from tessel_core.inspection import Jitter
from tessel_core.scheduling.comparison import Pair

if TYPE_CHECKING:
    from tessel_core.editing.which_wins import WhichWins
    from tessel_core.scheduling import Answer, Question

TIMELINES, IDLE, JITTER, COUNTS, MEMORY = "Timelines", "Idle time", "Jitter", "Against micro-batches", "Against memory"
DIFFERENCE, WHAT_IF = "Difference", "What if"
VIEWS = {
    "timelines": TIMELINES,
    "difference": DIFFERENCE,
    "bubbles": IDLE,
    "idle": IDLE,
    "jitter": JITTER,
    "what-if": WHAT_IF,
    "micro-batches": COUNTS,
    "memory": MEMORY,
}


@dataclass
class CompareState(InAddress):
    """State of the Compare page. The address keeps a part of it; the workspace keeps none."""

    view: str = ""
    """Name of the shown view, which is one of `VIEWS`. Empty for the first view."""
    jitter: Jitter = field(default_factory=Jitter)
    filled: int = 0
    """Number of times that the list was filled from one model. A new number closes the menu."""
    missing: tuple[Sequence[Pair], Sequence[str]] = ((), ())
    """Pairs of the list when it was last filled, and notes on the schedules that it leaves out."""
    linked: WhatIf | None = None
    """Slider values from a link. None once the sliders have them."""
    mapped: str = ""
    """Map that a link asks for. Empty once it is computed."""

    def follow(self, address: Address, read: Read) -> None:
        self.view = read(lambda: choice("compare", address, VIEWS)) or ""
        self.linked = read(lambda: _what_if_of(address.get("if", "")))
        self.mapped = read(lambda: _map_of(address.get("map", ""))) or ""

    def in_address(self) -> dict[str, str]:
        keys = {view: key for key, view in VIEWS.items()}
        sliders: WhatIfState | None = session().states.get(WhatIfState)
        values = _text_of((self.linked if sliders is None else sliders.values) or WhatIf())
        solved = self.mapped if sliders is None else sliders.map_asked
        carried = {key: text for key, text in (("if", values), ("map", solved)) if text and self.view == WHAT_IF}
        return {"compare": keys[self.view], **carried} if self.view else {}


def _map_from_link() -> str:
    state = session().of(CompareState)
    found, state.mapped = state.mapped, ""
    return found


def _from_link() -> WhatIf:
    state = session().of(CompareState)
    found, state.linked = state.linked, None
    return found or WhatIf()


@dataclass
class WhatIfState:
    """State of *What if* in this tab: slider values, answers and map."""

    values: WhatIf = field(default_factory=_from_link)
    drawn: WhatIf | None = None
    """Slider values of the latest drawing. The address has the same values."""
    serial: int = 0
    """Number of the latest message from the sliders."""
    turn: int = 0
    """Number of times that the page, not the user, has set the sliders."""
    resting: bool = True
    """Whether the sliders are at rest, so that searches may start."""
    before: dict[Question, Answer] = field(default_factory=dict)
    """Latest drawn answer to each pair of the list."""
    asked: tuple[Question, ...] = ()
    """Changed pairs that need a search."""
    map: WhichWins | None = None
    map_asked: str = field(default_factory=_map_from_link)
    """The map as the address writes it: its two axes, and whether searches are included.

    A link without `map` asks for this map.
    """
    map_of: tuple[tuple[Question, ...], tuple[int, ...]] = ((), ())
    """Pairs, and positions of the comparable ones, when the map was computed."""
    opened: bool = False
    """Whether a cell of the map was pressed and the sliders do not show its values yet."""
    of_workspace: ClassVar[bool] = True


ALL, BUILT = "all", "built"
"""Whether the map includes searches, or only published orders."""


def _map_of(text: str) -> str:
    """Return the map of a link, such as "micro_batches.capacity.all". Raises InputError for any other form."""
    if text and not re.fullmatch(rf"({'|'.join(_VALUES)})\.({'|'.join(_VALUES)})\.({ALL}|{BUILT})", text):
        raise InputError("map", f"must name two sliders and {ALL} or {BUILT}, as in backward.link.{ALL}, got {text!r}")
    return text


_WHOLE, _FACTOR = "-?[0-9]{1,16}", "[0-9]{1,3}(/[1-9][0-9]?)?"
_VALUES: Mapping[str, tuple[str, Any]] = {
    "micro_batches": ("[1-9][0-9]{0,4}", int),
    "backward": (_FACTOR, Fraction),
    "link": (_WHOLE, int),
    "capacity": (_WHOLE, int),
    "pace": (_FACTOR, Fraction),
    "device": ("[0-9]{1,4}", int),
}
"""Maps each field of `WhatIf` to the pattern of its value in the address and the function that reads it."""


def _what_if_of(text: str) -> WhatIf | None:
    """Return slider values such as "backward:3/2,link:5". None if empty. Raises InputError for any other form."""
    found = dict[str, Any]()
    for part in text.split(",") if text else ():
        name, _, value = part.partition(":")
        form, read = _VALUES.get(name, ("", None))
        if read is None or not re.fullmatch(form, value):
            raise InputError("if", f"must list slider values, as in backward:3/2,link:5, got {part!r}")
        found[name] = read(value)
    return WhatIf(**found) if found else None


def _text_of(values: WhatIf) -> str:
    """Return slider values as the address writes them. Empty if no slider was moved."""
    if values == WhatIf(device=values.device):
        return ""
    own = WhatIf()
    return ",".join(f"{name}:{now}" for name in _VALUES if (now := getattr(values, name)) != getattr(own, name))
