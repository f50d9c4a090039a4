"""Decoders like Llama: published parameter counts, their meaning, and decoding after a prefill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.decoders import by_hand, decoded, parameters, weights

from tessel_core.errors import InputError
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.networks.llama import LLAMA, LlamaSpec, llama

PARAMETERS = {
    **dict.fromkeys(("llama-3-8b", "llama-3.1-8b"), 8_030_261_248),
    **dict.fromkeys(("llama-3-70b", "llama-3.1-70b"), 70_553_706_496),
    **dict.fromkeys(("llama-3-405b", "llama-3.1-405b"), 405_853_388_800),
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "phi-3-mini": 3_821_079_552,
}
"""Parameters of the published checkpoints. Tied weights count once."""
PLAIN = LlamaSpec(
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
)


@pytest.mark.parametrize("preset", PARAMETERS)
def test_presets_have_the_published_parameters(preset: str) -> None:
    assert parameters(llama(replace(LLAMA.presets[preset], sequence=8))) == PARAMETERS[preset]


def test_every_preset_is_counted() -> None:
    assert PARAMETERS.keys() == LLAMA.presets.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qkv_bias": True, "tied": True},
        {"qk_norm": True, "kv_heads": 1},
        {"window": 2, "kv_heads": 4},
        {"style": "gemma2", "window": 3, "tied": True},
    ],
    ids=str,
)
def test_logits_equal_those_by_hand(changes: dict[str, object]) -> None:
    spec = replace(PLAIN, **changes)  # type: ignore[arg-type]
    model = llama(spec)
    w, tokens = weights(model), np.random.default_rng(1).integers(0, spec.vocabulary, (2, spec.sequence))
    found = {piece.name: array for piece, array in model.run({**w, "tokens": tokens})}
    np.testing.assert_allclose(found["logits"], by_hand(spec, w, tokens), rtol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"window": 3}, {"qk_norm": True}], ids=str)
def test_a_token_decoded_after_a_prefill_equals_the_longer_prefill(changes: dict[str, object]) -> None:
    found, wanted = decoded(llama, replace(PLAIN, **changes))  # type: ignore[arg-type]
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-9)


def test_a_graph_of_the_largest_is_built_by_operator() -> None:
    graph = build_graph("llama", replace(LLAMA.presets["llama-3.1-405b"], training=True))
    assert len(graph.operators) > 126 * 30
    forward = sum(each.flops or 0 for each in graph.operators if not each.backward)
    assert forward == pytest.approx(2 * 405.853e9 * 8192, rel=0.06)  # and attention


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kv_heads": 3}, "must divide the number of heads"),
        ({"tensor_parallel": 4}, "must divide the number of key-value heads"),
        ({"context": 3, "training": True}, "training uses whole sequences"),
    ],
)
def test_sizes_that_do_not_go_together(changes: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        GRAPHS["llama"].program(replace(PLAIN, **changes))  # type: ignore[arg-type]
