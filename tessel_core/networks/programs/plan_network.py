"""Build a toy network for a plan: one micro-batch on one device, and the program of a schedule on all devices.

Each layer is a tanh between two matrix products. Gradients are derived automatically. If a layer runs on several
devices, its first weight is divided by columns and its second by rows. Each pass ends with an all-reduce [Shoeybi 2019,
section 3].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.definition import Definition
from tessel_core.ir.distributed import Distributed, Piece, Role
from tessel_core.ir.program import Op, Tag
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE, Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.types import TensorType
from tessel_core.model import Schedule
from tessel_core.model.schedule import runs_in_order
from tessel_core.networks.programs.plan_layers import Network
from tessel_core.networks.programs.plan_program import Run

PARTS = ("first weight", "first bias", "second weight", "second bias")
"""Names of a layer's weights."""
RATE = 0.1
"""Learning rate of the optimizer step after all micro-batches."""
_CUT = (1, 0, 0, None)
"""Axis along which tensor parallelism divides each of `PARTS`. None if every device has a copy."""
_INPUT, _TARGET, _LOSS = "input", "target", "loss"
_COUNT = "samples"
"""Name of the input with the number of samples per micro-batch."""


@dataclass(frozen=True, slots=True)
class LayerSize:
    """Sizes of the toy network's layers."""

    width: int
    """Numbers per sample that a layer passes to the next one."""
    samples: int
    """Samples per micro-batch."""
    dtype: str


def of_micro_batch(name: str, micro_batch: int) -> str:
    """Return the name of a micro-batch's own tensor in the program of a schedule."""
    return f"{name} #{micro_batch}"


def loss_name(block: str) -> str:
    """Return the name of the output with the loss of a block."""
    return f"loss of {block}"


def gradient_name(weight: str) -> str:
    """Return the name of the output with the gradient of a weight."""
    return f"gradient of the {weight}"


def updated_name(weight: str) -> str:
    """Return the name of the output with a weight after the optimizer step."""
    return f"updated {weight}"


def plan_network(network: Network, size: LayerSize) -> Distributed:
    """Build one micro-batch of a plan's network on one device: forward pass, losses and gradients.

    Outputs are the losses of the last layers and the gradients of all weights. If the plan has no backward blocks,
    outputs are the results of the last layers.
    """
    plan, made, outputs = network.plan, dict[int, int](), dict[str, int]()
    write = Definition(plan.name)
    rows = size.samples, size.width
    given, count = write.input(_INPUT, size.dtype, rows), write.input(_COUNT, "int32", (), Role())
    for number, layer in enumerate(network.layers):
        name = plan.blocks[layer].name
        with write.layer(name, number):
            x, *more = [made[before] for before in network.inputs[layer]] or [given]
            for each in more:
                x = write("sum", "add", x, each)
            hidden = size.width * len(plan.blocks[layer].devices)
            made[layer] = _layer(write, x, size, hidden, f" of {name}", trained=layer in network.trained)
            if layer not in network.sinks:
                continue
            if network.backward:
                target = write.input(f"target of {name}", size.dtype, rows)
                outputs[loss_name(name)] = write(_LOSS, "loss", made[layer], target, count)
            else:
                outputs[f"output of {name}"] = made[layer]
    model = write.finish(outputs)
    return Gradients()(model) if network.trained else model


def _layer(write: Definition, x: int, size: LayerSize, hidden: int, of: str = "", *, trained: bool) -> int:
    """Build a layer with input `x` and return its output. `of` is the last part of its weights' names."""
    shapes = (size.width, hidden), (hidden,), (hidden, size.width), (size.width,)
    first, first_bias, second, second_bias = (
        write.input(f"{part}{of}", size.dtype, shape, Role(shard_axis=cut, weight=trained))
        for part, shape, cut in zip(PARTS, shapes, _CUT, strict=True)
    )
    h = write("tanh", "tanh", write("first", "linear", x, first, first_bias))
    return write("bias", "bias", write("second", "matmul", h, second), second_bias)


class ScheduleProgram(NamedTuple):
    """The program of a schedule, and for each operation the run to which it belongs."""

    model: Distributed
    run_of: tuple[Run | None, ...]
    """Run of each operation. None for transfers and the optimizer step."""


def network_program(network: Network, schedule: Schedule, size: LayerSize) -> ScheduleProgram:
    """Build the program of a schedule: all runs in the order of their starts, then an optimizer step.

    Device d of the plan becomes device d + 1. After a run, its output is sent at once to the devices that need it.
    Inputs and outputs are pieces of those of `plan_network`. The names of tensors of one micro-batch come from
    `of_micro_batch`. Losses are summed over samples.
    """
    return _Lowering(network, schedule, size).program()


