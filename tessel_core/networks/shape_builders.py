"""How each placement shape is built from its parameters; the table of shapes is in `shapes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, MicroBatchPlan
from tessel_core.networks.chains import Chain, numbered_devices, plan_of_chains
from tessel_core.options import Option, option

_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class ShapeParameters:
    """What every shape is made from; a shape that has no use for a field says so in `Shape.unused`."""

    devices: int = option(4, Option("Devices", "How many devices the network is spread over.", 2, 256))
    chunks: int = option(2, Option("Chunks a device", "How many stages each device holds, one a round.", 2, 16))
    forward: int = option(1, Option("Forward time", "Duration of one stage's forward block.", 1, _MOST, "steps"))
    backward: int = option(
        3,
        Option("Backward time", "Duration of one stage's backward block; its input half if split.", 1, _MOST, "steps"),
    )
    weight: int = option(
        1, Option("Weight time", "Duration of the weight-gradient half of a split backward.", 1, _MOST, "steps")
    )
    wide: int = option(1, Option("All-device time", "Duration of each block on all devices.", 1, _MOST, "steps"))
    memory: int = option(
        1,
        Option(
            "Memory per micro-batch",
            "What one micro-batch holds per stage, from forward to backward.",
            0,
            _MOST,
            "slots",
        ),
    )
    capacity: int = option(4, Option("Memory capacity", "What each device can hold.", 0, _MOST, "slots"))
    training: bool = option(True, Option("Training", "With backward blocks; without, nothing is held.", 0, 1))


def _plan(parameters: ShapeParameters, *chains: Chain) -> MicroBatchPlan:
    return plan_of_chains("shape", numbered_devices(parameters.devices, parameters.capacity), *chains)


def _forward(parameters: ShapeParameters, devices: Sequence[int], name: str = "F") -> Chain:
    """A forward block per entry of `devices`, named by stage."""
    return tuple(
        Block(f"{name}{stage}", BlockKind.FORWARD, (device,), parameters.forward, parameters.memory)
        for stage, device in enumerate(devices)
    )


def _backward(parameters: ShapeParameters, devices: Sequence[int], name: str = "B") -> Chain:
    """The backward blocks of `_forward`, last stage first."""
    stages = tuple(
        Block(f"{name}{stage}", BlockKind.BACKWARD, (device,), parameters.backward, -parameters.memory)
        for stage, device in enumerate(devices)
    )
    return stages[::-1]


def _wide(parameters: ShapeParameters, name: str, kind: BlockKind, memory: int = 0) -> Chain:
    """A block on all devices, as a chain of one."""
    return (Block(name, kind, tuple(range(parameters.devices)), parameters.wide, memory),)


def v_shape(parameters: ShapeParameters) -> MicroBatchPlan:
    devices = range(parameters.devices)
    return _plan(parameters, _forward(parameters, devices) + _backward(parameters, devices))


def x_shape(parameters: ShapeParameters) -> MicroBatchPlan:
    down = range(parameters.devices)
    up = down[::-1]
    return _plan(
        parameters,
        _forward(parameters, down, "dF") + _backward(parameters, down, "dB"),
        _forward(parameters, up, "uF") + _backward(parameters, up, "uB"),
    )


def m_shape(parameters: ShapeParameters) -> MicroBatchPlan:
    devices = range(parameters.devices)
    embed = _wide(parameters, "E", BlockKind.FORWARD)
    embed_back = _wide(parameters, "Eb", BlockKind.BACKWARD)
    return _plan(parameters, embed + _forward(parameters, devices) + _backward(parameters, devices) + embed_back)


def nn_shape(parameters: ShapeParameters) -> MicroBatchPlan:
    """The decoder's embedding comes after n // 2 forward stages, its backward after n - n // 2 backward stages."""
    devices, encoder = range(parameters.devices), parameters.devices // 2
    forward, backward = _forward(parameters, devices), _backward(parameters, devices)
    decoder = parameters.devices - encoder
    chain = _wide(parameters, "E", BlockKind.FORWARD) + forward[:encoder]
    chain += _wide(parameters, "D", BlockKind.FORWARD) + forward[encoder:]
    chain += backward[:decoder] + _wide(parameters, "Db", BlockKind.BACKWARD)
    return _plan(parameters, chain + backward[decoder:] + _wide(parameters, "Eb", BlockKind.BACKWARD))


