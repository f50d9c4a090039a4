"""A small network for a plan, run as the plan says on its ranks, and by autograd in one process, to compare the two.

Each layer is tanh between two matrices, with gradients written by hand in two halves, so that weight gradients are
computed where the plan has them.  On several devices the first matrix is cut by columns and the second by rows, with a
sum over the devices after each pass [Megatron-LM].  All numbers come from a seed and a name, on every rank alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.execution.network import Network
from tessel_core.execution.rank_process import Rank
from tessel_core.execution.walk import Order, Walked, walk
from tessel_core.options import Option, option

PARTS = ("first weight", "first bias", "second weight", "second bias")
"""What a layer learns, as its gradients are named."""
_CUT = (1, 0, 0, None)
"""Along which axis each is cut over the devices of a block; the last one is on all of them."""
_FORMATS = {"fp64": "float64", "fp32": "float32"}
"""What NumPy and PyTorch call them."""
Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class ToySize:
    """How large the network is, and what its numbers begin with."""

    width: int = option(8, Option("Width", "Numbers that go from block to block, per sample.", 1, 1024))
    samples: int = option(4, Option("Samples", "In one micro-batch.", 1, 1024))
    dtype: str = option("fp64", Option("Format", "Of all numbers.", choices=tuple(_FORMATS)))
    seed: int = option(0, Option("Seed", "Of weights and data.", 0, 2**31 - 1))

    def numbers(self, *of: int, shape: Sequence[int], spread: float = 1.0) -> Array:
        """Normally distributed, the same for the same seed and `of`."""
        found = np.random.default_rng([self.seed, *of]).standard_normal(tuple(shape)) * spread
        return found.astype(_FORMATS[self.dtype])

    @property
    def tolerance(self) -> float:
        """Largest difference that rounding explains, relative to the largest number of a tensor."""
        return 1e-10 if self.dtype == "fp64" else 1e-5


class Gradient(NamedTuple):
    """Of one part of a layer on one rank: a cut of the whole, if the block is on several devices."""

    layer: int
    part: str
    device: int
    """The rank's place among those of the block."""
    numbers: Array


class Outcome(NamedTuple):
    """What a network computes: by layer and micro-batch, losses, or outputs where nothing is trained."""

    losses: dict[tuple[int, int], float]
    outputs: dict[tuple[int, int], Array]
    gradients: list[Gradient]


@dataclass(frozen=True, slots=True)
class ToyOrder:
    """What one rank does, with which network."""

    order: Order
    network: Network
    size: ToySize


def needed_bytes(size: ToySize, network: Network) -> int:
    """Of all weights and gradients, on the ranks and in the process that they are compared with."""
    devices = sum(len(network.plan.blocks[layer].devices) for layer in network.layers)
    return 4 * 2 * devices * size.width**2 * np.dtype(_FORMATS[size.dtype]).itemsize


def weights_of(size: ToySize, network: Network, layer: int) -> list[Array]:
    """The parts of a layer, whole."""
    hidden, width = size.width * len(network.plan.blocks[layer].devices), size.width
    shapes = (width, hidden), (hidden,), (hidden, width), (width,)
    spreads = 1 / math.sqrt(width), 0.1, 1 / math.sqrt(hidden), 0.1
    return [
        size.numbers(1, layer, part, shape=shape, spread=spread)
        for part, (shape, spread) in enumerate(zip(shapes, spreads, strict=True))
    ]


def input_of(size: ToySize, micro_batch: int) -> Array:
    """What the first layers take."""
    return size.numbers(2, micro_batch, shape=(size.samples, size.width))


def target_of(size: ToySize, layer: int, micro_batch: int) -> Array:
    """What a layer at the end is to make; the loss is the mean square of the difference."""
    return size.numbers(3, layer, micro_batch, shape=(size.samples, size.width))


def cut(whole: Array, part: int, device: int, devices: int) -> Array:
    """What one of the devices of a block has of a part."""
    axis = _CUT[part]
    return whole if axis is None else np.split(whole, devices, axis)[device]