@dataclass(frozen=True)
class _Template:
    """A layer and its gradients on several devices. The operations of each run of the layer are copied from here."""

    model: Distributed
    inputs: Mapping[str, tuple[int, ...]]
    """Values of each input, by name, one per device."""
    outputs: Mapping[str, tuple[int, ...]]
    """Values of each output, by name, one per device."""

    def of_phase(self, phase: str) -> tuple[Op, ...]:
        """Return the operations of a phase, without those of the loss."""
        return tuple(op for op in self.model.program.ops if op.tag.phase == phase and op.tag.name != _LOSS)

    @cached_property
    def loss(self) -> tuple[Op, ...]:
        """Operations that compute the loss from the layer's output, and the gradient of the loss."""
        return tuple(op for op in self.model.program.ops if op.tag.name == _LOSS)

    @cached_property
    def made(self) -> tuple[int, ...]:
        """The layer's output on each device."""
        return tuple(op.inputs[0] for op in self.loss if op.kind == "loss")

    @cached_property
    def owed(self) -> tuple[int, ...]:
        """The gradient of the layer's output on each device."""
        return tuple(op.outputs[0] for op in self.loss if op.kind == "loss_grad")


@cache
def _template(size: LayerSize, devices: int, *, trained: bool, passes_on: bool, halved: bool) -> _Template:
    """Build the template of a layer on `devices` devices.

    With `passes_on`, the gradient of the layer's input is computed, too. With `halved`, the gradients of weights are
    separate operations, apart from the gradient of the input.
    """
    write, rows = Definition("layer"), (size.samples, size.width)
    y = _layer(write, write.input(_INPUT, size.dtype, rows), size, size.width * devices, trained=trained)
    target, count = write.input(_TARGET, size.dtype, rows), write.input(_COUNT, "int32", (), Role())
    model = write.finish({_LOSS: write(_LOSS, "loss", y, target, count)})
    if trained:
        model = Gradients((_INPUT,) if passes_on else (), split_weights=halved)(model)
    model = TensorParallel(devices)(model)
    program = model.program
    return _Template(model, _by_name(model.inputs, program.inputs), _by_name(model.outputs, program.outputs))


def _by_name(pieces: Sequence[Piece], values: Sequence[int]) -> dict[str, tuple[int, ...]]:
    by_name = defaultdict[str, list[int]](list)
    for piece, value in zip(pieces, values, strict=True):
        by_name[piece.name].append(value)
    return {name: tuple(named) for name, named in by_name.items()}


_ByDevice = dict[int, int]
"""Maps devices of the plan to the value that each holds."""


