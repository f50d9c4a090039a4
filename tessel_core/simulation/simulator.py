"""Simulate a program with either simulation: how long it takes on a mesh, and how much memory its devices need."""

from __future__ import annotations

from tessel_core.errors import InputError
from tessel_core.ir.builder import collection_paused
from tessel_core.ir.program import Program
from tessel_core.ir.verify import verify
from tessel_core.model import DeviceMesh
from tessel_core.simulation.costs import Costs, StatedCosts, costs_on
from tessel_core.simulation.distir import simulate_distir
from tessel_core.simulation.distir_rules import DistIrCosts, with_host
from tessel_core.simulation.sharing import simulate_shared
from tessel_core.simulation.streams import simulate_streams
from tessel_core.simulation.trace import Trace

DISTIR = "distir"
_MAX_DEVICE = 1_000_000
"""Largest allowed device number. Memory for clocks grows with the largest device number of the program."""


def simulate(
    program: Program,
    mesh: DeviceMesh | None = None,
    costs: Costs | None = None,
    *,
    compat: str | None = None,
    overlap: bool = True,
    link_sharing: bool = False,
) -> Trace:
    """Simulate a program. Its worker w is device w - 1 of the mesh, and its device 0 is the host.

    Parameters
    ----------
    mesh
        None if all operations state their duration, as in a lowered schedule, or if `costs` are given.
    costs
        Durations of operations. By default those of the mesh: `MeshCosts`, or `DistIrCosts` with `compat`.
    compat
        "distir" to count time and memory like DistIR's published code, including its errors (docs/simulation.md).
    overlap
        Whether a device computes and communicates at the same time. DistIR never does.
    link_sharing
        Whether concurrent transfers of a node share its uplink. Otherwise each is as fast as if it were alone.

    Raises
    ------
    InputError
        If the program is not well-formed or has no values, if the mesh lacks a device or its speed, or if the duration
        of an operation needs a mesh. Also for an unknown `compat`, and for link sharing with `compat`.
    """
    check_semantics(compat, link_sharing=link_sharing)
    with collection_paused():
        verify(program)
        _check_devices(program, mesh)
        if compat:
            return simulate_distir(program, costs or (StatedCosts() if mesh is None else DistIrCosts(with_host(mesh))))
        costs = costs or (StatedCosts() if mesh is None else costs_on(mesh, program))
        return (simulate_shared if link_sharing else simulate_streams)(program, costs, overlap=overlap)


def check_semantics(compat: str | None, *, link_sharing: bool = False) -> None:
    """Raise InputError if `compat` is unknown, or if an option cannot be combined with it."""
    if compat not in (None, DISTIR):
        raise InputError("compat", f"{compat!r} is not known, known is {DISTIR}")
    if compat and link_sharing:
        raise InputError("link sharing", "is not available with DistIR, whose transfers do not slow each other down")


def _check_devices(program: Program, mesh: DeviceMesh | None) -> None:
    if not program.devices:
        raise InputError(f"program {program.name}", "has no values, so there is nothing to simulate")
    if program.devices[-1] > _MAX_DEVICE:
        why = f"is above {_MAX_DEVICE:,}, the largest device number that can be simulated"
        raise InputError(f"device {program.devices[-1]}", why)
    if mesh is not None and program.devices[-1] > len(mesh.devices):
        extra = next(each for each in program.devices if each > len(mesh.devices))
        raise InputError(f"device {extra}", f"is not in mesh {mesh.name}, whose devices are 1 to {len(mesh.devices)}")
