"""Transfers of communications over the links of a mesh, by formulas and measurements.

Collectives run on several rings at the same time (`costs/collectives.py`). A broadcast and a reduction send pieces
along a chain of devices. A scatter and a gather send one part after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Protocol

from tessel_core.costs.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SEND,
    Collective,
    ring_pairs,
)
from tessel_core.ir.operators.operator import Types
from tessel_core.model import Link

Pairs = tuple[tuple[int, int], ...]
"""Pairs of devices. The first device of each pair is the sender."""


class Wiring(Protocol):
    """Links between the devices of a program."""

    def link(self, one: int, other: int) -> Link | None:
        """Return the link between two devices, or None if transfers between them are free."""

    def by_node(self, devices: Sequence[int]) -> list[list[int]]:
        """Return the devices of each node. Nodes are in the order of their first device."""

    def collective(self, pattern: str, devices: tuple[int, ...], amount: float) -> Collective:
        """Return the collective of a group that starts or ends with `amount` bytes on each device."""


@dataclass(frozen=True, slots=True)
class Transfer(Collective):
    """A transfer, or a collective of known devices."""

    devices: tuple[int, ...] = ()
    """Devices that the transfer keeps busy."""
    pairs: Pairs = ()
    """Neighbouring devices on a path that is not a ring."""
    by_node: tuple[tuple[int, ...], ...] = ()
    """Devices of a ring, grouped by node."""

    @property
    def all_pairs(self) -> Pairs:
        """Neighbouring devices on all paths. Between each pair, amount / rails bytes are sent."""
        return tuple(ring_pairs(self.by_node, self.rails)) if self.by_node else self.pairs


Rule = Callable[[Types, Types, Wiring], tuple[Transfer, ...]]
"""Returns the transfers of a communication, from its input and output types."""


def transfers_of(pattern: str, types: Types, outputs: Types, wiring: Wiring) -> tuple[Transfer, ...]:
    """Return the transfers of a communication, one after another. Raises KeyError for an unknown pattern."""
    return _PATTERNS[pattern](types, outputs, wiring)


def _collective(pattern: str) -> Rule:
    """Return the rule of a collective. It counts all bytes on a device, before a reduction or after a gather."""

    def transfers(types: Types, outputs: Types, wiring: Wiring) -> tuple[Transfer, ...]:
        devices = tuple(dict.fromkeys(each.device for each in types))
        whole = outputs if pattern == ALL_GATHER else types
        amount = sum(each.bytes for each in whole if each.device == devices[0])
        by_node = wiring.by_node(devices)
        if sum(map(len, by_node)) < 2:
            return ()
        found = wiring.collective(pattern, tuple(device for node in by_node for device in node), amount)
        moved = found.amount, found.bandwidth, found.latency, found.rails, found.tree
        return (Transfer(*moved, devices, by_node=tuple(map(tuple, by_node))),)

    return transfers


def _all_to_all(types: Types, outputs: Types, wiring: Wiring) -> tuple[Transfer, ...]:
    """Rule of an all-to-all: every device sends a part to every other device at the same time."""
    devices = tuple(dict.fromkeys(each.device for each in types))
    by_node = wiring.by_node(devices)
    workers = tuple(device for node in by_node for device in node)
    if len(workers) < 2:
        return ()
    amount = max(
        types[0].bytes, outputs[0].bytes
    )  # With experts, devices may send and receive different numbers of bytes.
    found = wiring.collective(ALL_TO_ALL, workers, amount)
    paths = round(found.amount * len(workers) / amount) if amount else 1
    moved = found.amount, found.bandwidth, found.latency, paths
    return (Transfer(*moved, devices=devices, pairs=tuple(permutations(workers, 2))),)


def _chain(types: Types, outputs: Types, wiring: Wiring) -> tuple[Transfer, ...]:
    """Rule of a broadcast or reduction: pieces are sent along a chain.

    The latencies of all links are added. The bytes count once, on the slowest link.
    """
    devices = tuple(dict.fromkeys(each.device for each in (*types, *outputs)))
    pairs = tuple(pairwise(devices))
    links = [link for pair in pairs if (link := wiring.link(*pair)) is not None]
    if not links:
        return ()
    latency, slowest = sum(link.latency for link in links), min(link.bandwidth for link in links)
    return (Transfer(types[0].bytes, slowest, latency, devices=devices, pairs=pairs),)


def _in_turn(types: Types, outputs: Types, wiring: Wiring) -> tuple[Transfer, ...]:
    """Rule of a scatter, a gather or a send.

    One part after the other is sent between one device and each of the others.
    """
    gathers = len(types) > 1
    many, one = (types, outputs[0].device) if gathers else (outputs, types[0].device)
    found = []
    for part in many:
        pair = (part.device, one) if gathers else (one, part.device)
        link = wiring.link(*pair)
        if link is not None:
            found.append(Transfer(part.bytes, link.bandwidth, link.latency, devices=pair, pairs=(pair,)))
    return tuple(found)


def _shift(types: Types, outputs: Types, wiring: Wiring) -> tuple[Transfer, ...]:
    """Rule of a shift: every device sends to the next one at the same time. The slowest link counts."""
    devices = tuple(dict.fromkeys(each.device for each in types))
    pairs = tuple(pairwise((*devices, devices[0])))
    links = [link for pair in pairs if (link := wiring.link(*pair)) is not None]
    if not links:
        return ()
    latency, slowest = max(link.latency for link in links), min(link.bandwidth for link in links)
    amount = sum(each.bytes for each in types if each.device == devices[0])
    return (Transfer(amount, slowest, latency, devices=devices, pairs=pairs),)


_PATTERNS: Mapping[str, Rule] = {
    SEND: _in_turn,
    **{each: _collective(each) for each in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)},
    ALL_TO_ALL: _all_to_all,
    "broadcast": _chain,
    "reduce": _chain,
    "scatter": _in_turn,
    "gather": _in_turn,
    "shift": _shift,
}


@dataclass(frozen=True)
class AllreduceFit:
    """Duration of an all-reduce among n devices: a_n · bytes + b · n + c seconds [Santhanam 2021, section 4.3]."""

    per_byte: Mapping[int, float]
    """Coefficient a_n for each number of devices n."""
    per_device: float
    constant: float

    def seconds(self, devices: int, amount: float) -> float:
        """Return the seconds. Raises KeyError for a number of devices that was not measured."""
        return self.per_byte[devices] * amount + self.start(devices)

    def start(self, devices: int) -> float:
        """Return the part of the seconds that does not depend on the number of bytes."""
        return self.per_device * devices + self.constant

    def applied(self, transfer: Transfer, devices: int, amount: int) -> Transfer:
        """Return the transfer with the measured latency and bandwidth."""
        bandwidth = transfer.amount / (self.per_byte[devices] * amount) if amount else transfer.bandwidth
        return replace(transfer, latency=self.start(devices), bandwidth=bandwidth)
