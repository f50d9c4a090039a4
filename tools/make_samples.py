"""Regenerate `sample_models/`: python tools/make_samples.py [FOLDER].

The same sources give the same bytes; a test holds the folder to what this writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tessel_core.formats import plan_text, write_file
from tessel_core.model import MicroBatchPlan
from tessel_core.networks import SHAPES, Shape, build_shape
from tessel_core.networks.vocabulary import GPT_1M, MT5_XXL, gpt_m_plan, gpt_v_plan, mt5_nn_plan, mt5_v_plan
from tessel_core.samples import CATALOGUE, CATALOGUE_FORMAT, SAMPLE_FOLDER
from tessel_core.units import show_memory, show_time

CAPACITY_AT_8 = {
    "v-shape": 8,
    "x-shape": 8,
    "m-shape": 12,
    "nn-shape": 12,
    "nn-eager": 12,
    "k-shape": 8,
    "finetune": 12,
    "alphafold": 12,
    "loop": 23,
    "split-v": 8,
    "split-x": 9,
    "zb-v": 32,
}
"""Slots a device, at which the makespans of 8 devices have been proved; at 4 devices the shapes' own defaults."""

INFERENCE = ("v-shape", "m-shape", "nn-shape", "k-shape")

COSTS = (
    "Costs: operators measured on one NVIDIA H200 (PyTorch 2.11, CUDA 13, bf16, eager mode), estimates by the formulas "
    "in tessel_core/costs and tessel_core/networks/parts.py where a shape was not measured; NVLink 450 GB/s each way, "
    "2 µs a hop; Adam in mixed precision, 16 B a parameter; capacity 150 GB."
)
GPT = "GPT of 32 layers, hidden 4096, 32 heads, sequence 2048, vocabulary 1,000,000, micro-batch 1, training."
MT5 = (
    "mT5-XXL's size (Xue et al. 2021): 24 + 24 layers, hidden 4096, vocabulary 250,112; with the measured layer (32 "
    "heads of 128, MLP of 4 x hidden) in place of its own, sequences of 2048 and 2048, micro-batch 1, training."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample to be written."""

    title: str
    description: str
    provenance: str
    family: str
    plan: MicroBatchPlan


def entries() -> Iterator[Entry]:
    """All samples in the order in which people see them."""
    for shape in SHAPES.values():
        for devices in (4, 8):
            yield _training(shape, devices)
    for name in INFERENCE:
        for devices in (4, 8):
            yield _inference(SHAPES[name], devices)
    for devices in (4, 8):
        yield from _gpt(devices)
    for devices in (4, 8):
        yield from _mt5(devices)


def _training(shape: Shape, devices: int) -> Entry:
    capacity = shape.defaults.capacity if devices == shape.defaults.devices else CAPACITY_AT_8[shape.name]
    parameters = replace(shape.defaults, devices=devices, capacity=capacity)
    shown = ("forward", "backward", *(each for each in ("weight", "wide", "chunks") if each not in shape.unused))
    times = ", ".join(f"{each} {getattr(parameters, each)}" for each in shown)
    return Entry(
        f"{shape.title}, {devices} devices",
        f"{shape.description} {shape.models}.",
        f"{shape.source}; times: {times}; capacity {capacity} slots.",
        "Shapes, training",
        build_shape(shape.name, parameters),
    )


def _inference(shape: Shape, devices: int) -> Entry:
    return Entry(
        f"{shape.title}, {devices} devices, inference",
        f"The forward half of the {shape.title} shape: nothing is held for a backward.",
        f"{shape.source}; all times 1.",
        "Shapes, inference",
        build_shape(shape.name, replace(shape.defaults, devices=devices, training=False)),
    )


def _gpt(devices: int) -> Iterator[Entry]:
    v_plan, m_plan = gpt_v_plan(GPT_1M, devices), gpt_m_plan(GPT_1M, devices)
    yield _network(
        f"GPT, a million tokens, V, {devices} H200s",
        f"Embedding on the first stage, vocabulary projection on the last, as is usual. {_works(v_plan)} "
        "The projection and its loss alone outweigh any other stage, so the last device sets the pace.",
        GPT,
        replace(v_plan, name=f"gpt-1m-vocab-v-{devices}"),
    )
    yield _network(
        f"GPT, a million tokens, M, {devices} H200s",
        f"Both vocabulary embeddings sharded over all devices (E and H, with Eb and Hb), layers in stages. "
        f"{_works(m_plan)} All devices carry the same share.",
        GPT,
        replace(m_plan, name=f"gpt-1m-vocab-m-{devices}"),
    )


def _mt5(devices: int) -> Iterator[Entry]:
    v_plan, nn_plan = mt5_v_plan(MT5_XXL, devices), mt5_nn_plan(MT5_XXL, devices)
    yield _network(
        f"mT5-XXL, V, {devices} H200s",
        "A copy of the input embedding with the first encoder and with the first decoder layer, projection and loss on "
        f"the last stage. {_works(v_plan)} At this vocabulary stages can be cut nearly even.",
        MT5,
        replace(v_plan, name=f"mt5-v-{devices}"),
    )
    yield _network(
        f"mT5-XXL, NN, {devices} H200s",
        "Embeddings, projection and loss sharded over all devices; encoder layers on one half of them, decoder layers "
        f"on the other. {_works(nn_plan)} Static memory is lower than in a V, but decoder layers cost more than "
        "encoder layers, so the halves are uneven.",
        MT5,
        replace(nn_plan, name=f"mt5-nn-{devices}"),
    )


def _network(title: str, description: str, network: str, plan: MicroBatchPlan) -> Entry:
    return Entry(title, description, f"{network} {COSTS}", "Networks with measured costs", plan)


def _works(plan: MicroBatchPlan) -> str:
    """One sentence on how uneven the devices are."""
    low, high = (show_time(work, plan.time_unit) for work in (min(plan.work), max(plan.work)))
    held = show_memory(max(device.static_memory for device in plan.devices), plan.memory_unit)
    works = f"{high} on each device" if low == high else f"{low} to {high} a device"
    return f"Work per micro-batch: {works}; static memory up to {held}."


def write_samples(folder: Path) -> None:
    """Write every sample, the catalogue and the table of provenance into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = list(entries())
    for entry in written:
        write_file(folder / f"{entry.plan.name}.json", plan_text(entry.plan))
    write_file(folder / CATALOGUE, _catalogue(written))
    write_file(folder / "README.md", _readme(written))


def _catalogue(written: list[Entry]) -> str:
    rows = [
        {
            "name": entry.plan.name,
            "title": entry.title,
            "description": entry.description,
            "provenance": entry.provenance,
            "family": entry.family,
        }
        for entry in written
    ]
    document = {"format": CATALOGUE_FORMAT, "version": 1, "samples": rows}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _readme(written: list[Entry]) -> str:
    lines = [
        "# Sample models",
        "",
        "Plans of what one micro-batch does (tessel-plan, version 1). Written by `python tools/make_samples.py`:",
        "change that, not these files. All may be used freely under the project's licence.",
        "",
    ]
    for family in dict.fromkeys(entry.family for entry in written):
        lines += [f"## {family}", "", "| file | what it is | where it comes from |", "|---|---|---|"]
        lines += [
            f"| `{entry.plan.name}.json` | {entry.title}. {entry.description} | {entry.provenance} |"
            for entry in written
            if entry.family == family
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    write_samples(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE_FOLDER)
