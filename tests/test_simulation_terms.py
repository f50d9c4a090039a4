"""Differences between the default simulation and DistIR: every term by hand, as docs/simulation.md shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tessel_core.costs.fit import kind_fit
from tessel_core.ir import read_program
from tessel_core.ir.program import Attributes
from tessel_core.ir.types import TensorType
from tessel_core.model import Connection, Device, DeviceMesh, Link, PeakRate
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.distir_rules import DistIrCosts
from tessel_core.units import show_memory, show_time

DOCUMENT = (Path(__file__).resolve().parent.parent / "docs" / "simulation.md").read_text(encoding="utf-8")
FLOPS, DRAM = 1e13, 1e12
NEAR, FAR, LATENCY = 1e10, 1e9, 1e-5
LAUNCH = 1e-5
"""Seconds that DistIR counts for every launch."""
X = TensorType("fp32", (1000, 1000), 1)
N = TensorType("int32", (), 1)


def mesh(host: bool) -> DeviceMesh:
    """Return four workers on two nodes. DistIR numbers the host first."""
    devices = [Device(f"d{i}", "gpu", i // 2, None, (PeakRate("fp32", FLOPS),), DRAM) for i in range(4)]
    hosts = [Device("host", "gpu", 9, None, (PeakRate("fp32", FLOPS),), DRAM)] if host else []
    near, far = Link(NEAR, LATENCY), Link(FAR, LATENCY)
    own = tuple(Connection(("host", each.name), near) for each in devices) if host else ()
    return DeviceMesh("terms", (*hosts, *devices), own, near, far)


def joined(kernel: str, flops: float, moved: float, outputs: float = 0.0, *, launches: int = 0) -> float:
    """Return (launch³ + max(arithmetic, memory)³)^(1/3) with the shipped parameters of a class.

    `launches` are those of a backward.
    """
    fit = kind_fit("h200")
    each = fit.kernel(kernel)
    operations = flops + each.per_output * outputs
    arithmetic = operations / (FLOPS * (each.compute or 1.0))
    launch = (launches * fit.launches.backward or fit.launches.inference) * each.launch
    return (launch**3 + max(arithmetic, moved / (DRAM * each.memory)) ** 3) ** (1 / 3)


@dataclass(frozen=True)
class Term:
    """One operation, and its time in both simulations."""

    name: str
    kind: str
    types: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    distir: float
    default: float
    attributes: Attributes = ()


FOUR = tuple(X.on(d) for d in (1, 2, 3, 4))
SIZE, COUNT = float(X.bytes), 1e6
TREE = 2 * LATENCY
"""Latency of a tree of two nodes with two devices each: a hop between nodes and one inside. A ring has three."""
MEAN = (2 * NEAR + 4 * FAR) / 6
"""Mean bandwidth of all pairs of the four workers."""
SEVERAL = 7 * (LAUNCH + 2 * SIZE / DRAM + COUNT / FLOPS) + LAUNCH + SIZE / DRAM + COUNT / FLOPS
"""GELU is eight operators of ONNX. All except tanh take two tensors."""
BIG = TensorType("fp32", (2, 3, 100, 200), 1)
BACK = TensorType("fp32", (2, 3, 200, 400), 1)
PRODUCT = TensorType("fp32", (2, 3, 100, 400), 1)
BIG_BYTES = float(BIG.bytes + BACK.bytes + PRODUCT.bytes)

TERMS = [
    Term(
        "launch and work",
        "relu",
        (X,),
        (X,),
        LAUNCH + SIZE / DRAM + COUNT / FLOPS,
        joined("elementwise", COUNT, 2 * SIZE),
    ),
    Term("sums", "add", (X, X), (X,), LAUNCH + 2 * SIZE / DRAM + COUNT / FLOPS, joined("elementwise", COUNT, 3 * SIZE)),
    Term(
        "losses",
        "loss",
        (X, X, N),
        (X,),
        LAUNCH + SIZE / DRAM + COUNT / FLOPS,
        joined("elementwise", 3 * COUNT, 3 * SIZE + 4),
    ),
    Term(
        "products",
        "matmul",
        (X, X),
        (X,),
        LAUNCH + 2 * SIZE / DRAM + 2e9 / FLOPS,
        joined("matmul", 2e9, 3 * SIZE, 3 * SIZE / 12),
    ),
    Term(
        "products of four axes",
        "matmul",
        (BIG, BACK),
        (PRODUCT,),
        LAUNCH + 4 * (2 * 3 + 2 * 3) / DRAM + 2 * 2 * 3 * 3 / FLOPS,
        joined("matmul", 2.0 * 6 * 100 * 200 * 400, BIG_BYTES, PRODUCT.bytes / 4),
    ),
    Term(
        "gradients of products",
        "matmul_grad",
        (X, X, X),
        (X, X),
        2 * (LAUNCH + 2 * SIZE / DRAM + 2e9 / FLOPS),
        joined("matmul", 4e9, 6 * SIZE, 6 * SIZE / 12, launches=2),
    ),
    Term(
        "optimizer",
        "sgd",
        (X, X, X, X),
        (X, X),
        LAUNCH + 2 * SIZE / DRAM + COUNT / FLOPS,
        joined("elementwise", 4 * COUNT, 6 * SIZE),
        (("rate", 0.1),),
    ),
    Term(
        "composite operators",
        "gelu",
        (X,),
        (X,),
        SEVERAL,
        joined("activation", 9 * COUNT, 2 * SIZE, 2 * SIZE / 12),
    ),
    Term(
        "gradients of composite operators",
        "gelu_grad",
        (X, X),
        (X,),
        2 * SEVERAL,
        joined("activation_backward", 18 * COUNT, 3 * SIZE, 3 * SIZE / 12, launches=1),
    ),
    Term("views", "slice", (X,), (X.shaped((500, 1000)),), LAUNCH, 0.0, (("axis", 0), ("index", 0), ("parts", 2))),
    Term("copies", "identity", (X,), (X,), 0.0, joined("elementwise", 0.0, 2 * SIZE)),
    Term(
        "splits and concatenations",
        "concat",
        (X, X),
        (TensorType("fp32", (2000, 1000), 1),),
        LAUNCH,
        joined("elementwise", 0.0, 4 * SIZE),
        (("axis", 0),),
    ),
    Term("sends", "send", (X,), (X.on(2),), SIZE / NEAR, LATENCY + SIZE / NEAR, (("to", 2),)),
    Term("all-reductions", "allreduce", FOUR, FOUR, 2 * SIZE * 3 / 4 / MEAN, 2 * TREE + 2 * 3 / 4 * SIZE / (2 * FAR)),
    Term(
        "all-gathers",
        "allgather",
        FOUR,
        tuple(each.shaped((4000, 1000)) for each in FOUR),
        2 * SIZE * 3 / 4 / MEAN,
        TREE + 3 * SIZE / (2 * FAR),
        (("axis", 0),),
    ),
    Term(
        "reduce-scatters",
        "reduce_scatter",
        FOUR,
        tuple(each.shaped((250, 1000)) for each in FOUR),
        2 * SIZE * 3 / 4 / MEAN,
        TREE + 3 / 4 * SIZE / (2 * FAR),
        (("axis", 0),),
    ),
    Term(
        "broadcasts",
        "broadcast",
        (X,),
        FOUR,
        0.0,
        3 * LATENCY + SIZE / FAR,
        (("devices", (1, 2, 3, 4)),),
    ),
    Term(
        "scatters",
        "scatter",
        (X,),
        tuple(X.on(d).shaped((500, 1000)) for d in (2, 3)),
        0.0,
        2 * LATENCY + SIZE / 2 / NEAR + SIZE / 2 / FAR,
        (("axis", 0), ("devices", (2, 3))),
    ),
    Term(
        "gathers",
        "gather",
        FOUR[:3],
        (TensorType("fp32", (3000, 1000), 1),),
        4 * SIZE / FAR,
        2 * LATENCY + SIZE / NEAR + SIZE / FAR,
        (("axis", 0), ("to", 1)),
    ),
    Term("reductions", "reduce", FOUR[:3], (X,), 4 * SIZE / FAR, 2 * LATENCY + SIZE / FAR, (("to", 1),)),
]


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
def test_a_term_by_hand_in_both(term: Term) -> None:
    asked = (term.kind, term.types, term.outputs, dict(term.attributes))
    distir, default = DistIrCosts(mesh(True)).seconds(*asked), MeshCosts(mesh(False)).seconds(*asked)
    assert max(distir.values()) == pytest.approx(term.distir)
    assert max(default.values()) == pytest.approx(term.default)
    assert max(distir.values()) != pytest.approx(max(default.values()), rel=1e-3), "no difference to document"
    shown = f"| `{term.kind}` {show_time(term.distir, 's')} | {show_time(term.default, 's')} |"
    assert any(f"| {term.name} |" in line and shown in line for line in DOCUMENT.splitlines()), shown


HEAD = "program p\n%x: fp32[1000000]@1\n"
PROGRAMS: dict[str, tuple[str, Callable[[Trace], str]]] = {
    "overlap": (
        "%a: fp32[1000000]@1 = relu(%x)\n%b: fp32[1000000]@2 = send(%a) {to=2}\n%c: fp32[1000000]@1 = relu(%a)\n"
        "return %b, %c\n",
        lambda trace: show_time(trace.device_end[0], "s"),
    ),
    "order of memory changes": (
        "%a: fp32[1000000]@1 = relu(%x)\n%b: fp32[1000000]@2 = send(%a) {to=2}\n%c: fp32[1000000]@1 = relu(%x)\n"
        "%d: fp32[1000000]@1 = relu(%c)\nreturn %b, %d\n",
        lambda trace: show_memory(trace.peak_memory[0], "B"),
    ),
    "unused values": (
        "%a: fp32[1000000]@1 = relu(%x)\n%b: fp32[1000000]@1 = relu(%x)\n%c: fp32[1000000]@1 = relu(%x)\nreturn %c\n",
        lambda trace: show_memory(trace.peak_memory[0], "B"),
    ),
    "host": (
        "%y: fp32[1000000]@0\n%a: fp32[1000000]@1 = send(%y) {to=1}\n%b: fp32[1000000]@1 = relu(%a)\nreturn %b\n",
        lambda trace: show_time(trace.latency, "s"),
    ),
}
BY_HAND: dict[str, tuple[str, str]] = {
    # Two ReLUs and the send one after another, or the second ReLU beside the send.
    "overlap": (
        show_time(2 * (LAUNCH + SIZE / DRAM + COUNT / FLOPS) + SIZE / NEAR, "s"),
        show_time(joined("elementwise", COUNT, 2 * SIZE) + LATENCY + SIZE / NEAR, "s"),
    ),
    # x, c, d: a is freed after its send. But it is still on its way when the streams make c and d.
    "order of memory changes": (show_memory(3 * SIZE, "B"), show_memory(4 * SIZE, "B")),
    # x, a, b and c. Then x and one of them at a time.
    "unused values": (show_memory(4 * SIZE, "B"), show_memory(2 * SIZE, "B")),
    "host": (
        show_time(SIZE / NEAR + LAUNCH + SIZE / DRAM + COUNT / FLOPS, "s"),
        show_time(joined("elementwise", COUNT, 2 * SIZE), "s"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_programs_show_in_both(name: str) -> None:
    text, measure = PROGRAMS[name]
    program = read_program(HEAD + text)
    shown = (
        measure(simulate(program, costs=DistIrCosts(mesh(True)), compat="distir")),
        measure(simulate(program, mesh(False))),
    )
    assert shown == BY_HAND[name]
    assert shown[0] != shown[1]
    assert any(f"| {name} |" in line and f"| {shown[0]} | {shown[1]} |" in line for line in DOCUMENT.splitlines()), (
        shown
    )
