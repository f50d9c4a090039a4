"""Plans of one network in the forms that published schedules need.

Forms differ in the placement of stages and in whether backward passes are split.  All forms do the same work per
sample, except the sharded form.
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
"""Stages on each device of a loop."""


@dataclass(frozen=True, slots=True)
class Layered:
    """A chain of layers with their costs for one micro-batch."""

    name: str
    """Start of the names of its plans."""
    parts: tuple[Part, ...]
    samples: int
    """Samples per micro-batch."""
    group: int = 1
    """GPUs of a tensor-parallel group, which is one device of the plan."""
    sharded: Callable[[int], tuple[Part, ...]] | None = None
    """Returns the parts with embeddings and projection sharded over a number of devices; None if impossible."""

    @property
    def ticks(self) -> int:
        """Duration of the forward and backward pass of one micro-batch in nanoseconds."""
        return sum(part.work for part in self.parts)


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a network's plan."""

    title: str
    build: Callable[[str, Layered, int], MicroBatchPlan]
    """Builds the plan from its name, the network and the number of devices.

    Raises InputError if the network has no such form."""


@dataclass(frozen=True, slots=True)
class Published:
    """A network of published size: a preset of a family of graphs, with changed options."""

    title: str
    family: str
    preset: str
    changes: Mapping[str, Any]

    def spec(self, **changes: Any) -> Any:
        """Return the spec for training, with further changes."""
        from tessel_core.networks.graphs.table import GRAPHS

        known = GRAPHS[self.family].presets[self.preset]
        return replace(known, training=True, split_weights=True, **{**self.changes, **changes})


@dataclass(frozen=True, slots=True)
class Terms:
    """Options of a network's plans."""

    devices: int = option(8, Option("Devices", "Number of devices over which the network is spread.", 2, 64))
    micro_batch: int = option(2, Option("Micro-batch", "Samples per micro-batch.", 1, 1024, "samples"))
    capacity: float = option(
        (H200.memory_capacity or 0) / 1e9,
        Option("Memory capacity", "Memory of each GPU.", 1.0, 10_000.0, "GB"),
    )


def layered(name: str, micro_batch: int, **changes: Any) -> Layered:
    """Return a network of `NETWORKS` with `micro_batch` samples per micro-batch and changed sizes.

    Raises InputError if the name is unknown.
    """
    network = find(NETWORKS, name, "network")
    spec = network.spec(micro_batch=micro_batch, **changes)
    shards = None if spec.tensor_parallel > 1 else partial(_shards, network.family, spec)
    return Layered(name, layer_parts(network.family, spec), micro_batch, spec.tensor_parallel, shards)


def _shards(family: str, spec: Any, devices: int) -> tuple[Part, ...]:
    """Return the layers with embeddings and projection sharded by vocabulary [Shoeybi 2019, Megatron-LM, section 3].

    The vocabulary is padded to a multiple of the devices.  Every device looks up its share of the tokens, followed by
    an all-reduce.  The loss all-reduces three float32 numbers per token: maximum, sum of exponentials, and logit of the
    target.  Its backward all-reduces the gradient of the projection's input.  Position tables and the last norm are
    on every device.
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
    """Return whether the part has the size of the vocabulary."""
    return part.layers[0].endswith(("embedding", "head"))


def build_forms(network: Layered, devices: int, capacity: int) -> tuple[dict[str, MicroBatchPlan], dict[str, str]]:
    """Build the plans of a network by form, on devices of `capacity` bytes.

    Returns the plans, and for each impossible form the reason.  A micro-batch of an X form combines one down and one up
    the devices, so it has twice the samples.
    """
    plans, missing = dict[str, MicroBatchPlan](), dict[str, str]()
    for key, form in FORMS.items():
        try:
            plans[key] = form.build(f"{network.name}-{key}", network, devices).with_capacity(capacity)
        except InputError as error:
            missing[key] = error.why
    return plans, missing


def forms_of(name: str, terms: Terms) -> tuple[dict[str, MicroBatchPlan], dict[str, str]]:
    """Build the forms of a network by name; see `build_forms`.  Raises InputError for terms out of range."""
    check_options(terms)
    return build_forms(layered(name, terms.micro_batch), terms.devices, round(terms.capacity * 1e9))


def _chains(
    routes: Callable[[int], Mapping[str, Sequence[int]]], *, split: bool = False
) -> Callable[[str, Layered, int], MicroBatchPlan]:
    """Return a builder of plans with chains of contiguous stages, each with its own weights and micro-batch.

    `routes` returns, for a number of devices, the device of each stage for each chain, by the chain's letter.
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
    """Build a V of stages between blocks on all devices.

    The blocks on all devices are the embedding E, projection and loss H, and their backwards Eb and Hb.  A decoder has
    its own embedding D, with the same table, before its first stage.  Encoder layers are on the first half of the
    devices, decoder layers on the second half.

    D needs only tokens, and nothing needs its backward Db.  Dependencies keep both at their positions in the NN shape.
    """
    if network.sharded is None:
        raise InputError(
            f"network {network.name}", f"its layers are shared by {network.group} GPUs, but the sharded form needs one"
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
"""All forms by name, simplest first.  A schedule that fits several forms uses the first."""

NETWORKS: dict[str, Published] = {
    "gpt-6.7b": Published("GPT 6.7B", "gpt", "gpt-6.7b", {}),
    "gpt-13b": Published("GPT 13B", "gpt", "gpt-13b", {}),
    "gpt-175b": Published("GPT 175B, a device is eight GPUs", "gpt", "gpt-175b", {"tensor_parallel": 8}),
    "gpt-1m-vocab": Published("GPT, a million tokens", "gpt", "gpt-6.7b", {"vocabulary": 1_000_000}),
    "mt5-xxl": Published("mT5-XXL", "mt5", "mt5-xxl", {"sequence": 2048, "outputs": 2048}),
}
"""Networks of published sizes by name.

GPT-3 [Brown 2020, table 2.1]; GPT-3 6.7B and mT5-XXL [Xue 2021] with the large vocabularies and the sequences of [Lin
2024, section II and table III]."""
