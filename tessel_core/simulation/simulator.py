"""How long a program takes on a mesh and what its devices hold: the door to both simulations."""

from __future__ import annotations

from tessel_core.errors import InputError
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
_LARGEST_DEVICE = 1_000_000
"""Clocks are kept for all devices up to the largest."""


def simulate(
    program: Program,
    mesh: DeviceMesh | None = None,
    costs: Costs | None = None,
    *,
    compat: str | None = None,
    overlap: bool = True,
    link_sharing: bool = False,
) -> Trace:
    """The program's trace; its worker w is device w - 1 of the mesh, its device 0 the host.

    Parameters
    ----------
    mesh
        None where all operations say how long they take, as those of a lowered schedule do, or `costs` know them.
    costs
        Else those of the mesh: `MeshCosts`, or `DistIrCosts` with `compat`.
    compat
        "distir" for time and memory as DistIR's published code counts them, faults included; docs/simulation.md.
    overlap
        Whether a device computes and communicates at the same time; in DistIR none does.
    link_sharing
        Whether transfers that leave or enter a node at one time share its uplink; else each goes as if it were alone.

    Raises
    ------
    InputError
        For a program that is not well-formed or has no values, a device that the mesh does not have or whose speed it
        does not say, an operation whose time needs a mesh, an unknown `compat`, and for link sharing that cannot be.
    """
    check_semantics(compat, link_sharing=link_sharing)
    verify(program)
    _check_devices(program, mesh)
    if compat:
        return simulate_distir(program, costs or (StatedCosts() if mesh is None else DistIrCosts(with_host(mesh))))
    costs = costs or (StatedCosts() if mesh is None else costs_on(mesh, program))
    return (simulate_shared if link_sharing else simulate_streams)(program, costs, overlap=overlap)


def check_semantics(compat: str | None, *, link_sharing: bool = False) -> None:
    """Raise InputError for an unknown `compat`, and for what its semantics do not have."""
    if compat not in (None, DISTIR):
        raise InputError("compat", f"{compat!r} is not known, known is {DISTIR}")
    if compat and link_sharing:
        raise InputError("link sharing", "is not known to DistIR, whose transfers do not slow each other down")


def _check_devices(program: Program, mesh: DeviceMesh | None) -> None:
    if not program.devices:
        raise InputError(f"program {program.name}", "has no values, so there is nothing to simulate")
    if program.devices[-1] > _LARGEST_DEVICE:
        why = f"is above {_LARGEST_DEVICE:,}, the largest that is simulated"
        raise InputError(f"device {program.devices[-1]}", why)
    if mesh is not None and program.devices[-1] > len(mesh.devices):
        extra = next(each for each in program.devices if each > len(mesh.devices))
        raise InputError(f"device {extra}", f"is not in mesh {mesh.name}, which has {len(mesh.devices)}")
