"""Address of the app: names workspace, sample, settings and view, so that a reload or a link restores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from pages.shared.contents import PAGES
from pages.shared.in_address import InAddress, choice, whole_number
from pages.shared.session import Session, session
from pages.shared.timeline.state import PARTS, TimelineState
from pages.shared.widgets import text_beside, unseen
from tessel_core.errors import InputError
from tessel_core.options import changed_options, config_from, option_keys
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler
from tessel_core.workbench.store import new_token

PLAN, SCHEDULE = "Plan", "Schedule"
VIEWS = {"plan": PLAN, "schedule": SCHEDULE}
_COMPLETED = st.components.v2.component("tessel_address", js=text_beside(__file__, "address.mjs"))
_MAX_VALUE_LETTERS = 280
"""Eight marks of the timeline, each between two ticks of sixteen digits, take 271 letters."""


def _states(tab: Session) -> list[InAddress]:
    """Return the states that the address keeps. The timeline's is last, because the browser writes it at the end."""
    return [*(tab.of(page.state) for page in PAGES if page.state is not None), tab.of(TimelineState)]


def restore(page: str) -> None:
    """Restore what the address names: the saved workspace, or else its sample with the settings.

    Invalid parts are ignored, and `Session.message` lists them. On the `page` schedule, a link that names a scheduler
    opens the view *Schedule*.
    """
    tab, address = session(), st.query_params.to_dict()
    if tab.restored:
        _step_back(tab, address)
        return
    tab.restored = True
    wrong: list[str] = []
    short = {key: value for key, value in address.items() if _read(wrong, partial(_short, key, value))}
    _follow(tab, short, wrong)
    if page == "schedule" and "scheduler" in short and "view" not in short:
        tab.next_view = SCHEDULE
    tab.linked = tab.next_view == SCHEDULE
    if wrong:
        part = "" if len(wrong) == 1 else f" in {len(wrong)} places"
        tab.message = f"The address is invalid{part}: {'; '.join(wrong)}."


def _step_back(tab: Session, address: Mapping[str, str]) -> None:
    """Follow the browser's Back button to another address of this workspace.

    An address without a scheduler is ignored: Streamlit wrote it, and `keep_address` has not completed it yet.
    """
    if "scheduler" in address and address.get("work") == tab.written.get("work"):
        for state in _states(tab):
            state.step_back(tab.written, address)


def _read(wrong: list[str], part: Callable[[], Any]) -> Any:
    """Return the value of a part of the address. If it is invalid, add the reason to `wrong` and return None."""
    try:
        return part()
    except InputError as error:
        wrong.append(str(error))
        return None


def _follow(tab: Session, address: Mapping[str, str], wrong: list[str]) -> None:
    view = _read(wrong, lambda: choice("view", address, VIEWS)) or ""
    for state in _states(tab):
        state.follow(address, lambda part: _read(wrong, part))
    if "work" in address and tab.open_kept(address["work"]):
        tab.next_view = view
        return
    message = tab.message or (_gone(address) if "work" in address else "")
    if "sample" in address and _read(wrong, partial(_open_sample, tab, address["sample"])):
        _ask(tab, address, wrong)
        tab.next_view = view
    if "graph" in address:
        _read(wrong, lambda: tab.open_graph_sample(address["graph"]))
    tab.message = message


def _open_sample(tab: Session, name: str) -> bool:
    """Open a sample and return True. Raises InputError if there is no such sample."""
    tab.open_sample(name)
    return True


def _ask(tab: Session, address: Mapping[str, str], wrong: list[str]) -> None:
    """Apply the scheduler, the number of micro-batches and the options of the address. Invalid ones are ignored."""
    assert tab.work is not None
    scheduler = _read(wrong, lambda: find_scheduler(address.get("scheduler", DEFAULT_SCHEDULER)))
    scheduler = scheduler or find_scheduler(DEFAULT_SCHEDULER)
    count = _read(wrong, lambda: whole_number("n", address, "[1-9][0-9]{0,4}", " from 1 to 99,999"))
    micro_batches = count or tab.work.micro_batches
    options = dict[str, str]()
    for name in option_keys(scheduler.config):
        key = _in_address(name)
        given = {name: address[key]} if key in address else {}
        if _read(wrong, partial(config_from, scheduler.config, given)) is not None:
            options |= given
    tab.work = tab.work.asking(scheduler.name, micro_batches, config_from(scheduler.config, options))


def _gone(address: Mapping[str, str]) -> str:
    missing = "The workspace of this link is not saved on this machine"
    if "sample" not in address and "graph" in address:
        return f"{missing}. Its network {address['graph']} was opened instead, without changes."
    if "sample" not in address:
        return f"{missing}, and the link names no sample to open instead."
    return f"{missing}. Its sample {address['sample']} was opened instead, with the settings of the link."


def _short(key: str, value: str) -> str:
    if len(value) > _MAX_VALUE_LETTERS:
        raise InputError(key[:_MAX_VALUE_LETTERS], f"is longer than {_MAX_VALUE_LETTERS} letters")
    return value


def keep_address() -> None:
    """Write the workspace into the address, so that a reload or a shared link restores it.

    Only a change of page, or of a key in a state's `steps`, adds an entry to the browser's history.
    """
    tab = session()
    if tab.work is None:
        return
    wanted = {"scheduler": tab.work.scheduler, "n": str(tab.work.micro_batches)}
    wanted |= {_in_address(name): str(value) for name, value in changed_options(tab.work.config).items()}
    if tab.kept is not None or tab.unsaved:
        wanted["work"] = tab.work.token
    if tab.work.sample:
        wanted["sample"] = tab.work.sample
    if tab.work.placing.graph_sample:
        wanted["graph"] = tab.work.placing.graph_sample
    if tab.view:
        wanted["view"] = tab.view.lower()
    for state in _states(tab):
        wanted |= state.in_address()
    first, tab.written = not tab.written, wanted
    if (
        first or not st.query_params
    ):  # after a change of page, `st.query_params` would add a second entry to the history
        tab.turned += 1
        steps = [key for state in _states(tab) for key in state.steps]
        data = {"once": new_token(), "wanted": wanted, "not": [key for key in st.query_params if key not in wanted]}
        with unseen("address"):
            _COMPLETED(key=f"address-{tab.turned}", data={**data, "steps": steps, "seen": list(PARTS)})
    elif st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


def _in_address(option: str) -> str:
    """Return the name of an option as the command line spells it."""
    return option.replace("_", "-")
