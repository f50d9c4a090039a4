"""Builders of operator graphs: published sizes, costs computed by hand, and measured activations."""

from __future__ import annotations

import csv
import json
from dataclasses import fields, replace
from statistics import median
from typing import Any

import pytest

from tessel_core.costs.costed import timed
from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.errors import InputError
from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.table import GRAPHS, build_graph, network_of
from tessel_core.options import Option, options_of
from tools.h200_rows import FILE

PRESETS = [(family.name, preset) for family in GRAPHS.values() for preset in family.presets]
every_preset = pytest.mark.parametrize(("family", "preset"), PRESETS)
BLOCK_ROUNDING = 2**20 + 2**10
"""PyTorch's allocator returns a large block whole if less than 1 MiB would remain, and otherwise in steps of 512 B."""


def built(family: str, preset: str = "", **changes: Any) -> OperatorGraph:
    spec = GRAPHS[family].presets[preset] if preset else GRAPHS[family].spec()
    return build_graph(family, replace(spec, **changes))


def parameters(graph: OperatorGraph, *prefixes: str) -> int:
    """Return the number of bf16 weights of the operators whose names begin with this prefix."""
    return sum((each.weight_bytes or 0) // 2 for each in graph.operators if each.name.startswith(prefixes or ("",)))


def flops(graph: OperatorGraph, *kinds: str) -> float:
    return sum(each.flops or 0 for each in graph.operators if not kinds or each.kind in kinds)


def measured_layers() -> list[tuple[tuple[int, ...], int, int, int]]:
    """Return the shape, FLOPs, parameters and activation bytes of each measured layer.

    A shape is (batch, sequence, hidden, heads, tensor-parallel degree).
    """
    with FILE.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == "layer_fwd"]
    extras = [json.loads(row["extra"]) for row in rows]
    shapes = [tuple(map(int, row["shape"].split("x"))) for row in rows]
    return [
        (shape, int(row["flops"]), extra["params"], extra["activation_bytes"])
        for shape, row, extra in zip(shapes, rows, extras, strict=True)
    ]


def test_a_gpt_layer_is_the_measured_one():
    """FLOPs and parameters equal those of the rows, and activations agree within 3 %.

    One layer is so small that rounding by the allocator is 7 % of it.
    """
    errors = []
    for (batch, sequence, hidden, heads, split), product_flops, count, kept in measured_layers():
        graph = built(
            "gpt",
            layers=1,
            hidden=hidden,
            heads=heads,
            sequence=sequence,
            positions=sequence,
            micro_batch=batch,
            tensor_parallel=split,
            training=True,
        )
        layer = [each for each in graph.operators if each.name.startswith("layer0/") and not each.backward]
        diagonal = 2 * batch * sequence * hidden // split  # the rows count half of the scores, without each token's own
        assert (
            sum(each.flops or 0 for each in layer if each.kind in ("matmul", "attention")) == product_flops + diagonal
        )
        assert sum(each.weight_bytes or 0 for each in layer) == 2 * count
        ours = sum(each.activation_bytes or 0 for each in layer)
        assert 0 <= kept - ours <= BLOCK_ROUNDING
        errors.append((kept - ours) / kept)
    assert len(errors) == 84
    assert sum(error > 0.03 for error in errors) <= 1
    assert median(errors) < 0.001


def test_a_graph_of_before_shows_its_network():
    """In old files, recomputation was a switch."""
    spec = GRAPHS["mlp"].spec(training=True, recompute="full")
    graph = build_graph("mlp", spec)
    before = replace(graph, network=graph.network.replace("recompute=full", "recompute=true"))
    assert network_of(before) == network_of(graph) == (GRAPHS["mlp"], spec)