class _Lowering:
    """Builds the program of a schedule, one run after the other."""

    def __init__(self, network: Network, schedule: Schedule, size: LayerSize) -> None:
        self._network, self._plan, self._schedule, self._size = network, network.plan, schedule, size
        self._build = ProgramBuilder(network.plan.name)
        self._pieces, self._outputs = list[Piece](), list[tuple[int, Piece]]()
        self._run_of = list[Run | None]()
        self._outgoing = [
            [a for a, (b, _, _) in enumerate(self._plan.arcs) if b == block] for block in range(len(self._plan.blocks))
        ]
        count = TensorType("int32", (), 1)
        self._counts = {d: self._input(Piece(_COUNT), count, d) for d in range(len(self._plan.devices))}
        self._samples = dict[tuple[str, int], int]()
        """Input value, by the name of a micro-batch's tensor and device."""
        self._templates = {layer: self._template(layer) for layer in network.layers}
        self._parts = {layer: self._parts_of(layer) for layer in network.layers}
        self._sums = dict[tuple[int, str], list[int]]()
        """Gradients summed over the micro-batches so far, by layer and weight. One value per device."""
        self._known = dict[Run, dict[int, int]]()
        """By layer and micro-batch: for each value of the layer's template, the value of the program."""
        self._made = dict[Run, _ByDevice]()
        """Output of a layer, by layer and micro-batch."""
        self._owed = dict[tuple[int, int, int], _ByDevice]()
        """Part of the gradient of a layer's output, by layer, backward block that adds it, and micro-batch."""
        self._tokens = defaultdict[Run, list[int]](list)
        """For each run, tokens for which it waits: the ends of earlier runs whose tensors it does not use."""

    def program(self) -> ScheduleProgram:
        """Return the program of the schedule."""
        for b, m, _ in runs_in_order(self._schedule):
            self._run(b, m)
            self._assign_to((b, m))
            self._send_output(b, m)
            self._assign_to(None)
        self._update()
        self._assign_to(None)
        values, pieces = (tuple(each[i] for each in self._outputs) for i in (0, 1))
        model = Distributed(self._build.finish(values), tuple(self._pieces), pieces, {})  # type: ignore[arg-type]
        return ScheduleProgram(model, tuple(self._run_of))

    def _assign_to(self, run: Run | None) -> None:
        """Record that all operations since the last call belong to `run`."""
        self._run_of += [run] * (self._build.operations - len(self._run_of))

    def _input(self, piece: Piece, of_type: TensorType, device: int) -> int:
        self._pieces.append(piece)
        return self._build.input(piece.name, of_type.on(device + 1))

    def _sample(self, name: str, micro_batch: int, device: int) -> int:
        """Return the input with a micro-batch's own tensor on a device. Add it at the first call."""
        name = of_micro_batch(name, micro_batch)
        if (name, device) not in self._samples:
            of_type = TensorType(self._size.dtype, (self._size.samples, self._size.width), 1)
            self._samples[name, device] = self._input(Piece(name), of_type, device)
        return self._samples[name, device]

    def _template(self, layer: int) -> _Template:
        network = self._network
        return _template(
            self._size,
            len(self._plan.blocks[layer].devices),
            trained=layer in network.trained,
            passes_on=any(before in network.trained for before in network.inputs[layer]),
            halved=layer in network.halved,
        )

    def _parts_of(self, layer: int) -> dict[str, list[int]]:
        """Add the inputs for a layer's weights on its devices, and return them by name."""
        template, block, parts = self._templates[layer], self._plan.blocks[layer], defaultdict[str, list[int]](list)
        for part in PARTS:
            for d, value in zip(block.devices, template.inputs[part], strict=True):
                piece = replace(template.model.piece_of[value], name=f"{part} of {block.name}")
                parts[part].append(self._input(piece, template.model.program.types[value], d))
        return parts

    def _run(self, b: int, m: int) -> None:
        """Write all operations of a run."""
        network, tag = self._network, Tag(micro_batch=m)
        before = self._build.operations
        for token in self._tokens.pop((b, m), []):
            self._build.add("after", [self._counts[self._build.type_of(token).device - 1], token], tag)
        if b in network.inputs:
            self._forward(b, m)
        for layer in network.backward.get(b, ()):
            self._backward(layer, b, m)
        for layer in network.weight.get(b, ()):
            self._weight(layer, m)
        if self._build.operations == before:  # The block computes nothing.
            devices = self._plan.blocks[b].devices
            given, on = [self._counts[d] for d in devices], tuple(d + 1 for d in devices)
            self._build.add("block", given, tag, bytes=(), devices=on, on=(), seconds=0)

    def _copy(self, layer: int, m: int, ops: Iterable[Op]) -> None:
        """Copy the operations `ops` of a layer's template for one micro-batch."""
        known, tag = self._known[layer, m], Tag(micro_batch=m)
        for op in ops:
            taken = [known[value] for value in op.inputs]
            known |= zip(op.outputs, self._build.append(op.kind, taken, op.attributes, tag), strict=True)

    def _on_devices(self, layer: int, m: int, values: Sequence[int]) -> _ByDevice:
        """Return the program's values that replace values of a template, by device."""
        known = self._known[layer, m]
        return {d: known[value] for d, value in zip(self._plan.blocks[layer].devices, values, strict=True)}

    def _sum(self, parts: Sequence[_ByDevice], devices: Iterable[int], m: int) -> list[int]:
        """Add up tensors on each device, and return one sum per device."""
        sums = list[int]()
        for d in devices:
            total, *more = [part[d] for part in parts]
            for each in more:
                total = self._build.one("add", [total, each], Tag(micro_batch=m))
            sums.append(total)
        return sums

    def _forward(self, layer: int, m: int) -> None:
        network, template, devices = self._network, self._templates[layer], self._plan.blocks[layer].devices
        known = self._known[layer, m] = dict[int, int]()
        for part in PARTS:
            known |= zip(template.inputs[part], self._parts[layer][part], strict=True)
        before = [self._made[each, m] for each in network.inputs[layer]]
        given = self._sum(before or [{d: self._sample(_INPUT, m, d) for d in devices}], devices, m)
        known |= zip(template.inputs[_INPUT], given, strict=True)
        self._copy(layer, m, template.of_phase("forward"))
        self._made[layer, m] = self._on_devices(layer, m, template.made)
        if layer in network.sinks:
            self._end(layer, m)

    def _end(self, layer: int, m: int) -> None:
        """Add the loss of a last layer and the gradient of the loss. Without training, add the layer's output."""
        name, devices = self._plan.blocks[layer].name, self._plan.blocks[layer].devices
        if not self._network.backward:
            self._outputs.append((self._made[layer, m][devices[0]], Piece(of_micro_batch(f"output of {name}", m))))
            return
        template, known = self._templates[layer], self._known[layer, m]
        known |= zip(template.inputs[_TARGET], (self._sample(f"target of {name}", m, d) for d in devices), strict=True)
        known |= zip(template.inputs[_COUNT], (self._counts[d] for d in devices), strict=True)
        self._copy(layer, m, template.loss)
        lost = [known[template.outputs[_LOSS][0]]]
        total = self._build.one("reduce_sum", lost, Tag(micro_batch=m), axes=(0, 1), keep=0)
        self._outputs.append((total, Piece(of_micro_batch(loss_name(name), m))))

    def _backward(self, layer: int, b: int, m: int) -> None:
        """Add the gradient of a layer's input. Unless a weight block does so, add the gradients of its weights, too."""
        network, template, devices = self._network, self._templates[layer], self._plan.blocks[layer].devices
        if layer not in network.sinks:
            takers = dict.fromkeys(network.trained[each] for each in network.layers if layer in network.inputs[each])
            owed = self._sum([self._owed[layer, taker, m] for taker in takers], devices, m)
            self._known[layer, m] |= zip(template.owed, owed, strict=True)
        self._copy(layer, m, template.of_phase("backward"))
        targets = [before for before in network.inputs[layer] if before in network.trained]
        for before in targets:
            own, key = self._on_devices(layer, m, template.outputs[f"d.{_INPUT}"]), (before, b, m)
            known = self._owed.get(key)
            self._owed[key] = (
                own if known is None else dict(zip(devices, self._sum([known, own], devices, m), strict=True))
            )
        if layer not in network.halved:
            self._add_up(layer, m)

    def _weight(self, layer: int, m: int) -> None:
        self._copy(layer, m, self._templates[layer].of_phase(WEIGHT_PHASE))
        self._add_up(layer, m)

    def _add_up(self, layer: int, m: int) -> None:
        """Add the weight gradients of a micro-batch to the sums over earlier micro-batches."""
        template, known = self._templates[layer], self._known.pop((layer, m))
        for part in PARTS:
            more, so_far = [known[value] for value in template.outputs[f"d.{part}"]], self._sums.get((layer, part))
            if so_far is not None:
                pairs = zip(so_far, more, strict=True)
                more = [self._build.one("accumulate", pair, Tag(micro_batch=m)) for pair in pairs]
            self._sums[layer, part] = more

    def _send_output(self, b: int, m: int) -> None:
        """Send the output of a run to those devices of its successors that do not have it."""
        makers = self._plan.blocks[b].devices
        for arc in self._outgoing[b]:
            after, layers = self._plan.arcs[arc][1], self._network.carried[arc]
            takers = [d for d in self._plan.blocks[after].devices if d not in makers]
            sources = [makers[i % len(makers)] for i in range(len(takers))]
            for source, to in zip(sources, takers, strict=True):
                if not layers:
                    token = self._build.one("delay", [self._counts[source]], Tag(micro_batch=m), seconds=0, to=to + 1)
                    self._tokens[after, m].append(token)
                for layer in layers:
                    copies = self._made[b, m] if b in self._network.inputs else self._owed[layer, b, m]
                    if to not in copies:
                        copies[to] = self._build.one("send", [copies[source]], Tag(micro_batch=m), to=to + 1)

    def _update(self) -> None:
        """Add a step of stochastic gradient descent. Its outputs are the gradients and the updated weights."""
        for layer, template in self._templates.items():
            if layer not in self._network.trained:
                continue
            name, parts = self._plan.blocks[layer].name, self._parts[layer]
            for i in range(len(self._plan.blocks[layer].devices)):
                pieces = [template.model.piece_of[template.inputs[part][i]] for part in PARTS]
                gradients = [self._sums[layer, part][i] for part in PARTS]
                updated = self._build.add("sgd", [*(parts[part][i] for part in PARTS), *gradients], rate=RATE)
                for part, piece, gradient, after in zip(PARTS, pieces, gradients, updated, strict=True):
                    self._outputs.append((gradient, replace(piece, name=gradient_name(f"{part} of {name}"))))
                    self._outputs.append((after, replace(piece, name=updated_name(f"{part} of {name}"))))
