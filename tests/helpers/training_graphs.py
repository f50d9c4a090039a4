"""Random small training graphs with costs for a mesh, random meshes, and random placements."""

from __future__ import annotations

import random

from tessel_core.model import (
    Communication,
    Device,
    DeviceMesh,
    DeviceTime,
    Edge,
    Link,
    Operator,
    OperatorGraph,
    Placement,
    Transfers,
)

NS = 1e-9


def training_graph(choose: random.Random, most: int = 6) -> OperatorGraph:
    """Return forward operators with activations and weights, mirrored backward operators, and sometimes split weight
    gradients."""
    count = choose.randint(1, most)
    operators, edges = [], []
    for i in range(count):
        operators.append(_operator(choose, f"f{i}", activation_bytes=choose.choice((0, 3, 10)), weight_bytes=16))
        edges += [Edge(f"f{j}", f"f{i}") for j in range(i) if choose.random() < 0.45]
    if choose.random() < 0.8:
        backward = [i for i in range(count) if choose.random() < 0.9]
        for i in backward:
            operators.append(_operator(choose, f"b{i}", backward=True, forward_of=f"f{i}"))
            if choose.random() < 0.3:
                apart = _operator(choose, f"w{i}", backward=True, forward_of=f"f{i}", kind="matmul_weight_gradient")
                operators.append(apart)
                edges.append(Edge(f"b{i}", f"w{i}"))
        pairs = [(int(edge.source[1:]), int(edge.target[1:])) for edge in edges if edge.target[0] == "f"]
        edges += [Edge(f"b{j}", f"b{i}") for i, j in pairs if i in backward and j in backward]
    return OperatorGraph("random", tuple(operators), tuple(edges))


def _operator(choose: random.Random, name: str, **more: object) -> Operator:
    times = tuple(DeviceTime(kind, choose.randint(20, 400) * NS) for kind in ("fast", "slow", "cpu"))
    size = choose.choice((8, 100, 1000))
    return Operator(name, times=times, output_bytes=size, **more)  # type: ignore[arg-type]


def random_mesh(choose: random.Random) -> DeviceMesh:
    """Return a mesh of one to four devices on one or two nodes, sometimes with two kinds or a host."""
    devices = [
        Device(f"d{i}", choose.choice(("fast", "fast", "slow")), i // 2, choose.choice((None, 10_000)))
        for i in range(choose.randint(1, 3))
    ]
    if choose.random() < 0.2:
        devices.append(Device("host", "cpu"))
    return DeviceMesh("random", tuple(devices), same_node_link=Link(1e9, 5 * NS), default_link=Link(2e8, 20 * NS))


def random_placement(choose: random.Random, graph: OperatorGraph, mesh: DeviceMesh, how: Communication) -> Placement:
    """Return a random placement that keeps backward with forward operators; mostly not contiguous, sometimes with
    groups."""
    on: dict[str, tuple[int, ...]] = {}
    everything = range(len(mesh.devices))
    for operator in graph.operators:
        size = 2 if len(everything) > 1 and choose.random() < 0.15 else 1
        devices = tuple(sorted(choose.sample(everything, size)))
        on[operator.name] = on[operator.forward_of] if operator.forward_of else devices
    return Placement(graph, mesh.placement_devices, tuple(on[name] for name in graph.names), Transfers(mesh, how))
