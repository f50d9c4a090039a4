"""Read and write the schedule JSON of the published Tessel code.

`{ndevs, blocks: [{mid, span, memory, btype, gid, step, device: […]}], repetend: [start, end]}`.  The format has no
dependencies, so reading infers them: a block depends on another if it starts after the other's end in every
micro-batch.
"""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_integer
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, Phase, PlanDevice, Schedule
from tessel_core.model.schedule import check_size, runs_in_order

_KINDS = {"forward": BlockKind.FORWARD, "backward": BlockKind.BACKWARD}
_MAX_DEVICES = 4096


def looks_like_tessel_json(fields: Fields) -> bool:
    """Return whether a document has the keys of the published code and no `format`."""
    return fields.has("ndevs") and fields.has("blocks") and not fields.has("format")


def tessel_json_from(fields: Fields) -> Schedule:
    """Read a schedule from a parsed document. Other keys are ignored, and capacities are unlimited."""
    devices = fields.integer("ndevs", least=1)
    if devices > _MAX_DEVICES:
        raise InputError("ndevs", f"must be at most {_MAX_DEVICES}, got {devices}")
    blocks: dict[int, Block] = {}
    starts: dict[int, dict[int, int]] = defaultdict(dict)
    for position, entry in enumerate(fields.objects("blocks")):
        gid = position if entry.is_null("gid") else entry.integer("gid", least=0)
        block = _block(entry, gid)
        if blocks.setdefault(gid, block) != block:
            raise InputError(entry.where, f"differs from an earlier block with gid {gid}")
        micro_batch = entry.integer("mid", least=0)
        if micro_batch in starts[gid]:
            raise InputError(entry.where, f"gid {gid} of micro-batch {micro_batch} appears twice")
        starts[gid][micro_batch] = entry.integer("step", least=0)
    if not blocks:
        raise InputError("blocks", "is empty")
    plan = MicroBatchPlan(
        name="tessel-schedule",
        devices=tuple(PlanDevice(f"gpu{d}") for d in range(devices)),
        blocks=tuple(blocks.values()),
        dependencies=_orders_that_always_hold(blocks, starts),
    )
    runs = [(plan.block_index(blocks[gid].name), m, s) for gid, when in starts.items() for m, s in when.items()]
    micro_batches = 1 + max(m for _, m, _ in runs)
    check_size(plan, micro_batches, "blocks")
    return Schedule(plan, micro_batches, *np.array(runs, dtype=np.int64).T)


def _block(fields: Fields, gid: int) -> Block:
    kind = fields.text("btype").lower()
    if kind not in _KINDS:
        raise InputError(fields.place("btype"), f"must be forward or backward, got {kind!r}")
    memory = fields.number("memory")
    if not memory.is_integer():
        raise InputError(fields.place("memory"), f"must be a whole number, got {memory}")
    return Block(
        name=f"{kind[0].upper()}{gid}",
        kind=_KINDS[kind],
        devices=tuple(as_integer(value, place, least=0) for value, place in fields.items("device")),
        duration=fields.integer("span", least=1),
        memory=as_integer(int(memory), fields.place("memory")),
    )


def _orders_that_always_hold(blocks: dict[int, Block], starts: dict[int, dict[int, int]]) -> tuple[Dependency, ...]:
    """Return the transitive reduction of the relation "ends before the other starts, in every shared micro-batch"."""
    import networkx as nx

    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(blocks)
    for before, block in blocks.items():
        for after in blocks:
            shared = starts[before].keys() & starts[after].keys()
            if shared and all(starts[before][m] + block.duration <= starts[after][m] for m in shared):
                order.add_edge(before, after)
    if not nx.is_directed_acyclic_graph(order):
        raise InputError("blocks", "the orders of the blocks contradict each other between micro-batches")
    reduced = nx.transitive_reduction(order)
    return tuple(Dependency(blocks[before].name, blocks[after].name) for before, after in sorted(reduced.edges))


def unsaid_block(plan: MicroBatchPlan) -> Block | None:
    """Return the first block that the format cannot express, because it is neither forward nor backward."""
    return next((block for block in plan.blocks if block.kind not in _KINDS.values()), None)


def tessel_json_text(schedule: Schedule) -> str:
    """Return the schedule as the published code's JSON.

    Raises InputError if the plan has a block that is neither forward nor backward.
    """
    unsaid = unsaid_block(schedule.plan)
    if unsaid is not None:
        raise InputError(f"block {unsaid.name}", f"Tessel's JSON knows forward and backward blocks, not {unsaid.kind}")
    rows = []
    for b, m, start in runs_in_order(schedule):
        block = schedule.plan.blocks[b]
        rows.append(
            {
                "mid": m,
                "span": block.duration,
                "memory": block.memory,
                "btype": str(block.kind),
                "gid": b,
                "step": start,
                "device": list(block.devices),
            }
        )
    document = {"ndevs": len(schedule.plan.devices), "blocks": rows, "repetend": _repetend_window(schedule)}
    return json.dumps(document) + "\n"


def _repetend_window(schedule: Schedule) -> list[int]:
    if schedule.repetend is None:
        return [0, schedule.makespan]
    steady = [row for row, phase in enumerate(schedule.phase) if phase is Phase.REPETEND]
    opens = int(schedule.start[steady].min())
    return [opens, opens + schedule.repetend.period]
