"""All-reductions as measured: a line over bytes for every size of group, with a start that grows with the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tessel_core.errors import InputError
from tessel_core.model import Link
from tessel_core.simulation.transfers import Transfer


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

    Raises
    ------
    InputError
        Where there are fewer than two sizes of bytes for a group, or more bytes do not take longer.
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