@pytest.mark.parametrize(
    ("family", "preset", "count", "copies"),
    [
        ("gpt", "gpt2-small", 124_439_808, "head/projection"),
        ("gpt", "gpt2-medium", 354_823_168, "head/projection"),
        ("gpt", "gpt2-large", 774_030_080, "head/projection"),
        ("gpt", "gpt2-xl", 1_557_611_200, "head/projection"),
        ("mt5", "mt5-small", 300_176_768, "decoder_embedding"),
        ("mt5", "mt5-base", 582_401_280, "decoder_embedding"),
        ("mt5", "mt5-large", 1_229_581_312, "decoder_embedding"),
        ("mt5", "mt5-xl", 3_742_619_648, "decoder_embedding"),
        ("mt5", "mt5-xxl", 12_921_057_280, "decoder_embedding"),
        ("swin", "swin-t", 28_288_354, None),
        ("swin", "swin-s", 49_606_258, None),
        ("swin", "swin-b", 87_768_224, None),
        ("swin", "swin-l", 196_532_476, None),
        ("vit", "vit-b-16", 86_567_656, None),
        ("vit", "vit-b-32", 88_224_232, None),
        ("vit", "vit-l-16", 304_326_632, None),
        ("vit", "vit-l-32", 306_535_400, None),
        ("vit", "vit-h-14", 632_045_800, None),
        ("clip", "clip-b-32", 151_277_313, None),
        ("clip", "clip-b-16", 149_620_737, None),
        ("clip", "clip-l-14", 427_616_513, None),
        ("resnet", "resnet50", 25_557_032, None),
        ("resnet", "resnet101", 44_549_160, None),
        ("resnet", "resnet152", 60_192_808, None),
    ],
)
def test_presets_have_as_many_parameters_as_the_published_checkpoints(family, preset, count, copies):
    """[Hugging Face gpt2*, google/mt5-*; torchvision; timm]. A tied embedding counts once."""
    graph = built(family, preset)
    assert parameters(graph) - (parameters(graph, copies) if copies else 0) == count


@pytest.mark.parametrize(
    ("preset", "published"),
    [("gpt-6.7b", 6.7e9), ("gpt-13b", 13e9), ("gpt-66b", 65.7e9), ("gpt-175b", 175e9)],
)
def test_large_gpts_have_the_size_in_their_names(preset, published):
    graph = built("gpt", preset)
    assert parameters(graph) - parameters(graph, "head/projection") == pytest.approx(published, rel=0.015)


def test_the_image_encoder_of_flava_is_a_vit_without_its_classifier():
    """torchvision's vit_b_16 has 86,567,656 parameters, of which 769,000 are the classifier's."""
    assert parameters(built("flava"), "image") == 86_567_656 - 769_000
    assert parameters(built("flava"), "joint_embedding") == 2 * (768 * 768 + 768) + 768


def test_a_block_of_the_evoformer_has_the_parameters_of_its_algorithms():
    """Norms have 2 c. Gated attention has 4 products, two of them with biases. See the algorithms of the supplement."""
    msa, pair, msa_inner, pair_inner = 256, 128, 8 * 32, 4 * 32
    rows = 2 * pair + pair * 8 + 2 * msa + 4 * msa * msa_inner + msa_inner + msa * msa_inner + msa  # 7
    columns = 2 * msa + 4 * msa * msa_inner + msa_inner + msa * msa_inner + msa  # 8
    transitions = sum(2 * c + c * 4 * c + 4 * c + 4 * c * c + c for c in (msa, pair))  # 9 and 15
    outer = 2 * msa + msa * 64 + 64 + 32 * 32 * pair + pair  # 10
    products = 2 * (2 * pair + 2 * pair + 4 * (pair * pair + pair) + 2 * (pair * pair + pair))  # 11 and 12
    nodes = 2 * (2 * pair + pair * 4 + 5 * pair * pair_inner + pair_inner + pair)  # 13 and 14
    whole = rows + columns + transitions + outer + products + nodes
    assert parameters(built("evoformer"), "block7/") == whole
    assert 48 * whole == pytest.approx(88e6, rel=0.005)


@pytest.mark.parametrize(
    ("family", "preset", "published"),
    [
        ("resnet", "resnet50", 4.09e9),
        ("resnet", "resnet101", 7.80e9),
        ("resnet", "resnet152", 11.51e9),
        ("swin", "swin-t", 4.49e9),
        ("swin", "swin-s", 8.74e9),
        ("swin", "swin-b", 15.43e9),
    ],
)
def test_images_cost_the_published_multiplications(family, preset, published):
    """torchvision counts a multiplication and an addition as one."""
    assert flops(built(family, preset), "matmul", "conv", "attention") / 2 == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize("split", [2, 4])
def test_tensor_parallelism_divides_the_products(split):
    whole, part = (built("gpt", layers=2, vocabulary=1024, tensor_parallel=t, training=True) for t in (1, split))
    for kind in ("matmul", "attention", "matmul_backward", "attention_backward"):
        assert split * flops(part, kind) == flops(whole, kind) > 0
    assert flops(part, "cross_entropy") == flops(whole, "cross_entropy")  # logits are summed before
    reduces = [each for each in part.operators if each.kind == "all_reduce"]
    assert len(reduces) == 2 * 2 * 2 + 1  # twice per layer in each direction, and once for the logits
    assert all(each.kind != "all_reduce" for each in whole.operators)


