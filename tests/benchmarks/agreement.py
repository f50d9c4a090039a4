"""One network in all its forms: do graph, program, placement, schedule and simulation say the same?

    python tests/benchmarks/agreement.py [--small]     # half a minute; --small leaves out GPT-3 13B and 175B

Figures of before, when a GPT was defined once for graphs and once for programs, stand beside those of now.  Where the
layer of a network was measured on an H200 at just these sizes, one column says what the step would take by that row.
No form takes such rows over: a network of other sizes would then be told by another rule, and 9 of 62 pairs of rows
say that twice the samples take less time, so a sweep would choose by noise.  The exit
status is 1 where a graph, its program and its plan differ by more than `AGREE`, where a program of layers does not
end with its schedule, or where building takes longer than `REACH_S`.  Other seconds are shown and never judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import tessel_core
from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import find_mesh
from tessel_core.ir.distributed import Distributed
from tessel_core.model import Communication, DeviceMesh, OperatorGraph, Schedule, Transfers
from tessel_core.networks.forms import FORMS, Layered
from tessel_core.networks.graphs.table import GRAPHS, build_graph, network_program
from tessel_core.networks.layer_costs import layer_parts
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.planning import plan_of
from tessel_core.planning.placed_program import placed_program
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import simulate
from tools.h200_rows import rows

BEFORE = {"gpt-6.7b": (146.9, 152.9), "gpt-13b": (268.5, 278.2), "gpt2-xl": (39.7, 45.2), "gpt-175b": (3333.3, 3327.4)}
"""Milliseconds of one training micro-batch on an H200, by graph and by program, when each was defined apart."""
AGREE = 1e-3
"""Relative difference between the summed times of a graph's operators, the simulated program, and the sample plan."""
REACH_S = {"definition to operator graph": 3.0, "placed and scheduled to simulated": 5.0}
ROOMS = ("networks", "costs", "strategies", "ir", "simulation", "planning")
NODE = find_mesh("h200-8")


def spec_of(preset: str, **changes: Any) -> Any:
    return replace(GRAPHS["gpt"].presets[preset], training=True, **changes)


def network(spec: Any, split: bool) -> Distributed:
    return network_program(GRAPHS["gpt"].program, replace(spec, split_weights=split))


def milliseconds(graph: OperatorGraph) -> float:
    """Of all operators, one after the other."""
    return 1e3 * sum(each.time_on("h200") or 0.0 for each in costed(graph, NODE, CostOptions()).operators)


def planned(preset: str) -> float:
    """Milliseconds of all blocks of a V on eight devices, as sample plans and `tessel compare --network` have it."""
    parts = layer_parts("gpt", spec_of(preset, split_weights=True))
    return sum(FORMS["v"].build(preset, Layered(preset, parts, 1), 8).work) / 1e6


def by_measured_layers(preset: str, whole: float) -> str:
    """Milliseconds with the measured layer in place of the modelled one, and by how much that is longer."""
    spec = spec_of(preset)
    shape = spec.micro_batch, spec.sequence, spec.hidden, spec.heads, spec.tensor_parallel
    measured = [rows(name).get(shape) for name in ("layer_fwd", "layer_bwd")]
    if None in measured:
        return "not measured"
    modelled = sum(part.work for part in layer_parts("gpt", spec) if part.layers[0].startswith("layer")) / 1e6
    found = whole - modelled + 1e3 * spec.layers * sum(row.seconds for row in measured if row is not None)
    return f"{found:.1f} ({found / whole - 1:+.1%})"


def forms(presets: tuple[str, ...]) -> tuple[Table, bool, float]:
    """The table of one micro-batch in all forms, whether they agree, and seconds that the largest graph took."""
    table = Table(
        *("network", "graph ms", "program ms", "plan ms", "difference", "by measured layers"),
        *("before: graph", "program", "difference"),
    )
    agree, longest = True, 0.0
    for preset in presets:
        began = time.perf_counter()
        graph = build_graph("gpt", spec_of(preset), preset)
        longest = max(longest, time.perf_counter() - began)
        one, other = milliseconds(graph), 1e3 * simulate(network(spec_of(preset), False).program, NODE).latency
        third, before = planned(preset), BEFORE[preset]
        apart = max(abs(one / other - 1), abs(one / third - 1))
        agree = agree and apart <= AGREE
        now = (f"{one:.1f}", f"{other:.1f}", f"{third:.1f}", f"{apart:.3%}", by_measured_layers(preset, one))
        table.add_row(preset, *now, *map(str, before), f"{before[0] / before[1] - 1:+.2%}")
    return table, agree, longest


def scheduled(spec: Any, preset: str, mesh: DeviceMesh, micro_batches: int) -> tuple[Any, Schedule]:
    """The fastest contiguous placement, and 1F1B of its plan."""
    graph = costed(build_graph("gpt", spec, preset), mesh, CostOptions())
    problem = PlacementProblem(graph, mesh.placement_devices, Transfers(mesh, Communication.OVERLAPPED))
    placement = solve_placement("dp", problem).solution
    assert placement is not None
    schedule = solve_schedule("1f1b", plan_of(placement), micro_batches).drawable
    assert schedule is not None
    return placement, schedule


def steps() -> tuple[Table, bool, float]:
    """Placed and scheduled networks, their programs, and seconds from schedule to simulation of GPT-2 XL."""
    table = Table("placed", "operations", "schedule ms", "program ms", "difference", "seconds")
    equal, taken = True, 0.0
    for preset, granularity, micro_batches in (("gpt2-small", "layers", 8), ("gpt2-xl", "operators", 32)):
        spec = spec_of(preset, granularity=granularity)
        placement, schedule = scheduled(spec, preset, NODE, micro_batches)
        began = time.perf_counter()
        program = placed_program(partial(network, spec), placement, schedule).program
        found = simulate(program, NODE).latency
        taken = time.perf_counter() - began
        wanted = schedule.makespan / 1e9
        equal = equal and (found - wanted > -1e-6 if granularity == "operators" else abs(found / wanted - 1) < 1e-6)
        name = f"{preset} by {granularity}, 8 devices, {micro_batches} micro-batches"
        numbers = (f"{wanted * 1e3:.3f}", f"{found * 1e3:.3f}", f"{found / wanted - 1:+.4%}", f"{taken:.1f}")
        table.add_row(name, f"{len(program.ops):,}", *numbers)
    return table, equal, taken


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--small", action="store_true", help="only GPT-2 XL and GPT-3 6.7B")
    small = asked.parse_args().small
    screen = Console(width=140)
    table, agree, building = forms(("gpt2-xl", "gpt-6.7b") if small else tuple(BEFORE))
    screen.print(table)
    others, equal, running = steps()
    screen.print(others)
    folder = Path(tessel_core.__file__).parent
    lines = sum(len(file.read_bytes().splitlines()) for room in ROOMS for file in (folder / room).rglob("*.py"))
    screen.print(f"lines of {', '.join(ROOMS)}: {lines:,}")
    taken = dict(zip(REACH_S, (building, running), strict=True))
    for what, seconds in taken.items():
        screen.print(f"{what}: {seconds:.2f} s (reach {REACH_S[what]:.0f})")
    if not agree or not equal or any(seconds > REACH_S[what] for what, seconds in taken.items()):
        sys.exit("error: the forms of a network do not agree, or take too long")


if __name__ == "__main__":
    main()
