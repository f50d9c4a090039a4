"""Mixtures of experts: published parameter counts, their meaning, and decoding with a latent cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.decoders import by_hand, decoded, parameters, weights

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.model import PlacementLoads, Status
from tessel_core.model.layers import layer_of
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.networks.moe import MOE, MoeSpec, moe
from tessel_core.placement import PlacementProblem, solve_placement

PARAMETERS = {
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "kimi-k2": 1_026_408_232_448,
}
"""Parameters of the published checkpoints. DeepSeek-V3 counts without its multi-token prediction layer."""
GROUPED = MoeSpec(
    micro_batch=2,
    dtype="fp64",
    layers=2,
    hidden=12,
    heads=4,
    kv_heads=2,
    head_size=6,
    inner=10,
    sequence=5,
    vocabulary=9,
    experts=4,
    active=2,
    expert_inner=7,
)
LATENT = replace(
    GROUPED,
    kv_heads=4,
    dense_layers=1,
    shared=1,
    router="sigmoid",
    latent=5,
    query_latent=7,
    rotary_size=2,
    value_size=3,
)


@pytest.mark.parametrize("preset", PARAMETERS)
def test_presets_have_the_published_parameters(preset: str) -> None:
    assert parameters(moe(replace(MOE.presets[preset], sequence=8))) == PARAMETERS[preset]


def test_every_preset_is_counted() -> None:
    assert PARAMETERS.keys() == MOE.presets.keys()


@pytest.mark.parametrize(
    "spec", [GROUPED, LATENT, replace(LATENT, query_latent=0, router="softmax")], ids=["gqa", "mla", "lite"]
)
def test_logits_equal_those_by_hand(spec: MoeSpec) -> None:
    model = moe(spec)
    w, tokens = weights(model), np.random.default_rng(1).integers(0, spec.vocabulary, (2, spec.sequence))
    found = {piece.name: array for piece, array in model.run({**w, "tokens": tokens})}
    np.testing.assert_allclose(found["logits"], by_hand(spec, w, tokens), rtol=1e-6)


@pytest.mark.parametrize("spec", [GROUPED, LATENT], ids=["gqa", "mla"])
def test_a_token_decoded_after_a_prefill_equals_the_longer_prefill(spec: MoeSpec) -> None:
    found, wanted = decoded(moe, spec)
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-9)


def test_a_graph_of_deepseek_is_built_by_operator_with_what_is_active() -> None:
    graph = build_graph("moe", replace(MOE.presets["deepseek-v3"], training=True))
    products = sum(each.flops or 0 for each in graph.operators if not each.backward and "matmul" in each.kind)
    assert products == pytest.approx(2 * 36.6e9 * 4096, rel=0.02)  # 37 billion are active, one of them the embedding


def test_stages_of_deepseek_are_uneven() -> None:
    """Its first layers do less work than the others."""
    spec = replace(MOE.presets["deepseek-v3"], training=True, granularity="layers")
    flops = {each.name: each.flops for each in build_graph("moe", spec).operators}
    assert flops["layer0"] != flops["layer3"] == flops["layer4"]


def test_placements_of_deepseek_have_uneven_stages() -> None:
    """Three dense layers at the front leave time for a fifth layer in the first stage.

    Without them, stages are even.
    """
    loads, layers = dict[int, list[float]](), dict[int, list[int]]()
    mesh = find_mesh("h200-4")
    for dense in (3, 0):
        spec = replace(MOE.presets["deepseek-v3"], layers=16, dense_layers=dense, training=True, granularity="layers")
        problem = PlacementProblem.on_mesh(costed(build_graph("moe", spec), mesh, CostOptions()), mesh)
        # Four devices cannot hold the weights of 16 layers. Only times count here.
        problem = replace(problem, devices=tuple(replace(each, memory_capacity=None) for each in problem.devices))
        report = solve_placement("dp", problem)
        assert report.solution is not None
        assert report.status is Status.PROVED_OPTIMAL
        names = [layer_of(operator) for operator in problem.graph.operators]
        layers[dense] = [
            len({names[i] for i in on if names[i].startswith("layer")}) for on in report.solution.operators_on
        ]
        place = {"embedding": 0, "head": 3, **{f"layer{i}": i // 4 for i in range(16)}}
        equal = problem.placement([(place[name],) for name in names])
        loads[dense] = [PlacementLoads.of(each).largest for each in (report.solution, equal)]
    assert layers == {3: [5, 4, 4, 3], 0: [4, 4, 4, 4]}
    assert loads[3] == [pytest.approx(0.834 * loads[3][1], rel=5e-3), pytest.approx(loads[0][0])]
    assert loads[3][0] == pytest.approx(0.834 * loads[3][1], rel=5e-3)


def test_the_imbalance_of_tokens_is_read_from_the_dispatches_and_changes_no_number() -> None:
    even, uneven = moe(GROUPED), moe(replace(GROUPED, imbalance=1.5))
    dispatches = [[op.attributes for op in each.program.ops if op.kind == "dispatch"] for each in (even, uneven)]
    assert dispatches == [[()] * GROUPED.layers, [(("imbalance", 1.5),)] * GROUPED.layers]
    given = {**weights(even), "tokens": np.ones((2, GROUPED.sequence), int)}
    (before,), (after,) = ([a for p, a in model.run(given) if p.name == "logits"] for model in (even, uneven))
    np.testing.assert_array_equal(after, before)


def test_an_imbalance_below_1_is_refused() -> None:
    with pytest.raises(InputError, match="Token imbalance: must be between 1 and 1024, got"):
        build_graph("moe", replace(GROUPED, dtype="bf16", imbalance=0.5))
    with pytest.raises(InputError, match="imbalance must be at least 1, got"):
        moe(replace(GROUPED, imbalance=0.5))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"active": 5}, "must be at most 4, the number of experts"),
        ({"rotary_size": 6}, "must be below the head size"),
        ({"tensor_parallel": 2}, "must divide the expert width"),
    ],
)
def test_sizes_that_do_not_go_together(changes: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        GRAPHS["moe"].program(replace(LATENT, **changes))  # type: ignore[arg-type]
