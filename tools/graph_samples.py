"""The sample graphs: networks of published sizes, with up to about 2,000 operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.spec import LAYERS
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.units import show_memory
from tools.sample_entry import Entry

PROVENANCE = (
    "Sizes: {source}. FLOPs, bytes, weights and activations are those of the operations of the "
    "program in tessel_core/networks. Activations are as PyTorch keeps them, with fused attention, in bf16."
)
BACKWARD = " The backward pass is derived from the gradient rules of tessel_core/ir."
TIMES = (
    " Times are sums over operators by tessel_core/costs/timing.py, for the devices of tessel_core/costs/devices.py."
)


@dataclass(frozen=True, slots=True)
class _Sample:
    family: str
    preset: str
    title: str
    about: str
    changes: dict[str, Any]


SAMPLES = (
    _Sample("mlp", "mlp-8", "MLP of 8 layers", "A chain, small enough to read.", {"training": True}),
    _Sample("gpt", "gpt2-small", "GPT-2 small", "Twelve layers, and a head that takes longer than all of them.", {}),
    _Sample(
        "swin",
        "swin-t",
        "Swin-T",
        "A pyramid: early layers have large tensors, late ones weights.",
        {"micro_batch": 32},
    ),
    _Sample(
        "flava",
        "flava",
        "Flava",
        "Text and image encoder side by side, joined late.",
        {"micro_batch": 32, "granularity": LAYERS},
    ),
    _Sample(
        "resnet",
        "resnet50",
        "ResNet-50",
        "Residual blocks. Because of their shortcuts, a cut inside a block sends two tensors.",
        {"training": True, "micro_batch": 32},
    ),
    _Sample(
        "mt5",
        "mt5-base",
        "mT5-base",
        "Every decoder layer uses the encoder's output. The vocabulary has more weights than the layers.",
        {"training": True, "micro_batch": 8, "granularity": LAYERS},
    ),
    _Sample(
        "gpt",
        "gpt2-xl",
        "GPT-2 XL",
        "Equal layers between an embedding and a head.",
        {"training": True, "granularity": LAYERS},
    ),
    _Sample(
        "gpt",
        "gpt-6.7b",
        "GPT-3 6.7B",
        "Equal layers, which fill four fifths of an H200's memory in training.",
        {"training": True, "granularity": LAYERS},
    ),
    _Sample(
        "evoformer",
        "evoformer",
        "AlphaFold's Evoformer, 4 blocks",
        "Two streams that cross in every block. Memory bandwidth limits their speed.",
        {"training": True, "blocks": 4},
    ),
    _Sample("gpt", "gpt-175b", "GPT-3 175B", "96 layers, as about 2,000 operators.", {"training": True}),
)


def graph_entries() -> Iterator[Entry]:
    """Yield all graphs in the order of the catalogue."""
    for sample in SAMPLES:
        family = GRAPHS[sample.family]
        spec = replace(family.presets[sample.preset], **sample.changes)
        name = sample.preset if spec.training else f"{sample.preset}-inference"
        what = "training" if spec.training else "inference"
        by = "by layer" if spec.granularity == LAYERS else "by operator"
        graph = build_graph(sample.family, spec, name)
        yield Entry(
            f"{sample.title}, {what}, {by}",
            f"{sample.about} {_sizes(graph)}, micro-batch {spec.micro_batch}.",
            PROVENANCE.format(source=family.source) + BACKWARD * spec.training + TIMES * (spec.granularity == LAYERS),
            f"Operator graphs, {what}",
            graph,
        )


def _sizes(graph: OperatorGraph) -> str:
    weights = show_memory(sum(operator.weight_bytes or 0 for operator in graph.operators), "B")
    return f"{len(graph.operators):,} operators, {len(graph.edges):,} edges, weights of {weights}"
