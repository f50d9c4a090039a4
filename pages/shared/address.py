"""The address: it carries workspace, sample, settings and view, so that a reload or a link opens the same again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages.shared.session import Session, session
from tessel_core.errors import InputError
from tessel_core.options import changed_options, config_from, options_of
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler

PLAN, SCHEDULE = "Plan", "Schedule"
VIEWS = {"plan": PLAN, "schedule": SCHEDULE}
_LONGEST = 200


def restore() -> None:
    """Find again what the address names: the very workspace where it is kept, else its sample with its settings.

    `Session.told` says in one sentence what could not be followed.
    """
    tab, address = session(), st.query_params.to_dict()
    if tab.restored:
        return
    tab.restored = True
    try:
        _follow(tab, {key: _short(key, value) for key, value in address.items()})
    except InputError as error:
        tab.told = f"The address could not be followed: {error}."


def _follow(tab: Session, address: Mapping[str, str]) -> None:
    view = address.get("view", "")
    if view and view not in VIEWS:
        raise InputError("view", f"must be {' or '.join(VIEWS)}, got {view!r}")
    if "work" in address and tab.open_kept(address["work"]):
        tab.next_view = VIEWS.get(view, "")
        return
    told = tab.told or (_gone(address) if "work" in address else "")
    if "sample" in address:
        _open_sample(tab, address)
        tab.next_view = VIEWS.get(view, "")
    tab.told = told


def _open_sample(tab: Session, address: Mapping[str, str]) -> None:
    """The sample, the scheduler, the number and the options; all of them or, with InputError, nothing."""
    scheduler = find_scheduler(address.get("scheduler", DEFAULT_SCHEDULER))
    micro_batches = address.get("n", "")
    if micro_batches and not re.fullmatch("[1-9][0-9]{0,4}", micro_batches):
        raise InputError("n", f"must be a whole number from 1 to 99,999, got {micro_batches!r}")
    names = {_in_address(name): name for name in options_of(scheduler.config)}
    config: Any = config_from(scheduler.config, {names[key]: address[key] for key in names.keys() & address.keys()})
    tab.open_sample(address["sample"])
    assert tab.work is not None
    count = int(micro_batches) if micro_batches else tab.work.micro_batches
    tab.work = tab.work.asking(scheduler.name, count, config)


def _gone(address: Mapping[str, str]) -> str:
    missing = "The workspace of this link is not kept on this machine"
    if "sample" not in address:
        return f"{missing}, and the link names no sample to open instead."
    return f"{missing}; this is its sample {address['sample']}, as it came, with the settings of the link."


def _short(key: str, value: str) -> str:
    if len(value) > _LONGEST:
        raise InputError(key[:_LONGEST], f"is longer than {_LONGEST} letters")
    return value


def keep_address() -> None:
    """Write the workspace into the address, for reloads and for sending it to somebody."""
    tab = session()
    if tab.work is None:
        return
    wanted = {"scheduler": tab.work.scheduler, "n": str(tab.work.micro_batches)}
    wanted |= {_in_address(name): str(value) for name, value in changed_options(tab.work.config).items()}
    if tab.kept is not None or tab.unsaved:
        wanted["work"] = tab.work.token
    if tab.work.sample:
        wanted["sample"] = tab.work.sample
    if tab.view:
        wanted["view"] = tab.view.lower()
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


def _in_address(option: str) -> str:
    """An option as the command line spells it."""
    return option.replace("_", "-")
