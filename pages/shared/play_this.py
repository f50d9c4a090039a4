"""Button that opens a plan as a puzzle on the page *Learn*."""

from __future__ import annotations

from typing import Any

from pages.shared.contents import go_to
from pages.shared.learn_state import LearnState
from pages.shared.session import session
from pages.shared.widgets import button, literal
from tessel_core.learning import too_large
from tessel_core.model import MicroBatchPlan
from tessel_core.workbench.workspace import OWN

_ABOUT = "Order the runs by hand, with the proved bound as your target and a coach to help."


def offers_to_play(plan: MicroBatchPlan | None, micro_batches: int, otherwise: str = "") -> bool:
    """Show the button. If it is disabled, its tooltip says why. Return True when it was pressed."""
    objection = otherwise if plan is None else too_large(plan, micro_batches)
    about = f"The plan {objection}." if objection and plan is not None else objection or _ABOUT
    look: dict[str, Any] = {"icon": ":material/school:", "type": "tertiary", "disabled": bool(objection)}
    return button("Play this", help=literal(about), **look)


def play_open_plan() -> None:
    """Open the current plan as a puzzle."""
    session().of(LearnState).open(OWN)
    go_to("learn")
