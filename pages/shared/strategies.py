"""The question of the Strategies page, a network, a mesh and ranges of all choices, and its answer."""

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

MOST_AT_ONCE = 5_000
MOST_UNASKED = 60_000
"""Operations that are simulated while one waits: about a second of work."""
_MOMENTS_S = range(2, 3600, 2)
"""For which a page works on a sweep before it shows how far that is; every time longer, so that it gets on."""
_MOST_OUTCOMES = 20_000
_MOST_KEPT = 20_000
"""Up to which several simulations are kept in memory."""
_HELP = "Numbers and ranges: 1,2,3; or 1..8 for all from 1 to 8; or 1..64x2 for 1, 2, 4 and so on up to 64."
_SEMANTICS = {str(Semantics.DEFAULT): "Streams that overlap", str(Semantics.DISTIR): "As DistIR counts"}
_SEMANTICS_HELP = (
    "By which rules: ours, in which devices compute and communicate at once, or those of DistIR's published code, "
    "which takes one configuration after the other and so much longer."
)


def question() -> Asked | None:
    """The form, and what it asks; None where that is too much for a page.  InputError for ranges that make no sense."""
    with form("strategies"):
        answers = _answers()
        room, buttons = st.columns([2, 1], vertical_alignment="center")
        session().change(replace(workspace(), strategies=_kept(answers)))
        with buttons.container(horizontal=True, horizontal_alignment="right"):
            keeping()
    asked = asked_by(workspace().strategies, open_mesh())
    count = asked.configurations
    if count > MOST_AT_ONCE:
        room.caption(f"{count:,} configurations on {literal(asked.mesh)}")
        text = f"{count:,} configurations are more than the {MOST_AT_ONCE:,} of a page: narrow a range, or use"
        st.info(f"{text} `tessel sweep` in a terminal.", icon=":material/terminal:")
        return None
    found = swept(asked)
    feasible, devices = int(found.feasible.sum()), len(found.mesh.devices)
    left = f"; {found.too_large:,} that take more than its {devices} devices are left out" if found.too_large else ""
    done = f"; {progress(found)}" if found.unreached else ""
    room.caption(f"{count:,} configurations on {literal(asked.mesh)}, {feasible:,} of them feasible{left}{done}")
    return asked


def progress(found: GridResult) -> str:
    """How far a sweep is: "12 of 210 are done"."""
    return f"{len(found) - found.unreached:,} of {len(found):,} are done"


def asked_before() -> Asked | None:
    """The question of the form, if it is not too much for a page."""
    asked = asked_by(workspace().strategies, open_mesh())
    return asked if asked.configurations <= MOST_AT_ONCE else None


def _kept(answers: Mapping[Field, Answer]) -> dict[str, Answer]:
    """The answers that differ from the defaults; those about other families of networks stay."""
    shown = {field.name for field in answers}
    before = {name: answer for name, answer in workspace().strategies.items() if name not in shown}
    return before | {field.name: answer for field, answer in answers.items() if answer != field.usual}


def _answers() -> dict[Field, Answer]:
    """Three rows: what and where, the sizes of the family's networks, and the ways of spreading them over the mesh.

    Below two of them are the fields that few people need, folded.
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
    """Fields that few grids need; one without effect says why, and its answer stays as it was."""
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
    """The input that suits the field; `titles` are those of its choices where one of them is taken."""
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
    """The answer as far as it has come, kept for the next run of the page."""
    return _answer(asked)[-1]


def go_on(asked: Asked) -> bool:
    """Work on what is still to come for a moment; whether there was any."""
    so_far = _answer(asked)
    if not so_far[-1].unreached:
        return False
    so_far.append(_worked_on(asked, _MOMENTS_S[len(so_far)]))
    return True


@lru_cache(maxsize=8)
def _answer(asked: Asked) -> list[GridResult]:
    return [_worked_on(asked, _MOMENTS_S[0])]


def _worked_on(asked: Asked, seconds: float) -> GridResult:
    """Work on the grid for so long; outcomes known from earlier grids and moments are reused."""
    known = _outcomes(asked.family, asked.devices, asked.semantics)
    family, mesh, control = find_family(asked.family), asked.devices, Control(seconds)
    found = evaluate_grid(family, asked.grid, mesh, asked.semantics, control, known=known.copy())
    if len(known) > _MOST_OUTCOMES:
        known.clear()
    pairs = zip(found.configurations, found.evaluated, strict=True)
    known.update((each, outcome) for each, outcome in pairs if outcome.reason != NOT_REACHED)
    return found


@lru_cache(maxsize=4)
def _outcomes(family: str, mesh: DeviceMesh, semantics: Semantics) -> dict[Configuration, StrategyResult]:
    return {}


@lru_cache(maxsize=256)
def operations(asked: Asked, number: int) -> int:
    """A lower estimate of the number of operations of one configuration's program."""
    each = swept(asked).configurations[number]
    return count_operations(find_family(asked.family), each.spec, each.strategy)


def quick_to_simulate(asked: Asked, number: int) -> bool:
    """Whether the configuration is simulated operation by operation while one waits."""
    return operations(asked, number) <= MOST_UNASKED


def simulated(asked: Asked, number: int) -> Simulated:
    """One configuration of the sweep, operation by operation; kept for the next run, and of the large ones the last."""
    return _small(asked, number) if operations(asked, number) <= _MOST_KEPT else _large(asked, number)


@lru_cache(maxsize=256)
def bottleneck_of(asked: Asked, number: int) -> str:
    """The bottleneck of one configuration, in two sentences."""
    known = _small(asked, number) if operations(asked, number) <= _MOST_KEPT else _simulate(asked, number)
    return bottleneck(known.trace, known.ranks, asked.devices)


def _simulate(asked: Asked, number: int) -> Simulated:
    each, family = swept(asked).configurations[number], find_family(asked.family)
    return simulate_strategy(family, each.spec, each.strategy, asked.devices, asked.semantics)


_small, _large = lru_cache(maxsize=16)(_simulate), lru_cache(maxsize=1)(_simulate)