class ToyBlocks:
    """The blocks of a toy network on one rank."""

    def __init__(self, rank: Rank, asked: ToyOrder) -> None:
        import torch

        self.torch, self.rank, self.network, self.size = torch, rank, asked.network, asked.size
        plan = self.plan = asked.network.plan
        self.type = getattr(torch, _FORMATS[asked.size.dtype])
        self.groups = rank.groups(block.devices for block in plan.blocks if len(block.devices) > 1)
        self.trained, self.halved, self.sinks = (
            asked.network.trained,
            asked.network.halved,
            frozenset(asked.network.sinks),
        )
        mine = [layer for layer in asked.network.layers if rank.number in plan.blocks[layer].devices]
        self.weights = {layer: self._weights(layer) for layer in mine}
        self.gradients = {
            layer: [torch.zeros_like(w) for w in self.weights[layer]] for layer in mine if layer in self.trained
        }
        self.outgoing = [
            [a for a, (before, _, _) in enumerate(plan.arcs) if before == b] for b in range(len(plan.blocks))
        ]
        self.kept = dict[tuple[int, int], tuple[Any, ...]]()
        self.owed = dict[tuple[int, int], Any]()
        """Gradients of the losses."""
        self.losses, self.outputs = dict[tuple[int, int], Any](), dict[tuple[int, int], Any]()
        both = [each for found in (self.weights, self.gradients) for parts in found.values() for each in parts]
        self.held = _bytes(both)

    def _weights(self, layer: int) -> list[Any]:
        devices = self.plan.blocks[layer].devices
        place = devices.index(self.rank.number)
        whole = weights_of(self.size, self.network, layer)
        return [self._tensor(cut(each, part, place, len(devices))) for part, each in enumerate(whole)]

    def _tensor(self, numbers: Array) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(numbers)).to(self.rank.device)

    def buffer(self, arc: int) -> Any:
        carried, (before, _, _) = self.network.carried[arc], self.plan.arcs[arc]
        if not carried:
            return self.torch.empty(1, dtype=self.type, device=self.rank.device)
        shape = self.size.samples, self.size.width
        if before not in self.network.inputs:
            shape = (len(carried), *shape)  # type: ignore[assignment]
        return self.torch.empty(shape, dtype=self.type, device=self.rank.device)

    def wait(self, arc: int, micro_batch: int, carried: Any) -> None:
        pass

    def run(self, block: int, micro_batch: int, taken: dict[int, Any]) -> tuple[int, dict[int, Any]]:
        """As `Blocks.run`: a layer, the gradients of those that the block covers, or gradients of weights."""
        back = dict[int, Any]()
        output: Any = None
        if block in self.network.inputs:
            output = self._forward(block, micro_batch, taken)
        elif block in self.network.backward:
            back = self._backward(block, micro_batch, taken)
        for layer in self.network.weight.get(block, ()):
            self._weight(layer, *self._drop(layer, micro_batch))
        carried_on = {arc: self._carried(arc, output, back) for arc in self.outgoing[block]}
        self.rank.settle()
        return time.monotonic_ns(), carried_on

    def _carried(self, arc: int, output: Any, back: dict[int, Any]) -> Any:
        carried = self.network.carried[arc]
        if not carried:
            return self.torch.empty(1, dtype=self.type, device=self.rank.device)
        return self.torch.stack([back[layer] for layer in carried]) if output is None else output

    def _forward(self, layer: int, m: int, taken: dict[int, Any]) -> Any:
        inputs = [tensor for arc, tensor in taken.items() if self.network.carried[arc]]
        x = sum(inputs[1:], inputs[0]) if inputs else self._tensor(input_of(self.size, m))
        first, first_bias, second, second_bias = self.weights[layer]
        h = self.torch.tanh(x @ first + first_bias)
        y = self._summed(layer, h @ second) + second_bias
        if layer in self.trained:
            self._keep(layer, m, x, h)
        if layer in self.sinks:
            self._end(layer, m, y)
        return y

    def _end(self, layer: int, m: int, y: Any) -> None:
        """The loss of what comes out at the end, and its gradient; without training what came out."""
        first = self.rank.number == self.plan.blocks[layer].devices[0]
        if not self.network.backward:
            if first:
                self.outputs[layer, m] = y
            return
        off = y - self._tensor(target_of(self.size, layer, m))
        loss = float((off * off).mean())
        if not math.isfinite(loss):
            raise InputError(f"loss of micro-batch {m}", f"is {loss}")
        if first:
            self.losses[layer, m] = loss
        if layer in self.trained:
            self.owed[layer, m] = 2 * off / off.numel()

    def _backward(self, block: int, m: int, taken: dict[int, Any]) -> dict[int, Any]:
        """Per layer that those of the block take from, the gradient of its output."""
        found = dict[int, Any]()

        def add(layer: int, gradient: Any) -> None:
            found[layer] = found[layer] + gradient if layer in found else gradient

        for arc, tensor in taken.items():
            for layer, gradient in zip(self.network.carried[arc], tensor, strict=False):
                add(layer, gradient)
        for layer in self.network.backward[block]:
            if layer in self.sinks:
                add(layer, self.owed.pop((layer, m)))
            dy = found.pop(layer)
            x, h = self._drop(layer, m)
            first, _, second, _ = self.weights[layer]
            dz = (dy @ second.T) * (1 - h * h)
            targets = [before for before in self.network.inputs[layer] if before in self.trained]
            if targets:
                dx = self._summed(layer, dz @ first.T)
                for before in targets:
                    add(before, dx)
            if layer in self.halved:
                self._keep(layer, m, x, h, dz, dy)
            else:
                self._weight(layer, x, h, dz, dy)
        return found

    def _weight(self, layer: int, x: Any, h: Any, dz: Any, dy: Any) -> None:
        for gradient, more in zip(self.gradients[layer], (x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)), strict=True):
            gradient.add_(more)

    def _summed(self, layer: int, part: Any) -> Any:
        """Over the devices of the layer's block."""
        import torch.distributed as dist

        devices = self.plan.blocks[layer].devices
        if len(devices) > 1:
            dist.all_reduce(part, group=self.groups[tuple(sorted(devices))])
        return part

    def _keep(self, layer: int, m: int, *tensors: Any) -> None:
        self.kept[layer, m] = tensors
        self.held += _bytes(tensors)

    def _drop(self, layer: int, m: int) -> tuple[Any, ...]:
        tensors = self.kept.pop((layer, m))
        self.held -= _bytes(tensors)
        return tensors

    def result(self) -> Outcome:
        gradients = [
            Gradient(layer, PARTS[part], self.plan.blocks[layer].devices.index(self.rank.number), each.cpu().numpy())
            for layer, parts in self.gradients.items()
            for part, each in enumerate(parts)
        ]
        outputs = {key: each.cpu().numpy() for key, each in self.outputs.items()}
        return Outcome(self.losses, outputs, gradients)


