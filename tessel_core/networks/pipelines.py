"""From stages with costs in seconds to micro-batch plans in nanoseconds, on H200s of one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.costs import h200
from tessel_core.costs.links import NVLINK
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.networks.cuts import best_cut
from tessel_core.networks.parts import Dimensions, Part, embedding, join, vocabulary_loss
from tessel_core.units import to_bytes, to_ticks


@dataclass(frozen=True, slots=True)
class _Placed:
    """A part on its devices, and what its two blocks are called."""

    part: Part
    devices: tuple[int, ...]
    forward: str
    backward: str


def cut_stages(parts: Sequence[Part], stages: int) -> tuple[Part, ...]:
    """The parts as contiguous stages of which the busiest is least."""
    cut = best_cut([part.seconds for part in parts], stages)
    return tuple(join([parts[i] for i in stage]) for stage in cut)


def v_plan(name: str, stages: tuple[Part, ...]) -> MicroBatchPlan:
    """A stage per device, forward down and backward up; outputs and their gradients travel between neighbours."""
    last = len(stages) - 1
    links = (*_stage_links(stages), _link(f"F{last}", f"B{last}"))
    return _plan(name, _placed_stages(stages), links, tuple(stage.static_bytes for stage in stages))


def sharded_plan(
    name: str, size: Dimensions, stages: tuple[Part, ...], decoder_stage: int | None = None
) -> MicroBatchPlan:
    """A V of stages between blocks on all devices: the sharded embedding E, and projection and loss H, with their
    backwards Eb and Hb; and, before the decoder's first stage, the same embedding once more as D and Db.

    The last stage's output reaches all devices before H, an input gradient before Eb or Db, by broadcast; the other
    way, all-reduces inside the blocks leave the sums everywhere.  D needs nothing but tokens and nothing needs Db:
    dependencies hold them at the places that the NN shape gives them.
    """
    devices, last = len(stages), len(stages) - 1
    embed, loss = embedding(size, devices), vocabulary_loss(size, devices)
    spread = NVLINK.broadcast_seconds(size.hidden_bytes, devices)
    placed = [_everywhere("E", embed, devices), *_placed_stages(stages), _everywhere("H", loss, devices)]
    links = [_link("E", "F0"), *_stage_links(stages), _link(f"F{last}", "H", spread)]
    links += [_link("H", "Hb"), _link("Hb", f"B{last}"), _link("B0", "Eb", spread)]
    if decoder_stage is not None:
        placed.insert(1 + decoder_stage, _everywhere("D", embed, devices))
        links += [_link(f"F{decoder_stage - 1}", "D"), _link("D", f"F{decoder_stage}")]
        links += [_link(f"B{decoder_stage}", "Db", spread), _link("Db", f"B{decoder_stage - 1}")]
    shards = embed.static_bytes + loss.static_bytes
    return _plan(name, tuple(placed), tuple(links), tuple(stage.static_bytes + shards for stage in stages))


def _placed_stages(stages: tuple[Part, ...]) -> tuple[_Placed, ...]:
    return tuple(_Placed(stage, (d,), f"F{d}", f"B{d}") for d, stage in enumerate(stages))


def _everywhere(name: str, part: Part, devices: int) -> _Placed:
    return _Placed(part, tuple(range(devices)), name, f"{name}b")


def _stage_links(stages: tuple[Part, ...]) -> tuple[Dependency, ...]:
    """Between neighbours: the output on the way down, its gradient, as large, on the way up."""
    down = [_link(f"F{d}", f"F{d + 1}", NVLINK.send_seconds(stage.sent_bytes)) for d, stage in enumerate(stages[:-1])]
    up = [_link(f"B{d + 1}", f"B{d}", NVLINK.send_seconds(stage.sent_bytes)) for d, stage in enumerate(stages[:-1])]
    return (*down, *reversed(up))


def _link(predecessor: str, successor: str, seconds: float = 0.0) -> Dependency:
    return Dependency(predecessor, successor, to_ticks(seconds) if seconds else 0)


def _plan(
    name: str, placed: tuple[_Placed, ...], links: tuple[Dependency, ...], static: tuple[int, ...]
) -> MicroBatchPlan:
    """Forward blocks in order, backward blocks in reverse order, what a part keeps held in between."""
    forward = [
        Block(
            each.forward, BlockKind.FORWARD, each.devices, to_ticks(each.part.forward), to_bytes(each.part.kept_bytes)
        )
        for each in placed
    ]
    backward = [
        Block(
            each.backward,
            BlockKind.BACKWARD,
            each.devices,
            to_ticks(each.part.backward),
            -to_bytes(each.part.kept_bytes),
        )
        for each in reversed(placed)
    ]
    devices = tuple(PlanDevice(f"gpu{d}", h200.MEMORY_BYTES, to_bytes(held)) for d, held in enumerate(static))
    return MicroBatchPlan(f"{name}-{len(static)}", devices, (*forward, *backward), links, "ns", "B")
