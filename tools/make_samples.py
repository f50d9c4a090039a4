"""Regenerate `sample_models/`: python tools/make_samples.py [FOLDER].

Equal sources give equal bytes. A test compares the folder with the output of this script.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # Tools are not an installed package, so add their folder to the path.

from tessel_core.formats import write_file  # noqa: E402
from tessel_core.samples import CATALOGUE, CATALOGUE_FORMAT, GRAPHS, MESHES, PLANS, SAMPLE_FOLDER  # noqa: E402
from tools.graph_samples import graph_entries  # noqa: E402
from tools.mesh_samples import mesh_entries  # noqa: E402
from tools.plan_samples import plan_entries  # noqa: E402
from tools.sample_entry import Entry  # noqa: E402


def write_samples(folder: Path) -> None:
    """Write every sample, the catalogue and the table of provenance into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {PLANS: list(plan_entries()), GRAPHS: list(graph_entries()), MESHES: list(mesh_entries())}
    for entries in written.values():
        for entry in entries:
            write_file(folder / f"{entry.name}.json", entry.text)
    write_file(folder / CATALOGUE, _catalogue(written))
    write_file(folder / "README.md", _readme([entry for entries in written.values() for entry in entries]))


def _catalogue(written: dict[str, list[Entry]]) -> str:
    rows = {key: [entry.row for entry in entries] for key, entries in written.items()}
    document = {"format": CATALOGUE_FORMAT, "version": 1, **rows}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _readme(written: list[Entry]) -> str:
    lines = [
        "# Sample models",
        "",
        "Plans of the work of one micro-batch (tessel-plan, version 1), operator graphs (tessel-graph, version 1), and",
        "device meshes (tessel-mesh, version 1). `optima.json` has the optimal placements of the graphs.",
        "Written by `python tools/make_samples.py`: change that, not these files. All may be used freely under the",
        "project's licence.",
        "",
    ]
    for family in dict.fromkeys(entry.family for entry in written):
        lines += [f"## {family}", "", "| file | what it is | where it comes from |", "|---|---|---|"]
        lines += [
            f"| `{entry.name}.json` | {entry.title}. {entry.description} | {entry.provenance} |"
            for entry in written
            if entry.family == family
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    write_samples(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE_FOLDER)
