"""Micro-batch plans of one network in the forms that published schedules need, such as V, loop and X.

Forms differ in the placement of stages and in whether the backward pass is split. All forms do the same work per
sample, except the form with a sharded vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from math import ceil
from typing import Any

from tessel_core.costs.devices import H200
from tessel_core.costs.meshes import NVLINK, all_reduce_seconds
from tessel_core.errors import InputError, find
from tessel_core.model import MicroBatchPlan
from tessel_core.networks.cuts import cut_stages
from tessel_core.networks.layer_costs import Part, layer_parts
from tessel_core.networks.pipelines import Stage, in_stages, pipeline_plan
from tessel_core.options import Option, check_options, option
from tessel_core.units import to_ticks

CHUNKS = 2
"""Number of stages on each device in the loop form."""


@dataclass(frozen=True, slots=True)
class Layered:
    """A chain of layers with their costs for one micro-batch."""

    name: str
    """Beginning of the names of the network's plans."""
    parts: tuple[Part, ...]
    samples: int
    """Samples per micro-batch."""
    group: int = 1
    """Number of GPUs in a tensor-parallel group. The group is one device of the plan."""
    sharded: Callable[[int], tuple[Part, ...]] | None = None
    """Returns the parts when embeddings and projection are sharded over that many devices. None if they cannot be."""

    @property
    def ticks(self) -> int:
        """Duration of the forward and backward pass of one micro-batch in nanoseconds."""
        return sum(part.work for part in self.parts)


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a network's plan, such as V or loop."""

    title: str
    build: Callable[[str, Layered, int], MicroBatchPlan]
    """Builds the plan from its name, the network and the number of devices.

    Raises InputError if the network cannot have this form.
    """


@dataclass(frozen=True, slots=True)
class Published:
    """A network of published size: a preset of a family of graphs, with changed options."""

    title: str
    family: str
    preset: str
    changes: Mapping[str, Any]

    def spec(self, **changes: Any) -> Any:
        """Return the spec for training, with `changes` in addition to the network's own."""
        from tessel_core.networks.graphs.table import GRAPHS

        known = GRAPHS[self.family].presets[self.preset]
        return replace(known, training=True, split_weights=True, **{**self.changes, **changes})


@dataclass(frozen=True, slots=True)
class Terms:
    """Options for the plans of a network."""

    devices: int = option(8, Option("Devices", "Number of devices over which the network is spread.", 2, 64))
    micro_batch: int = option(2, Option("Micro-batch", "Samples per micro-batch.", 1, 1024, "samples"))
    capacity: float = option(
        (H200.memory_capacity or 0) / 1e9,
        Option("Memory capacity", "Memory of each GPU.", 1.0, 10_000.0, "GB"),
    )


def layered(name: str, micro_batch: int, **changes: Any) -> Layered:
    """Return the network called `name` in `NETWORKS`, with `micro_batch` samples per micro-batch.

    `changes` replace sizes of its spec. Raises InputError if the name is unknown.
    """
    network = find(NETWORKS, name, "network")
    spec = network.spec(micro_batch=micro_batch, **changes)
    shards = None if spec.tensor_parallel > 1 else partial(_shards, network.family, spec)
    return Layered(name, layer_parts(network.family, spec), micro_batch, spec.tensor_parallel, shards)


def _shards(family: str, spec: Any, devices: int) -> tuple[Part, ...]:
    """Return the layers with embeddings and projection sharded by vocabulary [Shoeybi 2019, Megatron-LM, section 3].

    The vocabulary is padded to a multiple of the number of devices. Every device looks up the tokens of its part of the
    vocabulary, and an all-reduce adds the results. The loss all-reduces three float32 numbers per token: the maximum,
    the sum of exponentials, and the logit of the target. Its backward pass all-reduces the gradient of the projection's
    input. Every device has the position tables and the last norm.
    """
    shares = layer_parts(family, replace(spec, vocabulary=ceil(spec.vocabulary / devices)))
    tokens = spec.micro_batch * spec.sequence
    hidden = 2 * tokens * spec.hidden
    summed, statistics = (to_ticks(all_reduce_seconds(NVLINK, size, devices)) for size in (hidden, 4 * tokens))

    def spread(part: Part) -> Part:
        if part.layers == ("head",):
            return replace(part, forward=part.forward + 3 * statistics, backward=part.backward + summed)
        return replace(part, forward=part.forward + summed, sent_bytes=hidden) if _is_wide(part) else part

    return tuple(spread(part) for part in shares)


def _is_wide(part: Part) -> bool:
    """Return whether the part is an embedding or the projection, whose size grows with the vocabulary."""
    return part.layers[0].endswith(("embedding", "head"))


