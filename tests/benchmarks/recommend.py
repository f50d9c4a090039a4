"""Compare recommended strategies with competitors: python tests/benchmarks/recommend.py [--small] [--only NAMES].

There is one line per model, cluster and batch.  It has the seconds of the search, the seconds until a step within 3 %
of the answer is known, and the steps of the competitors divided by the recommended step.  The competitors are
Megatron-LM's rule of thumb (tensor parallelism within a node, the fewest stages that fit, replicas for the rest) and
the best of 200 random configurations.  The last column is the step of the recommended strategy, simulated operation by
operation, divided by its step by blocks.  For a strategy with many micro-batches, both steps have fewer of them.

A second table has the configurations of `published_steps.csv`, if the folder `shared/data` is beside the repository.
Each of them is timed with the same cost model as the recommendation for its model, cluster and batch, and with the
kernels and gradient formats of our strategies.

The exit status is 1 if a competitor is faster, or if the two steps of the last column differ by more than `NEAR`.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import sys
from dataclasses import replace

from published import ROWS, Setting, read_rows

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.recommendation import Question, Recommendation, SearchRanges, recommend
from tessel_core.strategies.strategy import Semantics, Strategy, simulate_places, why_not

Asked = tuple[str, str, int, int]
"""A model, a cluster, samples per step, and tokens per sample; 0 for the model's own number of tokens."""
SMALL: tuple[Asked, ...] = (("llama-3.1-8b", "h100-8", 64, 8192), ("gpt-6.7b", "a100-16", 128, 0))
MORE: tuple[Asked, ...] = (
    ("llama-3.1-70b", "h100-64", 1024, 8192),
    ("llama-3.1-70b", "mi300x-64", 512, 8192),
    ("llama-3.1-8b", "h200-32", 256, 32768),
    ("llama-3.1-405b", "h100-512", 512, 8192),
    ("llama-3.2-1b", "h100-1", 16, 8192),
    ("llama-3.2-3b", "a100-4", 64, 4096),
    ("llama-2-13b", "a100-32", 256, 0),
    ("mistral-7b", "v100-32", 128, 2048),
    ("qwen2.5-72b", "b200-32", 256, 0),
    ("qwen3-32b", "h100-32", 256, 4096),
    ("gemma-2-27b", "h200-16", 128, 0),
    ("phi-3-mini", "a100-pcie-8", 64, 0),
    ("mixtral-8x7b", "h100-32", 256, 4096),
    ("mixtral-8x22b", "h200-64", 512, 4096),
    ("qwen3-30b-a3b", "h100-64", 512, 0),
    ("deepseek-v2-lite", "h100-16", 256, 0),
    ("deepseek-v2", "b200-64", 512, 0),
    ("gpt2-xl", "v100-8", 64, 0),
    ("gpt-13b", "a100-24", 192, 0),
    ("gpt-66b", "h100-128", 512, 0),
    ("gpt-175b", "a100-128", 1536, 0),
    ("mt5-xxl", "h200-16", 256, 0),
    ("mt5-base", "v100-16", 512, 0),
    ("vit-h-14", "h100-8", 1024, 0),
    ("clip-l-14", "a100-16", 2048, 0),
    ("swin-l", "h100-2", 256, 0),
    ("resnet152", "v100-8", 512, 0),
    ("flava", "h100-8", 512, 0),
)
RANDOM = 200
"""Number of random configurations."""
GOOD = 1.03
"""Largest ratio of a step to the fastest step that counts as a good answer."""
NEAR = 0.01
"""Largest relative difference between a step by blocks and the simulated step."""
MAX_PARTS = 1500
"""Largest product of layers and micro-batches of a strategy that is simulated operation by operation."""