@pytest.mark.parametrize("family", GRAPHS)
def test_every_family_is_divided_by_what_it_allows(family):
    split = 3 if family == "swin" else 2
    whole, part = built(family), built(family, tensor_parallel=split)
    kinds = ("matmul", "conv", "attention")
    assert flops(whole, *kinds) / split <= flops(part, *kinds) < flops(whole, *kinds)
    assert any(each.kind in ("all_reduce", "all_gather") for each in part.operators)


@every_preset
def test_every_preset_builds(family, preset):
    graph = built(family, preset)
    assert graph.name == family
    assert not graph.is_training
    assert all(each.activation_bytes is None and each.flops is not None for each in graph.operators)
    assert all(edge.bytes == graph.operator(edge.source).output_bytes for edge in graph.edges)


@pytest.mark.parametrize("family", GRAPHS)
def test_layers_take_what_their_operators_take(family):
    changes = {"training": True, "split_weights": True, **({"blocks": 6} if family == "evoformer" else {})}
    whole, layers = built(family, **changes), built(family, **changes, granularity="layers")
    known = timed(whole, [kind.device(name) for name, kind in DEVICE_KINDS.items()])
    assert 2 <= len(layers.operators) < len(whole.operators)
    assert set(layers.kinds) == set(DEVICE_KINDS)
    for kind in layers.kinds:
        of_layers, of_operators = (sum(each.time_on(kind) or 0 for each in g.operators) for g in (layers, known))
        assert of_layers == pytest.approx(of_operators)
    for what in ("flops", "bytes", "weight_bytes", "activation_bytes"):
        totals = [sum(getattr(each, what) or 0 for each in graph.operators) for graph in (whole, layers)]
        assert totals[0] == pytest.approx(totals[1])


@pytest.mark.parametrize("family", GRAPHS)
def test_every_number_is_an_option_and_says_so(family):
    spec = GRAPHS[family].spec
    assert all(isinstance(each.metadata["option"], Option) for each in fields(spec))
    assert all(shown.label and shown.help for shown, _ in options_of(spec).values())


def test_more_sequences_are_more_work_and_weights_stay():
    one, four = built("mt5"), built("mt5", micro_batch=4)
    assert flops(four) == 4 * flops(one)
    assert parameters(four) == parameters(one)
    assert (one.batch_size, four.batch_size) == (1, 4)


@pytest.mark.parametrize(
    ("family", "changes", "complaint"),
    [
        ("gpt", {"heads": 7}, "Heads: must divide the hidden size, which is 768, got 7"),
        ("gpt", {"tensor_parallel": 8}, "Tensor-parallel degree: must divide the number of heads, which is 12, got 8"),
        ("gpt", {"sequence": 2048}, "Sequence length: must be at most 1,024, the number of positions, got 2,048"),
        ("gpt", {"layers": 0}, "Layers: must be between 1 and 2000, got 0"),
        ("gpt", {"dtype": "int3"}, "Number format: must be one of fp32, tf32, bf16, fp16, fp8, got 'int3'"),
        ("gpt", {"recompute": "selective"}, "Recomputation: needs training, which is off"),
        ("mt5", {"heads": 6, "tensor_parallel": 4}, "Tensor-parallel degree: must divide the number of heads"),
        ("swin", {"image": 230}, "must divide the image side, which is 230, got 224"),
        ("flava", {"patch": 15}, "Patch side: must divide the image side, which is 224, got 15"),
        ("resnet", {"tensor_parallel": 3}, "Tensor-parallel degree: must divide the 64 channels of the stem"),
        ("mlp", {"width": 9, "tensor_parallel": 2}, "Tensor-parallel degree: must divide the width, which is 9, got 2"),
        ("evoformer", {"blocks": 120, "training": True}, "operators: the network has more than 20,000 operators"),
        ("gpt", {"layers": 2000, "training": True}, "operators: the network has more than 20,000 operators"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_said_in_one_sentence(family, changes, complaint):
    with pytest.raises(InputError) as error:
        built(family, **changes)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_network_is_named():
    with pytest.raises(InputError, match=r"^network: 'gtp' is not known, choose from gpt, llama, moe"):
        build_graph("gtp")
