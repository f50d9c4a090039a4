"""The fastest strategies beside the dumbest competitors: python tests/benchmarks/recommend.py [--small].

For each model, cluster and batch: the seconds of the search, and how many times longer a step of the competitors is.
These are Megatron-LM's rule of thumb (tensor parallelism within a node, the fewest stages that fit, replicas for the
rest) and the best of 200 random configurations.  The last column is the step of the recommended strategy, simulated
operation by operation, over the step that was recommended.  Fails where a competitor is faster, or where the two steps
differ by more than 3 %.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import sys
import time

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration, evaluate
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.recommendation import Question, recommend
from tessel_core.strategies.strategy import Semantics, Strategy, why_not

Asked = tuple[str, str, int, int]
"""A model, a cluster, the samples of a step and the tokens of a sample; 0 for the model's own."""
SMALL: tuple[Asked, ...] = (("llama-3.1-8b", "h100-8", 64, 8192), ("gpt-6.7b", "a100-16", 128, 0))
MORE: tuple[Asked, ...] = (
    ("llama-3.1-70b", "h100-64", 1024, 8192),
    ("llama-3.1-8b", "h200-32", 256, 32768),
    ("qwen3-32b", "h100-32", 256, 4096),
    ("mixtral-8x7b", "h100-32", 256, 4096),
    ("gpt-175b", "a100-128", 1536, 0),
    ("llama-3.1-405b", "h100-512", 512, 8192),
    ("mt5-xxl", "h200-16", 256, 0),
    ("vit-h-14", "h100-8", 1024, 0),
)
RANDOM = 200
NEAR = 0.03


def main() -> int:
    """Print the table; 1 where a line of it is missed."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--small", action="store_true", help="two questions")
    missed = 0
    print(f"{'model':16s} {'cluster':9s} {'search':>8s} {'step':>9s} {'rule':>7s} {'random':>7s} {'simulated':>9s}")
    for asked in SMALL if given.parse_args().small else (*SMALL, *MORE):
        missed += not _line(asked)
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")
    return int(missed > 0)


def _line(asked: Asked) -> bool:
    """Print one question; whether nothing is missed."""
    question = question_of(asked)
    began = time.perf_counter()
    found = recommend(question)
    spent = time.perf_counter() - began
    if found.best is None:
        print(f"{asked[0]:16s} {asked[1]:9s} {spent:7.1f}s nothing fits")
        return False
    step = found.best.outcome.latency
    engine = BlockEngine(BlockTable(question.family, question.spec, question.mesh))
    rule = _rule_of_thumb(question, engine) / step
    chance = _best_of_random(question, engine) / step
    exact = evaluate(question.family, [Configuration(question.spec, found.best.strategy)], question.mesh)[0]
    near = exact.latency / step
    print(f"{asked[0]:16s} {asked[1]:9s} {spent:7.1f}s {step:8.3f}s {rule:7.2f} {chance:7.2f} {near:9.3f}", flush=True)
    return min(rule, chance) >= 1 - 1e-9 and abs(near - 1) <= NEAR


def question_of(asked: Asked) -> Question:
    """The question with the default ranges."""
    model, cluster, batch, sequence = asked
    found = preset_network(model)
    assert found is not None, "models are presets"
    family, said = found[0], {**found[1], "batch": batch, "dtype": "bf16"}
    return Question(family, family.spec(**said | ({"sequence": sequence} if sequence else {})), find_mesh(cluster))


def _step(question: Question, engine: BlockEngine, strategy: Strategy) -> float:
    """Seconds of a step; infinite where the strategy cannot be or does not fit."""
    if why_not(question.family, question.spec, strategy, question.mesh, Semantics.DEFAULT):
        return math.inf
    try:
        outcome = engine.evaluate([Configuration(question.spec, strategy)])[0]
    except InputError:
        return math.inf
    return math.inf if outcome.reason else outcome.latency


def _rule_of_thumb(question: Question, engine: BlockEngine) -> float:
    """Megatron-LM's: the largest tensor degree of a node that divides, the fewest stages that fit, one sample each."""
    devices = question.devices
    for tensor in (8, 4, 2, 1):
        for pipeline in (1, 2, 4, 8, 16, 32):
            data, rest = divmod(devices, tensor * pipeline)
            count, left = divmod(question.spec.batch, data) if data else (0, 1)
            if rest or left or not count:
                continue
            for recompute in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL):
                how = {"zero": 1 if data > 1 else 0, "sequence_parallel": tensor > 1, "grad_dtype": "fp32"}
                strategy = Strategy(data, tensor, pipeline, count, "1f1b", recompute, **how)  # type: ignore[arg-type]
                step = _step(question, engine, strategy)
                if step < math.inf:
                    return step
    return math.inf


def _best_of_random(question: Question, engine: BlockEngine) -> float:
    every = list(question.strategies())
    some = random.Random(1).sample(every, min(RANDOM, len(every)))
    return min(_step(question, engine, strategy) for strategy in some)


if __name__ == "__main__":
    sys.exit(main())
