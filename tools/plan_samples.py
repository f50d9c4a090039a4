"""The sample plans: pipeline shapes with integer times, and networks with real costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from tessel_core.costs.meshes import DEVICES_PER_NODE
from tessel_core.model import MicroBatchPlan, Operator
from tessel_core.model.layers import layer_of
from tessel_core.networks import SHAPES, Shape, build_shape
from tessel_core.networks.cuts import cut_stages
from tessel_core.networks.evoformer_network import EVOFORMER, EvoformerSpec
from tessel_core.networks.flava import FlavaSpec
from tessel_core.networks.forms import FORMS, NETWORKS, layered
from tessel_core.networks.layer_costs import join, layer_parts
from tessel_core.networks.pipelines import Stage, in_stages, pipeline_plan
from tessel_core.units import show_memory, show_time
from tools.sample_entry import Entry

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
"""Memory units per device at which makespans on 8 devices were proved optimal.

On 4 devices, each shape has its own default.
"""

INFERENCE = ("v-shape", "m-shape", "nn-shape", "k-shape")

GPT_3 = {"6.7b": (15, 16, 17), "13b": (8, 9, 13), "175b": (3, 4, 5)}
"""Micro-batch sizes on 4, 8 and 16 devices. Each is the smallest at which 1F1B exceeds the memory."""

FLAVA = FlavaSpec(
    hidden=4096, heads=32, layers=24, joint_layers=12, sequence=1024, positions=1024, image=480, training=True
)
"""Flava's layout at the size of Tessel's evaluation [Lin 2024, and its published code].

