"""Decoders computed token by token and head by head, without our operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.distributed import Distributed
from tessel_core.networks.llama import LlamaSpec
from tessel_core.networks.moe import MoeSpec

Array = NDArray[np.float64]


def parameters(model: Distributed) -> int:
    """Return the number of parameters."""
    return sum(
        model.program.types[value].elements for value, piece in model.piece_of.items() if model.role_of(piece).weight
    )


def weights(model: Distributed, seed: int = 0) -> dict[str, Array]:
    """Return random weights; scales are about 1."""
    draw, found = np.random.default_rng(seed), dict[str, Array]()
    for value, piece in model.piece_of.items():
        shape = model.program.types[value].shape
        if model.role_of(piece).weight:
            found[piece.name] = draw.normal(1.0 if piece.name.endswith("scale") else 0.0, 0.5, shape)
    return found


def decoded(network: Callable[[Any], Distributed], spec: Any) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the outputs of one decoded token after a prefill, and the same outputs of the longer prefill."""
    whole, shorter, one = (
        replace(spec, **last) for last in ({}, {"sequence": spec.sequence - 1}, {"context": spec.sequence - 1})
    )
    w = weights(network(whole))
    tokens = np.random.default_rng(1).integers(0, spec.vocabulary, (2, spec.sequence))

    def run(model: Distributed, given: dict[str, Array]) -> dict[str, Array]:
        return {piece.name: array for piece, array in model.run({**w, **given})}

    wanted = run(network(whole), {"tokens": tokens})
    wanted["logits"] = wanted["logits"][:, -1:]
    before = run(network(shorter), {"tokens": tokens[:, :-1]})
    room = {name: np.pad(array, ((0, 0), (0, 1), (0, 0))) for name, array in before.items() if name != "logits"}
    return run(network(one), {**room, "tokens": tokens[:, -1:]}), wanted


def by_hand(spec: LlamaSpec, w: dict[str, Array], tokens: NDArray[np.int64]) -> Array:
    """Return the logits of every token."""
    return _ByHand(spec, w).logits(tokens)


