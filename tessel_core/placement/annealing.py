"""Simulated annealing of splits, compiled by numba.

A group is a set of operators that must share a device. A split gives each group a device. A net is a tensor, with the
groups of its producer and consumers.

A step moves one group, or swaps two groups. The energy is a norm of the loads, summed over the parts of the objective
(see `Pipeline.parts`). The energy is close to the largest load. Smaller loads count a little, because most moves do not
change the largest load. A call of compiled code cannot be interrupted, so it does a limited number of steps. The call
releases Python's global interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined, unmanaged
from tessel_core.control import Abandonable, Control
from tessel_core.placement.pipeline import Floats, Pipeline

Ints = NDArray[np.int64]

_MAX_STEPS_PER_CALL = 250_000
"""Largest number of steps per call of `walk`. They take 0.02 to 0.2 seconds."""
_POWER = 12
"""Exponent of the norm of the loads."""
_SWAP_SHARE, _NET_SHARE = 0.3, 0.7
"""Probabilities that a step swaps two groups, and that it chooses a device with a group of the same net."""
_MAX_UNITS = 1e20
"""Loads above this multiple of the unit count as this multiple, so that their twelfth powers fit a float."""
_EXCESS_WEIGHT = 2.0
"""Weight of the memory above a capacity.

A device that holds 10 % too much counts as if its load were 0.2 units larger.
"""


class Tables(NamedTuple):
    """Groups, devices and nets as arrays. The nets of group v are `nets[net_row[v]:net_row[v + 1]]`.

    The groups of net e are `groups[group_row[e]:group_row[e + 1]]`. `capacity` has the bytes of each device, and
    `memory` those of each group.
    """

    time: Floats
    """Times, shaped (parts of the objective, groups, devices). Infinite if a device does not support a group."""
    cost: Floats
    """Costs of nets, shaped (parts of the objective, nets)."""
    pays: NDArray[np.bool_]
    """For each device, whether nets with groups on it and on other devices add to its load."""
    capacity: Floats
    memory: Floats
    net_row: Ints
    nets: Ints
    group_row: Ints
    groups: Ints

    @property
    def members(self) -> list[tuple[int, ...]]:
        """Groups of each net."""
        rows = self.group_row.tolist()
        groups = self.groups.tolist()
        return [tuple(groups[first:last]) for first, last in pairwise(rows)]


def tables_of(parts: Sequence[Pipeline]) -> Tables:
    """Build the tables from the pipelines that `Pipeline.parts` returns."""
    pipeline = parts[0]
    class_at = {device: c for c, each in enumerate(pipeline.classes) for device in each.devices}
    classes = [class_at[device] for device in sorted(class_at)]
    return _tables(
        np.array([[part.classes[c].time for c in classes] for part in parts]).transpose(0, 2, 1),
        np.array([[net.cost for net in part.nets] for part in parts]).reshape(len(parts), -1),
        np.array([pipeline.classes[c].pays for c in classes]),
        np.array([pipeline.classes[c].capacity for c in classes]),
        np.asarray(pipeline.memory, dtype=np.float64),
        [net.groups for net in pipeline.nets],
    )


def coarsened(tables: Tables, cluster_of: Ints) -> Tables:
    """Return the tables in which clusters replace groups. `cluster_of` has the cluster of each group, numbered from 0.

    Nets with the same clusters are merged.
    """
    count, (parts, _, devices) = int(cluster_of.max()) + 1, tables.time.shape
    time = np.zeros((parts, count, devices))
    for part in range(parts):
        np.add.at(time[part], cluster_of, tables.time[part])
    place: dict[tuple[int, ...], int] = {}
    clusters = cluster_of.tolist()
    joined = [tuple(sorted({clusters[v] for v in members})) for members in tables.members]
    kept = [e for e, members in enumerate(joined) if len(members) > 1]
    into = [place.setdefault(joined[e], len(place)) for e in kept]
    cost = np.zeros((parts, len(place)))
    for part in range(parts):
        np.add.at(cost[part], into, tables.cost[part][kept])
    memory: Floats = np.bincount(cluster_of, tables.memory, count).astype(np.float64)
    return _tables(time, cost, tables.pays, tables.capacity, memory, list(place))


def _tables(
    time: Floats,
    cost: Floats,
    pays: NDArray[np.bool_],
    capacity: Floats,
    memory: Floats,
    members: Sequence[tuple[int, ...]],
) -> Tables:
    groups = np.array([v for each in members for v in each], dtype=np.int64)
    net_of = np.repeat(np.arange(len(members)), [len(each) for each in members])
    group_row = np.cumsum([0, *map(len, members)], dtype=np.int64)
    net_row = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=len(memory)))))
    nets = net_of[np.argsort(groups, kind="stable")].astype(np.int64)
    return Tables(np.ascontiguousarray(time), cost, pays, capacity, memory, net_row, nets, group_row, groups)


class Heat(NamedTuple):
    """First and last temperature, in units of a known objective."""

    first: float
    last: float

    def after(self, share: float) -> float:
        """Return the temperature after the fraction `share` of all steps."""
        return float(self.first * (self.last / self.first) ** share)


def anneal(tables: Tables, on: Ints, unit: float, heat: Heat, steps: int, seed: int, control: Control) -> Ints:
    """Anneal for `steps` steps from the split `on` (the device of each group) and return the best split.

    Loads are divided by `unit`, which should be close to the objective. The result exceeds a capacity only if no
    visited split fits in memory. The same seed gives the same result.
    """
    calls = -(-steps // _MAX_STEPS_PER_CALL)
    on, best, least = on.copy(), on.copy(), np.inf
    for call in range(calls):
        if control.stopped:
            break
        ends = Heat(heat.after(call / calls), heat.after((call + 1) / calls))
        visited, state = on.copy(), state_of(tables, on, unit)
        reached = walk(tables, state, on, visited, unit, ends, min(steps, _MAX_STEPS_PER_CALL), (seed + call) % 2**31)
        if reached < least:
            best, least = visited, reached
    return best


class State(NamedTuple):
    """Loads and memory that follow from the devices of the groups."""

    load: Floats
    """Load of each device, shaped (parts of the objective, devices)."""
    power: Floats
    """Twelfth powers of the loads in units, shaped (parts of the objective, devices)."""
    used: Floats
    """Bytes that each device holds."""
    held: NDArray[np.int32]
    """Number of groups of each net on each device, shaped (nets, devices)."""


@compiled
def state_of(tables: Tables, on: Ints, unit: float) -> State:
    """Return the state of the split `on`, the device of each group. `unit` is as in `anneal`."""
    parts, _, devices = tables.time.shape
    load, power, used = np.zeros((parts, devices)), np.zeros((parts, devices)), np.zeros(devices)
    held = np.zeros((tables.group_row.size - 1, devices), np.int32)
    for v in range(on.size):
        used[on[v]] += tables.memory[v]
        load[:, on[v]] += tables.time[:, v, on[v]]
        for k in range(tables.net_row[v], tables.net_row[v + 1]):
            held[tables.nets[k], on[v]] += 1
    for e in range(held.shape[0]):
        for d in range(devices):
            if tables.pays[d] and 0 < held[e, d] < tables.group_row[e + 1] - tables.group_row[e]:
                load[:, d] += tables.cost[:, e]
    for p in range(parts):
        for d in range(devices):
            power[p, d] = _power(tables, load[p, d], d, used[d], unit)
    return State(load, power, used, held)


@inlined
def _largest(state):  # type: ignore[no-untyped-def]
    """Return the objective: the sum, over its parts, of the largest load."""
    found = 0.0
    for p in range(state.load.shape[0]):
        most = 0.0
        for d in range(state.used.size):
            most = max(most, state.load[p, d])
        found += most
    return found


@inlined
def _fits(tables, state):  # type: ignore[no-untyped-def]
    """Return whether no device exceeds its capacity."""
    over = 0
    for d in range(state.used.size):
        over += state.used[d] > tables.capacity[d]
    return over == 0


@inlined
def _energy(state):  # type: ignore[no-untyped-def]
    """Return the sum, over the parts of the objective, of the norm of the loads in units."""
    found = 0.0
    for p in range(state.load.shape[0]):
        total = 0.0
        for d in range(state.used.size):
            total += state.power[p, d]
        found += total ** (1.0 / _POWER)
    return found


@inlined
def _proposal(tables, state, on):  # type: ignore[no-untyped-def]
    """Draw a group, another group to swap with (or -1 for none), and the device to which the first group goes.

    The device is -1 if the move is not allowed. Mostly, the device has a group that shares a net with the first group.
    """
    group, other = np.random.randint(on.size), -1
    first, end = tables.net_row[group], tables.net_row[group + 1]
    device, source = np.random.randint(tables.pays.size), on[group]
    if first < end and np.random.random() < _NET_SHARE:
        e = tables.nets[np.random.randint(first, end)]
        device = on[tables.groups[np.random.randint(tables.group_row[e], tables.group_row[e + 1])]]
    may, came = device != source and tables.time[0, group, device] < np.inf, tables.memory[group]
    if may and np.random.random() < _SWAP_SHARE:
        other = np.random.randint(on.size)
        came -= tables.memory[other]
        may = on[other] == device and tables.time[0, other, source] < np.inf
    if came > 0 and state.used[device] + came > tables.capacity[device]:
        may = False
    if came < 0 and state.used[source] - came > tables.capacity[source]:
        may = False
    return group, other, device if may else -1


@inlined
def _move(tables, state, group, other, source, device):  # type: ignore[no-untyped-def]
    """Move `group` from `source` to `device`. Move `other` from `device` to `source`, unless `other` is -1."""
    _shift(tables, state, group, source, device)
    if other >= 0:
        _shift(tables, state, other, device, source)


@inlined
def _settle(tables, state, device, came, unit):  # type: ignore[no-untyped-def]
    """Update, in `state`, the memory of a device that gains `came` bytes, and the powers of its loads."""
    state.used[device] += came
    for p in range(state.load.shape[0]):
        state.power[p, device] = _power(tables, state.load[p, device], device, state.used[device], unit)


@inlined
def _shift(tables, state, group, source, device):  # type: ignore[no-untyped-def]
    """Move a group from `source` to `device`: update the loads of both devices, and the counts of the group's nets."""
    load, held = state.load, state.held
    for p in range(load.shape[0]):
        load[p, source] -= tables.time[p, group, source]
        load[p, device] += tables.time[p, group, device]
    for k in range(tables.net_row[group], tables.net_row[group + 1]):
        e = tables.nets[k]
        size = tables.group_row[e + 1] - tables.group_row[e]
        left, came = held[e, source], held[e, device]
        freed = (left > 1) * 1 - (left < size) * 1 if tables.pays[source] else 0
        opened = (came + 1 < size) * 1 - (came > 0) * 1 if tables.pays[device] else 0
        for p in range(load.shape[0]):
            load[p, source] += freed * tables.cost[p, e]
            load[p, device] += opened * tables.cost[p, e]
        held[e, source] = left - 1
        held[e, device] = came + 1


