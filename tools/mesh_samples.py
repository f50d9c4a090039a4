"""The sample meshes. They are two of the presets, written as files that users can change."""

from __future__ import annotations

from collections.abc import Iterator

from tessel_core.costs.meshes import MESHES
from tools.sample_entry import Entry

DESCRIPTIONS = {
    "h200-16": "Two nodes of eight GPUs. NVLink joins all GPUs of a node, and each GPU has an InfiniBand port to the "
    "other node.",
    "h200-8-a100-8": "Two kinds of GPUs. An A100 is slower and has less memory, and the network "
    "between the nodes is as slow as that of the slower node.",
}


def mesh_entries() -> Iterator[Entry]:
    """Yield all meshes in the order of the catalogue."""
    for name, description in DESCRIPTIONS.items():
        preset = MESHES[name]
        provenance = (
            f"tessel_core/costs/meshes.py. Peak rates without sparsity: {preset.source}. Latencies: usual figures."
        )
        yield Entry(preset.title, description, provenance, "Device meshes", preset.build())
