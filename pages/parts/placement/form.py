"""Form of a placement search: devices, costs, placer and its options."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.widgets import choose, config_form, form, form_button, labelled, literal
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
    """Show the form. Return True in the run in which its button was pressed."""
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
        pressed = form_button("Place", "grid_view", places[5], disabled=bool(objection))
        if objection:
            st.warning(literal(objection), icon=":material/block:")
    return pressed


def why_not(placing: Placing) -> str:
    """Return why the search cannot start, in one sentence. Empty if it can."""
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
    "Throughput, non-contiguous": (THROUGHPUT, False, False, None),
    "Forward + backward, contiguous": (FORWARD_BACKWARD, True, False, None),
    "Forward + backward, non-contiguous": (FORWARD_BACKWARD, False, False, None),
    "Latency of one sample": (LATENCY, True, False, None),
}
_DEFAULT_STAGES_PER_DEVICE = 2
"""Stages per device when the user first chooses a loop or a V of stages."""


def _objective(placing: Placing) -> Placing:
    shape = None if placing.layout is None else placing.layout.shape
    now = list(_GOALS.values()).index((placing.objective, placing.contiguous, placing.branches_apart, shape))
    chosen = st.selectbox("Objective", list(_GOALS), now, key=session().key("objective"), help=_OBJECTIVE)
    objective, contiguous, branches_apart, shape = _GOALS[chosen]
    count = _DEFAULT_STAGES_PER_DEVICE if placing.layout is None else placing.layout.stages_per_device
    layout = None if shape is None else StageLayout(count, shape)
    return placing.wanting(objective, contiguous=contiguous, branches_apart=branches_apart, layout=layout)


_OBJECTIVE = (
    "The value to minimise. Throughput: the largest load of a device. Forward + backward: the sum of the largest "
    "loads of the two passes. Contiguous: tensors flow from device to device in one direction. Branches apart: "
    "parallel branches, such as the two encoders of CLIP, are also on different devices. Loop or V of stages: each "
    "device has several stages, which go round the devices, or down and up again. Set their number under Devices."
)


def _placer(placing: Placing) -> str:
    titles = {name: PLACERS[name].title for name in placing.placers}
    varied = (placing.objective, placing.contiguous, placing.branches_apart)
    stages = (placing.replicas is not None, placing.layout is not None)
    key = session().key(f"placer-{'-'.join(map(str, (*varied, *stages)))}")
    about = "Method that assigns operators to devices: exact, heuristic, or published."
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
    st.caption("Uses the operator times and transfer costs of the graph file.")
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
    """Show the switch for replicated stages, and options for the cost of their reductions."""
    able, key = placing.can_replicate, session().key("replicate")
    on = st.toggle("Replicate stages", placing.replicas is not None, key=key, help=_REPLICAS, disabled=not able)
    if not on or not able:
        return placing.replicating(None)
    without = ("bandwidth",) if placing.on_mesh else ()
    return placing.replicating(
        config_form(placing.replicas or ReplicaOptions(), session().key("replicas"), without=without)
    )


_REPLICAS = (
    "Allow several devices of one kind per stage. Each replica processes a part of every micro-batch, holds all the "
    "stage's weights, and in training reduces their gradients with the others. Available for contiguous placements "
    "for throughput with one stage per device."
)


_STAGES = "More stages per device shorten warmup and cooldown, but hold the activations of more micro-batches."


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


_TRANSFERS = (
    "Blocking: a transfer occupies both devices. Overlapped: it occupies neither and becomes a lag in the schedule."
)


def _options(placing: Placing) -> Placing:
    st.caption(literal(find_placer(placing.placer).source))
    if not options_of(placing.config):
        st.caption("This placer has no options.")
    config = config_form(placing.config, session().key(f"placer-option-{placing.placer}"))
    st.caption("To check a placement made by hand, such as an expert's split, open it under File.")
    return placing.asking(placing.placer, config)
