"""The state of the Compare page in one browser tab."""

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
    """The address alone keeps a part of it."""

    view: str = ""
    """Which of `VIEWS` is shown; empty for the first."""
    jitter: Jitter = field(default_factory=Jitter)
    filled: int = 0
    """How often the list was filled from one model: each time what asks for it closes."""
    missing: tuple[Sequence[Pair], Sequence[str]] = ((), ())
    """The pairs as the list was filled, and what is not among them."""
    linked: WhatIf | None = None
    """What a link says of the sliders, until they take it over."""
    mapped: str = ""
    """What a link says of the map, until it is solved."""

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
    """What the sliders say in this tab, and what was found there."""

    values: WhatIf = field(default_factory=_from_link)
    told: WhatIf | None = None
    """The values that were drawn last, which the address has."""
    serial: int = 0
    """The number of the sliders' message that was answered last."""
    turn: int = 0
    """How often something else than the sliders has set them."""
    resting: bool = True
    before: dict[Question, Answer] = field(default_factory=dict)
    """By the pair as the list has it, the last answer that was drawn."""
    asked: tuple[Question, ...] = ()
    """What was asked last of what takes a search."""
    map: WhichWins | None = None
    map_asked: str = field(default_factory=_map_from_link)
    """Its sides, and whether searches are on it, as the address has it; without a map it is still to be solved."""
    map_of: tuple[tuple[Question, ...], tuple[int, ...]] = ((), ())
    """The pairs, and those of them that were comparable, when the map was solved."""
    opened: bool = False
    """Whether a cell was pressed and the sliders do not show it yet."""
    of_workspace: ClassVar[bool] = True


ALL, BUILT = "all", "built"
"""Whether searches are on the map, or published orders alone."""


def _map_of(text: str) -> str:
    """The map of a link, as in "micro_batches.capacity.all"; InputError for any other form."""
    if text and not re.fullmatch(rf"({'|'.join(_VALUES)})\.({'|'.join(_VALUES)})\.({ALL}|{BUILT})", text):
        raise InputError("map", f"must be two sliders and {ALL} or {BUILT}, as in backward.link.{ALL}, got {text!r}")
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
"""By field of `WhatIf`, the form of its value in the address, and what reads it."""


def _what_if_of(text: str) -> WhatIf | None:
    """The values of sliders, as in "backward:3/2,link:5"; None where there are none, InputError for any other form."""
    found = dict[str, Any]()
    for part in text.split(",") if text else ():
        name, _, value = part.partition(":")
        form, read = _VALUES.get(name, ("", None))
        if read is None or not re.fullmatch(form, value):
            raise InputError("if", f"must be values of sliders, as in backward:3/2,link:5, got {part!r}")
        found[name] = read(value)
    return WhatIf(**found) if found else None


def _text_of(values: WhatIf) -> str:
    """The inverse of `_what_if_of`; empty where nothing is changed."""
    if values == WhatIf(device=values.device):
        return ""
    own = WhatIf()
    return ",".join(f"{name}:{now}" for name in _VALUES if (now := getattr(values, name)) != getattr(own, name))