def nn_eager(parameters: ShapeParameters) -> MicroBatchPlan:
    devices = range(parameters.devices)
    front = _wide(parameters, "E", BlockKind.FORWARD) + _wide(parameters, "D", BlockKind.FORWARD)
    back = _wide(parameters, "Db", BlockKind.BACKWARD) + _wide(parameters, "Eb", BlockKind.BACKWARD)
    return _plan(parameters, front + _forward(parameters, devices) + _backward(parameters, devices) + back)


def k_shape(parameters: ShapeParameters) -> MicroBatchPlan:
    """Two branches, each a V on half of the devices, joined by blocks on all; InputError for an odd number."""
    if parameters.devices % 2:
        raise InputError(
            "Devices", f"the K shape has two equal branches, so it needs an even number, got {parameters.devices}"
        )
    half = parameters.devices // 2
    text, vision = range(half), range(half, parameters.devices)
    join = _wide(parameters, "J", BlockKind.FORWARD, parameters.memory)
    join += _wide(parameters, "Jb", BlockKind.BACKWARD, -parameters.memory)
    return _plan(
        parameters,
        _forward(parameters, text, "tF") + join + _backward(parameters, text, "tB"),
        _forward(parameters, vision, "vF") + join + _backward(parameters, vision, "vB"),
    )


def finetune(parameters: ShapeParameters) -> MicroBatchPlan:
    devices = range(parameters.devices)
    frozen = _wide(parameters, "E", BlockKind.FORWARD)
    return _plan(parameters, frozen + _forward(parameters, devices) + _backward(parameters, devices))


def alphafold(parameters: ShapeParameters) -> MicroBatchPlan:
    """Forward passes a, b and c over all stages; only the last one keeps what the backward needs."""
    devices = range(parameters.devices)
    passes: Chain = ()
    for letter in "abc":
        stages = _forward(replace(parameters, memory=parameters.memory if letter == "c" else 0), devices)
        passes += tuple(replace(block, name=f"{block.name}{letter}") for block in stages)
    return _plan(parameters, passes + _backward(parameters, devices))


def loop(parameters: ShapeParameters) -> MicroBatchPlan:
    """Stage s is on device s mod n, so that each device holds a chunk of every round."""
    devices = tuple(range(parameters.devices)) * parameters.chunks
    return _plan(parameters, _forward(parameters, devices) + _backward(parameters, devices))


def split_v(parameters: ShapeParameters) -> MicroBatchPlan:
    """The weight half of the backward releases all."""
    return _plan(parameters, *_split(parameters, range(parameters.devices), 0, parameters.memory))


def split_x(parameters: ShapeParameters) -> MicroBatchPlan:
    """The weight half of each backward releases all."""
    down = range(parameters.devices)
    chains = _split(parameters, down, 0, parameters.memory, "d")
    return _plan(parameters, *chains, *_split(parameters, down[::-1], 0, parameters.memory, "u"))


def zb_v(parameters: ShapeParameters) -> MicroBatchPlan:
    """Two chunks a device, down the devices and up again; each half of a backward releases its half."""
    down = tuple(range(parameters.devices))
    return _plan(parameters, *_split(parameters, down + down[::-1], parameters.memory, parameters.memory))


def _split(
    parameters: ShapeParameters, devices: Sequence[int], by_input: int, by_weight: int, direction: str = ""
) -> tuple[Chain, ...]:
    """A stage per entry of `devices`; its backward is split into B and W, which release `by_input` and `by_weight`."""
    forward, backward, weight = [], [], []
    for stage, device in enumerate(devices):
        held, on = by_input + by_weight, (device,)
        forward.append(Block(f"{direction}F{stage}", BlockKind.FORWARD, on, parameters.forward, held))
        backward.append(Block(f"{direction}B{stage}", BlockKind.BACKWARD, on, parameters.backward, -by_input))
        weight.append(Block(f"{direction}W{stage}", BlockKind.WEIGHT, on, parameters.weight, -by_weight))
    return ((*forward, *reversed(backward)), *zip(backward, weight, strict=True))
