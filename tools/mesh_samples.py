"""The sample meshes: two of the presets, as files to start from."""

from __future__ import annotations

from collections.abc import Iterator

from tessel_core.costs.meshes import MESHES
from tools.sample_entry import Entry

DESCRIPTIONS = {
    "h200-16": "Two nodes of eight GPUs: all to all by NVLink inside a node, an InfiniBand port beside each GPU to the "
    "other node.",
    "h200-8-a100-8": "Two kinds of GPUs: an operator takes longer on an A100, which has room for less, and the network "
    "between the nodes is as slow as the slower node's.",
}


def mesh_entries() -> Iterator[Entry]:
    """All meshes in the order in which people see them."""
    for name, description in DESCRIPTIONS.items():
        preset = MESHES[name]
        provenance = (
            f"tessel_core/costs/meshes.py. Peak rates without sparsity: {preset.source}. Latencies: usual figures."
        )
        yield Entry(preset.title, description, provenance, "Device meshes", preset.build())