def _bytes(tensors: Sequence[Any]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def run_toy(rank: Rank, asked: ToyOrder) -> Walked:
    """Work of a rank: its share of the network, as the plan says; the result of it is an `Outcome`."""
    import torch

    with torch.no_grad():
        return walk(rank, asked.order, ToyBlocks(rank, asked))


def run_whole(rank: Rank, asked: ToyOrder) -> Outcome | None:
    """Work of a rank: the first one runs the network whole, by autograd; the others have nothing to do."""
    import torch

    if rank.number:
        return None
    network, size = asked.network, asked.size
    trained, sinks = network.trained, network.sinks
    weights = {
        layer: [torch.from_numpy(each).requires_grad_(layer in trained) for each in weights_of(size, network, layer)]
        for layer in network.layers
    }
    losses, outputs = dict[tuple[int, int], float](), dict[tuple[int, int], Array]()
    for m in range(asked.order.micro_batches):
        rank.at(f"micro-batch {m} of the network in one process")
        made = dict[int, Any]()
        total: Any = 0.0
        for layer in network.layers:
            inputs = [made[before] for before in network.inputs[layer]]
            x = sum(inputs[1:], inputs[0]) if inputs else torch.from_numpy(input_of(size, m))
            first, first_bias, second, second_bias = weights[layer]
            made[layer] = torch.tanh(x @ first + first_bias) @ second + second_bias
        for layer in sinks:
            if network.backward:
                loss = torch.nn.functional.mse_loss(made[layer], torch.from_numpy(target_of(size, layer, m)))
                losses[layer, m] = loss.item()
                total = total + loss
            else:
                outputs[layer, m] = made[layer].numpy()
        if network.backward:
            total.backward()
    gradients = [
        Gradient(layer, PARTS[part], 0, each.grad.numpy())
        for layer in trained
        for part, each in enumerate(weights[layer])
    ]
    return Outcome(losses, outputs, gradients)


class Equality(NamedTuple):
    """How what ranks computed compares with what one process did."""

    tensors: int
    """How many were compared: gradients, losses and outputs."""
    difference: float
    """The largest |a - b| of a tensor over its largest |b|."""
    worst: str
    """The tensor with that difference."""


def compare(network: Network, found: Sequence[Outcome], whole: Outcome) -> Equality:
    """All that ranks computed against the whole; what is missing differs by infinity."""
    worst, tensors = (0.0, "nothing"), 0
    names = [block.name for block in network.plan.blocks]

    def look(name: str, mine: Array, cut_of: Array, largest: float) -> None:
        nonlocal worst, tensors
        tensors += 1
        off = float(np.abs(mine - cut_of).max()) if mine.size else 0.0
        worst = max(worst, (off / largest if off else 0.0, name)) if largest or not off else (math.inf, name)

    gradients = {(each.layer, each.part): each.numbers for each in whole.gradients}
    seen = set[tuple[int, str, int]]()
    for outcome in found:
        for layer, part, device, numbers in outcome.gradients:
            reference, devices = gradients[layer, part], network.plan.blocks[layer].devices
            share = cut(reference, PARTS.index(part), device, len(devices))
            look(f"gradient of the {part} of {names[layer]}", numbers, share, float(np.abs(reference).max()))
            seen.add((layer, part, device))
        for (layer, m), loss in outcome.losses.items():
            reference = np.array(whole.losses[layer, m])
            look(f"loss of {names[layer]} #{m}", np.array(loss), reference, float(reference))
        for (layer, m), output in outcome.outputs.items():
            reference = whole.outputs[layer, m]
            look(f"output of {names[layer]} #{m}", output, reference, float(np.abs(reference).max()))
    wanted = (
        sum(len(network.plan.blocks[layer].devices) for layer, _ in gradients) + len(whole.losses) + len(whole.outputs)
    )
    if len(seen) + sum(len(each.losses) + len(each.outputs) for each in found) < wanted:
        return Equality(tensors, math.inf, "what no rank has")
    return Equality(tensors, *worst)