def main() -> int:
    """Print the tables, and return 1 if a line misses its target."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--small", action="store_true", help="two questions, nothing published")
    given.add_argument("--only", default="", help="models with commas between: only their questions, nothing published")
    options, missed = given.parse_args(), 0
    only = set(filter(None, options.only.split(",")))
    some = SMALL if options.small else (*SMALL, *MORE)
    columns = f"{'search':>8s} {'good':>6s} {'step':>9s} {'rule':>7s} {'random':>7s} {'simulated':>9s}"
    print(f"{'model':16s} {'cluster':11s} {columns}")
    for asked in some:
        missed += not _line(asked) if not only or asked[0] in only else 0
    missed += 0 if options.small or only or not ROWS.is_file() else _published()
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB, {missed} missed")
    return int(missed > 0)


def _line(asked: Asked) -> bool:
    """Print the line of one question, and return whether it reaches its targets."""
    question, control = question_of(asked), Control()
    found = recommend(question, control)
    spent = control.elapsed_s
    if found.best is None:
        print(f"{asked[0]:16s} {asked[1]:11s} {spent:7.1f}s nothing fits", flush=True)
        return False
    step = found.best.outcome.latency
    known = [each for each in control.history if each.objective is not None]
    good = next(each.wall_s for each in known if float(each.objective or 0) <= GOOD * step)
    engine = BlockEngine(BlockTable(question.family, question.spec, question.mesh))
    rule = _rule_of_thumb(question, engine) / step
    chance = _best_of_random(question, engine) / step
    near = _simulated(question, found, engine)
    columns = f"{spent:7.1f}s {good:5.1f}s {step:8.3f}s {rule:7.2f} {chance:7.2f} {near:9.3f}"
    print(f"{asked[0]:16s} {asked[1]:11s} {columns}", flush=True)
    return min(rule, chance) >= 1 - 1e-9 and abs(near - 1) <= NEAR


def question_of(asked: Asked) -> Question:
    """Return the question with the default ranges."""
    model, cluster, batch, sequence = asked
    found = preset_network(model)
    assert found is not None, "models are presets"
    family, said = found[0], {**found[1], "batch": batch, "dtype": "fp16" if cluster.startswith("v100") else "bf16"}
    return Question(family, family.spec(**said | ({"sequence": sequence} if sequence else {})), find_mesh(cluster))


def _simulated(question: Question, found: Recommendation, engine: BlockEngine) -> float:
    """Return the step of the fastest strategy, simulated operation by operation, divided by its step by blocks."""
    assert found.best is not None
    strategy, spec, step = found.best.strategy, question.spec, found.best.outcome.latency
    fewer = max(2 * strategy.stages, MAX_PARTS // spec.layers)
    if strategy.micro_batches > fewer:
        count = next(each for each in range(fewer, 0, -1) if each % strategy.pipeline == 0)
        spec = question.family.with_batch(spec, spec.batch // strategy.micro_batches * count)
        strategy = replace(strategy, micro_batches=count)
        step = engine.evaluate([Configuration(spec, strategy)])[0].latency
    return simulate_places(question.family, spec, strategy, question.mesh).latency / step


def _published() -> int:
    """Print published configurations beside recommendations, and return how many are faster than these."""
    missed, answers = 0, dict[tuple[object, ...], Recommendation]()
    print(f"\n{'published':40s} {'their step':>10s} {'ours':>9s} {'times':>6s}")
    for setting in read_rows():
        if setting.missing:
            continue
        question = _asked_by(setting)
        key = question.spec, question.mesh.name, question.ranges
        if key not in answers:
            answers[key] = recommend(question)
        best = answers[key].best
        engine = BlockEngine(BlockTable(question.family, question.spec, question.mesh))
        theirs = _step(question, engine, _strategy_of(setting))
        ours = math.inf if best is None else best.outcome.latency
        print(f"{setting.row['id']:40s} {theirs:9.3f}s {ours:8.3f}s {theirs / ours:6.2f}", flush=True)
        missed += ours > theirs * (1 + 1e-9)
    return missed


def _asked_by(setting: Setting) -> Question:
    """Return the question for the model, cluster and batch of a published configuration, with the default ranges."""
    family, spec = setting.network
    mesh = find_mesh(f"{setting.row['device']}-{setting['devices']}", setting["per_node"])
    return Question(family, spec, mesh, SearchRanges(fp8=setting.fp8, compiled=setting["compiled"] == 1))


def _strategy_of(setting: Setting) -> Strategy:
    """Return the published strategy, with the kernels and gradient formats of our strategies."""
    degrees = (setting[name] for name in ("data", "tensor", "pipeline"))
    order = setting.row["schedule"] or "1f1b"
    recompute = Recompute(setting.row["recompute"] or "none")
    return Strategy(
        *degrees,
        setting.micro_batches,
        order,
        recompute,
        setting["zero"],
        setting["virtual"],
        context=setting["context"],
        expert=setting["expert"],
        sequence_parallel=setting["sequence_parallel"] == 1,
        reshard=setting["pipeline"] == 1,
        grad_dtype="fp32",
        fp8=setting.fp8,
        compiled=setting["compiled"] == 1,
    )


def _step(question: Question, engine: BlockEngine, strategy: Strategy) -> float:
    """Return the seconds of a step; infinite if the strategy is impossible or does not fit into memory."""
    if why_not(question.family, question.spec, strategy, question.mesh, Semantics.DEFAULT):
        return math.inf
    try:
        outcome = engine.evaluate([Configuration(question.spec, strategy)])[0]
    except InputError:
        return math.inf
    return math.inf if outcome.reason else outcome.latency


def _rule_of_thumb(question: Question, engine: BlockEngine) -> float:
    """Return the seconds of a step under Megatron-LM's rule of thumb; infinite if no such strategy fits.

    It takes the largest tensor degree within a node that divides the devices, the fewest stages that fit, and one
    sample per micro-batch.
    """
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