The original has 12 + 12 + 6 layers of hidden size 768.
"""

FLAVA_MICRO_BATCHES = {4: 12, 8: 20, 16: 24}
"""Micro-batch sizes in pairs of text and image, at which few micro-batches fit into memory."""

COSTS = (
    "Costs are those of the network's operator graph (tessel graph), by the cost model fitted to operators measured on "
    "one NVIDIA H200 (PyTorch 2.11, CUDA 13, bf16, eager mode; docs/cost_model.md). NVLink carries 450 GB/s each way "
    "with 2 µs per hop. Adam in mixed precision takes 16 B per parameter. The capacity is 150 GB."
)
BETWEEN_NODES = " Between nodes of eight GPUs: InfiniBand NDR, 50 GB/s per GPU each way, 5 µs per hop."
LARGE_VOCABULARIES, OTHER_SHAPES = "Large vocabularies on H200s", "Flava and AlphaFold on H200s"
GPT = "GPT of 32 layers, hidden 4096, 32 heads, sequence 2048, vocabulary 1,000,000, micro-batch 1, training."
MT5 = (
    "mT5-XXL (Xue et al. 2021, arXiv 2010.11934): 24 + 24 layers, hidden 4096, 64 heads of 64, gated MLP of 10,240, "
    "vocabulary 250,112; sequences of 2048 and 2048, micro-batch 1, training."
)
WIDTH_13B = ", which prints a width of 5140 for 40 heads of 128"
SPLIT = (
    " The backward pass is split after Qi et al. 2024 (arXiv 2401.10241): W computes the gradients of weights. It "
    "holds inputs of products and gradients of their outputs, which replace the tensors that only B needed."
)
NODES = (
    " A device of the plan is a node of eight GPUs that share each layer (Megatron) with all-reduces over NVLink. A "
    "stage's output leaves by all ports and is gathered over NVLink. The memory is that of one GPU."
)
FLAVA_SIZE = (
    "Flava's layout (Singh et al. 2022, arXiv 2112.04482; 12 + 12 + 6 layers of 768) at the size of the published "
    "Tessel code: 24 + 24 + 12 layers, hidden 4096, 32 heads, 1024 text tokens, images of 480 x 480 in patches of "
    "16. Heads and losses of pretraining are left out. J is tensor-parallel with two ring all-reduces per layer each "
    "way. Of two nodes, each runs half of the micro-batch with its own weights; their sum per step is not in the plan."
)
EVOFORMER_SIZE = (
    "AlphaFold 2's Evoformer (Jumper et al., Nature 596, 2021): 48 blocks, crop of its fine-tuning (512 sequences, 384 "
    "residues), channels 256 and 128, micro-batch 1, no recomputation; three passes, as in one of four training steps. "
    "Dropout and everything around the blocks are left out. Memory limits most operators: products overall run at "
    "about a fifth of the GPU's peak."
)


def plan_entries() -> Iterator[Entry]:
    """Yield all plans in the order of the catalogue."""
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
    for size, micro_batches in GPT_3.items():
        for form in ("v", "split-v"):
            for devices, micro_batch in zip((4, 8, 16), micro_batches, strict=True):
                yield _gpt_3(size, form, devices, micro_batch)
    for devices, micro_batch in FLAVA_MICRO_BATCHES.items():
        yield _flava(devices, micro_batch, training=True)
    for devices in (4, 8, 16):
        yield _flava(devices, 4, training=False)
    for devices in (4, 8, 16):
        yield _evoformer(devices)


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
        f"The forward half of the {shape.title} shape. Nothing is held for a backward pass.",
        f"{shape.source}; all times 1.",
        "Shapes, inference",
        build_shape(shape.name, replace(shape.defaults, devices=devices, training=False)),
    )


def form_of(network: str, form: str, devices: int, micro_batch: int = 1) -> MicroBatchPlan:
    """Return the plan of a network in a pipeline shape. Times are per micro-batch, whatever its number of samples."""
    plan = FORMS[form].build(f"{network}-{form}", layered(network, micro_batch), devices)
    return replace(plan, samples=None)


def _gpt(devices: int) -> Iterator[Entry]:
    v_plan, m_plan = (form_of("gpt-1m-vocab", form, devices) for form in ("v", "sharded"))
    yield _network(
        f"GPT, a million tokens, V, {devices} H200s",
        f"Embedding on the first stage and vocabulary projection on the last, as usual. {_works(v_plan)} "
        "The projection and its loss take longer than any other stage, so the last device sets the pace.",
        GPT,
        v_plan,
    )
    yield _network(
        f"GPT, a million tokens, M, {devices} H200s",
        f"Both vocabulary embeddings sharded over all devices (E and H, with Eb and Hb), layers in stages. "
        f"{_works(m_plan)} All devices do equal work.",
        GPT,
        replace(m_plan, name=f"gpt-1m-vocab-m-{devices}"),
    )


def _mt5(devices: int) -> Iterator[Entry]:
    v_plan, nn_plan = (form_of("mt5-xxl", form, devices) for form in ("v", "sharded"))
    yield _network(
        f"mT5-XXL, V, {devices} H200s",
        "The input embedding is copied before the first encoder and decoder layer. Projection and loss are on "
        f"the last stage. {_works(v_plan)} With this vocabulary, stages can be nearly equal.",
        MT5,
        replace(v_plan, name=f"mt5-v-{devices}"),
    )
    yield _network(
        f"mT5-XXL, NN, {devices} H200s",
        "Embeddings, projection and loss are sharded over all devices. Encoder layers are on one half of them, decoder "
        f"layers on the other. {_works(nn_plan)} Static memory is lower than in a V. But decoder layers cost more than "
        "encoder layers, so the halves are uneven.",
        MT5,
        replace(nn_plan, name=f"mt5-nn-{devices}"),
    )


def _gpt_3(size: str, form: str, devices: int, micro_batch: int) -> Entry:
    gpt, plan = NETWORKS[f"gpt-{size}"].spec(), form_of(f"gpt-{size}", form, devices, micro_batch)
    group, split, called = gpt.tensor_parallel, form == "split-v", size.upper()
    where = f"{devices} H200s" if group == 1 else f"{devices} nodes of {group} H200s"
    what = (
        "Each backward pass has two halves. B sends the gradient of the input. W computes the gradients of weights at "
        "any later time, and frees nearly everything that the forward pass holds."
        if split
        else "Embedding on the first stage. Vocabulary projection and loss on the last."
    )
    network = (
        f"GPT-3 {called} (Brown et al. 2020, arXiv 2005.14165, table 2.1{WIDTH_13B * (size == '13b')}): {gpt.layers} "
        f"layers, hidden {gpt.hidden:,}, {gpt.heads} heads, sequence 2048, vocabulary of 50,257, input and output "
        f"embedding separate; micro-batch {micro_batch}, training, no recomputation."
    )
    network += SPLIT * split + NODES * (group > 1)
    return _network(
        f"GPT {called}, {'split ' if split else ''}V, {where}",
        f"{what} {_works(plan)} {_room(plan)} micro-batches fit on the first device; 1F1B needs {devices}.",
        network,
        plan,
        "GPT-3 on H200s",
        group,
    )


def flava_plan(spec: FlavaSpec, devices: int) -> MicroBatchPlan:
    """Return text stages on the first half of the devices, vision stages on the rest, and the joint encoder J on all.

    J is tensor-parallel inside a node. Of two nodes, each takes half of the micro-batch with its own weights, whose
    gradients are summed once per step, outside the plan.
    """
    half, nodes = devices // 2, ceil(devices / DEVICES_PER_NODE)
    shared = replace(spec, micro_batch=spec.micro_batch // nodes, tensor_parallel=devices // nodes)
    joint = join(*layer_parts("flava", shared, _branch, ("joint", "head")))
    last = Stage(joint, tuple(range(devices)), "J", "Jb" if spec.training else "", nodes)
    chains = list[tuple[Stage, ...]]()
    for letter, branch, places in (("t", "text", range(half)), ("v", "image", range(half, devices))):
        parts = layer_parts("flava", spec, _branch, (branch,))
        stages = in_stages(cut_stages(parts, places), places, letter)
        if not spec.training:
            stages = tuple(replace(stage, backward="") for stage in stages)
        chains.append((*stages, last))
    return pipeline_plan("flava", chains)


def _branch(operator: Operator) -> str:
    """Return the layer. The projections into the joint encoder's space end the branches."""
    step = layer_of(operator, 2)
    return {"joint_embedding/text": "text_projection", "joint_embedding/image": "image_projection"}.get(
        step, layer_of(operator)
    )


