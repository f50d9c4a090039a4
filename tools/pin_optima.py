"""Record the optimal placements of the sample graphs: python tools/pin_optima.py [FILE].

The dynamic program places each graph with blocking transfers, on a mesh that makes it a real choice. Values depend on
the cost model, so run this after each change to it. A test compares the file with these results.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.formats import write_file
from tessel_core.model import Communication
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.samples import SAMPLE_FOLDER, load_graph

OPTIMA = SAMPLE_FOLDER / "optima.json"


@dataclass(frozen=True, slots=True)
class MeshSize:
    """`nodes` nodes of `per_node` devices of one kind, with published links."""

    kind: str
    nodes: int
    per_node: int


MESH_OF = {
    "mlp-8-training": MeshSize("h200", 1, 2),
    "gpt2-small-inference": MeshSize("a100", 1, 4),
    "swin-t-inference": MeshSize("a100", 1, 4),
    "flava-inference": MeshSize("a100", 1, 8),
    "resnet50-training": MeshSize("a100", 1, 8),
    "mt5-base-training": MeshSize("a100", 1, 8),
    "gpt2-xl-training": MeshSize("h200", 1, 8),
    "gpt-6.7b-training": MeshSize("h200", 1, 8),
    "evoformer-training": MeshSize("a100", 1, 4),
    "gpt-175b-training": MeshSize("h200", 32, 1),
}
"""Mesh of each sample graph. Links between any two of its devices are equal, so that the optimum can be proved."""


def pin(sample: str) -> dict[str, object]:
    """Return the dynamic program's result for one sample, with objective and bound in seconds."""
    size = MESH_OF[sample]
    mesh = uniform_mesh(size.kind, size.nodes, size.per_node)
    graph = costed(load_graph(sample), mesh, CostOptions())
    report = solve_placement("dp", PlacementProblem.on_mesh(graph, mesh, Communication.BLOCKING))
    if report.objective is None or report.bound is None:
        raise SystemExit(f"{sample}: {report.status}, {report.reason}")
    return {
        "sample": sample,
        "mesh": asdict(size),
        "objective": float(report.objective),
        "bound": float(report.bound),
        "status": str(report.status),
    }


def write_optima(path: Path) -> None:
    """Write the result of each sample, one per line."""
    rows = ",\n".join("  " + json.dumps(pin(sample)) for sample in MESH_OF)
    write_file(path, '{\n "format": "tessel-optima",\n "version": 1,\n "optima": [\n' + rows + "\n ]\n}\n")


if __name__ == "__main__":
    write_optima(Path(sys.argv[1]) if len(sys.argv) > 1 else OPTIMA)
