"""The question to a placer: the devices, the costs, the placer and its options."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.widgets import button, choose, config_form, form, labelled, literal
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.errors import InputError
from tessel_core.formats.mesh_tables import shown_pool, typed_pool
from tessel_core.model import FORWARD_BACKWARD, LATENCY, THROUGHPUT, Communication, LayoutShape, StageLayout
from tessel_core.model.layout import MAX_STAGES_PER_DEVICE
from tessel_core.options import options_of
from tessel_core.placement import PLACERS, find_placer
from tessel_core.workbench.placing import Placing

ON_MESH, ON_POOL = "The mesh", "Identical accelerators"


def placing_form() -> bool:
    """The inputs of the present question and its button; True in the run in which it was pressed."""
    with form("placing"):
        places = st.columns([19, 16, 11, 10, 12, 10], vertical_alignment="bottom")
        with labelled(places[0]):
            placing = _objective(workspace().placing)
        with places[2].popover(_devices_label(placing), icon=":material/hub:", width="stretch"):
            placing = _replicas(_devices(placing))
        with labelled(places[1]):
            placer = _placer(placing)
        with places[3].popover("Costs", icon=":material/payments:", width="stretch"):
            placing = _costs(placing)
        with places[4].popover("Options", icon=":material/tune:", width="stretch"):
            placing = _options(replace(placing, placer=placer))
        session().change(replace(workspace(), placing=placing))
        objection = why_not(placing)
        pressed = button(
            "Place",
            place=places[5],
            type="primary",
            icon=":material/grid_view:",
            width="stretch",
            disabled=bool(objection),
        )
        if objection:
            st.warning(literal(objection), icon=":material/block:")
    return pressed


def why_not(placing: Placing) -> str:
    """Why the present question cannot be asked, in one sentence; empty where it can."""
    try:
        _ = placing.problem
    except InputError as error:
        return f"{error}."
    return ""


_GOALS = {
    "Throughput, contiguous": (THROUGHPUT, True, False, None),
    "Throughput, loop of stages": (THROUGHPUT, True, False, LayoutShape.LOOP),
    "Throughput, V of stages": (THROUGHPUT, True, False, LayoutShape.V),
    "Throughput, branches apart": (THROUGHPUT, True, True, None),
    "Throughput, any sets": (THROUGHPUT, False, False, None),
    "Forward + backward, contiguous": (FORWARD_BACKWARD, True, False, None),
    "Forward + backward, any sets": (FORWARD_BACKWARD, False, False, None),
    "Latency of one sample": (LATENCY, True, False, None),
}
_FIRST_STAGES = 2
"""Stages per device when a loop or a V is first chosen."""


def _objective(placing: Placing) -> Placing:
    shape = None if placing.layout is None else placing.layout.shape
    now = list(_GOALS.values()).index((placing.objective, placing.contiguous, placing.branches_apart, shape))
    chosen = st.selectbox("Objective", list(_GOALS), now, key=session().key("objective"), help=_OBJECTIVE)
    objective, contiguous, branches_apart, shape = _GOALS[chosen]
    count = _FIRST_STAGES if placing.layout is None else placing.layout.stages_per_device
    layout = None if shape is None else StageLayout(count, shape)
    return placing.wanting(objective, contiguous=contiguous, branches_apart=branches_apart, layout=layout)


_OBJECTIVE = (
    "What is to be least. Throughput: the largest load of a device. Forward + backward: the sum of the largest "
    "loads of the two passes. Contiguous: devices follow each other, and no tensor flows back. Branches apart: also "
    "no device has parts of two branches that run side by side, such as the two encoders of CLIP. Loop and V of "
    "stages: each device has several stages, and these go round the devices, or down and up again; Devices says how "
    "many."
)


def _placer(placing: Placing) -> str:
    titles = {name: PLACERS[name].title for name in placing.placers}
    varied = (placing.objective, placing.contiguous, placing.branches_apart)
    stages = (placing.replicas is not None, placing.layout is not None)
    key = session().key(f"placer-{'-'.join(map(str, (*varied, *stages)))}")
    about = "How operators get their devices: proved best, searched, or as published."
    return choose("Placer", titles, placing.placer, key=key, help=about)


def _devices_label(placing: Placing) -> str:
    if placing.on_mesh:
        return placing.mesh.mesh.name
    hosts = f", {placing.pool.cpus} CPU" if placing.pool.cpus else ""
    return f"{placing.pool.accelerators} accelerators{hosts}"


def _devices(placing: Placing) -> Placing:
    key = session().key
    if placing.layout is not None:
        now = placing.layout.stages_per_device
        count = st.number_input(
            "Stages per device", 2, MAX_STAGES_PER_DEVICE, now, key=key("stages-per-device"), help=_STAGES
        )
        placing = placing.wanting(THROUGHPUT, contiguous=True, layout=replace(placing.layout, stages_per_device=count))
    pool = placing.pool
    where = st.radio("Devices", (ON_MESH, ON_POOL), index=0 if placing.on_mesh else 1, key=key("on"), horizontal=True)
    if where == ON_MESH:
        mesh = placing.mesh.mesh
        st.caption(literal(f"{mesh.name}: {len(mesh.devices)} devices, kinds {', '.join(mesh.kinds)}."))
        return placing.with_devices(on_mesh=True, pool=pool)
    st.caption("The graph's own times, and what its edges say that transfers cost.")
    accelerators = st.number_input("Accelerators", 0, 1024, pool.accelerators, key=key("accelerators"))
    cpus = st.number_input("CPU hosts", 0, 1024, pool.cpus, key=key("cpus"))
    label, shown = "Memory of an accelerator (GB)", shown_pool(pool)
    memory = st.number_input(label, 0.0, value=shown, key=key("memory"), help="Empty: unlimited.")
    try:
        same = replace(pool, accelerators=accelerators, cpus=cpus)
        wanted = same if memory == shown else typed_pool(accelerators, cpus, memory)
        return placing.with_devices(on_mesh=False, pool=wanted)
    except InputError as error:
        st.error(literal(f"{error}."))
        return placing


def _replicas(placing: Placing) -> Placing:
    """The switch of replicated stages, and how their reductions are counted."""
    able, key = placing.can_replicate, session().key("replicate")
    on = st.toggle("Replicate stages", placing.replicas is not None, key=key, help=_REPLICAS, disabled=not able)
    if not on or not able:
        return placing.replicating(None)
    without = ("bandwidth",) if placing.on_mesh else ()
    return placing.replicating(
        config_form(placing.replicas or ReplicaOptions(), session().key("replicas"), without=without)
    )


_REPLICAS = (
    "A stage may have several devices of one kind. Each takes a part of every micro-batch, holds all of the stage's "
    "weights, and in training reduces their gradients with the others. For contiguous placements for the throughput, "
    "with one stage per device."
)


_STAGES = "More stages fill and empty a pipeline faster, and hold the activations of more micro-batches."


def _costs(placing: Placing) -> Placing:
    if not placing.on_mesh:
        without = ("dtype", "optimizer", "in_flight")
        return placing.costing(
            config_form(placing.costs, session().key("costs-own"), without=without), placing.communication
        )
    costs = config_form(placing.costs, session().key("costs"))
    kinds = {kind: str(kind) for kind in Communication}
    key = session().key("communication")
    return placing.costing(costs, choose("Transfers", kinds, placing.communication, key=key, help=_TRANSFERS))


_TRANSFERS = "Blocking: they load the devices at both ends. Overlapped: they load none and are lags in the schedule."


def _options(placing: Placing) -> Placing:
    st.caption(literal(find_placer(placing.placer).source))
    if not options_of(placing.config):
        st.caption("Nothing to choose.")
    config = config_form(placing.config, session().key(f"placer-option-{placing.placer}"))
    st.caption("A placement made by hand, such as an expert's split, is judged when it is opened under File.")
    return placing.asking(placing.placer, config)
