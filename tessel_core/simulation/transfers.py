"""Transfers of communication over the links of a mesh, by formulas and as measured.

Collectives run as rings over the devices in their order, at the pace of the ring's slowest link: latencies are counted
per step [Patarasuk 2009]; a broadcast and a reduction go along a chain in pieces, and scatter and gather part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.operator import Types
from tessel_core.model import Link

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


Rule = Callable[[Types, Types, LinkOf], tuple[Transfer, ...]]
"""Transfers from input and output types."""


def transfers_of(pattern: str, types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
    """The transfers of a communication of that pattern, one after another; KeyError for an unknown pattern."""
    return _PATTERNS[pattern](types, outputs, link_of)


def _ring(passes: int, split: bool) -> Rule:
    """So many rounds of n - 1 steps of an n-th of the input, or of all of it."""

    def transfers(types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
        devices, count = tuple(each.device for each in types), len(types)
        amount = types[0].bytes / count if split else types[0].bytes
        pairs = tuple(pairwise((*devices, devices[0])))
        links = _links(pairs, link_of)
        if count == 1 or not links:
            return ()
        slowest = max(links, key=lambda link: link.seconds(amount))
        return (Transfer(passes * (count - 1), amount, slowest, pairs, devices),)

    return transfers


def _chain(types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
    """Along a chain in pieces: every latency once, the bytes once at the slowest link."""
    devices = tuple(dict.fromkeys(each.device for each in (*types, *outputs)))
    pairs = tuple(pairwise(devices))
    links = _links(pairs, link_of)
    if not links:
        return ()
    whole = Link(min(link.bandwidth for link in links), sum(link.latency for link in links))
    return (Transfer(1, types[0].bytes, whole, pairs, devices),)


def _links(pairs: tuple[tuple[int, int], ...], link_of: LinkOf) -> list[Link]:
    return [link for pair in pairs if (link := link_of(*pair)) is not None]


def _in_turn(types: Types, outputs: Types, link_of: LinkOf) -> tuple[Transfer, ...]:
    """One device with each of the others in turn, a part at a time; a send has one part."""
    gathers = len(types) > 1
    many, one = (types, outputs[0].device) if gathers else (outputs, types[0].device)
    found = []
    for part in many:
        pair = (part.device, one) if gathers else (one, part.device)
        link = link_of(*pair)
        if link is not None:
            found.append(Transfer(1, part.bytes, link, (pair,), pair))
    return tuple(found)


_PATTERNS: Mapping[str, Rule] = {
    "send": _in_turn,
    "allreduce": _ring(2, split=True),
    "allgather": _ring(1, split=False),
    "reduce_scatter": _ring(1, split=True),
    "broadcast": _chain,
    "reduce": _chain,
    "scatter": _in_turn,
    "gather": _in_turn,
}


@dataclass(frozen=True, slots=True)
class AllreduceRow:
    """One measurement: devices in the group, bytes on each, seconds."""

    devices: int
    bytes: float
    seconds: float


@dataclass(frozen=True)
class AllreduceFit:
    """a_n · bytes + b · n + c seconds among n devices [Santhanam 2021, section 4.3]."""

    per_byte: Mapping[int, float]
    """a, by the size of the group."""
    per_device: float
    constant: float

    def seconds(self, devices: int, amount: float) -> float:
        """KeyError for a group of a size that was not measured."""
        return self.per_byte[devices] * amount + self.start(devices)

    def start(self, devices: int) -> float:
        """Seconds that do not depend on the bytes."""
        return self.per_device * devices + self.constant

    def applied(self, transfer: Transfer, devices: int, amount: int) -> Transfer:
        """The ring's steps over a link that makes them take this long."""
        if not amount:
            return replace(transfer, link=replace(transfer.link, latency=self.start(devices) / transfer.steps))
        flowing = self.per_byte[devices] * amount / transfer.steps
        return replace(transfer, link=Link(transfer.amount / flowing, self.start(devices) / transfer.steps))


def fit_allreduce(rows: Sequence[AllreduceRow]) -> AllreduceFit:
    """Least squares of relative errors; b and c are not negative, and b is 0 where there is one size of group only.

    Raises InputError where there are fewer than two sizes of bytes for a group, or more bytes do not take longer.
    """
    groups = sorted({row.devices for row in rows})
    if not groups:
        raise InputError("allreduce", "has no measured rows")
    for group in groups:
        if len({row.bytes for row in rows if row.devices == group}) < 2:
            raise InputError(f"allreduce of {group} devices", "needs rows of at least two sizes")
    starts = [1, 0] if len(groups) > 1 else [0]
    while True:
        slopes, found = _solved(rows, groups, starts)
        negative = [name for name, value in zip(starts, found, strict=True) if value < 0]
        if not negative:
            break
        starts = [name for name in starts if name not in negative]
    for group, slope in zip(groups, slopes, strict=True):
        if slope <= 0:
            raise InputError(f"allreduce of {group} devices", "takes no longer for more bytes")
    known = dict(zip(starts, found, strict=True))
    return AllreduceFit(dict(zip(groups, slopes, strict=True)), known.get(1, 0.0), known.get(0, 0.0))


def _solved(
    rows: Sequence[AllreduceRow], groups: Sequence[int], powers: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Slopes by group, and the coefficients of these powers of the number of devices."""
    columns = [[row.bytes * (row.devices == group) / row.seconds for row in rows] for group in groups]
    columns += [[row.devices**power / row.seconds for row in rows] for power in powers]
    matrix = np.array(columns).T
    size = np.linalg.norm(matrix, axis=0)  # bytes and seconds differ by many orders of magnitude
    found = (np.linalg.lstsq(matrix / size, np.ones(len(rows)), rcond=None)[0] / size).tolist()
    return found[: len(groups)], found[len(groups) :]
