"""One network in the forms that published schedules need: the same layers, each form with its own stages and weights.

A form differs from the others in where stages lie and whether backward passes are split, never in the work of a sample:
layers are rounded to whole ticks and bytes before they are joined.  Only the sharded form has other work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tessel_core.costs import h200
from tessel_core.errors import InputError, find
from tessel_core.model import MicroBatchPlan
from tessel_core.networks.parts import Part
from tessel_core.networks.pipelines import Placed, cut_stages, in_stages, pipeline_plan
from tessel_core.networks.transformers import (
    GPT_1M,
    GPT_6_7B,
    GPT_13B,
    GPT_175B,
    MT5_XXL,
    Gpt,
    Mt5,
    gpt_m_plan,
    gpt_parts,
    mt5_nn_plan,
    mt5_parts,
)
from tessel_core.options import Option, check_options, option
from tessel_core.units import TICKS_PER_SECOND, to_ticks

CHUNKS = 2
"""Stages on each device of a loop."""


@dataclass(frozen=True, slots=True)
class Layered:
    """A network of layers one after the other, as it runs one micro-batch."""

    name: str
    """The first word of its plans' names."""
    parts: tuple[Part, ...]
    samples: int
    """Of one micro-batch."""
    group: int = 1
    """GPUs that share each layer: one device of the plan."""
    sharded: Callable[[int], MicroBatchPlan] | None = None
    """The plan on so many devices whose parts of the vocabulary's size are spread over all of them, if there is one."""

    @property
    def ticks(self) -> int:
        """Forward and backward of one micro-batch in nanoseconds."""
        return sum(to_ticks(part.forward) + to_ticks(part.backward) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Form:
    """One entry of the table of forms."""

    title: str
    build: Callable[[str, Layered, int], MicroBatchPlan]
    """From the plan's name, the network and the number of devices; InputError where the network has no such form."""


@dataclass(frozen=True, slots=True)
class Published:
    """One entry of the table of networks."""

    title: str
    network: Gpt | Mt5


@dataclass(frozen=True, slots=True)
class Terms:
    """On what a network runs, and with what it is fed."""

    devices: int = option(8, Option("Devices", "How many devices the network is spread over.", 2, 64))
    micro_batch: int = option(2, Option("Micro-batch", "Samples in one micro-batch.", 1, 1024, "samples"))
    capacity: float = option(
        h200.MEMORY_BYTES / 1e9, Option("Memory capacity", "What each GPU can hold.", 1.0, 10_000.0, "GB")
    )


def layered(name: str, micro_batch: int) -> Layered:
    """The network called `name` fed with that many samples at a time; InputError where there is none."""
    network = find(NETWORKS, name, "network").network.with_micro_batch(micro_batch)
    size = network.size
    if isinstance(network, Mt5):
        return Layered(name, tuple(mt5_parts(network)), size.micro_batch, 1, lambda n: mt5_nn_plan(network, n))
    shard = None if network.tensor_parallel > 1 else lambda n: gpt_m_plan(network, n)
    return Layered(name, tuple(gpt_parts(network)), size.micro_batch, network.tensor_parallel, shard)


def build_forms(network: Layered, devices: int, capacity: int) -> tuple[dict[str, MicroBatchPlan], dict[str, str]]:
    """The network's plans by form on that many devices of `capacity` bytes, and why it lacks the others.

    In X forms a micro-batch of the plan is one down and one up, so that it has twice the samples.
    """
    plans, missing = dict[str, MicroBatchPlan](), dict[str, str]()
    for key, form in FORMS.items():
        try:
            plans[key] = form.build(f"{network.name}-{key}", network, devices).with_capacity(capacity)
        except InputError as error:
            missing[key] = error.why
    return plans, missing


def forms_of(name: str, terms: Terms) -> tuple[dict[str, MicroBatchPlan], dict[str, str]]:
    """As `build_forms`, of a network by name; raises InputError for terms out of range."""
    check_options(terms)
    return build_forms(layered(name, terms.micro_batch), terms.devices, round(terms.capacity * 1e9))


def _in_whole_ticks(part: Part) -> Part:
    """Stages of such parts last as long as their parts together, in any cut."""
    ticks = TICKS_PER_SECOND["ns"]
    return replace(part, forward=to_ticks(part.forward) / ticks, backward=to_ticks(part.backward) / ticks)


def _stages(network: Layered, places: Sequence[int], branch: str = "") -> tuple[Placed, ...]:
    """Contiguous stages on `places`, which are devices, of which the busiest is least."""
    return in_stages(cut_stages([_in_whole_ticks(part) for part in network.parts], places), places, branch)


def _one_way(route: Callable[[int], Sequence[int]], *, split: bool) -> Callable[[str, Layered, int], MicroBatchPlan]:
    """One chain of stages; `route` says on which device each lies, of so many devices."""

    def build(name: str, network: Layered, devices: int) -> MicroBatchPlan:
        plan = pipeline_plan(name, [_stages(network, route(devices))], network.group, split=split)
        return replace(plan, samples=network.samples)

    return build


def _both_ways(*, split: bool) -> Callable[[str, Layered, int], MicroBatchPlan]:
    """Two chains with weights of their own, down and up the devices, a micro-batch each."""

    def build(name: str, network: Layered, devices: int) -> MicroBatchPlan:
        chains = _stages(network, range(devices), "d"), _stages(network, range(devices)[::-1], "u")
        plan = pipeline_plan(name, chains, network.group, split=split)
        return replace(plan, samples=2 * network.samples)

    return build


def _sharded(name: str, network: Layered, devices: int) -> MicroBatchPlan:
    if network.sharded is None:
        raise InputError(
            f"network {network.name}", f"its layers are shared by {network.group} GPUs, shards are for one"
        )
    plan = network.sharded(devices)
    return replace(plan, name=f"{name}-{devices}", samples=network.samples)


FORMS: dict[str, Form] = {
    "v": Form("V", _one_way(range, split=False)),
    "split-v": Form("V, split backward", _one_way(range, split=True)),
    "loop": Form("Loop", _one_way(lambda n: tuple(range(n)) * CHUNKS, split=False)),
    "zb-v": Form("ZB-V", _one_way(lambda n: (*range(n), *reversed(range(n))), split=True)),
    "x": Form("X", _both_ways(split=False)),
    "split-x": Form("X, split backward", _both_ways(split=True)),
    "sharded": Form("Sharded vocabulary", _sharded),
}
"""Every form by name, simplest first: a schedule that suits several is drawn on the first."""

NETWORKS: dict[str, Published] = {
    "gpt-6.7b": Published("GPT 6.7B", GPT_6_7B),
    "gpt-13b": Published("GPT 13B", GPT_13B),
    "gpt-175b": Published("GPT 175B, a device is eight GPUs", GPT_175B),
    "gpt-1m-vocab": Published("GPT, a million tokens", GPT_1M),
    "mt5-xxl": Published("mT5-XXL", MT5_XXL),
}
"""Layered networks of published sizes by name."""