def build_forms(network: Layered, devices: int, capacity: int) -> tuple[dict[str, MicroBatchPlan], dict[str, str]]:
    """Build the plans of a network, by form, on devices with `capacity` bytes of memory.

    Return the plans, and the reason for each impossible form. A micro-batch of an X form has twice the samples: one
    half runs down the devices and the other half runs up.
    """
    plans, missing = dict[str, MicroBatchPlan](), dict[str, str]()
    for key, form in FORMS.items():
        try:
            plans[key] = form.build(f"{network.name}-{key}", network, devices).with_capacity(capacity)
        except InputError as error:
            missing[key] = error.why
    return plans, missing


def forms_of(name: str, terms: Terms) -> tuple[dict[str, MicroBatchPlan], dict[str, str]]:
    """Build the plans of a network, by form, as `build_forms` does. Raises InputError for options out of range."""
    check_options(terms)
    return build_forms(layered(name, terms.micro_batch), terms.devices, round(terms.capacity * 1e9))


def _chains(
    routes: Callable[[int], Mapping[str, Sequence[int]]], *, split: bool = False
) -> Callable[[str, Layered, int], MicroBatchPlan]:
    """Return a function that builds plans. Each plan consists of chains of contiguous stages.

    Each chain has its own weights and its own micro-batch. `routes` maps the number of devices to the devices of each
    chain's stages, in order. The keys are the letters of the chains.
    """

    def build(name: str, network: Layered, devices: int) -> MicroBatchPlan:
        ways = routes(devices)
        chains = [in_stages(cut_stages(network.parts, on), on, letter) for letter, on in ways.items()]
        plan = pipeline_plan(name, chains, network.group, split=split)
        return replace(plan, samples=len(ways) * network.samples)

    return build


def _both_ways(devices: int) -> dict[str, Sequence[int]]:
    return {"d": range(devices), "u": range(devices)[::-1]}


def _sharded(name: str, network: Layered, devices: int) -> MicroBatchPlan:
    """Build a V of stages between blocks that run on all devices.

    Blocks on all devices are the embedding E, the projection and loss H, and their backward blocks Eb and Hb. A decoder
    has its own embedding D, with the same table, before its first stage. Encoder layers are on the first half of the
    devices, and decoder layers on the second half.

    D needs only the tokens, and no block needs its backward block Db. Dependencies still keep both at their positions
    in the NN shape.
    """
    if network.sharded is None:
        raise InputError(
            f"network {network.name}",
            f"runs each layer on {network.group} GPUs, but the sharded form needs layers on one GPU",
        )
    parts = network.sharded(devices)
    wide = [i for i, part in enumerate(parts) if _is_wide(part)]
    runs, last = list[tuple[Stage, ...]](), 0
    for number, (begin, end) in enumerate(pairwise(wide), start=1):
        places = range(last, devices * number // (len(wide) - 1))
        runs.append(in_stages(cut_stages(parts[begin + 1 : end], places), places, first=last))
        last = places.stop
    embed, *decode, loss = (
        _everywhere(name, parts[i], devices) for name, i in zip(("E", *"DH"[-len(runs) :]), wide, strict=True)
    )
    through = [embed, *chain(*runs), loss]
    by_decoder = [[embed, *runs[0], stage, *runs[1], loss] for stage in decode]
    plan = pipeline_plan(name, [*by_decoder, through], weights=through)
    links = (replace(each, lag=0) if each.successor == "D" else each for each in plan.dependencies)
    return replace(plan, dependencies=tuple(links), samples=network.samples)


def _everywhere(name: str, part: Part, devices: int) -> Stage:
    return Stage(part, tuple(range(devices)), name, f"{name}b")


FORMS: dict[str, Form] = {
    "v": Form("V", _chains(lambda n: {"": range(n)})),
    "split-v": Form("V, split backward", _chains(lambda n: {"": range(n)}, split=True)),
    "loop": Form("Loop", _chains(lambda n: {"": tuple(range(n)) * CHUNKS})),
    "zb-v": Form("ZB-V", _chains(lambda n: {"": (*range(n), *reversed(range(n)))}, split=True)),
    "x": Form("X", _chains(_both_ways)),
    "split-x": Form("X, split backward", _chains(_both_ways, split=True)),
    "sharded": Form("Sharded vocabulary", _sharded),
}
"""All forms by name, from simple to complex. A schedule that fits several forms uses the first of them."""

NETWORKS: dict[str, Published] = {
    "gpt-6.7b": Published("GPT 6.7B", "gpt", "gpt-6.7b", {}),
    "gpt-13b": Published("GPT 13B", "gpt", "gpt-13b", {}),
    "gpt-175b": Published("GPT 175B, eight GPUs per device", "gpt", "gpt-175b", {"tensor_parallel": 8}),
    "gpt-1m-vocab": Published("GPT, vocabulary of a million tokens", "gpt", "gpt-6.7b", {"vocabulary": 1_000_000}),
    "mt5-xxl": Published("mT5-XXL", "mt5", "mt5-xxl", {"sequence": 2048, "outputs": 2048}),
}
"""Published networks by name.

Sources are GPT-3 [Brown 2020, table 2.1], and GPT-3 6.7B and mT5-XXL [Xue 2021] with the large vocabularies and the
sequence lengths of [Lin 2024, section II and table III].
"""