class _ByHand:
    def __init__(self, spec: LlamaSpec, w: dict[str, Array]) -> None:
        self.spec, self.w, self.gemma = spec, w, spec.style == "gemma2"

    def norm(self, name: str, x: Array) -> Array:
        return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * self.w[f"{name}.scale"])

    def product(self, name: str, x: Array) -> Array:
        return np.asarray(x @ self.w[f"{name}.weight"] + self.w.get(f"{name}.bias", 0.0))

    def turned(self, x: Array) -> Array:
        """Apply rotary positions to x, shaped [batch, tokens, heads, size]."""
        half, out = x.shape[-1] // 2, x.copy()
        for t in range(x.shape[1]):
            for i in range(half):
                angle = t / self.spec.rotary_base ** (i / half)
                a, b = x[:, t, :, i], x[:, t, :, i + half]
                out[:, t, :, i] = a * np.cos(angle) - b * np.sin(angle)
                out[:, t, :, i + half] = b * np.cos(angle) + a * np.sin(angle)
        return out

    def logits(self, tokens: NDArray[np.int64]) -> Array:
        spec, w = self.spec, self.w
        x = w["embedding/tokens.table"][tokens] * (np.sqrt(spec.hidden) if self.gemma else 1.0)
        for layer in range(spec.layers):
            at = f"layer{layer}/attention"
            y = self.norm(f"{at}/norm", x)
            y = self.latent(at, y) if isinstance(spec, MoeSpec) and spec.latent else self.grouped(at, y, layer)
            y = self.product(f"{at}/projection", y)
            x = x + (self.norm(f"{at}/norm_behind", y) if self.gemma else y)
            at = f"layer{layer}/mlp"
            y = self.norm(f"{at}/norm", x)
            if isinstance(spec, MoeSpec) and layer >= spec.dense_layers:
                y = self.mixture(at, y, spec)
            else:
                y = self.product(f"{at}/projection", self.gated(at, y))
            x = x + (self.norm(f"{at}/norm_behind", y) if self.gemma else y)
        head = w["embedding/tokens.table"].T if spec.tied else w["head/projection.weight"]
        logits = self.norm("head/norm", x) @ head
        return np.asarray(30 * np.tanh(logits / 30) if self.gemma else logits)

    def gated(self, at: str, y: Array) -> Array:
        gate = self.product(f"{at}/gate", y)
        cube = np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))
        gate = gate * (1 + cube) / 2 if self.gemma else gate / (1 + np.exp(-gate))
        return np.asarray(gate * self.product(f"{at}/up", y))

    def attended(self, q: Array, k: Array, v: Array, window: int) -> Array:
        """Return grouped-query attention; inputs are shaped [batch, tokens, heads, size]."""
        mixed = np.zeros((*q.shape[:3], v.shape[-1]))
        for head in range(q.shape[2]):
            shared = head * k.shape[2] // q.shape[2]
            for t in range(q.shape[1]):
                seen = slice(max(0, t - window + 1), t + 1)
                scores = np.einsum("bc,bsc->bs", q[:, t, head], k[:, seen, shared]) / np.sqrt(q.shape[-1])
                powers = np.exp(50 * np.tanh(scores / 50) if self.gemma else scores)
                share = powers / powers.sum(axis=1, keepdims=True)
                mixed[:, t, head] = np.einsum("bs,bsc->bc", share, v[:, seen, shared])
        return mixed.reshape(*mixed.shape[:2], -1)

    def heads(self, x: Array, heads: int) -> Array:
        return x.reshape(*x.shape[:2], heads, -1)

    def grouped(self, at: str, y: Array, layer: int) -> Array:
        spec, parts = self.spec, list[Array]()
        for name, heads in (("queries", spec.heads), ("keys", spec.kv_heads), ("values", spec.kv_heads)):
            made = self.heads(self.product(f"{at}/{name}", y), heads)
            if name != "values":
                made = self.turned(self.norm(f"{at}/{name}_norm", made) if spec.qk_norm else made)
            parts.append(made)
        q, k, v = parts
        return self.attended(q, k, v, spec.window if spec.window and not (self.gemma and layer % 2) else len(y[0]))

    def latent(self, at: str, y: Array) -> Array:
        """Return multi-head latent attention [DeepSeek-AI 2024, arXiv 2405.04434, appendix C]."""
        spec = self.spec
        assert isinstance(spec, MoeSpec)
        plain = spec.head_size - spec.rotary_size
        low = self.norm(f"{at}/queries_norm", self.product(f"{at}/queries_down", y)) if spec.query_latent else y
        q = self.heads(self.product(f"{at}/queries", low), spec.heads)
        q = np.concatenate((q[..., :plain], self.turned(q[..., plain:])), axis=-1)
        both = self.product(f"{at}/latent", y)
        made = self.product(f"{at}/keys_values", self.norm(f"{at}/latent_norm", both[..., : spec.latent]))
        made = self.heads(made, spec.heads)
        rotated = np.repeat(self.turned(self.heads(both[..., spec.latent :], 1)), spec.heads, axis=2)
        k = np.concatenate((made[..., :plain], rotated), axis=-1)
        return self.attended(q, k, made[..., plain:], len(y[0]))

    def mixture(self, at: str, y: Array, spec: MoeSpec) -> Array:
        """Return the mixture of experts, computed token by token and expert by expert."""
        w, out = self.w, np.zeros_like(y)
        for place in np.ndindex(y.shape[:2]):
            x = y[place]
            scores = x @ w[f"{at}/router.weight"]
            if spec.router == "sigmoid":
                shares = 1 / (1 + np.exp(-scores))
                ranked = shares + w[f"{at}/router.bias"]
            else:
                ranked = shares = np.exp(scores) / np.exp(scores).sum()
            chosen = sorted(range(spec.experts), key=lambda e: -ranked[e])[: spec.active]
            for e in chosen:
                gate = x @ w[f"{at}/gate.weight"][e]
                gated = gate / (1 + np.exp(-gate)) * (x @ w[f"{at}/up.weight"][e])
                out[place] += shares[e] / shares[chosen].sum() * (gated @ w[f"{at}/down.weight"][e])
        return out + self.product(f"{at}/shared/projection", self.gated(f"{at}/shared", y)) if spec.shared else out
