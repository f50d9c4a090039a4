"""The way from a plan to the page *Learn*, where it is ordered by hand."""

from __future__ import annotations

from typing import Any

from pages.shared.contents import go_to
from pages.shared.learn_state import LearnState
from pages.shared.session import session
from pages.shared.widgets import button, literal
from tessel_core.learning import too_large
from tessel_core.model import MicroBatchPlan
from tessel_core.workbench.workspace import OWN

_ABOUT = "Order the runs by hand, against the proved bound and with a coach."


def offers_to_play(plan: MicroBatchPlan | None, micro_batches: int, otherwise: str = "") -> bool:
    """The button that does so, which says why it is off; True when it was pressed."""
    objection = otherwise if plan is None else too_large(plan, micro_batches)
    about = f"The plan {objection}." if objection and plan is not None else objection or _ABOUT
    look: dict[str, Any] = {"icon": ":material/school:", "type": "tertiary", "disabled": bool(objection)}
    return button("Play this", help=literal(about), **look)


def play_open_plan() -> None:
    """Go and order the open plan by hand."""
    session().of(LearnState).open(OWN)
    go_to("learn")