def evoformer_plan(spec: EvoformerSpec, devices: int) -> MicroBatchPlan:
    """Return passes a, b and c over all stages (recycling), then the backward pass of c.

    Only pass c keeps activations. The next pass begins with the pairs and the first row of the alignment. The loss
    stands for everything around the blocks, and is left out.
    """
    parts = layer_parts("evoformer", spec, prefixes=("block",))
    stages = in_stages(cut_stages(parts, range(devices)), range(devices))
    again = 2 * spec.micro_batch * spec.residues * (spec.msa_channels + spec.residues * spec.pair_channels)
    last = replace(stages[-1], part=replace(stages[-1].part, sent_bytes=again))
    free = [replace(stage, backward="") for stage in (*stages[:-1], last)]
    chain = [replace(stage, forward=stage.forward + letter) for letter in "ab" for stage in free]
    chain += [replace(stage, forward=f"{stage.forward}c") for stage in stages]
    return pipeline_plan("evoformer", [chain], weights=stages)


def _flava(devices: int, micro_batch: int, *, training: bool) -> Entry:
    plan = flava_plan(replace(FLAVA, micro_batch=micro_batch, training=training), devices)
    what = (
        f"{_room(plan)} micro-batches fit into memory." if training else "The forward pass alone, which holds nothing."
    )
    costs = "training" if training else "inference: static memory is weights alone, 2 B per parameter, and is no limit"
    plan = plan if training else replace(plan, name=f"{plan.name}-inference")
    return _network(
        f"Flava, {devices} H200s{'' if training else ', inference'}",
        "Text encoder on one half of the devices, vision encoder on the other, and joint encoder J on all. "
        f"{_works(plan)} {what}",
        f"{FLAVA_SIZE} Micro-batch {micro_batch}, {costs}.",
        plan,
        OTHER_SHAPES,
    )


def _evoformer(devices: int) -> Entry:
    plan = evoformer_plan(replace(EVOFORMER.presets["evoformer-finetuning"], training=True), devices)
    return _network(
        f"AlphaFold's Evoformer, {devices} H200s",
        "Recycling: a micro-batch passes all stages three times (a, b, c), then once backward. Only pass c keeps "
        f"activations. {_works(plan)} {_room(plan)} micro-batches fit into memory.",
        EVOFORMER_SIZE,
        plan,
        OTHER_SHAPES,
    )


def _network(
    title: str, description: str, network: str, plan: MicroBatchPlan, family: str = LARGE_VOCABULARIES, group: int = 1
) -> Entry:
    """Return the catalogue entry of a network. One device of the plan represents `group` GPUs."""
    between = BETWEEN_NODES if group * len(plan.devices) > DEVICES_PER_NODE else ""
    return Entry(title, description, f"{network} {COSTS}{between}", family, plan)


def _room(plan: MicroBatchPlan) -> int:
    """Return the number of micro-batches whose activations fit on the first device."""
    held = sum(max(0, plan.blocks[b].memory) for b in plan.blocks_on[0])
    return (plan.devices[0].activation_capacity or 0) // held


def _works(plan: MicroBatchPlan) -> str:
    """Return one sentence on the largest and smallest work of the devices."""
    low, high = (show_time(work, plan.time_unit) for work in (min(plan.work), max(plan.work)))
    held = show_memory(max(device.static_memory for device in plan.devices), plan.memory_unit)
    works = f"{high} on each device" if low == high else f"{low} to {high} per device"
    return f"Work per micro-batch: {works}; static memory up to {held}."
