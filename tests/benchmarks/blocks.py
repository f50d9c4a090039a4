"""Compare blocks with simulations of every operation: python tests/benchmarks/blocks.py [--small] [--seed N].

Random strategies of all families are timed in both ways.  The script prints the shares within 1 % and 5 %, the errors
of time and peak memory, and the configurations with the largest differences.  Strategies that exchange gradients after
each micro-batch (ZeRO 2 and 3) are also counted apart.  The exit status is 1 if fewer than nine in ten strategies are
within 1 % in time, or if one is not within 5 %.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator

import numpy as np

from tessel_core.costs.meshes import uniform_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.families import Family
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.strategy import Semantics, Strategy, simulate_places, why_not

MESH = uniform_mesh("h100", 4, 8)
NETWORKS = (
    *("llama-3-8b", "llama-2-7b", "qwen3-8b", "gpt-6.7b", "mixtral-8x7b", "qwen3-30b-a3b", "mt5-xl", "vit-l-16"),
    *("clip-l-14", "flava", "swin-b", "resnet50", "mlp-16x8192"),
)
MAX_PRINTED = 12
"""Largest number of configurations in the list of differences."""


def main() -> int:
    """Print the comparison, and return 1 if blocks differ too much."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--small", action="store_true", help="40 configurations in place of 300")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    rows, spent = [], [0.0, 0.0]
    for family, each in configurations(random.Random(given.seed), 40 if given.small else 300):
        began = time.perf_counter()
        trace = simulate_places(family, each.spec, each.strategy, MESH)
        between = time.perf_counter()
        outcome = BlockEngine(BlockTable(family, each.spec, MESH)).evaluate([each])[0]
        spent = [spent[0] + between - began, spent[1] + time.perf_counter() - between]
        errors = outcome.latency / trace.latency - 1, max(outcome.peaks) / max(trace.peak_memory) - 1
        rows.append((*errors, each.strategy.scatters_at_once, f"{family.describe(each.spec)}: {each.strategy}"))
    print(f"{len(rows)} configurations: operation by operation {spent[0]:.1f} s, blocks {spent[1]:.1f} s")
    others = [row for row in rows if not row[2]]
    for what, some in (("all", rows), ("ZeRO 2 and 3", [row for row in rows if row[2]]), ("others", others)):
        print(f"{what}: {len(some)}")
        for i, name in enumerate(("time", "peak memory")):
            errors = np.abs([row[i] for row in some] or [0.0])
            shares = f"within 1 % {np.mean(errors <= 0.01):.0%}, within 5 % {np.mean(errors <= 0.05):.0%}"
            print(f"  {name}: {shares}, median {np.median(errors):.2%}, 90th percentile {np.quantile(errors, 0.9):.2%}")
    for row in sorted(rows, key=lambda row: -abs(row[0]))[:MAX_PRINTED]:
        print(f"{row[0]:+.1%} time {row[1]:+.1%} memory  {row[3]}")
    errors = np.abs([row[0] for row in rows])
    return int(np.mean(errors <= 0.01) < 0.9 or errors.max() > 0.05)


def configurations(rng: random.Random, count: int) -> Iterator[tuple[Family, Configuration]]:
    """Yield `count` random configurations that are possible."""
    found = 0
    while found < count:
        known = preset_network(rng.choice(NETWORKS))
        assert known is not None, "networks are presets"
        family, said = known[0], dict(known[1])
        if {"layers", "sequence"} <= set(said):
            said |= {"layers": rng.choice((8, 12, 16)), "sequence": rng.choice((1024, 2048))}
        drawn = _strategy(rng, experts="experts" in said)
        if drawn is None:
            continue
        strategy, rows = drawn
        batch = rows * strategy.data * strategy.micro_batches
        try:
            spec = family.spec(**{**said, "batch": batch, "dtype": "bf16"})
        except InputError:
            continue
        if why_not(family, spec, strategy, MESH, Semantics.DEFAULT):
            continue
        found += 1
        yield family, Configuration(spec, strategy)


def _strategy(rng: random.Random, *, experts: bool) -> tuple[Strategy, int] | None:
    """Return a random strategy and its samples per micro-batch; None if the strategy is invalid."""
    tensor, pipeline, context = rng.choice((1, 1, 2, 4, 8)), rng.choice((1, 2, 4)), rng.choice((1, 1, 1, 2))
    several = rng.choice((1, 1, 2)) if pipeline > 1 else 1
    data = rng.choice((1, 2, 4, 8))
    try:
        strategy = Strategy(
            data,
            tensor,
            pipeline,
            rng.choice((1, 2, 4, 8, 16)),
            "interleaved" if several > 1 else rng.choice(("1f1b", "gpipe", "zb-h1")),
            rng.choice(tuple(Recompute)),
            rng.choice((0, 1, 2, 3)) if data * context > 1 else 0,
            several,
            context=context,
            expert=rng.choice((1, 2, 4)) if experts else 1,
            sequence_parallel=tensor > 1 and rng.random() < 0.5,
            reshard=rng.random() < 0.7,
            grad_dtype=rng.choice(("", "fp32")),
        )
    except InputError:
        return None
    return (strategy, rng.choice((1, 2))) if strategy.devices <= len(MESH.devices) else None


if __name__ == "__main__":
    sys.exit(main())
