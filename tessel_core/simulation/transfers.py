"""What communication moves over which links of a mesh.

Collectives run as rings over the devices in their order, at the pace of the ring's slowest link: latencies are counted
per step [Patarasuk 2009]; a broadcast and a reduction go along a chain in pieces, and scatter and gather part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tessel_core.ir.types import TensorType
from tessel_core.model import Link

Types = Sequence[TensorType]
LinkOf = Callable[[int, int], Link | None]
"""The link between two of a program's devices; None where it is free."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """`steps` times, one after another, each of `pairs` passes `amount` bytes on, at the pace of `link`."""

    steps: int
    amount: float
    link: Link
    pairs: tuple[tuple[int, int], ...]
    devices: tuple[int, ...]
    """Those that it keeps busy."""

    @property
    def seconds(self) -> float:
        """steps · (latency + amount / bandwidth)."""
        return self.steps * self.link.seconds(self.amount)

    @property
    def latency(self) -> float:
        """Seconds of it in which nothing flows."""
        return self.steps * self.link.latency


def transfers_of(pattern: str, types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
    """What a communication of that pattern moves, one transfer after another; KeyError for an unknown pattern."""
    return _PATTERNS[pattern](types, outputs, link_of)


def _send(types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
    pair = types[0].device, outputs[0].device
    link = link_of(*pair)
    return () if link is None else (Transfer(1, types[0].bytes, link, (pair,), pair),)


def _ring(passes: int, split: bool) -> Callable[[Types, Types, LinkOf], tuple[Transfer, ...]]:
    """So many rounds of n - 1 steps of an n-th of the input, or of all of it."""

    def transfers(types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
        devices, count = tuple(each.device for each in types), len(types)
        amount = types[0].bytes / count if split else types[0].bytes
        pairs = tuple(pairwise((*devices, devices[0])))
        links = [link for pair in pairs if (link := link_of(*pair)) is not None]
        if count == 1 or not links:
            return ()
        slowest = max(links, key=lambda link: link.seconds(amount))
        return (Transfer(passes * (count - 1), amount, slowest, pairs, devices),)

    return transfers


def _chain(types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
    """Along a chain in pieces: every latency once, the bytes once at the slowest link."""
    devices = tuple(dict.fromkeys(each.device for each in (*types, *outputs)))
    pairs = tuple(pairwise(devices))
    links = [link for pair in pairs if (link := link_of(*pair)) is not None]
    if not links:
        return ()
    whole = Link(min(link.bandwidth for link in links), sum(link.latency for link in links))
    return (Transfer(1, types[0].bytes, whole, pairs, devices),)


def _star(types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
    """One device with each of the others in turn, a part at a time."""
    gathers = len(types) > 1
    many, one = (types, outputs[0].device) if gathers else (outputs, types[0].device)
    found = []
    for part in many:
        pair = (part.device, one) if gathers else (one, part.device)
        link = link_of(*pair)
        if link is not None:
            found.append(Transfer(1, part.bytes, link, (pair,), pair))
    return tuple(found)


_PATTERNS: Mapping[str, Callable[[Types, Types, LinkOf], tuple[Transfer, ...]]] = {
    "send": _send,
    "allreduce": _ring(2, split=True),
    "allgather": _ring(1, split=False),
    "reduce_scatter": _ring(1, split=True),
    "broadcast": _chain,
    "reduce": _chain,
    "scatter": _star,
    "gather": _star,
}