@inlined
def _energy_after(tables, state, source, device, came, unit):  # type: ignore[no-untyped-def]
    """Return the energy after a move that `state.load` already includes. `device` gains `came` bytes from `source`."""
    found = 0.0
    for p in range(state.load.shape[0]):
        total = _power(tables, state.load[p, source], source, state.used[source] - came, unit)
        total += _power(tables, state.load[p, device], device, state.used[device] + came, unit)
        for d in range(state.used.size):
            total += state.power[p, d] * ((d != source) & (d != device))
        found += total ** (1.0 / _POWER)
    return found


@inlined
def _power(tables, load, device, used, unit):  # type: ignore[no-untyped-def]
    """Return the twelfth power of a device's load in units, with a penalty if it exceeds its capacity."""
    capacity = tables.capacity[device]
    over = _EXCESS_WEIGHT * (used / capacity - 1.0) if used > capacity else 0.0
    share = min(load / unit + over, _MAX_UNITS)
    cube = share * share * share
    return cube * cube * cube * cube


@unmanaged
def walk(tables: Tables, state: State, on: Ints, best: Ints, unit: float, heat: Heat, steps: int, seed: int) -> float:
    """Anneal the split `on` in place, and write the best split to `best`.

    Return the objective of `best`, or infinity if no visited split fits in memory.
    """
    np.random.seed(seed)
    energy, least, now = _energy(state), _largest(state) if _fits(tables, state) else np.inf, heat.first
    for step in range(steps):
        if step % 1024 == 0:
            now = heat.first * (heat.last / heat.first) ** (step / steps)
        group, other, device = _proposal(tables, state, on)
        if device < 0:
            continue
        source = on[group]
        came = tables.memory[group] - (tables.memory[other] if other >= 0 else 0.0)
        _move(tables, state, group, other, source, device)
        after = _energy_after(tables, state, source, device, came, unit)
        if after > energy and np.random.random() >= np.exp((energy - after) / now):
            _move(tables, state, group, other, device, source)
            continue
        energy = after
        on[group] = device
        if other >= 0:
            on[other] = source
        _settle(tables, state, source, -came, unit)
        _settle(tables, state, device, came, unit)
        largest = _largest(state)
        if largest < least * (1 - 1e-12) and _fits(tables, state):
            least = largest
            for v in range(on.size):
                best[v] = on[v]
    return least


def warm() -> None:
    """Compile or load the compiled functions. Compiling takes some seconds, once per machine."""
    one = _tables(np.ones((1, 2, 2)), np.ones((1, 1)), np.ones(2, np.bool_), np.ones(2), np.ones(2), [(0, 1)])
    anneal(one, np.array([0, 1]), 1.0, Heat(1.0, 1.0), 1, 0, Control())


@cache
def _warming() -> Abandonable:
    thread = Abandonable(warm)
    thread.start()
    return thread


def warm_in_time(control: Control) -> bool:
    """Wait until the functions are compiled. Return False if `control` stops before that."""
    while _warming().is_alive() and not control.stopped:
        _warming().join(0.02)
    return not _warming().is_alive()
