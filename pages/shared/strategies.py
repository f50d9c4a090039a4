"""Form of the Strategies page (network, mesh and ranges), and the results of its sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import streamlit as st

from pages.shared.keeping import keeping
from pages.shared.mesh_choice import mesh_choice, open_mesh
from pages.shared.session import session, workspace
from pages.shared.widgets import choose, form, labelled, literal
from tessel_core.control import Control
from tessel_core.model import DeviceMesh
from tessel_core.strategies.evaluation import NOT_REACHED, Configuration, StrategyResult
from tessel_core.strategies.families import FAMILIES, find_family
from tessel_core.strategies.form import (
    DEGREES,
    FAMILY,
    MICRO_BATCH_SIZE,
    MORE_CUTS,
    ORDERS,
    RANK_ORDER,
    RECOMPUTE,
    SEMANTICS,
    STAGES_PER_DEVICE,
    ZERO,
    Answer,
    Asked,
    Field,
    answer_to,
    asked_by,
    chosen,
    first_size_fields,
    objection,
    rank_order_title,
    size_fields,
)
from tessel_core.strategies.grid import GridResult, evaluate_grid
from tessel_core.strategies.strategy import Semantics, Simulated, count_operations, simulate_strategy
from tessel_core.workbench.messages.strategy import bottleneck

MAX_CONFIGURATIONS = 5_000
MAX_UNASKED_OPERATIONS = 60_000
"""Largest program that the page simulates without being asked. This takes about a second."""
_SLICES_S = range(2, 3600, 2)
"""Seconds of work on a sweep between two updates of the page. They grow, so that updates take a small share."""
_MAX_OUTCOMES = 20_000
_MAX_CACHED_OPERATIONS = 20_000
"""Largest program of which several simulations are cached."""
_HELP = "Numbers or ranges: 1,2,3 or 1..8 (all from 1 to 8) or 1..64x2 (1, 2, 4 and so on up to 64)."
_SEMANTICS = {str(Semantics.DEFAULT): "Overlapping streams", str(Semantics.DISTIR): "DistIR rules"}
_SEMANTICS_HELP = (
    "Timing rules. Overlapping streams: devices compute and communicate at the same time. DistIR rules: as DistIR's "
    "published code. These evaluate one configuration at a time, which takes much longer."
)


def question() -> Asked | None:
    """Show the form. Return its question, None if that is too large. Raises InputError for invalid ranges."""
    with form("strategies"):
        answers = _answers()
        room, buttons = st.columns([2, 1], vertical_alignment="center")
        session().change(replace(workspace(), strategies=_kept(answers)))
        with buttons.container(horizontal=True, horizontal_alignment="right"):
            keeping()
    asked = asked_by(workspace().strategies, open_mesh())
    count = asked.configurations
    if count > MAX_CONFIGURATIONS:
        room.caption(f"{count:,} configurations on {literal(asked.mesh)}")
        text = f"{count:,} configurations exceed this page's limit of {MAX_CONFIGURATIONS:,}. Narrow a range, or use"
        st.info(f"{text} `tessel sweep` in a terminal.", icon=":material/terminal:")
        return None
    found = swept(asked)
    feasible, devices = int(found.feasible.sum()), len(found.mesh.devices)
    left = f"; {found.too_large:,} that need more than {devices} devices are left out" if found.too_large else ""
    done = f"; {progress(found)}" if found.unreached else ""
    room.caption(f"{count:,} configurations on {literal(asked.mesh)}, {feasible:,} of them feasible{left}{done}")
    return asked


def progress(found: GridResult) -> str:
    """Return the progress of a sweep, such as "12 of 210 are done"."""
    return f"{len(found) - found.unreached:,} of {len(found):,} are done"


def asked_before() -> Asked | None:
    """Return the question of the form without showing it. None if it has too many configurations."""
    asked = asked_by(workspace().strategies, open_mesh())
    return asked if asked.configurations <= MAX_CONFIGURATIONS else None


def _kept(answers: Mapping[Field, Answer]) -> dict[str, Answer]:
    """Return the answers that differ from the defaults. Answers about other network families are kept."""
    shown = {field.name for field in answers}
    before = {name: answer for name, answer in workspace().strategies.items() if name not in shown}
    return before | {field.name: answer for field, answer in answers.items() if answer != field.usual}


def _answers() -> dict[Field, Answer]:
    """Show three rows of fields: network and mesh, sizes of the network, and ways to cut it.

    Less common fields are in expanders.
    """
    row: dict[str, Any] = {"horizontal": True, "vertical_alignment": "bottom"}
    found: dict[Field, Answer] = {}
    with st.container(**row):
        found[FAMILY] = _ask(FAMILY, {name: family.title for name, family in FAMILIES.items()}, width=290)
        with labelled():
            mesh_choice()
        found[SEMANTICS] = _ask(SEMANTICS, _SEMANTICS, width=220, help=_SEMANTICS_HELP)
    family = str(found[FAMILY])
    first = first_size_fields(family)
    rest = [field for field in size_fields(family) if field not in first]
    with st.container(**row):
        found |= {field: _ask(field) for field in first}
    if rest:
        with st.expander("Sizes"), st.container(**row):
            found |= {field: _ask(field) for field in rest}
    with st.container(**row):
        ways = (*DEGREES, STAGES_PER_DEVICE, MICRO_BATCH_SIZE, ORDERS, RECOMPUTE, ZERO)
        found |= {field: _ask(field) for field in ways}
        titles = {name: rank_order_title(name) for name in RANK_ORDER.choices}
        found[RANK_ORDER] = _ask(RANK_ORDER, titles, width=190, help=RANK_ORDER.about)
    with st.expander("More ways to cut"):
        return found | _more_cuts(found)


def _more_cuts(found: Mapping[Field, Answer]) -> dict[Field, Answer]:
    """Show the less common fields. A field without effect is disabled, says why, and keeps its answer."""
    answers = {**workspace().strategies, **{field.name: answer for field, answer in found.items()}}
    asked: dict[Field, Answer] = {}
    why = dict[str, None]()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for field in MORE_CUTS:
            reason = objection(field, answers | {each.name: answer for each, answer in asked.items()})
            if reason:
                key = session().key(f"strategies-{field.name}-off")
                shown = str(field.usual)
                labelled(width=132).text_input(field.label, shown, key=key, disabled=True, help=reason)
                why[reason] = None
            elif isinstance(field.usual, bool):
                with labelled(width="content", gap="xxsmall"):
                    asked[field] = _ask(field)
            else:
                asked[field] = _ask(field)
    if why:
        st.caption(" ".join(why))
    return asked


def _ask(field: Field, titles: Mapping[str, str] | None = None, **look: Any) -> Answer:
    """Show the input for a field, and return its answer. `titles` has the titles of the choices of a select box."""
    now, key = answer_to(field, workspace().strategies), session().key(f"strategies-{field.name}")
    if isinstance(now, bool):
        return st.toggle(field.label, now, key=key, help=field.about or None)
    if field.several:
        taken = chosen(field, workspace().strategies)
        return ",".join(st.multiselect(field.label, field.choices, taken, key=key, width=190, help=field.about or None))
    if titles is not None:
        with labelled(width=look.pop("width", "stretch")):
            return choose(field.label, {name: titles[name] for name in field.choices}, now, key=key, **look)
    look = {"key": key, "help": field.about or _HELP, "placeholder": field.blank}
    return labelled(width=132).text_input(field.label, now, **look)


def swept(asked: Asked) -> GridResult:
    """Return the results of the sweep so far."""
    return _answer(asked)[-1]


def go_on(asked: Asked) -> bool:
    """Evaluate more of the sweep for a few seconds. Return False if nothing was left."""
    so_far = _answer(asked)
    if not so_far[-1].unreached:
        return False
    so_far.append(_worked_on(asked, _SLICES_S[len(so_far)]))
    return True


@lru_cache(maxsize=8)
def _answer(asked: Asked) -> list[GridResult]:
    return [_worked_on(asked, _SLICES_S[0])]


def _worked_on(asked: Asked, seconds: float) -> GridResult:
    """Evaluate the grid for some seconds. Outcomes of earlier calls and grids are reused."""
    known = _outcomes(asked.family, asked.devices, asked.semantics)
    family, mesh, control = find_family(asked.family), asked.devices, Control(seconds)
    found = evaluate_grid(family, asked.grid, mesh, asked.semantics, control, known=known.copy())
    if len(known) > _MAX_OUTCOMES:
        known.clear()
    pairs = zip(found.configurations, found.evaluated, strict=True)
    known.update((each, outcome) for each, outcome in pairs if outcome.reason != NOT_REACHED)
    return found


@lru_cache(maxsize=4)
def _outcomes(family: str, mesh: DeviceMesh, semantics: Semantics) -> dict[Configuration, StrategyResult]:
    return {}


@lru_cache(maxsize=256)
def operations(asked: Asked, number: int) -> int:
    """Return a lower estimate of the number of operations in one configuration's program."""
    each = swept(asked).configurations[number]
    return count_operations(find_family(asked.family), each.spec, each.strategy)


def quick_to_simulate(asked: Asked, number: int) -> bool:
    """Return whether the page simulates the configuration without being asked."""
    return operations(asked, number) <= MAX_UNASKED_OPERATIONS


def simulated(asked: Asked, number: int) -> Simulated:
    """Simulate one configuration, operation by operation. Small results and the latest large one are cached."""
    return _small(asked, number) if operations(asked, number) <= _MAX_CACHED_OPERATIONS else _large(asked, number)


@lru_cache(maxsize=256)
def bottleneck_of(asked: Asked, number: int) -> str:
    """Return the bottleneck of one configuration, in two sentences."""
    known = _small(asked, number) if operations(asked, number) <= _MAX_CACHED_OPERATIONS else _simulate(asked, number)
    return bottleneck(known.trace, known.ranks, asked.devices)


def _simulate(asked: Asked, number: int) -> Simulated:
    each, family = swept(asked).configurations[number], find_family(asked.family)
    return simulate_strategy(family, each.spec, each.strategy, asked.devices, asked.semantics)


_small, _large = lru_cache(maxsize=16)(_simulate), lru_cache(maxsize=1)(_simulate)
