"""Every network that is written as a program, at tiny sizes: gradients, recomputation and tensor parallelism."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from helpers.gradients import check_gradients
from helpers.programs import same_meaning
from helpers.seeds import seeds

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.arrays import NUMPY_TYPES
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.transforms.checkpoint import Recompute, recomputing
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.verify import verify
from tessel_core.model import Communication, Placement, Transfers
from tessel_core.networks.evoformer_network import EvoformerSpec, Heads, evoformer
from tessel_core.networks.graphs.spec import GraphSpec
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.networks.modules import Network
from tessel_core.networks.program_graph import graph_of
from tessel_core.networks.resnet import ResNetSpec, resnet
from tessel_core.networks.swin import SwinSpec, swin
from tessel_core.planning import plan_of
from tessel_core.planning.placed_program import placed_program
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import simulate
from tessel_core.strategies.families import NetworkWork, find_family
from tessel_core.strategies.strategy import Strategy, build_program, simulate_strategy

SIZES = {
    "gpt": {"layers": 2, "hidden": 8, "heads": 2, "sequence": 3, "positions": 4, "vocabulary": 7},
    "mt5": {
        "layers": 2,
        "hidden": 8,
        "heads": 2,
        "head_size": 3,
        "inner": 6,
        "sequence": 4,
        "outputs": 3,
        "vocabulary": 7,
    },
    "flava": {
        "hidden": 4,
        "heads": 2,
        "layers": 1,
        "joint_layers": 2,
        "sequence": 3,
        "image": 4,
        "patch": 2,
        "vocabulary": 5,
    },
    "resnet": {"image": 32, "classes": 4},
    "swin": {"image": 16, "channels": 4, "window": 2, "classes": 4},
    "evoformer": {"blocks": 2, "sequences": 3, "residues": 4, "msa_channels": 6, "pair_channels": 5},
    "mlp": {"layers": 3, "width": 6},
    "moe": {
        "layers": 2,
        "hidden": 8,
        "heads": 2,
        "head_size": 6,
        "inner": 4,
        "sequence": 3,
        "vocabulary": 7,
        "experts": 3,
        "active": 2,
        "expert_inner": 6,
        "shared": 1,
        "dense_layers": 1,
        "router": "sigmoid",
        "latent": 4,
        "query_latent": 5,
        "rotary_size": 2,
        "value_size": 3,
    },
    "vit": {"layers": 2, "hidden": 4, "heads": 2, "image": 4, "patch": 2, "classes": 3},
    "clip": {
        "layers": 1,
        "hidden": 4,
        "heads": 2,
        "image": 4,
        "patch": 2,
        "text_layers": 2,
        "text_hidden": 6,
        "text_heads": 2,
        "sequence": 3,
        "vocabulary": 5,
        "joint": 4,
    },
    "llama": {
        "layers": 2,
        "hidden": 8,
        "heads": 4,
        "kv_heads": 2,
        "head_size": 4,
        "inner": 6,
        "sequence": 4,
        "vocabulary": 7,
        "tied": True,
        "qkv_bias": True,
        "qk_norm": True,
        "window": 2,
        "style": "gemma2",
    },
}
"""Sizes below the limits of the forms, so that finite differences take seconds."""
every_network = pytest.mark.parametrize("family", SIZES)


def tiny(family: str, **changes: object) -> GraphSpec:
    """Return a tiny network with two samples in float64, a format that no form offers."""
    sizes = {"micro_batch": 2, "dtype": "fp64", "training": True, **SIZES[family], **changes}
    spec: GraphSpec = GRAPHS[family].spec(**sizes)
    return spec


def forward(family: str, **changes: object) -> Distributed:
    spec = tiny(family, **changes)
    # Two stages instead of the published four, with fewer channels
    if isinstance(spec, ResNetSpec):
        return resnet(spec, (2, 1), 4)
    if isinstance(spec, SwinSpec):
        return swin(spec, (2, 1), 2)
    if isinstance(spec, EvoformerSpec):
        return evoformer(spec, Heads(2, 2, 2, 2))
    return GRAPHS[family].program(spec)


def inputs(model: Distributed, seed: int) -> dict[str, Array]:
    """Return random inputs.

    Row numbers are below 2, the size of the smallest table, scales are about 1, others about 0.
    """
    draw, found = np.random.default_rng(seed), dict[str, Array]()
    for value, piece in model.piece_of.items():
        kind, middle = model.program.types[value], 1.0 if piece.name.endswith("scale") else 0.0
        rows = 1 if piece.name.endswith("class_token.row") else 2
        whole = np.asarray(draw.integers(0, rows, kind.shape)) if kind.shape else np.array(2)
        found[piece.name] = whole if kind.dtype.startswith("int") else draw.normal(middle, 0.4, kind.shape)
        found[piece.name] = found[piece.name].astype(NUMPY_TYPES[kind.dtype])
    return found


def test_every_family_is_tried() -> None:
    assert SIZES.keys() == GRAPHS.keys()


@every_network
def test_gradients_are_finite_differences(family: str) -> None:
    """Each weight is changed in a random direction."""
    model = forward(family)
    verify(model.program)
    check_gradients(model, inputs(model, 3))


@every_network
def test_without_training_a_network_has_no_targets(family: str) -> None:
    model = forward(family, training=False)
    verify(model.program)
    assert {piece.name for piece in model.inputs} < {piece.name for piece in forward(family).inputs}
    assert not any(op.kind in ("loss", "cross_entropy") for op in model.program.ops)


@every_network
def test_splitting_recomputing_and_sharing_mean_the_same(family: str) -> None:
    model = forward(family)
    given, whole = inputs(model, 5), Gradients()(model)
    split = Gradients(split_weights=True)(model)
    for how, before in product(Recompute, (whole, split)):
        changed = recomputing(how, before)
        same_meaning(whole, changed, given, 1e-9)
        same_meaning(whole, TensorParallel(2)(changed), given, 1e-9)


@every_network
def test_a_larger_batch_has_the_same_weights(family: str) -> None:
    """Their names are the same too."""
    one, two = (forward(family, micro_batch=size) for size in (2, 4))
    names = [[piece.name for piece in model.inputs] for model in (one, two)]
    assert names[0] == names[1]
    assert len(set(names[0])) == len(names[0])


@pytest.mark.parametrize("family", [name for name in SIZES if name != "resnet"])
def test_samples_are_apart(family: str) -> None:
    """Each output depends on one sample. The batch norms of a ResNet mix samples."""
    two, one = (forward(family, training=False, micro_batch=size) for size in (2, 1))
    given = inputs(two, 6)
    whole = {piece.name: array for piece, array in two.run(given)}
    for i in range(2):
        mine = {
            piece.name: given[piece.name][i : i + 1] if two.role_of(piece).batch_axis == 0 else given[piece.name]
            for piece in two.inputs
        }
        for piece, array in one.run(mine):
            np.testing.assert_allclose(array, whole[piece.name][i : i + 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", ["gpt", "llama", "moe", "mt5"])
def test_a_token_is_predicted_from_those_before(family: str) -> None:
    model = forward(family, training=False)
    given = inputs(model, 7)
    name = "decoder_tokens" if family == "mt5" else "tokens"
    changed = {**given, name: given[name].copy()}
    changed[name][:, -1] = 1 - given[name][:, -1]
    (_, before), (_, after) = model.run(given)[0], model.run(changed)[0]  # logits
    np.testing.assert_array_equal(before[:, :-1], after[:, :-1])
    assert (before[:, -1] != after[:, -1]).any()


def test_a_block_of_the_evoformer_computes_its_algorithms() -> None:
    """Computed from the supplementary algorithms, index by index."""
    model = forward("evoformer", training=False, blocks=1, micro_batch=1)
    given = inputs(model, 8)
    found = {piece.name: array[0] for piece, array in model.run(given)}

    def norm(name: str, x: Array) -> Array:
        scale, shift = (given[f"block0/{name}.{what}"] for what in ("scale", "shift"))
        centred = x - x.mean(axis=-1, keepdims=True)
        return np.asarray(centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * scale + shift)

    def linear(name: str, x: Array) -> Array:
        return np.asarray(x @ given[f"block0/{name}.weight"] + given.get(f"block0/{name}.bias", 0.0))

    def sigmoid(x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    def attention(part: str, x: Array, normed: Array, scores: str, values: str, bias: Array | None) -> Array:
        """Return attention over arrays with these einsum letters.

        Scores have shape [.., heads] over two indices, and weigh the values.
        """
        packed = linear(f"{part}/qkv", normed)
        q, k, v = np.moveaxis(packed.reshape(*packed.shape[:2], 2, 3, 2), 3, 0)
        logits = np.einsum(scores, q, k) / np.sqrt(2) + (0 if bias is None else bias)
        powers = np.exp(logits)
        mixed = np.einsum(values, powers / powers.sum(axis=2, keepdims=True), v).reshape(*x.shape[:2], 4)
        return x + linear(f"{part}/projection", mixed * sigmoid(linear(f"{part}/gate", normed)))

    def transition(part: str, x: Array) -> Array:
        return x + linear(f"{part}/down", np.maximum(linear(f"{part}/up", norm(f"{part}/norm", x)), 0))

    msa, pair = given["msa"][0], given["pair"][0]
    bias = linear("msa_rows/bias", norm("msa_rows/bias_norm", pair))[None]
    by_token = "sihc,sjhc->sijh", "sijh,sjhc->sihc"
    msa = attention("msa_rows", msa, norm("msa_rows/norm", msa), *by_token, bias)  # 7
    by_sequence = "sihc,tihc->isth", "isth,tihc->sihc"
    msa = attention("msa_columns", msa, norm("msa_columns/norm", msa), *by_sequence, None)  # 8
    msa = transition("msa_transition", msa)  # 9
    left, right = np.split(linear("outer_product/vectors", norm("outer_product/norm", msa)), 2, axis=-1)
    outer = np.einsum("sic,sjd->ijcd", left, right) / len(msa)
    pair = pair + linear("outer_product/projection", outer.reshape(*pair.shape[:2], -1))  # 10
    for name, terms in (("outgoing", "ikc,jkc->ijc"), ("incoming", "kic,kjc->ijc")):  # 11 and 12
        part = f"triangle_{name}"
        normed = norm(f"{part}/norm", pair)
        gated = linear(f"{part}/edges", normed) * sigmoid(linear(f"{part}/edge_gates", normed))
        update = np.einsum(terms, *np.split(gated, 2, axis=-1))
        update = linear(f"{part}/projection", norm(f"{part}/product_norm", update))
        pair = pair + update * sigmoid(linear(f"{part}/gate", normed))
    normed = norm("triangle_starting/norm", pair)
    bias = linear("triangle_starting/bias", normed)[None]  # over j and k, for each i
    pair = attention("triangle_starting", pair, normed, "ijhc,ikhc->ijkh", "ijkh,ikhc->ijhc", bias)  # 13
    normed = norm("triangle_ending/norm", pair)
    bias = linear("triangle_ending/bias", normed).swapaxes(0, 1)[None]  # over k and i, for each j
    pair = attention("triangle_ending", pair, normed, "ijhc,kjhc->jikh", "jikh,kjhc->ijhc", bias)  # 14
    pair = transition("pair_transition", pair)  # 15
    np.testing.assert_allclose(found["msa_out"], msa, rtol=1e-9)
    np.testing.assert_allclose(found["pair_out"], pair, rtol=1e-9)


@pytest.mark.parametrize("family", [name for name in SIZES if name != "mlp"])
def test_training_adds_operators_to_those_of_inference(family: str) -> None:
    spec = replace(GRAPHS[family].spec(), training=True, **({"blocks": 2} if family == "evoformer" else {}))
    training, inference = (set(build_graph(family, each).names) for each in (spec, replace(spec, training=False)))
    assert inference < training


@every_network
@pytest.mark.parametrize("seed", seeds(3))
def test_placed_anywhere_and_scheduled_it_means_the_same(family: str, seed: int) -> None:
    """Losses and every gradient agree, in any order of two micro-batches. Batch norms would mix the whole batch."""
    choose, mesh = Random(seed), find_mesh("h200-3")
    count = 1 if family == "resnet" else 2
    model = forward(family, micro_batch=2 // count)
    graph = costed(graph_of(Gradients()(model), family, 2 // count), mesh, CostOptions("fp32"))
    on = dict[str, tuple[int, ...]]()
    for each in graph.operators:
        on[each.name] = on[each.forward_of] if each.forward_of else (choose.randrange(3),)
    transfers = Transfers(mesh, Communication.OVERLAPPED)
    placement = Placement(graph, mesh.placement_devices, tuple(on[name] for name in graph.names), transfers)
    split = choose.random() < 0.5
    plan = plan_of(placement, split_weights=split)
    order = choose.choice(("list-scheduling", "sequential", "gpipe"))
    schedule = solve_schedule(order, plan, count).drawable
    assert schedule is not None
    found = placed_program(lambda apart: Gradients(split_weights=apart)(model), placement, schedule)
    whole = Gradients()(forward(family))
    same_meaning(whole, found, inputs(whole, seed), 1e-9)
    simulated = simulate(found.program, mesh).latency
    # In the schedule, branches wait for each other's block. In the program they only wait for their inputs.
    assert order == "sequential" or simulated >= schedule.makespan / 1e9 - 1e-9 * len(schedule.start)


@pytest.mark.parametrize("family", ["mt5", "flava", "swin", "evoformer"])
@pytest.mark.parametrize(
    "strategy",
    [Strategy(2, 1, 2, 2), Strategy(1, 1, 2, 4, "zb-h1", recompute=Recompute.FULL), Strategy(1, 1, 2, 4, "dualpipe")],
    ids=str,
)
def test_strategies_mean_the_same(family: str, strategy: Strategy) -> None:
    """Losses and every gradient agree. Batch norms would mix the whole batch."""
    more = {"channels": 32, "image": 64} if family == "swin" else {}
    known, work = find_family(family), NetworkWork(family, tiny(family, micro_batch=4, **more))
    whole = Gradients()(GRAPHS[family].program(work.options))
    given = inputs(whole, 3)
    given |= {f"{name}.{what}": np.zeros_like(given[name]) for name in list(given) for what in ("mean", "square")}
    spread = build_program(known, work, strategy, gradients=True)
    found = {piece.name for piece in spread.outputs}
    assert {f"d.{piece.name}" for piece in whole.inputs if whole.role_of(piece).weight} <= found
    kept = [place for place, piece in enumerate(spread.outputs) if piece.name in {each.name for each in whole.outputs}]
    program = replace(spread.program, outputs=tuple(spread.program.outputs[place] for place in kept))
    changed = replace(spread, program=program, outputs=tuple(spread.outputs[place] for place in kept))
    same_meaning(whole, changed, {**given, "step": np.array(1)}, 1e-8)  # some gradients are 0 except for rounding


@pytest.mark.parametrize("family", [name for name in GRAPHS if name not in ("gpt", "mlp")])
def test_every_family_is_simulated_and_says_what_it_cannot(family: str) -> None:
    known = find_family(family)
    size = {"evoformer": {"blocks": 2}}.get(family, {})
    spec, mesh = known.spec(batch=8, **size), find_mesh("h200-4")
    alone, two = (simulate_strategy(known, spec, Strategy(data), mesh).trace.latency for data in (1, 2))
    assert 0.45 * alone < two < 1.1 * alone  # the number of launches stays the same
    assert spec.layers > 1
    assert known.sizes_of(spec)["batch"] == 8
    assert "batch 8" in known.describe(spec)
    assert known.optimizer(known.spec(mode="inference")) is None
    with pytest.raises(InputError):
        known.spec(mode="prefill")
    with pytest.raises(InputError):
        known.spec(size="none")
    assert known.objection(spec, 7) != known.objection(spec, 1) == ""


def test_presets_of_all_families_have_different_names() -> None:
    names = Counter(name for family in GRAPHS.values() for name in family.presets)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_weight_name_that_is_used_twice_is_refused() -> None:
    net = Network("twice", "fp32")
    x = net.input("x", "fp32", (2, 4))
    net.linear("up", x, 8)
    with pytest.raises(InputError, match=r"^up.weight: is already an input of this network"):
        net.linear("up", x, 8)
