"""Decoders like Llama's: published parameter counts, their meaning, and decoding after a prefill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.networks.llama import LLAMA, LlamaSpec, llama

Array = NDArray[np.float64]
PARAMETERS = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
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
"""As the published checkpoints have them, tied weights counted once."""
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


def parameters(model: Distributed) -> int:
    return sum(
        model.program.types[value].elements for value, piece in model.piece_of.items() if model.role_of(piece).weight
    )


def weights(model: Distributed, seed: int = 0) -> dict[str, Array]:
    draw, found = np.random.default_rng(seed), dict[str, Array]()
    for value, piece in model.piece_of.items():
        shape = model.program.types[value].shape
        if model.role_of(piece).weight:
            found[piece.name] = draw.normal(1.0 if piece.name.endswith("scale") else 0.0, 0.5, shape)
    return found


@pytest.mark.parametrize("preset", PARAMETERS)
def test_presets_have_the_published_parameters(preset: str) -> None:
    assert parameters(llama(replace(LLAMA.presets[preset], sequence=8))) == PARAMETERS[preset]


def test_every_preset_is_counted() -> None:
    assert PARAMETERS.keys() == LLAMA.presets.keys()


def by_hand(spec: LlamaSpec, w: dict[str, Array], tokens: NDArray[np.int64]) -> Array:
    """Logits, token by token and head by head, without any operator of the table."""

    def norm(name: str, x: Array) -> Array:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * w[f"{name}.scale"]

    def turned(x: Array) -> Array:
        half, out = spec.head_size // 2, x.copy()
        for t in range(x.shape[1]):
            for i in range(half):
                angle = t / spec.rotary_base ** (i / half)
                a, b = x[:, t, :, i], x[:, t, :, i + half]
                out[:, t, :, i] = a * np.cos(angle) - b * np.sin(angle)
                out[:, t, :, i + half] = b * np.cos(angle) + a * np.sin(angle)
        return out

    gemma = spec.style == "gemma2"
    x = w["embedding/tokens.table"][tokens] * (np.sqrt(spec.hidden) if gemma else 1.0)
    for layer in range(spec.layers):
        at = f"layer{layer}/attention"
        y, parts = norm(f"{at}/norm", x), dict[str, Array]()
        for name, heads in (("queries", spec.heads), ("keys", spec.kv_heads), ("values", spec.kv_heads)):
            made = y @ w[f"{at}/{name}.weight"] + w.get(f"{at}/{name}.bias", 0.0)
            made = made.reshape(*made.shape[:2], heads, spec.head_size)
            if name != "values":
                made = turned(norm(f"{at}/{name}_norm", made) if spec.qk_norm else made)
            parts[name] = made
        mixed = np.zeros_like(parts["queries"])
        window = spec.window if spec.window and not (gemma and layer % 2) else spec.sequence
        for head in range(spec.heads):
            shared = head * spec.kv_heads // spec.heads
            for t in range(x.shape[1]):
                seen = slice(max(0, t - window + 1), t + 1)
                scores = np.einsum("bc,bsc->bs", parts["queries"][:, t, head], parts["keys"][:, seen, shared])
                scores = scores / np.sqrt(spec.head_size)
                scores = 50 * np.tanh(scores / 50) if gemma else scores
                powers = np.exp(scores)
                share = powers / powers.sum(axis=1, keepdims=True)
                mixed[:, t, head] = np.einsum("bs,bsc->bc", share, parts["values"][:, seen, shared])
        y = mixed.reshape(*mixed.shape[:2], -1) @ w[f"{at}/projection.weight"]
        x = x + (norm(f"{at}/norm_behind", y) if gemma else y)
        at = f"layer{layer}/mlp"
        y = norm(f"{at}/norm", x)
        gate = y @ w[f"{at}/gate.weight"]
        cube = np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))
        gate = gate * (1 + cube) / 2 if gemma else gate / (1 + np.exp(-gate))
        y = gate * (y @ w[f"{at}/up.weight"]) @ w[f"{at}/projection.weight"]
        x = x + (norm(f"{at}/norm_behind", y) if gemma else y)
    head = w["embedding/tokens.table"].T if spec.tied else w["head/projection.weight"]
    logits = norm("head/norm", x) @ head
    return np.asarray(30 * np.tanh(logits / 30) if gemma else logits)


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
    whole, shorter, one = (
        replace(PLAIN, **changes, **last)  # type: ignore[arg-type]
        for last in ({}, {"sequence": PLAIN.sequence - 1}, {"context": PLAIN.sequence - 1})
    )
    w = weights(llama(whole))
    tokens = np.random.default_rng(1).integers(0, PLAIN.vocabulary, (2, PLAIN.sequence))
    wanted = {piece.name: array for piece, array in llama(whole).run({**w, "tokens": tokens})}
    before = {piece.name: array for piece, array in llama(shorter).run({**w, "tokens": tokens[:, :-1]})}
    room = {name: np.pad(array, ((0, 0), (0, 1), (0, 0))) for name, array in before.items() if name != "logits"}
    found = {piece.name: array for piece, array in llama(one).run({**w, **room, "tokens": tokens[:, -1:]})}
    np.testing.assert_allclose(found["logits"], wanted["logits"][:, -1:], rtol=1e-9)
    for name in room:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-9)


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
        ({"context": 3, "training": True}, "training takes whole sequences"),
    ],
)
def test_sizes_that_do_not_go_together(changes: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        GRAPHS["llama"].program(replace(PLAIN, **changes))  # type: ignore[arg-type]
