"""The address: it carries workspace, sample, settings and view, so that a reload or a link opens the same again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from pages.shared.program_tab import SOURCES
from pages.shared.session import Session, session
from pages.shared.strategy_tab import AXES, Axes
from tessel_core.errors import InputError
from tessel_core.options import changed_options, config_from, options_of
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler

PLAN, SCHEDULE = "Plan", "Schedule"
VIEWS = {"plan": PLAN, "schedule": SCHEDULE}
TIMELINES, BUBBLES, COUNTS, MEMORY = "Timelines", "Bubbles", "Against micro-batches", "Against memory"
PROGRAMS = {source.lower(): source for source in SOURCES}
COMPARE_VIEWS = {"timelines": TIMELINES, "bubbles": BUBBLES, "micro-batches": COUNTS, "memory": MEMORY}
_LONGEST = 200


def restore() -> None:
    """Find again what the address names: the very workspace where it is kept, else its sample with its settings.

    What of it is wrong is left out; `Session.told` says so.
    """
    tab, address = session(), st.query_params.to_dict()
    if tab.restored:
        _step_back(tab, address)
        return
    tab.restored = True
    wrong: list[str] = []
    _follow(
        tab, {key: value for key, value in address.items() if _read(wrong, lambda k=key, v=value: _short(k, v))}, wrong
    )
    if wrong:
        part = "" if len(wrong) == 1 else f" in {len(wrong)} places"
        tab.told = f"The address could not be followed{part}: {'; '.join(wrong)}."


def _step_back(tab: Session, address: Mapping[str, str]) -> None:
    """Where the browser's Back has led to another strategy: look at that one.

    An address without a scheduler was not written here: it is a page's own, before `keep_address`.
    """
    now, written = address.get("strategy", ""), tab.written.get("strategy", "")
    if "scheduler" not in address or now == written or address.get("work") != tab.written.get("work"):
        return
    number = _read([], lambda: _place(address))
    if number is not None or not now:
        tab.strategies.go_to(number)


def _read(wrong: list[str], part: Callable[[], Any]) -> Any:
    """What a part of the address says; None, and the reason in `wrong`, where it says nothing that can be followed."""
    try:
        return part()
    except InputError as error:
        wrong.append(str(error))
        return None


def _follow(tab: Session, address: Mapping[str, str], wrong: list[str]) -> None:
    view = _read(wrong, lambda: _choice("view", address, VIEWS)) or ""
    tab.compare_view = _read(wrong, lambda: _choice("compare", address, COMPARE_VIEWS)) or ""
    _read(wrong, lambda: _program(tab, address))
    tab.strategies.number = _read(wrong, lambda: _place(address))
    tab.strategies.axes = _read(wrong, lambda: _axes(address)) or AXES
    if "work" in address and tab.open_kept(address["work"]):
        tab.next_view = view
        return
    told = tab.told or (_gone(address) if "work" in address else "")
    if "sample" in address and _read(wrong, lambda: tab.open_sample(address["sample"]) or True):
        _ask(tab, address, wrong)
        tab.next_view = view
    if "graph" in address:
        _read(wrong, lambda: tab.open_graph_sample(address["graph"]))
    tab.told = told


def _choice(key: str, address: Mapping[str, str], known: Mapping[str, str]) -> str:
    value = address.get(key, "")
    if value and value not in known:
        raise InputError(key, f"must be one of {', '.join(known)}, got {value!r}")
    return known.get(value, "")


def _ask(tab: Session, address: Mapping[str, str], wrong: list[str]) -> None:
    """The scheduler, the number of micro-batches and the options of the address, as far as they can be followed."""
    assert tab.work is not None
    scheduler = _read(wrong, lambda: find_scheduler(address.get("scheduler", DEFAULT_SCHEDULER)))
    scheduler = scheduler or find_scheduler(DEFAULT_SCHEDULER)
    micro_batches = _read(wrong, lambda: _count(address)) or tab.work.micro_batches
    options = {}
    for name in options_of(scheduler.config):
        key = _in_address(name)
        given = {name: address[key]} if key in address else {}
        if _read(wrong, lambda given=given: config_from(scheduler.config, given)) is not None:
            options |= given
    tab.work = tab.work.asking(scheduler.name, micro_batches, config_from(scheduler.config, options))


def _count(address: Mapping[str, str]) -> int | None:
    text = address.get("n", "")
    if text and not re.fullmatch("[1-9][0-9]{0,4}", text):
        raise InputError("n", f"must be a whole number from 1 to 99,999, got {text!r}")
    return int(text) if text else None


def _program(tab: Session, address: Mapping[str, str]) -> None:
    tab.program.source = _choice("of", address, PROGRAMS)
    if "program" in address and not tab.program.find(address["program"]):
        raise InputError("program", "is not kept any more, so its file must be uploaded again")


def _place(address: Mapping[str, str]) -> int | None:
    text = address.get("strategy", "")
    if text and not re.fullmatch("[0-9]{1,6}", text):
        raise InputError("strategy", f"must be a whole number, got {text!r}")
    return int(text) if text else None


def _axes(address: Mapping[str, str]) -> Axes | None:
    """As `peak_memory-throughput,devices-latency`."""
    text = address.get("axes", "")
    if not text:
        return None
    from tessel_core.strategies import OBJECTIVES  # other pages do not load them

    pictures = [tuple(each.split("-")) for each in text.split(",")]
    known = len(pictures) == len(AXES) and all(len(each) == 2 and set(each) <= set(OBJECTIVES) for each in pictures)
    if not known:
        raise InputError("axes", f"must be two pairs of {', '.join(OBJECTIVES)}, got {text!r}")
    return tuple((x, y) for x, y in pictures)


def _gone(address: Mapping[str, str]) -> str:
    missing = "The workspace of this link is not kept on this machine"
    if "sample" not in address and "graph" in address:
        return f"{missing}; this is its network {address['graph']}, as it came."
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
    if tab.work.placing.graph_sample:
        wanted["graph"] = tab.work.placing.graph_sample
    if tab.view:
        wanted["view"] = tab.view.lower()
    if tab.compare_view:
        wanted["compare"] = next(key for key, view in COMPARE_VIEWS.items() if view == tab.compare_view)
    if tab.program.source:
        wanted["of"] = tab.program.source.lower()
    if tab.program.token:
        wanted["program"] = tab.program.token
    if tab.strategies.number is not None:
        wanted["strategy"] = str(tab.strategies.number)
    if tab.strategies.axes != AXES:
        wanted["axes"] = ",".join("-".join(each) for each in tab.strategies.axes)
    tab.written = wanted
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


def _in_address(option: str) -> str:
    """An option as the command line spells it."""
    return option.replace("_", "-")
