"""`Placing` into what files keep, and back, checked against the placers and the devices that there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tessel_core.costs.costed import CostOptions
from tessel_core.errors import InputError
from tessel_core.formats.placing_file import KeptPlacing
from tessel_core.model import Allowance, Communication
from tessel_core.options import changed_options, config_from
from tessel_core.placement import find_placer
from tessel_core.placing.placing import ALL_OBJECTIVES, Placing, first_mesh


def kept_placing(placing: Placing) -> KeptPlacing:
    """Everything that was decided, in plain values."""
    return KeptPlacing(
        graph=placing.graph,
        graph_source=placing.graph_source,
        graph_sample=placing.graph_sample,
        mesh=placing.mesh,
        mesh_source=placing.mesh_source,
        pool=placing.pool,
        on_mesh=placing.on_mesh,
        objective=placing.objective,
        contiguous=placing.contiguous,
        placer=placing.placer,
        options={name: changed_options(config) for name, config in placing.configs.items()},
        costs=changed_options(placing.costs),
        communication=str(placing.communication),
        pins=tuple((pin.operator, pin.devices) for pin in placing.pins),
        assignment=placing.assignment,
        subgraphs=placing.subgraphs,
        by_hand=placing.by_hand,
        outcome=placing.outcome,
    )


def placing_of(kept: KeptPlacing) -> Placing:
    """What was kept.

    Raises
    ------
    InputError
        For a placer or an option that is not known, and for pins and positions that do not belong to the graph.
    """
    placing = Placing(
        graph=kept.graph,
        graph_source=kept.graph_source,
        graph_sample=kept.graph_sample,
        mesh=kept.mesh or first_mesh(),
        mesh_source=kept.mesh_source,
        pool=kept.pool,
        on_mesh=kept.on_mesh,
        objective=_objective(kept.objective),
        contiguous=kept.contiguous,
        placer=find_placer(kept.placer).name,
        configs={name: _config(name, options) for name, options in kept.options.items()},
        costs=_within("costs", CostOptions, kept.costs),
        communication=_communication(kept.communication),
        by_hand=kept.by_hand,
        outcome=kept.outcome,
    )
    pins = tuple(Allowance(operator, devices) for operator, devices in kept.pins)
    _check(placing, pins, kept)
    # A file may ask a placer that is not offered for its objective, such as one that only judges.
    placer = placing.placer if placing.placer in placing.placers else placing.placers[0]
    return replace(placing, placer=placer, pins=pins, assignment=kept.assignment, subgraphs=kept.subgraphs)


def _check(placing: Placing, pins: tuple[Allowance, ...], kept: KeptPlacing) -> None:
    if placing.graph is None:
        if pins or kept.assignment is not None or kept.subgraphs is not None:
            raise InputError("placing", "places operators of a graph that is not there")
        return
    count, devices = len(placing.graph.graph.operators), [device.name for device in placing.devices]
    for pin in pins:
        unknown = next((name for name in pin.devices if name not in devices), None)
        if pin.operator not in placing.graph.graph.names or unknown is not None:
            what = "there is no such operator" if unknown is None else f"unknown device {unknown!r}"
            raise InputError(f"pins.{pin.operator}", what)
    if kept.subgraphs is not None and len(kept.subgraphs) != count:
        raise InputError("subgraphs", f"has {len(kept.subgraphs)} entries, the graph has {count} operators")
    if kept.assignment is None:
        return
    if len(kept.assignment) != count:
        raise InputError("assignment", f"has {len(kept.assignment)} entries, the graph has {count} operators")
    for i, on in enumerate(kept.assignment):
        if len(set(on)) < len(on) or any(device >= len(devices) for device in on):
            why = f"must name distinct devices from 0 to {len(devices) - 1}, got {list(on)}"
            raise InputError(f"assignment[{i}]", why)


def _objective(text: str) -> str:
    if text not in ALL_OBJECTIVES:
        raise InputError("objective", f"must be one of {', '.join(ALL_OBJECTIVES)}, got {text!r}")
    return text


def _communication(text: str) -> Communication:
    if text not in tuple(Communication):
        raise InputError("communication", f"must be one of {', '.join(Communication)}, got {text!r}")
    return Communication(text)


def _config(placer: str, options: Mapping[str, object]) -> Any:
    return _within(f"options of {placer}", find_placer(placer).config, options)


def _within(where: str, config: type[Any], options: Mapping[str, object]) -> Any:
    try:
        return config_from(config, options)
    except InputError as error:
        raise error.within(where) from None
