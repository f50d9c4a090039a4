"""Level 17: one expert gets most of the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tessel_core.learning.assignment import Assignment, Given, nanoseconds
from tessel_core.learning.level import Level
from tessel_core.learning.solved import percent
from tessel_core.learning.task import Facts, Traced
from tessel_core.units import show_time

_MODEL, _MESH, _LAYERS, _DEVICES, _TOKENS = "mixtral-8x7b", "h100-4", 2, 4, 4096
SHARES = (36, 16, 12, 9, 9, 7, 7, 4)
"""Percent of the tokens that choose each expert."""
_ROOM = 3
START: Given = tuple((i // 2,) for i in range(len(SHARES)))
"""First assignment: experts in order, as frameworks place them."""
MOVED: Given = ((0,), (1,), (2,), (2,), (3,), (3,), (1,), (3,))
"""An assignment with expert 1 alone on a device. Without copies, no assignment has a lower largest load."""
BEST: Given = ((0, 1), (2,), (3,), (3,), (2,), (0,), (1,), (3,))


def loads(given: Given) -> tuple[Fraction, ...]:
    """Return the percentage of tokens per device. Copies of an expert share its tokens equally."""
    pairs = tuple(zip(SHARES, given, strict=True))
    return tuple(
        sum((Fraction(share, len(row)) for share, row in pairs if device in row), Fraction(0))
        for device in range(_DEVICES)
    )


def imbalance(given: Given) -> float:
    """Return the tokens of the busiest device divided by the average (`MoeSpec.imbalance`)."""
    return float(max(loads(given)) * _DEVICES / 100)


@lru_cache(maxsize=64)
def traced(given: Given) -> Traced:
    """Simulate inference of two layers of Mixtral 8x7B with expert parallelism.

    In the strategy's program, the matrix products of all devices are as large as those of the busiest device. Here,
    each device takes the time of its own tokens. The latency equals that of the strategy with this imbalance. The
    simulation counts two experts per device, so it leaves out the memory of copies.
    """
    from tessel_core.costs.meshes import find_mesh
    from tessel_core.ir.operators import find_operator
    from tessel_core.ir.operators.operator import Types, Values
    from tessel_core.simulation import simulate
    from tessel_core.simulation.costs import Costs, DeviceSeconds, costs_on
    from tessel_core.strategies.families import find_family
    from tessel_core.strategies.strategy import Strategy, build_program

    @dataclass(frozen=True)
    class OwnTokens(Costs):
        """Cost model in which each device computes only its own tokens."""

        costs: Costs
        busiest: int
        """Number of tokens (rows) in the tensor types of the program, which is that of the busiest device."""
        rows: tuple[int, ...]
        """Number of tokens (rows) of each device."""

        def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
            if find_operator(kind).pattern:
                return self.costs.seconds(kind, types, outputs, values)
            return self.costs.seconds(kind, self._own(types), self._own(outputs), values)

        def _own(self, types: Types) -> Types:
            return [
                each.resized(0, self.rows[each.device - 1]) if each.shape[:1] == (self.busiest,) else each
                for each in types
            ]

    family, mesh = find_family("moe"), find_mesh(_MESH)
    spec = family.spec(
        size=_MODEL,
        layers=_LAYERS,
        batch=_DEVICES,
        sequence=_TOKENS,
        mode="inference",
        imbalance=imbalance(given),
    )
    program = build_program(family, spec, Strategy(data=_DEVICES, expert=_DEVICES)).program
    busiest = max(
        each.shape[0] for op in program.ops if op.kind == "exchange_rows" for each in program.types_of(op.outputs)
    )
    rows = tuple(round(busiest * float(load / max(loads(given)))) for load in loads(given))
    return simulate(program, mesh, OwnTokens(costs_on(mesh, program), busiest, rows)), mesh


def _task() -> Assignment:
    return Assignment(
        devices=tuple(f"gpu{d}" for d in range(_DEVICES)),
        parts=tuple(f"Expert {i + 1}: {share}% of the tokens" for i, share in enumerate(SHARES)),
        room=_ROOM,
        start=START,
        best=BEST,
        simulate=traced,
        copies=True,
    )


def _facts() -> Facts:
    from tessel_core.simulation.idle import idle_of

    found = {"start": START, "moved": MOVED, "best": BEST}
    splits = {name: idle.split for name, given in found.items() if (idle := idle_of(traced(given)[0])) is not None}
    return {
        **{name: show_time(nanoseconds(traced(given)[0]), "ns") for name, given in found.items()},
        **{f"{name}_part": percent(split.imbalance) for name, split in splits.items()},
        **{f"{name}_load": f"{float(max(loads(given))):g}%" for name, given in found.items()},
    }


LEVEL = Level(
    number=17,
    title="An overloaded expert",
    idea="A router sends each token to some of eight experts, which are on four devices. "
    "In each layer, all devices wait until the slowest has computed its experts.",
    asks="Place at most three experts on each device, so that two layers of Mixtral end as early as possible. "
    "Several devices may have copies of an expert, which share its tokens equally.",
    task=_task,
    hints=(
        "Add up the tokens of each device: the device with the most tokens decides.",
        "A quarter of the tokens on each device would be even. Expert 1 alone has more.",
        "Put copies of expert 1 on two devices, each with one of the experts that have 7%.",
    ),
    why=(
        "In order, one device has {start_load} of the tokens: {start}, of which {start_part} is imbalance.",
        "Without copies, one device has at least {moved_load}, the tokens of expert 1: {moved}, {moved_part} "
        "imbalance.",
        "A copy of expert 1 costs memory and gives every device {best_load}: {best}, {best_part} imbalance.",
    ),
    facts=_facts,
    source="DeepSeek-AI, DeepSeek-V3, arXiv 2412.19437, section 3.4: redundant experts",
)
