"""Level 18: A causal mask on a ring."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from tessel_core.learning.assignment import Assignment, Given, nanoseconds
from tessel_core.learning.level import Level
from tessel_core.learning.solved import percent
from tessel_core.learning.task import Facts, Traced
from tessel_core.units import show_time

if TYPE_CHECKING:  # imported here because pages load faster without the simulation
    from tessel_core.ir.program import Program

_MESH, DEVICES, CHUNKS = "h100-4", 4, 8
TOKENS, HEADS, KEY_HEADS, HEAD_SIZE = 32_768, 32, 8, 128
"""Sizes of the attention of Llama 3 8B, for a long sequence."""
START: Given = tuple((i * DEVICES // CHUNKS,) for i in range(CHUNKS))
BEST: Given = tuple((min(i, CHUNKS - 1 - i),) for i in range(CHUNKS))
"""Best assignment: device i of C has chunks i and 2C - 1 - i.

Context parallelism places them in this way (`ir.types.places_here`).
"""


def work(given: Given) -> tuple[Fraction, ...]:
    """Return the number of pairs (query chunk, key chunk) that each device computes.

    The pair of a chunk with itself counts half.
    """
    return tuple(
        sum((i + Fraction(1, 2) for i, row in enumerate(given) if device in row), Fraction(0))
        for device in range(DEVICES)
    )


def ring(given: Given, tokens: int = TOKENS, size: int = HEAD_SIZE, dtype: str = "bf16") -> Program:
    """Build causal ring attention over chunks. Each device has equally many chunks.

    Inputs are queries, keys and values of chunk 0, then of chunk 1, and so on.  Outputs are the results of the chunks
    in order, each [1, tokens / CHUNKS, HEADS x size].  Keys and values of a device's chunks travel together.
    """
    from tessel_core.ir.builder import ProgramBuilder
    from tessel_core.ir.program import Tag
    from tessel_core.ir.types import TensorType

    build, tag = ProgramBuilder("causal attention on a ring"), Tag(phase="forward")
    owner = [device for (device,) in given]
    queries, keys = list[int](), dict[int, tuple[int, int]]()
    for i, device in enumerate(owner):
        q, k, v = (
            build.input(f"{name}{i}", TensorType(dtype, (1, tokens // CHUNKS, heads * size), device + 1))
            for name, heads in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS))
        )
        queries.append(q)
        keys[i] = k, v
    found = dict[int, tuple[int, ...]]()
    for step in range(DEVICES):
        here = _held(owner, step)
        if step:
            sent = [value for j in chain(*_held(owner, step - 1)) for value in keys[j]]
            moved = build.add("shift", sent, tag, tensors=len(sent) // DEVICES)
            keys = dict(zip(chain(*here), zip(moved[::2], moved[1::2], strict=True), strict=True))
        for i, j in ((i, j) for i, device in enumerate(owner) for j in here[device] if j <= i):
            block = {"causal": int(i == j), "head_size": size, "index": 0, "parts": 1, "step": 0}
            made = build.add("attention_block", [queries[i], *keys[j]], tag, **block)
            found[i] = build.add("attention_merge", [*found[i], *made], tag) if i in found else made
    return build.finish([found[i][0] for i in range(CHUNKS)])


def _held(owner: Sequence[int], step: int) -> list[list[int]]:
    """Return the key chunks of each device after `step` moves round the ring."""
    return [[j for j, first in enumerate(owner) if (first + step) % DEVICES == device] for device in range(DEVICES)]


@lru_cache(maxsize=64)
def traced(given: Given) -> Traced:
    """Simulate the attention of one layer of Llama 3 8B, forward, on a sequence of 32,768 tokens."""
    from tessel_core.costs.meshes import find_mesh
    from tessel_core.simulation import simulate

    mesh = find_mesh(_MESH)
    return simulate(ring(given), mesh), mesh


def _task() -> Assignment:
    return Assignment(
        devices=tuple(f"gpu{d}" for d in range(DEVICES)),
        parts=tuple(f"Chunk {i + 1}: attends to {i + 1} of {CHUNKS}" for i in range(CHUNKS)),
        room=CHUNKS // DEVICES,
        start=START,
        best=BEST,
        simulate=traced,
    )


def _facts() -> Facts:
    from tessel_core.simulation.idle import idle_of

    idle = idle_of(traced(START)[0])
    assert idle is not None
    contiguous, paired = work(START), work(BEST)
    return {
        "first": str(contiguous[0]),
        "last": str(contiguous[-1]),
        "all": str(sum(contiguous)),
        "imbalance": percent(idle.split.imbalance),
        "each": str(paired[0]),
        "slow": show_time(nanoseconds(traced(START)[0]), "ns"),
        "best": show_time(nanoseconds(traced(BEST)[0]), "ns"),
        "next": str(CHUNKS + 1),
    }


LEVEL = Level(
    number=18,
    title="A causal mask on a ring",
    idea="Context parallelism cuts a long sequence into chunks, and keys and values go round a ring of devices. "
    "With a causal mask, tokens attend to those before them only.",
    asks="Place eight chunks, two on each of four devices, so that the attention of a layer ends as early as possible.",
    task=_task,
    hints=(
        "The last chunk attends to all eight, the first one to itself only.",
        "With chunks in order, the first device has finished while the last one has most of its work left.",
        "Pair a chunk with much work and a chunk with little work: the last with the first, and so on.",
    ),
    why=(
        "In order, devices compute {first} to {last} of {all} pairs of chunks: {slow}, {imbalance} of it imbalance.",
        "With chunk i beside chunk {next} − i, every device computes {each} pairs: {best}.",
        "Only this pairing balances the work. Without the mask any pairing would, since all chunks attend to all.",
    ),
    facts=_facts,
    source="Llama Team, Llama 3, arXiv 2407.21783, section 3.3.2; Brandon et al., Striped Attention, arXiv 2311.09431",
)
